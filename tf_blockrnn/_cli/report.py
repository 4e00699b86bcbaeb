"""The lines of the doctor's report: their format, and those that need no working ops."""

from __future__ import annotations

import importlib
import platform
import sys
from collections.abc import Iterable

from tf_blockrnn import _loader
from tf_blockrnn._version import VERSION


def show(lines: Iterable[tuple[str, str]]) -> None:
    """Prints names and values.

    Example:
      >>> from tf_blockrnn._cli import report
      >>> report.show([("compiler", "g++ 12")])
      compiler         g++ 12
    """
    for name, value in lines:
        print(f"{name:<16} {value}")


def failure(error: Exception) -> str:
    """The text of an error for a line of the report."""
    return f"FAILED: {type(error).__name__}: {error}"


def _version(module: str) -> str:
    try:
        return importlib.import_module(module).__version__
    except Exception as error:  # a broken package raises anything
        return failure(error)


def versions() -> list[tuple[str, str]]:
    """The installed versions, and the TensorFlow that the libraries were built for."""
    built_for = _loader.built_for()
    built = f"built for {built_for}" if built_for else "nothing is built"
    return [
        ("tf_blockrnn", VERSION),
        ("Python", f"{platform.python_version()} at {sys.executable}"),
        ("TensorFlow", f"{_version('tensorflow')}, {built}"),
        ("Keras, NumPy", f"{_version('keras')}, {_version('numpy')}"),
    ]
