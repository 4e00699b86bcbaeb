"""What needs a process of its own: sizes of thread pools, instruction sets, little memory.

A deadlock is a timeout.
"""

from __future__ import annotations

import json

import pytest
from helpers import block_cells, children, cudnn_reserve, sequence_functions
from helpers.programs import process_child


def _run(*arguments, **extra):
    command = [process_child.__file__, *map(str, arguments)]
    result = children.run_python(command, timeout=600, **extra)
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
def test_1_2_and_8_threads(tfb):
    """The same bits and masks, many callers at once, calls that stop, and what may crash."""
    del tfb
    checks = {
        1: ("load", "loops", "cancellation"),
        2: ("load", "loops", "reserve", "huge"),
        8: ("load", "loops", "cancellation"),
    }
    found = {k: _run(k, "bits", "masks", *more) for k, more in checks.items()}
    sizes = len(process_child.DIMS)
    calls = len(block_cells.op_cases(process_child.OPS)) * len(block_cells.DTYPES) * sizes
    functions = len(sequence_functions.FUNCTIONS) * len(process_child.FUNCTION_TYPES)
    calls += functions * (sizes - 1)
    calls += len(process_child.stack_calls()) * len(process_child.STACK_TYPES)
    _assert_same_digests({k: v["bits"] for k, v in found.items()}, calls)
    masks = [f["masks"] for f in found.values()]
    assert len({m["seeded"] for m in masks}) == 1, "the same seeds, other masks"
    assert len({m["unseeded"] for m in masks}) == len(masks), "no seeds, but the same mask"
    assert all(f["load"] > 0 and f["loops"] > 0 for f in found.values())
    # Wrong, truncated, corrupt and other ops' reserve spaces; dims past 32 bits.
    count = len(cudnn_reserve.reserve_calls())
    assert found[2]["reserve"]["foreign"] == count * (count - 1)
    assert found[2]["reserve"]["bytes"] >= 2 * 100
    assert found[2]["huge"] > 40


def test_cancellation_with_many_threads(tfb):
    del tfb
    found = _run(4, "cancellation")["cancellation"]
    assert len(found) == len(process_child.CANCELLED)


# By position, plainest first, since what there is depends on the machine. The plainest of a build
# for this machine is compiled another way than that of a build for all.
@pytest.mark.parametrize(
    "position",
    [
        pytest.param(0, marks=pytest.mark.core, id="fallback"),
        *(pytest.param(position, marks=pytest.mark.isa) for position in range(4)),
    ],
)
def test_numbers_of_each_instruction_set(tfb, position):
    available = tfb.build_info()["cpu_isas_available"]
    if position >= len(available):
        pytest.skip(f"not run: this processor runs only {', '.join(available)}")
    isa = available[position]
    if isa == tfb.build_info()["cpu_isa"]:
        pytest.skip(f"not run again: {isa} is what the other tests use")
    assert _run(2, "numbers", TF_BLOCKRNN_CPU_ISA=isa) == {"numbers": isa}


@pytest.mark.types
@pytest.mark.parametrize(
    ("group", "calls"), [("cells", 5), ("sequences", 4 + 3), ("stacks", 2 * 3)]
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
