"""Every instruction set that this processor runs gives right numbers; others are refused clearly.

The engine is chosen once per process, so each set gets a child that runs the numeric tests.
"""

from __future__ import annotations

import platform

import pytest
from helpers import children

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


def _cpuinfo():
    """The entries of the first processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        lines = (line.split(":", 1) for line in file.read().split("\n\n")[0].splitlines())
        return {key.strip(): value.strip() for key, value in lines}


def test_the_best_set_is_used(tfb):
    best = [
        isa
        for isa in _available(tfb)
        # bfloat16 is faster when it is widened there (docs/adr/0002).
        if (isa, _cpuinfo().get("vendor_id")) != ("x86-64-v4-bf16", "GenuineIntel")
    ][-1]
    out = children.assert_ok(children.run_code(_USE, TF_BLOCKRNN_CPU_ISA=""), "default")
    assert f"in use: {best}\n" in out
    assert "ran" in out


def test_expected_sets_are_built(tfb):
    """Otherwise the tests below could pass by running nothing."""
    available = _available(tfb)
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64", "aarch64"):
        assert available == ["generic"]
        return
    flags = set(_cpuinfo()["Features" if machine == "aarch64" else "flags"].split())
    if machine == "aarch64":
        expected = ["armv8-a"]
        if {"atomics", "asimddp"} <= flags:
            expected.append("armv8.2-a-dotprod")
            if {"bf16", "i8mm"} <= flags:
                expected.append("armv8.2-a-bf16")
        assert available == expected
        return
    expected = ["x86-64-v2"]
    if {"avx2", "fma", "bmi2"} <= flags:
        expected.append("x86-64-v3")
        if {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags:
            expected.append("x86-64-v4")
            if "avx512_vnni" in flags:
                expected.append("x86-64-v4-vnni")
                if "avx512_bf16" in flags:
                    expected.append("x86-64-v4-bf16")
    assert available == expected


# By position, plainest first, since what there is depends on the machine.
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
            *(
                str(children.TESTS / "ops" / name)
                for name in ("test_gru_block_cell.py", "test_lstm_block_cell.py")
            ),
            *("-k", "(numbers or golden) and not GPU and not graph"),
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
