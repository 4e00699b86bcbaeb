"""Mutations of real files of weights, of all formats: each is read or refused, in little memory.

For more of them: python tests/helpers/programs/fuzz_files_child.py torch,onnx SEED 0 10000 FOLDER,
with the folders . and tests in PYTHONPATH.
"""

from __future__ import annotations

import json

import pytest
from helpers.children import PROGRAMS, assert_ok, run_python
from helpers.file_mutations import FORMATS


def read_cases(kinds: str, number: int) -> None:
    """Reads so many cases of each format; fails with those that end otherwise."""
    arguments = [str(PROGRAMS / "fuzz_files_child.py"), kinds, "1", "0", str(number)]
    *wrong, ends = assert_ok(run_python(arguments), "the fuzzer").splitlines()
    assert not wrong, "\n".join(wrong)
    ends = json.loads(ends)
    assert sum(ends.values()) == number * len(kinds.split(","))
    assert ends["(read)"] and ends["(ValueError)"]  # or it would not be between


def test_some_of_each_format():
    read_cases(",".join(FORMATS), 12)


@pytest.mark.types
@pytest.mark.parametrize("kind", FORMATS)
def test_many_of_a_format(kind):
    read_cases(kind, 400)
