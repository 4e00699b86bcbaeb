"""Checks the tensor cores inside the steps of half and bfloat16.

That the steps of a persistent kernel have the bits of the steps one by one, for sizes at which
rows, units and depths end inside what one instruction multiplies; that rows do not affect each
other; in the emulation also how many multiplications tensor cores did, and that a device without
them gives the same numbers.
"""

from __future__ import annotations

import dataclasses
import itertools

import check_persistent
import check_program
import check_sequences
import device_engine
import numpy as np
import sequences
from check_persistent import persistent
from check_sequences import all_bits
from device_engine import ANY
from helpers import compare
from helpers.reference import sequence as sequence_oracle

CELLS = sequences.PLAIN
DTYPES = ("half", "bfloat16")
# T, B, I, H: rows around one tile and two, units that are no eights, depths that are no sixteens.
SIZES = (
    *((4, 1, 2, 5), (4, 2, 3, 17), (5, 3, 1, 9), (4, 15, 2, 7)),
    *((4, 16, 2, 20), (4, 17, 3, 11), (4, 33, 2, 5)),
)
# Each on a device (multiprocessors, bytes of shared memory) that has persistent kernels for it:
# more chunks of the depth than warps; the state in parts; several panels for each block.
DEVICES = (
    ((20, 64 * 1024), (4, 3, 2, 150)),
    ((20, 30 * 1024), (4, 3, 2, 150)),
    ((2, 64 * 1024), (4, 15, 2, 20)),
)
# Of float as TF32: with all of the state at once and in pieces, of a tile and of several.
TF32_SIZES = ((4, 3, 2, 17), (5, 17, 3, 9), (4, 32, 2, 20))
TF32_LARGE = ((16, 128, 64, 256), (20, 32, 40, 512))
ROWS, POISONED = 19, (3, 17)  # rows of both tiles


def check_both_ways(engine, call: sequences.Call) -> None:
    """Step by step and persistent: numbers, and in the emulation bits. A GPU's compiler may fuse a
    multiplication and an addition of an epilogue in the one kernel and not in the other."""
    check_persistent.check_persistent_call(engine, persistent(call))
    if engine.engine.emulated:
        one_by_one = all_bits(engine, call)
        assert all_bits(engine, persistent(call)) == one_by_one, f"{call}: bits"
    else:
        check_sequences.check_call(engine, call)


def sizes(engine, dims_list) -> int:

    def check(count, case) -> None:
        cell, dims = case
        lengths = tuple(dims[0] - b % 3 for b in range(dims[1])) if count % 3 == 0 else None
        check_both_ways(engine, sequences.Call(cell, dims, DTYPES[count % 2], lengths=lengths))

    return check_program.each(enumerate(itertools.product(CELLS, dims_list)), check)


def cells_on_devices():
    """Two cells on each device, and each cell on one."""
    for n, (device, dims) in enumerate(DEVICES):
        for cell in CELLS[n : n + 2]:
            yield device, dims, cell


def devices(engine, library) -> int:
    count = 0
    for device, dims, cell in cells_on_devices():
        library.emulation_device(*device)
        check_both_ways(engine, sequences.Call(cell, dims, DTYPES[count % 2]))
        count += 1
    library.emulation_device(*check_persistent.DEVICE)
    return count


def apart(engine) -> int:
    """Gates with factors of their own: each has a state of its own."""
    return check_sequences.check_calls(
        engine,
        (
            sequences.Call(cell, dims, dtype, dropout=True)
            for cell, dtype in itertools.product(sequences.CELLS, DTYPES)
            for dims in ((3, 3, 2, 21), (2, 17, 3, 9))
        ),
    )


def rows_alone(engine) -> int:
    """A NaN or an infinity in a row's state is in what becomes of it, and no other row's bits
    change."""
    cases = itertools.product(CELLS, (float("nan"), float("inf")), (False, True))

    def check(count, case) -> None:
        cell, value, persistently = case
        dtype = DTYPES[count % 2]
        call = sequences.Call(cell, (4, ROWS, 2, 9), dtype, persistent=persistently)
        others = [b for b in range(ROWS) if b not in POISONED]
        values = sequences.random_values(call)
        want = sequence_oracle.forward(cell, values, call.oracle_options())
        given = check_sequences.given_backward(call, values, want)
        for run, inputs, name, outputs in (
            (engine.forward, values, "h_prev", ("h",)),
            (engine.backward, given, "h_last_grad", ("x", "h_prev")),
        ):
            poisoned = inputs | {name: inputs[name].copy()}
            poisoned[name][list(POISONED)] = value
            clean, spoilt = run(call, inputs), run(call, poisoned)
            for output in outputs:
                a, b = (np.moveaxis(found[output], -2, 0)[others] for found in (clean, spoilt))
                assert compare.bits(a) == compare.bits(b), f"{call}: {output} of other rows"
                row = device_engine.decode(spoilt[output], dtype)[..., list(POISONED), :]
                # The forward of an infinite state may end in a gate's 0 or 1.
                if np.isnan(value) or run == engine.backward:
                    assert not np.isfinite(row).any(), f"{call}: {output} of {value}"

    return check_program.each(enumerate(cases), check)


def any_rows(engine) -> int:
    """A row's bits do not depend on how many come with it."""
    count = 0
    for cell, dtype, persistently in itertools.product(sequences.CELLS, DTYPES, (False, True)):
        few, many = (
            sequences.Call(cell, (4, rows, 5, 9), dtype, persistent=persistently)
            for rows in (2, 33)
        )
        values = sequences.random_values(many)
        first = {n: v[..., :2, :] if n == "x" else v for n, v in values.items()}
        first |= {n: v[:2] for n, v in values.items() if n.endswith("_prev")}
        got, want = engine.forward(few, first), engine.forward(many, values)
        assert compare.bits(got["h"]) == compare.bits(want["h"][:, :2]), f"{cell}, {dtype}"
        count += 1
    return count


def chunks(depth: int) -> int:
    return -(-depth // 16)


def many(engine, library) -> int:
    """Enough rows and units for the step kernel's tiles of 32 rows; without slices, then."""
    rows, units = 130, 420
    tiles = 2 * -(-rows // 32)  # of 16 rows
    calls = {  # and the multiplications of a tile, forward
        sequences.Call("rnn", (1, rows, 2, units), "bfloat16"): 14 * 4 * chunks(units),
        sequences.Call("lstm", (1, rows, 2, 104), "half"): 13 * 4 * chunks(104),
        sequences.Call("gru", (1, rows, 2, units), "half"): (27 + 14) * 4 * chunks(units),
        sequences.Call("gru_after", (1, rows, 2, 124), "bfloat16"): 13 * 4 * chunks(124),
    }

    def check(call, of_tile) -> None:
        values = sequences.random_values(call)
        if engine.engine.emulated:
            library.emulation_multiplied()
        want = check_sequences.check_forward(engine, call, values)
        if engine.engine.emulated:
            got = library.emulation_multiplied()
            assert got == tiles * of_tile, f"{call}: {got} multiplications, not {tiles * of_tile}"
        check_sequences.check_backward(engine, call, values, want)

    return check_program.each(calls.items(), check)


def deep(engine) -> int:
    """More depths than the step kernel brings at once, of one state or of slices; or more than
    its threads bring at once, of a number of depths that does not divide theirs."""
    calls = (
        sequences.Call("lstm", (1, 3, 2, 520), "half"),
        sequences.Call("gru_after", (1, 2, 2, 520), "bfloat16"),
        sequences.Call("lstm", (2, 16, 2, 136), "bfloat16"),
        sequences.Call("rnn", (2, 16, 2, 136), "half"),
    )
    return check_sequences.check_calls(engine, calls)


def used(engine, library) -> int:
    """How many multiplications tensor cores did: of each step, panel, tile and chunk of the depth
    one for each eight columns; none for other types."""
    t, b, units = 4, 17, 21
    columns = {  # by cell and direction: units of a panel, columns by eight, depth of a column
        ("lstm", "forward"): ((8, 4, units),),
        ("lstm", "backward"): ((8, 4, units),),
        ("gru_after", "forward"): ((10, 4, units),),
        ("gru_after", "backward"): ((8, 3, units),),
        ("gru", "forward"): ((16, 4, units), (8, 4, -(-units // 4))),
        ("rnn", "forward"): ((8, 4, -(-units // 4)),),
    }
    count = 0
    for (cell, direction), dtype, persistently in itertools.product(
        columns, (*DTYPES, "float", "double"), (False, True)
    ):
        call = sequences.Call(cell, (t, b, 2, units), dtype, persistent=persistently)
        values = sequences.random_values(call)
        if direction == "backward":
            want = sequence_oracle.forward(cell, values, call.oracle_options())
            values = check_sequences.given_backward(call, values, want)
        library.emulation_multiplied()
        getattr(engine, direction)(call, values)
        got = library.emulation_multiplied()
        step = sum(
            -(-units // of_panel) * parts * chunks(depth)
            for of_panel, parts, depth in columns[cell, direction]
        )
        steps = t + (direction == "backward")  # and what comes before the first one
        want = steps * -(-b // 16) * step if dtype in DTYPES else 0
        assert got == want, f"{call}, {direction}: {got} multiplications, not {want}"
        count += 1
    return count


def as_tf32(engine, dims_list) -> int:
    """Float where TF32 is allowed."""
    calls = (
        sequences.Call(cell, dims, "float", persistent=True, allow_tf32=True)
        for cell, dims in itertools.product(CELLS, dims_list)
    )
    return check_program.each(
        calls, lambda call: check_persistent.check_persistent_call(engine, call)
    )


def tf32_chosen(engine, library) -> int:
    """When float is multiplied on tensor cores: neither unless it is allowed, nor for one or two
    rows of a step with one GEMM, nor on a device without them; otherwise with the bits of float. A
    refused kernel leaves float, too."""
    count = 0
    for device, dims, cell in cells_on_devices():
        library.emulation_device(*device)
        base = sequences.Call(cell, dims, "float", persistent=True)
        exact = all_bits(engine, base)
        library.emulation_multiplied()
        allowed = dataclasses.replace(base, allow_tf32=True)
        before = engine.engine.persistent_kernels()
        rounded = [all_bits(engine, allowed)]
        if engine.engine.persistent_kernels() > before:
            assert library.emulation_multiplied() > 0, f"{allowed}: not on tensor cores"
            assert rounded[0] != exact, f"{allowed}: not rounded"
            check_sequences.check_call(engine, allowed)
        for order in (1, 2):
            library.emulation_vary(order, ANY)
            rounded.append(all_bits(engine, allowed))
        library.emulation_vary(0, ANY)
        assert len(set(rounded)) == 1, f"{allowed}: bits differ"
        library.emulation_capability(7)
        library.emulation_multiplied()
        assert all_bits(engine, allowed) == exact, f"{allowed} without"
        library.emulation_capability(8)
        library.emulation_allow_together(0, 0)
        assert all_bits(engine, allowed) == exact, f"{allowed} refused"
        library.emulation_allow_together(ANY, 0)
        assert library.emulation_multiplied() == 0
        count += 1
    library.emulation_device(*check_persistent.DEVICE)
    for cell in ("lstm", "gru_after", "rnn"):
        few = sequences.Call(cell, (4, 2, 2, 9), "float", persistent=True, allow_tf32=True)
        check_persistent.check_persistent_call(engine, few)
        assert library.emulation_multiplied() == 0, few
    return count


def without(engine, library) -> int:
    """A device before sm_80 multiplies otherwise, and gets the same numbers."""
    library.emulation_capability(7)
    library.emulation_multiplied()
    count = 0
    for cell, dims in itertools.product(CELLS, ((4, 3, 2, 9), (4, 16, 2, 18))):
        check_both_ways(engine, sequences.Call(cell, dims, DTYPES[count % 2]))
        count += 1
    assert library.emulation_multiplied() == 0
    library.emulation_capability(8)
    return count


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    engine = device_engine.Engine(arguments)
    calls = sequences.Sequences(engine)
    library = engine.library
    checks = {"tensor cores, apart": lambda: apart(calls)}
    dims_list = SIZES[::3] if arguments.small else SIZES
    checks["tensor cores, sizes"] = lambda: sizes(calls, dims_list)
    if not arguments.small:
        checks["tensor cores, rows alone"] = lambda: rows_alone(calls)
        checks["tensor cores, many rows"] = lambda: many(calls, library)
        checks["tensor cores, deep GEMMs"] = lambda: deep(calls)
    checks["tensor cores, TF32"] = lambda: as_tf32(
        calls, TF32_SIZES if engine.emulated or arguments.small else TF32_SIZES + TF32_LARGE
    )
    if engine.emulated:
        checks["tensor cores, TF32 chosen"] = lambda: tf32_chosen(calls, library)
        checks["tensor cores, any rows"] = lambda: any_rows(calls)
        checks["tensor cores, devices"] = lambda: devices(calls, library)
        checks["tensor cores, used"] = lambda: used(calls, library)
        checks["tensor cores, none"] = lambda: without(calls, library)
    check_program.run(arguments, checks, engine.lives)


if __name__ == "__main__":
    main()
