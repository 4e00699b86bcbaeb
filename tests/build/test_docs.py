"""Every public name of the package has an example in its docstring, which runs as shown."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest
from helpers import children

pytestmark = pytest.mark.docs

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

# Public modules and names without an example, each with the reason. A module covers its names.
WITHOUT: dict[str, str] = {}


def _modules():
    """By their files: the package's folder also holds libraries that are no Python modules."""
    files = (children.ROOT / "tf_blockrnn").rglob("*.py")
    names = {".".join(f.relative_to(children.ROOT).with_suffix("").parts) for f in files}
    # Importing a program runs it.
    return sorted({n.removesuffix(".__init__") for n in names if not n.endswith(".__main__")})


MODULES = _modules()
PUBLIC = [name for name in MODULES if "._" not in name]


@pytest.mark.parametrize("name", MODULES)
def test_examples(tfb, name):
    """They run; a public module has one, unless it is listed with a reason."""
    del tfb
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=FLAGS)
    assert outcome.failed == 0, f"{outcome.failed} of {outcome.attempted} examples in {name} fail"
    if name in PUBLIC:
        assert (outcome.attempted > 0) != (name in WITHOUT), f"{outcome.attempted} in {name}"


def _own_names(module) -> dict[str, object]:
    """The public functions and classes that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == module.__name__
    }


def _has_example(value) -> bool:
    """In its own docstring, or in that of a method."""
    own = [value, *(vars(value).values() if inspect.isclass(value) else ())]
    return any(">>>" in (getattr(one, "__doc__", None) or "") for one in own)


@pytest.mark.parametrize("name", [name for name in PUBLIC if name not in WITHOUT])
def test_public_names_have_examples(tfb, name):
    del tfb
    found = _own_names(importlib.import_module(name))
    # TensorFlow generates the raw ops from their definitions; the module says how they are called.
    if name != "tf_blockrnn.raw_ops":
        missing = {f"{name}.{key}" for key, value in found.items() if not _has_example(value)}
        listed = {one for one in WITHOUT if one.rpartition(".")[0] == name} - set(MODULES)
        assert missing == listed, "examples are missing, or are listed as missing and are not"


def test_every_name_of_a_package_is_of_a_public_module_or_has_an_example(tfb):
    """What is re-exported must be covered where it is defined."""
    del tfb
    names = ("tf_blockrnn", *(f"tf_blockrnn.{name}" for name in ("inference", "layers", "weights")))
    for package in names:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                home = value.__module__
                covered = home in PUBLIC or _has_example(value) or f"{home}.{name}" in WITHOUT
                assert covered, f"{package}.{name} of {home}"
