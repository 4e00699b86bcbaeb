"""python tools/docs.py [--output FOLDER]: the API reference as static HTML, from the docstrings.

It documents all names reachable from `tf_blockrnn.__all__`, so a new public module needs no line
here.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jinja2
import pdoc
import tensorflow as tf
from pdoc import render

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tf_blockrnn"

_EXAMPLE = re.compile(r"^Examples?:\n((?:[ \t]+.*\n|\n)+)", re.MULTILINE)


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


def fence_examples(docstring: str) -> str:
    """Turns the examples into code blocks, which Markdown would render as nested quotations."""

    def block(found: re.Match[str]) -> str:
        code = textwrap.dedent(found[1]).strip()
        return f"###### Example\n\n```pycon\n{code}\n```\n\n"

    return _EXAMPLE.sub(block, docstring + "\n")


def write(folder: Path) -> list[str]:
    """Writes the pages and returns the modules that have one; pdoc's warnings are errors."""
    modules = list(public_modules())
    to_markdown = render.env.filters["to_markdown"]

    @jinja2.pass_context
    def with_examples(context: jinja2.runtime.Context, docstring: str) -> str:
        return to_markdown(context, fence_examples(docstring))

    render.env.filters["to_markdown"] = with_examples
    render.configure(docformat="google", show_source=False, footer_text=PACKAGE)
    # Types are shown as users write them; pdoc evaluates the annotations of a NamedTuple as text.
    sys.modules["tf"] = tf
    for kind in (tf.DType, tf.Tensor, tf.Variable):
        kind.__module__ = "tf"
    shutil.rmtree(folder, ignore_errors=True)
    wanted = "|".join(re.escape(name) for name in modules)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The package's folder also has private modules, and libraries that are no Python modules.
        pdoc.pdoc(PACKAGE, f"!(?!({wanted})$)", output_directory=folder)
    return modules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "api")
    folder = parser.parse_args().output
    sys.path.insert(0, str(ROOT))
    modules = write(folder)
    print(f"{len(modules)} modules: {folder / 'index.html'}")


if __name__ == "__main__":
    main()
