"""The examples of docs/keras_2.md run, and print what the page says."""

from __future__ import annotations

import pytest
from helpers.children import ROOT
from helpers.markdown import promised, python_blocks, run_block

BLOCKS = python_blocks((ROOT / "docs" / "keras_2.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_examples_run_and_print_what_they_say(tfb, tmp_path, monkeypatch, number):
    del tfb
    monkeypatch.chdir(tmp_path)
    code = BLOCKS[number]
    assert run_block(code, f"<example {number + 1} of docs/keras_2.md>") == promised(code)
