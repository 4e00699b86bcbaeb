"""The examples in the package's docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest
from helpers import children

# Programs, not documentation: importing them runs them.
_NOT_IMPORTED = {"tf_blockrnn.__main__"}


def _modules():
    """By their files: the package's folder also holds libraries that are no Python modules."""
    files = (children.ROOT / "tf_blockrnn").rglob("*.py")
    names = {".".join(f.relative_to(children.ROOT).with_suffix("").parts) for f in files}
    return sorted({n.removesuffix(".__init__") for n in names} - _NOT_IMPORTED)


MODULES = _modules()
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", MODULES)
def test_examples(tfb, name):
    del tfb
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=FLAGS)
    assert outcome.failed == 0, f"{outcome.failed} of {outcome.attempted} examples in {name} fail"


def test_public_functions_have_examples(tfb):
    """Each public function of the op modules says how it is called."""
    missing = []
    for module, names in {
        "gru_block_cell": ["gru_block_cell"],
        "lstm_block_cell": ["lstm_block_cell"],
        "block_gru": ["block_gru"],
        "block_lstm": ["block_lstm", "block_lstm_v2"],
        "sequences": ["gru", "lstm"],
        "raw_ops": [],
    }.items():
        found = importlib.import_module(f"tf_blockrnn.{module}")
        documented = [getattr(found, n) for n in names] or [found]
        missing += [module for d in documented if ">>>" not in (d.__doc__ or "")]
    assert not missing
    assert ">>>" in tfb.build_info.__doc__
