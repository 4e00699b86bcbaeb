"""Which tier each test belongs to: the verbs of the Makefile run one tier or all but the first.

A test belongs to the tier of its mark, else of its folder, else of its parameters; all others are
`core`, which `make test` runs. So a test that has every mode and type as parameters is core in
eager mode and graphs and in float32 and bfloat16, and its other cases run in `make test-full`.
"""

from __future__ import annotations

import pathlib

import pytest

_TESTS = pathlib.Path(__file__).resolve().parent

# The marks, which pyproject.toml declares.
TIERS = ("core", "xla", "types", "isa", "tf_keras", "packages", "docs", "gpu")
_FOLDERS = {
    "xla": "xla",
    "cuda": "gpu",
    "legacy_keras": "tf_keras",
    "benchmarks": "docs",
}
# By parameter, whatever its name.
_XLA = {"jit"}
_TYPES = {"half", "float16", "double", "float64"}
# The modes of malformed calls beside the eager one.
_TYPES |= {"static", "unknown"}
# Derivatives are compared with finite differences, which need double.
_DOUBLE_IS_CORE = "gradients"


def _parameters(item: pytest.Item) -> set[str]:
    """The parameters that are text or types, as text, and the names of those that are True."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    switched_on = {name for name, value in given.items() if value is True}
    return switched_on | {
        value if isinstance(value, str) else getattr(value, "name", "") for value in given.values()
    }


def tier_of(item: pytest.Item) -> str:
    """The tier of a test; an error where it has the marks of several."""
    marked = sorted({mark.name for mark in item.iter_markers()} & set(TIERS))
    if len(marked) > 1:
        raise pytest.UsageError(f"{item.nodeid} is of several tiers: {', '.join(marked)}")
    if marked:
        return marked[0]
    folder = item.path.relative_to(_TESTS).parts[0]
    if folder in _FOLDERS:
        return _FOLDERS[folder]
    parameters = _parameters(item)
    if parameters & _XLA:
        return "xla"
    if parameters & _TYPES and folder != _DOUBLE_IS_CORE:
        return "types"
    return "core"
