"""An exception within a kernel, or of the thread pool below it, ends neither the process nor the
program that XLA compiled: it is the op's error, or the work is done without that thread."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from helpers.children import PROGRAMS, assert_ok, run_python


@pytest.fixture(scope="module")
def throwing(tmp_path_factory):
    """The library that makes them throw."""
    library = tmp_path_factory.mktemp("throwing") / "libthrowing.so"
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run([*compiler, PROGRAMS / "throwing.cc", "-o", library, "-ldl"], check=True)
    return library


# XLA schedules within TensorFlow (tests/cpp/xla/ffi_call_test.cc).
@pytest.mark.parametrize(
    ("what", "runs"), [("allocations", {"eager", "graph", "XLA"}), ("pool", {"eager", "graph"})]
)
def test_exceptions_stay_inside(throwing, what, runs):
    child = run_python(
        [str(PROGRAMS / "throwing_child.py"), str(throwing), what],
        fresh=True,
        LD_PRELOAD=str(throwing),
    )
    counts = json.loads(assert_ok(child, what).splitlines()[-1])
    assert {name for name, count in counts.items() if count > 0} == runs, counts
