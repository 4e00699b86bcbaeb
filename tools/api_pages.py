"""The API reference as Markdown: a page for each public module, from its docstrings.

It documents all names reachable from `tf_blockrnn.__all__`, so a new public module needs no line
here.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType

import pdoc.doc
import pdoc.docstrings
import tensorflow as tf

PACKAGE = "tf_blockrnn"

# Sections that list names, beside those of Google's style.
pdoc.docstrings.GOOGLE_LIST_SECTIONS.append("Call arguments")
_EXAMPLE = re.compile(r"^Examples?:\n((?:[ \t]+.*\n|\n)*)", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*\n(?:.+\n)*", re.MULTILINE)
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)


def public_modules(name: str = PACKAGE) -> Iterator[str]:
    """The module and the modules in its __all__, recursively.

    Lazily imported members are imported here, since pdoc reads only the module's dict.
    """
    module = importlib.import_module(name)
    yield name
    for member in module.__dict__.get("__all__", ()):
        value = getattr(module, member)
        vars(module)[member] = value
        if hasattr(value, "__signature__"):  # pdoc reads that of the wrapped function
            inspect.unwrap(value).__signature__ = value.__signature__
        if isinstance(value, ModuleType):
            yield from public_modules(f"{name}.{member}")


def page_of(module: str) -> str:
    """The name of a module's page."""
    return f"{module.removeprefix(PACKAGE).strip('.') or 'index'}.md"


def markdown(docstring: str) -> str:
    """A docstring of Google's style as Markdown: sections as lists, examples as code."""

    def heading(found: re.Match[str]) -> str:
        return f"**Example**\n\n{textwrap.dedent(found[1]).strip()}\n"

    text = _EXAMPLE.sub(heading, inspect.cleandoc(docstring) + "\n")
    text = _DOCTEST.sub(lambda found: f"```pycon\n{found[0]}```\n", text)
    text = pdoc.docstrings.convert(text, "google", None)
    # Its headings would be sections of the page, and of the search.
    text = re.sub(r"^#{6} (.+)$", r"**\1**\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ - \*\*(.+?):\*\*", r" - `\1`:", text, flags=re.MULTILINE)
    parts = _CODE.split(text)
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "".join(parts).strip()


def _signature(name: str, function: pdoc.doc.Function) -> str:
    signature = function.signature
    own = [p for p in signature.parameters.values() if p.name not in ("self", "_cls")]
    signature = signature.replace(parameters=own)
    return f"```python\n{name}{signature}\n```"


def _variable(name: str, variable: pdoc.doc.Variable) -> str:
    """One item of a list: name, type, value and the docstring's first paragraph."""
    kind = variable.annotation_str.removeprefix(": ").strip()
    value = variable.default_value_str.removeprefix(" = ").strip()
    shown = f"`{name}`" + (f": `{kind}`" if kind else "") + (f" = `{value}`" if value else "")
    text = " ".join(markdown(variable.docstring).split("\n\n")[0].split())
    return f"- {shown}" + (f". {text}" if text else "")


def _members(module: str, value: pdoc.doc.Class) -> list[str]:
    """The public methods and variables that a class defines."""
    public = [m for m in value.own_members if not m.name.startswith("_")]
    variables = [m for m in public if isinstance(m, pdoc.doc.Variable)]
    parts = ["\n".join(_variable(m.name, m) for m in variables)] if variables else []
    for member in public:
        if isinstance(member, pdoc.doc.Function):
            parts += [
                f"### {value.name}.{member.name} {{ #{value.name}.{member.name} }}",
                _signature(member.name, member),
                markdown(member.docstring),
            ]
    return parts


def _member(module: str, name: str, member: pdoc.doc.Doc | None) -> list[str]:
    """The section of one public name."""
    # Python-Markdown would make __name__ bold, and derives the same anchor by itself.
    dunder = name.startswith("__")
    heading = "## " + (name.replace("_", r"\_") if dunder else f"{name} {{ #{name} }}")
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, ModuleType):
        page = page_of(f"{module}.{name}")
        summary = inspect.cleandoc(value.__doc__ or "").split("\n\n")[0]
        return [heading, f"Module: [{module}.{name}]({page}). {markdown(summary)}"]
    if isinstance(member, pdoc.doc.Class):
        constructor = member.members.get("__init__")
        shown = [_signature(name, constructor)] if constructor is not None else []
        return [heading, *shown, markdown(member.docstring), *_members(module, member)]
    if isinstance(member, pdoc.doc.Function):
        return [heading, _signature(name, member), markdown(member.docstring)]
    if isinstance(member, pdoc.doc.Variable):
        return [heading, _variable(name, member)]
    raise TypeError(f"{module}.{name} is no module, class, function or variable: {value!r}")


def _with_links(text: str, places: dict[str, str]) -> str:
    """Turns the full names of documented things in code font into links to them."""

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[`{name}`]({places[name]})" if name in places else found[0]

    parts = re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"(?<!\[)`([\w.]+)`", link, part) for part in parts[::2]]
    return "".join(parts)


def pages() -> dict[str, str]:
    """The pages' Markdown by their names."""
    # Types are shown as users write them; pdoc evaluates the annotations of a NamedTuple as text.
    sys.modules["tf"] = tf
    for kind in (tf.DType, tf.Tensor, tf.Variable):
        kind.__module__ = "tf"
    modules = {name: pdoc.doc.Module(importlib.import_module(name)) for name in public_modules()}
    places = {name: page_of(name) for name in modules}
    texts = {}
    for name, module in modules.items():
        parts = [f"# {name}", markdown(module.docstring)]
        for member in importlib.import_module(name).__all__:
            places.setdefault(f"{name}.{member}", f"{page_of(name)}#{member}")
            parts += _member(name, member, module.members.get(member))
        texts[name] = "\n\n".join(part for part in parts if part) + "\n"
    return {page_of(name): _with_links(text, places) for name, text in texts.items()}
