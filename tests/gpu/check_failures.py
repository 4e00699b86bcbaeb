"""Checks in the emulation that every call of CUDA and cuBLAS that fails is reported.

Of each call of the engine that is tried its first call of them fails, then its second, and so on.
The engine must report it, leave no work behind that uses the call's memory, and do the next call as
ever.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable

import check_program
import device_engine
import sequences
from check import encoded_inputs
from check_sequences import LENGTHS, given_backward, variants
from device_stack import Options, Stack, both_directions
from helpers import block_cells, compare, covering, cudnn_calls
from helpers.cudnn_calls import Call
from helpers.reference import sequence as sequence_oracle
from helpers.reference.stack import Network


def each_fails(library, run: Callable[[], dict]) -> int:
    """How many calls `run` makes, each of which fails once."""
    want = {name: compare.bits(value) for name, value in run().items()}
    for calls in range(10_000):
        library.emulation_fail_call(calls)
        try:
            found = run()
        except device_engine.EngineError:
            assert library.emulation_fail_call(-1), "an error though no call failed"
            assert library.emulation_last_error() == 0, f"failure of call {calls} is left behind"
            continue
        assert not library.emulation_fail_call(-1), f"not reported: failure of call {calls}"
        assert {name: compare.bits(value) for name, value in found.items()} == want, "bits differ"
        assert calls > 0, "makes no call"
        return calls
    raise AssertionError("more calls than it can need")


def cells(engine) -> int:
    count = 0
    for op, attrs in block_cells.op_cases():
        inputs = encoded_inputs(op, (3, 5, 7), "half")
        count += each_fails(
            engine.library, functools.partial(engine.run, op, (3, 5, 7), "half", inputs, attrs)
        )
    return count


def whole_sequences(calls) -> int:
    """Steps of one kernel, of a launch each, and of cuBLAS."""
    count = 0
    steps = ({"persistent": True}, {}, {"with_blas": True, "blas_step_work": 0})
    # All of them for the cells of one GEMM in a step and of two, and one for each of the others.
    others = [cell for cell in sequences.CELLS if cell not in ("lstm", "gru")]
    cases = [*itertools.product(("lstm", "gru"), steps), *covering.in_turn(others, steps)]
    for cell, kind in cases:
        call = dataclasses.replace(variants(cell)[-1], dtype="half", lengths=LENGTHS, **kind)
        values = sequences.random_values(call)
        given = given_backward(
            call, values, sequence_oracle.forward(cell, values, call.oracle_options())
        )
        for run in (
            functools.partial(calls.forward, call, values),
            functools.partial(calls.backward, call, given),
        ):
            count += each_fails(calls.engine.library, run)
    return count


def stacks(stack: Stack) -> int:
    """Directions in one grid and layers in sequence; work runs late."""
    count = 0
    cases = covering.pairwise(cudnn_calls.MODES, ((2, 2, 2), (3, 1, 8)), (False, True))
    for mode, (layers, directions, steps), blas in cases:
        net = Network(mode, layers, directions, 3, 4)
        call = Call(net, steps, 2, (steps, 1), dropout=0.5)
        for run in both_directions(stack, call, "half", Options(blas=blas)):
            with stack.engine.running_late():
                count += each_fails(stack.engine.library, run)
    return count


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    if not device_engine.Engine(arguments).emulated:
        check_program.not_run("calls that fail (in the emulation alone)")
    stack = Stack(arguments)
    calls = sequences.Sequences(stack.engine)
    check_program.run(
        arguments,
        {
            "failures in cells": lambda: cells(stack.engine),
            "failures in sequences": lambda: whole_sequences(calls),
            "failures in stacks": lambda: stacks(stack),
        },
    )


if __name__ == "__main__":
    main()
