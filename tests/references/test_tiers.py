"""Every test is of one tier, by its mark, its folder or its parameters."""

from __future__ import annotations

import types

import pytest
import tiers
from helpers.children import TESTS


def item(path="ops/test_a.py", marks=(), **parameters):
    made = types.SimpleNamespace(path=TESTS / path, nodeid=path)
    made.iter_markers = lambda: [types.SimpleNamespace(name=name) for name in marks]
    if parameters:
        made.callspec = types.SimpleNamespace(params=parameters)
    return made


@pytest.mark.parametrize(
    "given, tier",
    [
        (item(), "core"),
        (item(mode="eager", dtype="bfloat16"), "core"),
        (item(mode="jit", dtype="half"), "xla"),
        (item(jit=True), "xla"),
        (item(jit=False), "core"),
        (item(dtype="double"), "types"),
        (item("gradients/test_a.py", dtype="double"), "core"),
        (item(mode="unknown"), "types"),
        (item("xla/test_a.py"), "xla"),
        (item("legacy_keras/test_a.py", mode="jit"), "tf_keras"),
        (item("xla/test_a.py", ["parametrize", "docs"]), "docs"),
        (item(marks=["types", "types"]), "types"),
    ],
)
def test_the_tier_follows_from_mark_folder_and_parameters(given, tier):
    assert tiers.tier_of(given) == tier


def test_two_tiers_are_an_error():
    with pytest.raises(pytest.UsageError, match="several tiers: docs, xla"):
        tiers.tier_of(item(marks=["xla", "docs"]))
