"""The examples of docs/inference.md print what they say."""

from __future__ import annotations

import pytest
from helpers.children import ROOT
from helpers.markdown import promised, python_blocks, run_block

pytestmark = pytest.mark.docs

PAGE = (ROOT / "docs" / "inference.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(PAGE)


def test_there_are_examples():
    assert len(BLOCKS) == PAGE.count("```python") == 3


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_examples_print_what_they_say(number):
    lines = run_block(BLOCKS[number], f"<example {number + 1} of inference.md>")
    assert lines == promised(BLOCKS[number])
