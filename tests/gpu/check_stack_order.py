"""Checks in what order the work of stacks runs, in a library that run.py has built.

Directions in one grid; the same bits on every run and, in the emulation, under every order of
threads and blocks; the scratch of layers, and the shares of the device.
"""

from __future__ import annotations

import ctypes
import itertools

import check_program
import device_engine
from check_stack import compare_stack
from device_engine import ANY
from device_stack import DEFAULT, Options, Stack, both_directions, cotangents_of, exact
from helpers import compare, covering, cudnn_calls
from helpers.cudnn_calls import Call
from helpers.reference.stack import Network


def _bits_of(stack: Stack, call: Call, dtype: str, options=DEFAULT) -> str:
    arrays, cotangents = exact(call.random("double"), dtype), cotangents_of(call, dtype)
    found = stack.forward(call, dtype, arrays, options)
    gradients = stack.backward(call, dtype, arrays, found, cotangents, options)
    return compare.digest((*found.values(), *gradients.values()))


def same_bits(stack: Stack) -> int:
    """Repeats; and in the emulation other orders of threads and blocks, and work that runs late."""
    cases = (
        (3, 2, 3, 0.5, DEFAULT),
        (3, 2, 3, 0.0, Options(blas=True)),
        (3, 1, 3, 0.5, DEFAULT),
        (4, 1, 9, 0.5, DEFAULT),
        (5, 1, 9, 0.0, Options(blas=True)),
    )

    def check(mode, case) -> None:
        layers, directions, steps, rate, options = case
        net = Network(mode, layers, directions, 4, 5)
        call = Call(net, steps, 3, (steps, 0, 2), directions == 2, dropout=rate)
        seen = {_bits_of(stack, call, "float", options) for _ in stack.engine.repeats()}
        with stack.engine.running_late():
            seen.add(_bits_of(stack, call, "float", options))
        assert len(seen) == 1, f"{call}: bits differ"

    return check_program.each(itertools.product(cudnn_calls.MODES, cases), check)


def failed_allocations(stack: Stack) -> int:
    """Each allocation that fails is reported; without one that fails the call succeeds.

    In the emulation work runs late: none is left over that uses the call's memory.
    """
    cases = itertools.product(("rnn_tanh", "lstm", "gru"), ((2, 2, 2), (2, 1, 8)))

    def check(mode, size) -> None:
        layers, directions, steps = size
        net = Network(mode, layers, directions, 3, 4)
        call = Call(net, steps, 2, (steps, 1), dropout=0.5)
        for run in both_directions(stack, call, "half"):
            with stack.engine.running_late():
                needed = device_engine.allocations_of(
                    lambda n, run=run: run(options=Options(scratch_calls=n))
                )
            assert needed > 0, "asks for no scratch"

    return check_program.each(cases, check)


def memory_of_layers(stack: Stack) -> int:
    """Ten layers take no more scratch than four: what one had, the next one gets."""

    def check(mode, directions) -> None:
        needed = []
        for layers in (4, 10):
            # What needs most arrays: rounded states, an order of rows, two GEMMs in a step.
            net = Network(mode, layers, directions, 4, 4, 3 if mode == "lstm" else 0)
            call = Call(net, 8, 2, (8, 5))
            for run in both_directions(stack, call, "half"):
                needed.append(
                    device_engine.allocations_of(
                        lambda n, run=run: run(options=Options(scratch_calls=n))
                    )
                )
        what = f"{mode} {directions}: {needed} allocations for 4 and 10 layers"
        assert needed[:2] == needed[2:], what

    return check_program.each(itertools.product(("rnn_tanh", "lstm", "gru"), (1, 2)), check)


def joint_directions(stack: Stack) -> int:
    """Both directions of a layer in one grid; float32 and TF32, steps of one GEMM and of two."""
    cells = (("rnn_tanh", 0), ("lstm", 0), ("lstm", 12), ("gru", 0))

    def check(count, case) -> None:
        (mode, num_proj), allow_tf32 = case
        net = Network(mode, 2, 2, 7, 24, num_proj)
        call = Call(net, 9, 5, (9, 0, 4, 7, 9), time_major=allow_tf32)
        before = stack.engine.persistent_kernels()
        compare_stack(stack, call, "float", Options(allow_tf32=allow_tf32), seed=count)
        # One for each layer, forward and backward.
        stack.engine.expect_persistent(before, 4, call)
        ran = stack.engine.persistent_kernels() - before
        assert ran <= 4 or stack.engine.sanitized, f"{call}: {ran} persistent kernels, must be 4"

    return check_program.each(enumerate(itertools.product(cells, (False, True))), check)


def joint_or_sequential(stack: Stack) -> int:
    """In the emulation: directions have the same bits in one grid and sequentially.

    They share a grid where half of the device has room for the steps of one, so not on a device
    with one multiprocessor; nor where the launch is refused. Then each has a grid of its own if
    that is not refused, too.
    """
    library, shared = stack.engine.library, ctypes.c_size_t(64 * 1024)
    count = 0
    cases = covering.pairwise(("rnn_tanh", "lstm", "gru"), (False, True), (None, (9, 0, 4)))
    for mode, allow_tf32, lengths in cases:
        proj = 8 if mode == "lstm" and lengths else 0
        call = Call(Network(mode, 2, 2, 5, 16, proj), 9, 3, lengths)
        options = Options(allow_tf32=allow_tf32, blas=lengths is None)

        def run(multiprocessors, allowed, call=call, options=options):
            """The bits, the persistent kernels, and the blocks of the largest."""
            library.emulation_device(multiprocessors, shared)
            library.emulation_allow_together(allowed, 0)
            library.emulation_largest_grid()
            before = stack.engine.persistent_kernels()
            bits = _bits_of(stack, call, "float", options)
            ran = stack.engine.persistent_kernels() - before
            return bits, ran, library.emulation_largest_grid()

        want, ran, blocks = run(8, ANY)
        # For each of two layers, forward and backward.
        assert ran == 4, f"{call}: {ran} persistent kernels for both directions"
        found = {
            "on a small device": run(1, ANY),
            "when one grid is refused": run(8, blocks - 1),
        }
        for when, (bits, ran, _) in found.items():
            assert ran == 8, f"{call}: {ran} persistent kernels for each direction {when}"
            assert bits == want, f"{call}: other bits {when}"
        if not allow_tf32:  # what is launched step by step is multiplied as float
            bits, ran, _ = run(8, 0)
            assert (bits, ran) == (want, 0), f"{call}: other bits step by step"
        library.emulation_allow_together(ANY, 0)
        count += 1
    library.emulation_device(4, shared)
    return count


def shares_of_the_device(stack: Stack) -> int:
    """In the emulation: a layer, and both directions in one grid, have all multiprocessors."""
    library, multiprocessors = stack.engine.library, 8
    library.emulation_device(multiprocessors, ctypes.c_size_t(64 * 1024))
    modes = ("rnn_tanh", "lstm", "gru")
    for mode in modes:
        for directions in (1, 2):
            call = Call(Network(mode, 2, directions, 4, 64), 9, 3)
            library.emulation_largest_grid()
            compare_stack(stack, call, "float")
            blocks = library.emulation_largest_grid()
            assert multiprocessors // 2 < blocks <= multiprocessors, f"{mode}: {blocks} blocks"
    # Steps for which half of the device is too small: the directions run sequentially.
    call = Call(Network("lstm", 1, 2, 4, 128), 9, 3)
    library.emulation_largest_grid()
    before = stack.engine.persistent_kernels()
    compare_stack(stack, call, "float")
    ran = stack.engine.persistent_kernels() - before
    blocks = library.emulation_largest_grid()
    assert multiprocessors // 2 < blocks <= multiprocessors, f"{blocks} blocks for one direction"
    assert ran == 4, f"{ran} persistent kernels for two directions, forward and backward"
    library.emulation_device(4, ctypes.c_size_t(64 * 1024))
    return 2 * len(modes) + 1


def long_grids(stack: Stack) -> int:
    """On a GPU: large layers, of one direction or both, that are persistent for long."""

    # For each layer one grid, forward and backward.
    def check(mode, size) -> None:
        layers, directions, kernels = size
        call = Call(Network(mode, layers, directions, 40, 512), 50, 4, (50, 17, 31, 50))
        before = stack.engine.persistent_kernels()
        compare_stack(stack, call, "float", seed=4)
        ran = stack.engine.persistent_kernels() - before
        if stack.engine.is_large():
            assert ran == kernels, f"{mode}: {ran} persistent kernels, must be {kernels}"
        assert len({_bits_of(stack, call, "float") for _ in range(3)}) == 1, f"{mode}: bits differ"

    return check_program.each(itertools.product(("lstm", "gru"), ((2, 2, 4), (3, 1, 6))), check)


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    stack = Stack(arguments)
    emulated = stack.engine.emulated
    checks = {"same bits of stacks": lambda: same_bits(stack)}
    checks["directions in one grid"] = lambda: joint_directions(stack)
    if not arguments.small:
        checks["failed allocations of stacks"] = lambda: failed_allocations(stack)
        checks["memory of layers"] = lambda: memory_of_layers(stack)
    if emulated:
        checks["directions in one grid or two"] = lambda: joint_or_sequential(stack)
        checks["shares of the device"] = lambda: shares_of_the_device(stack)
    elif not arguments.small:
        checks["long grids"] = lambda: long_grids(stack)
    check_program.run(arguments, checks, stack.engine.lives)


if __name__ == "__main__":
    main()
