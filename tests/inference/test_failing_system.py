"""Sessions where the system gives no threads or no memory, and where the library itself fails."""

from __future__ import annotations

import ast
import shutil
import subprocess

import pytest
from helpers.children import PROGRAMS, assert_ok, run_python

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("c")]

_FAILURES = """
import ctypes

threads_left, new_throws = (
    ctypes.c_int.in_dll(ctypes.CDLL(None), name) for name in ("threads_left", "new_throws")
)
"""
_CHILD = """
import os
import time

import numpy as np

from tf_blockrnn import weights
from tf_blockrnn.inference import Session, _library

one = weights.DirectionWeights(np.ones([3, 5, 4], np.float32), np.ones([3, 4, 4], np.float32))
gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
x = np.ones([2, 7, 5])
want, _ = Session(gru).run(x)
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """What is preloaded into a child."""
    made = tmp_path_factory.mktemp("failing") / "failing.so"
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "there is no C++ compiler, which the build needs too"
    command = [compiler, "-std=c++17", "-shared", "-fPIC", PROGRAMS / "failing.cc", "-ldl"]
    done = subprocess.run([*command, "-o", made], capture_output=True, text=True, check=False)
    assert_ok(done, "the compiler")
    return str(made)


def _printed(failing, code, child=_CHILD):
    done = run_python(["-c", _FAILURES + child + code], fresh=True, timeout=120, LD_PRELOAD=failing)
    return ast.literal_eval(assert_ok(done, "the child"))


def test_threads_that_do_not_start(failing):
    """An error, which ends those that did start; what it says can be had is."""
    code = """
def running(wanted):
    # The system lists a thread for a moment after its end.
    for _ in range(1000):
        count = len(os.listdir("/proc/self/task"))
        if count == wanted:
            break
        time.sleep(0.01)
    return count

before, found = len(os.listdir("/proc/self/task")), []
for threads in (8, 4):
    threads_left.value = 3
    try:
        session = Session(gru, threads=threads)
        found.append((running(before + 3) - before, bool((session.run(x)[0] == want).all())))
    except RuntimeError as error:
        found.append((running(before) - before, str(error)))
print(found)
"""
    text = (
        "Session: threads must be at most 4 here, got 8: the system started 3 of the 7 threads "
        "beside the calling one, then reported: Resource temporarily unavailable"
    )
    assert _printed(failing, code) == [(0, text), (3, True)]


@pytest.mark.parametrize(
    "throws, error, text",
    [
        (1, "MemoryError", "there is no memory for it"),
        (2, "RuntimeError", "an error of the library: this is one"),
        (3, "RuntimeError", "an error of the library: an exception of an unknown type"),
    ],
)
def test_exceptions_end_in_the_library(failing, throws, error, text):
    code = f"""
create, model = _library.library().blockrnn_session_create, _library.described(gru)
handle = ctypes.c_void_p()
arguments = ctypes.byref(model), 0, 1, ctypes.byref(handle)
new_throws.value = {throws}
code = create(*arguments)
new_throws.value = 0
try:
    _library.check("create", code)
except Exception as raised:
    print((type(raised).__name__, str(raised)))
"""
    assert _printed(failing, code) == (error, f"create: {text}")


@pytest.mark.parametrize("throws", [1, 2, 3])
def test_texts_without_memory(failing, throws):
    code = f"""
from tf_blockrnn.inference import _library

def text(name, throws):
    function = getattr(_library.library(), "blockrnn_cpu_" + name)
    function.restype = ctypes.c_char_p
    new_throws.value = throws
    found = function()
    new_throws.value = 0
    return found

print([
    [text(name, throws) for name in ("isa", "isas_supported", "isa_best")]
    for throws in ({throws}, 0)
])
"""
    failed, texts = _printed(failing, code, child="")
    assert failed == [None] * 3 and all(texts)
