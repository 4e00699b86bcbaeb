"""What needs a process of its own: sizes of thread pools, instruction sets, little memory.

A deadlock is a timeout.
"""

from __future__ import annotations

import json

import pytest
from helpers import (
    block_cells,
    children,
    cudnn_reserve,
    sequence_functions,
    sequence_ops,
)
from helpers.programs import cudnn_child, sequence_child

# The checks of sequence_child.py whose digests must be the same in all pools.
BITS = ("bits", "function_bits", "option_bits")


def _run(program, *arguments, **extra):
    command = [program.__file__, *map(str, arguments)]
    result = children.run_python(command, timeout=300, **extra)
    out = children.assert_ok(result, f"{arguments} {extra}")
    return json.loads(out.strip().splitlines()[-1])


def _assert_same_digests(by_threads, count):
    want = by_threads[1]
    assert len(want) == count
    assert len(set(want.values())) == count, "digests that cannot tell calls apart"
    for threads, found in by_threads.items():
        differing = [k for k, v in want.items() if found[k] != v]
        assert not differing, f"1 and {threads} threads differ: {differing[:10]}"


@pytest.mark.types
def test_threads_bits_load_and_cancellation(tfb):
    """Cells, block ops and functions: the same bits, many callers at once, and calls that stop."""
    del tfb
    digests = {}
    checks = {1: ("load", "loops", "cancellation"), 2: ("loops",), 8: ("load", "loops")}
    for threads, more in checks.items():
        found = _run(sequence_child, threads, *BITS, *more)
        digests[threads] = {k: v for check in BITS for k, v in found[check].items()}
        assert set(more) <= set(found)
        assert all(found[name] > 0 for name in {"load", "loops"} & set(found))
    sizes = len(sequence_child.DIMS)
    calls = len(block_cells.op_cases(sequence_child.OPS)) * len(block_cells.DTYPES) * sizes
    calls += len(sequence_functions.PLAIN) * 2 * (sizes - 1)
    calls += len(sequence_functions.FUNCTIONS) * 2 * (sizes - 2)
    _assert_same_digests(digests, calls)


def test_cancellation_with_many_threads(tfb):
    del tfb
    found = _run(sequence_child, 4, "cancellation")["cancellation"]
    assert len(found) == len(sequence_child.CANCELLED)


@pytest.mark.types
def test_stacks_with_1_2_and_8_threads(tfb):
    """The same bits and masks, many callers at once, calls that stop, and what may crash."""
    del tfb
    checks = {
        1: ("in_data_map", "cancellation"),
        2: ("load", "reserve", "huge"),
        8: ("load", "in_data_map", "cancellation"),
    }
    found = {k: _run(cudnn_child, k, "bits", "masks", *more) for k, more in checks.items()}
    calls = len(cudnn_child.bit_calls()) * len(cudnn_child.DTYPES)
    _assert_same_digests({k: v["bits"] for k, v in found.items()}, calls)
    masks = [f["masks"] for f in found.values()]
    assert len({m["seeded"] for m in masks}) == 1, "the same seeds, other masks"
    assert len({m["unseeded"] for m in masks}) == len(masks), "no seeds, but the same mask"
    # Wrong, truncated, corrupt and other ops' reserve spaces; dims past 32 bits.
    count = len(cudnn_reserve.reserve_calls())
    assert found[2]["reserve"]["foreign"] == count * (count - 1)
    assert found[2]["reserve"]["bytes"] >= 2 * 100
    assert found[2]["huge"] > 40


# By position, plainest first, since what there is depends on the machine. The plainest of a build
# for this machine is compiled another way than that of a build for all.
@pytest.mark.parametrize(
    ("program", "position"),
    [
        pytest.param(sequence_child, 0, marks=pytest.mark.core, id="fallback"),
        *(
            pytest.param(program, position, marks=pytest.mark.isa)
            for program in (sequence_child, cudnn_child)
            for position in range(4)
        ),
    ],
)
def test_numbers_of_each_instruction_set(tfb, program, position):
    available = tfb.build_info()["cpu_isas_available"]
    if position >= len(available):
        pytest.skip(f"not run: this processor runs only {', '.join(available)}")
    isa = available[position]
    if isa == tfb.build_info()["cpu_isa"]:
        pytest.skip(f"not run again: {isa} is what the other tests use")
    found = _run(program, 2, "numbers", TF_BLOCKRNN_CPU_ISA=isa)
    if program is cudnn_child:
        assert found["numbers"] == isa
    else:
        assert (found["isa"], found["numbers"]) == (isa, len(sequence_ops.OPS))


@pytest.mark.types
@pytest.mark.parametrize(
    ("group", "calls"), [("cells", 7), ("sequences", len(sequence_ops.OPS) + 3), ("stacks", 9)]
)
def test_too_little_memory_is_resource_exhausted(tfb, group, calls):
    """Never other numbers and never an abort; outputs and scratch both run short."""
    del tfb
    outcomes = children.with_little_memory(group)
    assert len(outcomes) == calls
    short_of = {
        what: {call for call, counts in outcomes.items() if counts.get(what, 0) >= 1}
        for what in ("no output", "no scratch")
    }
    if group == "cells":  # of which some need no scratch
        assert all(counts.get("no output", 0) >= 3 for counts in outcomes.values()), outcomes
        with_scratch = {"GRUBlockCell half", "GRUBlockCellGrad bfloat16", "GRUBlockCell float"}
        assert with_scratch <= short_of["no scratch"], outcomes
        return
    assert short_of["no scratch"] == outcomes.keys(), outcomes
    if group == "sequences":
        assert short_of["no output"] == outcomes.keys(), outcomes
    else:
        assert sum(counts.get("no output", 0) for counts in outcomes.values()) >= 5, outcomes
