"""Runs `python -m tf_blockrnn convert` in this process, in the folder that is the current one."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

from helpers import weight_stacks
from helpers.weight_stacks import Stack
from tf_blockrnn.weights import npz

Run = Callable[[str], tuple[int, str, str]]


def runner(capsys) -> Run:
    """A function from the command's arguments to its exit status, output and errors."""
    from tf_blockrnn._cli import convert

    def run(line: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            status = convert.main(line.split())
        except SystemExit as end:  # argparse's way
            status = end.code
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


def converted(convert: Run, line: str) -> str:
    """The output of a command that must succeed."""
    status, output, errors = convert(line)
    assert (status, errors) == (0, "")
    return output


def read(convert: Run, line: str):
    """The weights in out.npz, which a command that must succeed writes."""
    converted(convert, line)
    return npz.from_npz("out.npz")


def refused(convert: Run, line: str, status: int, words: str) -> None:
    """That the command fails with this status and words, and leaves no file behind.

    It reports what is wrong with a file in one line.
    """
    before = sorted(pathlib.Path().iterdir())
    got, output, errors = convert(line)
    assert (got, output) == (status, ""), errors
    assert re.search(words, errors), errors
    assert "Traceback" not in errors
    assert status != 1 or errors.count("\n") == 1, errors
    assert sorted(pathlib.Path().iterdir()) == before


def make(stack: Stack, path: str = "in.npz"):
    """Weights, which it writes to a file."""
    described = weight_stacks.random_weights(stack)
    npz.to_npz(described, path)
    return described


def damage(path: str | pathlib.Path, mark: bytes, offset: int, value: int) -> None:
    """Gives the byte that far behind the last such mark another value."""
    data = bytearray(pathlib.Path(path).read_bytes())
    place = data.rindex(mark) + offset
    assert data[place] != value
    data[place] = value
    pathlib.Path(path).write_bytes(data)
