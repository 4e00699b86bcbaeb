"""Every instruction set that this processor runs gives right numbers; others are refused clearly.

The engine is chosen once per process, so each set gets a child that runs the numeric tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from helpers import children

from tools import instruction_sets

_USE = """
import tensorflow as tf
import tf_blockrnn
print("in use:", tf_blockrnn.build_info()["cpu_isa"])
try:
    tf_blockrnn.raw_ops.GRUBlockCell(
        x=tf.ones([1, 1]), h_prev=tf.ones([1, 1]), w_ru=tf.ones([2, 2]), w_c=tf.ones([2, 1]),
        b_ru=tf.ones([2]), b_c=tf.ones([1]))
    print("ran")
except tf.errors.OpError as error:
    print(type(error).__name__, error.message)
"""


def _available(tfb):
    return tfb.build_info()["cpu_isas_available"]


def test_the_best_set_is_used(tfb):
    out = children.assert_ok(children.run_code(_USE, TF_BLOCKRNN_CPU_ISA=""), "default")
    assert f"in use: {instruction_sets.best()}\n" in out
    assert "ran" in out
    assert tfb.build_info()["cpu_isa_note"] == ""


def test_the_build_and_the_loader_know_the_same_sets(tfb):
    """Which this processor runs; and what is to be built is there, so that no test runs nothing."""
    info = tfb.build_info()
    assert info["cpu_isas_supported"] == instruction_sets.supported()
    assert set(instruction_sets.to_build()) <= set(info["cpu_isas_built"])


@pytest.mark.parametrize(
    "given, built",
    [
        ("", ["x86-64-v2", "x86-64-v3"]),
        ("all", [one.name for one in instruction_sets._SETS["x86_64"]]),
        ("x86-64-v4", ["x86-64-v2", "x86-64-v4"]),
        ("x86-64-v4-bf16, x86-64-v3", ["x86-64-v2", "x86-64-v3", "x86-64-v4-bf16"]),
        ("x86-64-v2", ["x86-64-v2"]),
    ],
)
def test_a_build_is_for_this_machine_or_for_what_is_named(monkeypatch, given, built):
    monkeypatch.setattr(instruction_sets.platform, "machine", lambda: "x86_64")
    flags = "sse4_2 popcnt avx2 fma bmi2 f16c"
    monkeypatch.setattr(instruction_sets, "_processor", lambda: {"flags": flags})
    monkeypatch.setenv("TF_BLOCKRNN_ISA", given)
    assert instruction_sets.to_build() == built


@pytest.mark.parametrize("given", ["avx2", "x86-64-v3,", "ALL"])
def test_an_unknown_set_is_not_built(monkeypatch, given):
    monkeypatch.setenv("TF_BLOCKRNN_ISA", given)
    with pytest.raises(SystemExit, match=f"TF_BLOCKRNN_ISA is '{given}'; it takes all, or some of"):
        instruction_sets.to_build()


def test_intel_gets_no_bfloat16_set_by_default(monkeypatch):
    flags = " ".join(one.flags for one in instruction_sets._SETS["x86_64"])
    monkeypatch.setattr(instruction_sets.platform, "machine", lambda: "x86_64")
    for vendor, best in (("GenuineIntel", "x86-64-v4-vnni"), ("AuthenticAMD", "x86-64-v4-bf16")):
        processor = {"flags": flags, "vendor_id": vendor}
        monkeypatch.setattr(instruction_sets, "_processor", lambda known=processor: known)
        assert instruction_sets.best() == best


def test_without_its_best_set_the_plain_one_runs_and_the_doctor_says_why(tfb, tmp_path):
    """As on another machine than that of the build."""
    plain, best = tfb.build_info()["cpu_isas_available"][0], instruction_sets.best()
    if plain == best:
        pytest.skip("not run: this processor runs the plain set alone")
    copy = shutil.copytree(children.ROOT / "tf_blockrnn", tmp_path / "tf_blockrnn")
    for library in copy.glob("libblockrnn_cpu_*.so"):
        if library.stem != f"libblockrnn_cpu_{plain}":
            library.unlink()
    done = children.run_python(["-m", "tf_blockrnn", "doctor"], cwd=tmp_path)
    report = " ".join(children.assert_ok(done, "doctor").split())
    assert f"instruction set {plain}; this build is for {plain}, and the best" in report
    assert f"would be {best}: build on this machine, or with TF_BLOCKRNN_ISA=all" in report
    assert "GRUBlockCell ok" in report


# An engine in a folder with those of all sets, on processors of which it is known what they run;
# TensorFlow is left out, whose wheels need AVX.
_SESSION = """
import ctypes
import numpy as np
from tf_blockrnn import inference, weights
from tf_blockrnn.inference import _library
one = weights.DirectionWeights(np.ones([3, 5, 4], "f4"), np.ones([3, 4, 4], "f4"))
session = inference.Session(weights.RecurrentWeights("gru", [weights.LayerWeights(one)],
                                                     reset_after=True), threads=1)
outputs, _ = session.run(np.full([2, 7, 5], 0.1, "f4"))
isa = _library.library().blockrnn_cpu_isa
isa.restype = ctypes.c_char_p
print(isa().decode(), outputs.sum())
"""


@pytest.mark.isa
@pytest.mark.parametrize(
    "processor, isa",
    [("Nehalem", "x86-64-v2"), ("IvyBridge", "x86-64-v2"), ("Haswell", "x86-64-v3")],
)
def test_older_processors_get_no_illegal_instruction(processor, isa):
    if instruction_sets.platform.machine() != "x86_64":
        pytest.skip("not run: no x86-64")
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    assert emulator, "install qemu-user-static (Debian, Ubuntu: apt-get install qemu-user-static)"
    done = subprocess.run(
        [emulator, "-cpu", processor, sys.executable, "-c", _SESSION],
        # The emulator's processors have no AVX512, which NumPy's BLAS would ask the machine for.
        env={**children.environment(), "OPENBLAS_CORETYPE": "Nehalem"},
        cwd=os.sep,
        capture_output=True,
        text=True,
        check=False,
    )
    name, total = children.assert_ok(done, processor).split()
    native = children.assert_ok(children.run_code(_SESSION), "without an emulator").split()[1]
    assert name == isa
    assert abs(float(total) - float(native)) < 1e-4


# By position, plainest first, since what there is depends on the machine.
@pytest.mark.isa
@pytest.mark.parametrize("position", [0, 1, 2, 3, 4])
def test_numbers_of_each_set(tfb, position):
    available = _available(tfb)
    if position >= len(available):
        pytest.skip(f"not run: this processor runs only {', '.join(available)}")
    isa = available[position]
    if isa == tfb.build_info()["cpu_isa"]:
        pytest.skip(f"not run again: {isa} is what the other tests use")
    out = children.assert_ok(children.run_code(_USE, TF_BLOCKRNN_CPU_ISA=isa), isa)
    assert f"in use: {isa}\n" in out and "ran" in out
    result = children.run_python(
        [
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"),
            str(children.TESTS / "ops" / "test_block_ops.py"),
            # The cells; test_processes.py has the sequences.
            *("-k", "(numbers or special or golden) and (Cell or golden or gates) and not graph"),
        ],
        TF_BLOCKRNN_CPU_ISA=isa,
    )
    out = children.assert_ok(result, f"numeric tests with {isa}")
    assert " passed" in out and " failed" not in out and " skipped" not in out, out[-300:]


@pytest.mark.parametrize("wrong", ["x86-64-v9", "avx2", "../x86-64-v2", "X86-64-V2"])
def test_an_unknown_set_is_refused_clearly(tfb, wrong):
    out = children.assert_ok(children.run_code(_USE, TF_BLOCKRNN_CPU_ISA=wrong), wrong)
    assert "ran" not in out
    assert "FailedPreconditionError" in out
    assert "TF_BLOCKRNN_CPU_ISA" in out and wrong in out
    for isa in _available(tfb):
        assert isa in out
