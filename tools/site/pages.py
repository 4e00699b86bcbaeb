"""Hooks of mkdocs.yml: which pages the site has, and how docstrings are read.

The site has the layout of the repository, so that the links in its pages hold.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import sys
from pathlib import Path

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
_AS_THEY_ARE = ("*.md", "docs/**/*.md", "bench/results/*.png")
# Shown as pages of code, which the search leaves out.
_SOURCES = ("LICENSE", "examples/**/*.py", "examples/**/*.[ch]*", "tf_blockrnn/weights/layer.py")
_LANGUAGES = {"": "text", ".cc": "cpp", ".h": "c"}
# Folders that links lead to: each gets a page that lists its pages.
_FOLDERS = {"docs/adr": "Decisions", "docs/notes": "Measurements", "examples": "Examples"}
_MODULES = ("", "inference", "layers", "raw_ops", "weights")
# Pages of these folders come after the guides in the search.
_BEHIND = ("docs/adr/", "docs/notes/")


def _source_page(path: Path) -> str:
    language = _LANGUAGES.get(path.suffix, path.suffix[1:])
    code = f"``````{language}\n{path.read_text('utf-8').rstrip()}\n``````"
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path.name}\n\n{code}\n"


def on_config(config: MkDocsConfig) -> None:
    """Makes the raw ops, which TensorFlow generates, readable for Griffe."""
    sys.path.insert(0, str(ROOT))
    from tf_blockrnn import raw_ops

    for name in raw_ops.__all__:
        op = getattr(raw_ops, name)
        inner = inspect.unwrap(op)
        inner.__signature__ = op.__signature__
        inner.__module__, inner.__qualname__ = raw_ops.__name__, name


def on_files(files: Files, config: MkDocsConfig) -> None:
    texts = {}
    for pattern in _AS_THEY_ARE:
        for path in ROOT.glob(pattern):
            texts[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    for pattern in _SOURCES:
        for path in ROOT.glob(pattern):
            texts[f"{path.relative_to(ROOT).as_posix()}.md"] = _source_page(path)
    for folder, title in _FOLDERS.items():
        names = sorted(name.removeprefix(f"{folder}/") for name in texts if name.startswith(folder))
        links = [f"- [{name.removesuffix('.md')}]({name})\n" for name in names]
        texts[f"{folder}/index.md"] = f"# {title}\n\n{''.join(links)}"
    for name in _MODULES:
        module = importlib.import_module(f"tf_blockrnn.{name}".strip("."))
        members = [name for name in module.__all__ if name not in _MODULES]
        directive = f"::: {module.__name__}\n    options:\n      members: {members}\n"
        texts[f"api/{name or 'index'}.md"] = f"# {module.__name__}\n\n{directive}"
    for name, content in texts.items():
        files.append(File.generated(config, name, content=content))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to sources and folders to their pages."""
    here = page.file.src_uri
    if here.startswith(_BEHIND):
        # A word in a title weighs a thousand times one in a text.
        page.meta["search"] = {"boost": 1e-9}

    def with_page(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), found[1]))
        for end in (".md", "/index.md"):
            if files.get_file_from_path(target + end):
                return f"]({found[1]}{end})"
        return found[0]

    return re.sub(r"\]\(([^)\s#:]+)\)", with_page, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the full names of what the API reference has into links to it."""
    link = r'<autoref identifier="\1" optional><code>\1</code></autoref>'
    return re.sub(r"(?<!>)<code>(tf_blockrnn(?:\.\w+)+)</code>", link, html)


class Docstrings(griffe.Extension):
    """Gives sections of docstrings the names by which Griffe knows them."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = text.replace("Call arguments:\n", "Other Parameters: Call arguments\n")
            obj.docstring.value = text

    def on_attribute_instance(
        self, *, node: griffe.ObjectNode, attr: griffe.Attribute, **_: object
    ) -> None:
        """Drops what an object has from its type, and how Python stores a field of a class."""
        if attr.docstring and attr.docstring.value == inspect.getdoc(type(node.obj)):
            attr.docstring = None
        if attr.parent.is_class:
            attr.value = None
