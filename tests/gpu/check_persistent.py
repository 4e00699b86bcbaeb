"""Checks the persistent kernels: whole sequences whose steps are one launch.

Against the same oracle as the steps one by one. In the emulation on devices of several sizes, so
that blocks have one panel of the weights or more, one tile of rows or more, and hold the whole
state at once or parts of it; in all orders of blocks and threads, between which a missing barrier
of the grid tells; and with the bits of the steps one by one.
"""

from __future__ import annotations

import dataclasses
import itertools

import check_program
import check_sequences
import device_engine
import sequences
from device_engine import ANY

CELLS = sequences.PLAIN
DEVICE = (4, 64 * 1024)  # multiprocessors, bytes of shared memory: the emulation's own
# Invalid value, invalid configuration, out of resources, cooperative launch too large.
REFUSALS = (1, 9, 701, 720)
# Blocks and threads forward or in reverse; blocks meet where they wait or where they arrive. Each
# call runs in two orders, so that both kinds of both meet.
ORDERS = ((0, 3), (1, 2))
# Each with calls of these (T, B, I, H).
DEVICES = (
    (DEVICE, ((4, 1, 2, 5), (4, 2, 3, 30), (5, 3, 1, 9), (4, 8, 2, 31))),
    ((13, 64 * 1024), ((4, 33, 2, 20), (5, 17, 3, 40))),  # tiles of rows: split, and one by one
    ((3, 64 * 1024), ((4, 3, 2, 64), (4, 2, 2, 41))),  # panels one by one
    ((8, 21 * 1024), ((4, 9, 3, 64),)),  # the state of the backward in parts
    ((16, 21 * 1024), ((4, 9, 3, 64),)),
    ((20, 46 * 1024), ((4, 3, 2, 150),)),  # room for one piece of two
    ((10, 64 * 1024), ((4, 3, 2, 150),)),  # and several panels
    ((20, 256 * 1024), ((4, 8, 2, 264),)),  # more of the state than the threads load at once
)
# Persistent on a large device.
LARGE = {
    "float": ((50, 8, 33, 1024), (20, 1, 40, 512), (30, 33, 8, 300), (16, 64, 64, 256)),
    "bfloat16": ((30, 33, 8, 300), (20, 2, 16, 512), (8, 16, 16, 1024)),
    "half": ((16, 64, 64, 256),),
    "double": ((20, 1, 40, 512), (12, 9, 8, 300)),
}
# T, B, I, H of which the emulation of an H200 has persistent kernels of 16-bit types.
LARGE_DEVICE = (132, 227 * 1024)
LARGE_EMULATED = (
    *((4, 8, 4, 1024), (4, 64, 4, 256), (4, 33, 4, 300)),
    *((4, 1, 4, 512), (5, 16, 4, 640)),
)


def persistent(call: sequences.Call) -> sequences.Call:
    return dataclasses.replace(call, persistent=True)


def variants(engine, cell: str) -> int:
    """Every layout, with padding and masked steps; no dropout, which has separate sums for each
    gate and is computed step by step."""
    calls = [c for c in check_sequences.variants(cell) if not c.dropout]
    before = engine.engine.persistent_kernels()
    count = check_sequences.check_calls(
        engine, (persistent(dataclasses.replace(call, dtype="double")) for call in calls)
    )
    # Both ways of each, but of calls with few rows, steps or units.
    engine.engine.expect_persistent(before, count, cell)
    return count


def types(engine) -> int:
    calls = (
        persistent(sequences.Call(cell, (6, 3, 4, 11), dtype, lengths=(6, 1, 4)))
        for cell in CELLS
        for dtype in ("half", "bfloat16", "float")
    )
    return check_program.each(calls, lambda call: check_persistent_call(engine, call))


def check_persistent_call(engine, call: sequences.Call) -> None:
    """And that its steps were a persistent kernel, forward and backward."""
    before = engine.engine.persistent_kernels()
    check_sequences.check_call(engine, call)
    engine.engine.expect_persistent(before, 2, call)


def devices(engine, library) -> int:
    """Several emulated devices; the bits of the steps one by one, in any order."""
    count = 0
    for n, (device, all_dims) in enumerate(DEVICES):
        # All cells on the first one, and two on each of the others.
        for cell in CELLS if n == 0 else (CELLS[n % 2], CELLS[2 + n % 2]):
            before = library.emulation_allow_together(ANY, 0)
            for dims in all_dims:
                lengths = tuple(dims[0] - b % 3 for b in range(dims[1])) if count % 2 else None
                call = sequences.Call(cell, dims, "float", lengths=lengths)
                library.emulation_device(*DEVICE)
                want = check_sequences.all_bits(engine, call)
                library.emulation_device(*device)
                for order in ORDERS[(count + count // 2) % 2]:
                    library.emulation_vary(order, ANY)
                    got = check_sequences.all_bits(engine, persistent(call))
                    assert got == want, f"{call} on {device}, {order=}"
                library.emulation_vary(0, ANY)
                check_sequences.check_call(engine, persistent(call))
                count += 1
            assert library.emulation_allow_together(ANY, 0) > before, f"no {cell} ran on {device}"
    library.emulation_device(*DEVICE)
    return count


def refused(engine, library) -> int:
    """Where the launch is refused the steps are queued one by one, and no error is left behind."""

    def check(cell, code) -> None:
        before = library.emulation_allow_together(0, code)
        refused_before = engine.engine.refused_kernels()
        check_sequences.check_call(engine, persistent(sequences.Call(cell, (5, 3, 2, 9))))
        assert engine.engine.refused_kernels() == refused_before + 2, "forward and backward"
        assert library.emulation_allow_together(ANY, 0) == before, cell
        assert library.emulation_last_error() == 0, "left to the next caller of cudaGetLastError"

    return check_program.each(itertools.product(CELLS, REFUSALS), check)


def shared_memory(engine, library) -> int:
    """A kernel asks for what its plan needs: a second call that needs more gets it, a third one
    that needs less keeps it, and a device whose limit is lower than both is asked for less."""
    library.emulation_device(20, 256 * 1024)
    all_dims = ((4, 8, 2, 200), (4, 8, 2, 264), (4, 8, 2, 200))
    for dims in all_dims:
        check_persistent_call(engine, persistent(sequences.Call("lstm", dims, "float")))
    library.emulation_device(*DEVICE)
    return len(all_dims)


def large_device(engine, library) -> int:
    """In the emulation: 16-bit types in sizes that need a large device."""
    library.emulation_device(*LARGE_DEVICE)
    cases = itertools.product(LARGE_EMULATED, ("half", "bfloat16"))
    calls = (
        persistent(sequences.Call(CELLS[(n + n // 4) % 4], dims, dtype))
        for n, (dims, dtype) in enumerate(cases)
    )
    count = check_program.each(calls, lambda call: check_persistent_call(engine, call))
    library.emulation_device(*DEVICE)
    return count


def large(engine, cell: str) -> int:
    """On a GPU: sizes for which the kernels are there, and the same bits again and again."""
    check_call = check_persistent_call if engine.engine.is_large() else check_sequences.check_call
    calls = (
        persistent(sequences.Call(cell, dims, dtype)) for dtype in LARGE for dims in LARGE[dtype]
    )

    def check(call) -> None:
        check_call(engine, call)
        assert len(set(check_sequences.bits_of_repeats(engine, call, range(5)))) == 1, "bits differ"

    return check_program.each(calls, check)


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    engine = device_engine.Engine(arguments)
    calls = sequences.Sequences(engine)
    library = engine.library
    checks = {f"persistent {cell}": lambda cell=cell: variants(calls, cell) for cell in CELLS}
    if not arguments.small:
        checks["persistent, types"] = lambda: types(calls)
    if engine.emulated:
        checks["persistent, devices"] = lambda: devices(calls, library)
        checks["persistent, refused"] = lambda: refused(calls, library)
        checks["persistent, shared memory"] = lambda: shared_memory(calls, library)
        checks["persistent, large device"] = lambda: large_device(calls, library)
    elif not arguments.small:
        checks |= {
            f"persistent {cell}, large": lambda cell=cell: large(calls, cell) for cell in CELLS
        }
    check_program.run(arguments, checks, engine.lives)


if __name__ == "__main__":
    main()
