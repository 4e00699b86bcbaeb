"""What pip and build call (PEP 517): setuptools, and before it Bazel, which makes the libraries.

The libraries are built for the TensorFlow of the Python that PYTHON_BIN_PATH names; else of the
environment that the package is installed into; else of the build's own environment, which then
gets one as a build requirement.

In a folder of its own, which is on sys.path during the build: tools/wheel.py is not the wheel that
setuptools imports.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

ROOT = Path(__file__).resolve().parents[2]
_PYTHON = "PYTHON_BIN_PATH"
# What pip sets in the environment of an isolated build.
_ISOLATION = ("PYTHONPATH", "PYTHONNOUSERSITE")
_HAS_TENSORFLOW = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tensorflow'))"


def _sources_are_here() -> bool:
    """False in a tree of built libraries (tools/wheel.py)."""
    return (ROOT / "WORKSPACE").exists()


def _outside() -> dict[str, str]:
    """The environment variables of whoever called pip."""
    return {name: value for name, value in os.environ.items() if name not in _ISOLATION}


def find_tensorflow() -> tuple[str, dict[str, str]] | None:
    """A Python that has TensorFlow already, and the environment variables to run it with."""
    for python in (os.environ.get(_PYTHON), sys.executable):
        if not python:
            continue
        found = subprocess.run([python, "-c", _HAS_TENSORFLOW], env=_outside(), check=False)
        if found.returncode == 0:
            return python, _outside()
        if python == os.environ.get(_PYTHON):
            sys.exit(f"{python}, which {_PYTHON} names, has no TensorFlow to build against.")
    return None


@contextlib.contextmanager
def _shown() -> Iterator[TextIO | None]:
    """Where somebody sees progress that lasts minutes: pip keeps the output to itself without -v.

    The terminal that pip was started from, or the output where there is none.
    """
    try:
        terminal = open("/dev/tty", "w")
    except OSError:
        yield None
        return
    with terminal:
        yield terminal


def _build_libraries() -> None:
    if not _sources_are_here():
        return
    if not (shutil.which("bazel") or shutil.which("bazelisk")):
        sys.exit(
            "tf_blockrnn is compiled with Bazel, which is missing: install bazel-bootstrap (Debian,"
            " Ubuntu: apt-get install bazel-bootstrap g++) or bazelisk."
        )
    python, environment = find_tensorflow() or (sys.executable, dict(os.environ))
    command = [python, str(ROOT / "tools" / "build.py")]
    with _shown() as output:
        # Errors go to pip, which shows its output if the build fails.
        built = subprocess.run(command, env=environment, stdout=output, check=False)
    if built.returncode:
        sys.exit("tf_blockrnn was not compiled; the reason is above (pip shows it with -v).")


def tensorflow_requirements() -> list[str]:
    if not _sources_are_here() or find_tensorflow():
        return []
    # The same code without its CUDA part, for x86-64 only.
    package = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
    return [f"{package}>=2.19,<2.22"]


def get_requires_for_build_wheel(config_settings=None):
    return [*build_meta.get_requires_for_build_wheel(config_settings), *tensorflow_requirements()]


def get_requires_for_build_editable(config_settings=None):
    return [
        *build_meta.get_requires_for_build_editable(config_settings),
        *tensorflow_requirements(),
    ]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_libraries()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_libraries()
    return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
