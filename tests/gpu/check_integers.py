"""Checks the CUDA engine's whole sequences with small integers, exactly.

Forward the activations do nothing; backward what the forward has saved is integers, whatever
forward would give them. So nothing rounds before it is stored, but the state of 16-bit types for a
step's GEMM, and a wrong GEMM, layout or index shows in any type.
"""

from __future__ import annotations

import dataclasses
import itertools

import check_program
import check_sequences
import device_engine
import numpy as np
import sequences
from helpers import block_cells
from helpers.reference import sequence as sequence_oracle

CELLS = sequences.PLAIN
SIZES = ((5, 9, 8, 33), (4, 2, 70, 11), (5, 33, 3, 10))  # panels, tiles and slices end inside
EXACT = 2**24  # float32 has all integers up to it


def calls(cell: str) -> list[sequences.Call]:
    found = [*check_sequences.variants(cell), *(sequences.Call(cell, dims) for dims in SIZES)]
    found += [call for call in check_sequences.LARGE if call.cell == cell]
    changes = {"identity": True}
    if cell == "lstm":
        changes |= {"forget_bias": 1.0, "cell_clip": 2.0}
    if cell.startswith("gru"):
        changes["mask"] = True  # see values
    return [dataclasses.replace(call, **changes) for call in found]


def values(call: sequences.Call) -> dict[str, np.ndarray]:
    """Arguments that stay small: most weights are 0, and of a GRU, whose steps square what they are
    given, no row counts more than two steps."""
    found = {}
    for position, (name, shape) in enumerate(call.shapes().items()):
        rng = np.random.default_rng([position, *call.dims])
        value = rng.integers(-2, 3, shape)
        if name.startswith("w_"):
            value *= rng.random(shape) < 1 / max(shape[0], 4)
        elif name == "recurrent_dropout":
            value = abs(value)
        found[name] = value.astype(np.float64)
    if call.mask:
        steps = np.random.default_rng(call.dims).random(call.dims[:2]).argsort(axis=0)
        found["mask"] = steps < 2
    return found


def saved_values(call: sequences.Call) -> dict[str, np.ndarray]:
    """What a forward might have left, and the gradients of its outputs."""
    t, b, _, h = call.dims
    shapes = dict.fromkeys(sequence_oracle.saved_names(call.cell), (t, b, h))
    shapes |= dict.fromkeys(("h", "h_grad"), (t, b, call.width)) | {"h_last_grad": (b, call.width)}
    if call.cell == "lstm":
        shapes |= {"cs_grad": (t, b, h), "cs_last_grad": (b, h)}
    rng = np.random.default_rng([1, *call.dims])
    return {name: rng.integers(-1, 2, shape).astype(np.float64) for name, shape in shapes.items()}


def check_exact(call: sequences.Call, got, want) -> None:
    for name, value in got.items():
        assert abs(want[name]).max(initial=0) < EXACT, f"{call}: {name} is not exact in float32"
        with np.errstate(over="ignore"):
            stored = sequences.stored(want[name] + 0.0, call.dtype)
        numbers = device_engine.decode(value, call.dtype)
        np.testing.assert_array_equal(numbers, stored, err_msg=f"{call}: {name}")


def check_forward(engine, call: sequences.Call) -> None:
    given = values(call)
    options = dataclasses.replace(
        call.oracle_options(), multiplied=lambda h: sequences.stored(h, call.dtype)
    )
    want = sequence_oracle.forward(call.cell, given, options)
    check_exact(call, engine.forward(call, given), want)


def check_backward(engine, call: sequences.Call) -> None:
    given = values(call) | saved_values(call)
    want = sequence_oracle.backward(call.cell, given, call.oracle_options())
    check_exact(call, engine.backward(call, given), want)


def with_types(found, dtypes):
    """All calls twice, each time with another type and another implementation of its GEMMs."""
    types = itertools.cycle(itertools.product((1 << 40, 1), dtypes))
    for call in check_sequences.with_modes(found * 2):
        blas_step_work, dtype = next(types)
        yield dataclasses.replace(call, dtype=dtype, blas_step_work=blas_step_work)


def forward(engine, cell: str) -> int:
    return check_program.each(
        with_types(calls(cell), block_cells.DTYPES), lambda call: check_forward(engine, call)
    )


def backward(engine, cell: str) -> int:
    """16-bit types round the gates' gradients for the large GEMMs, so they are not exact.

    Nor is tanh(cs), which an LSTM with zoneout computes again.
    """
    exact = [call for call in calls(cell) if not (cell == "lstm" and call.zoneout)]
    return check_program.each(
        with_types(exact, ("float", "double")), lambda call: check_backward(engine, call)
    )


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    if arguments.small:
        return  # check_sequences.py has such calls for the sanitizers
    engine = device_engine.Engine(arguments)
    engine.load_cublas(arguments.cublas, arguments.small)
    run = sequences.Sequences(engine)
    ways = {"forward": forward, "backward": backward}
    checks = {
        f"integers, {name}, {cell}": lambda check=check, cell=cell: check(run, cell)
        for name, check in ways.items() for cell in CELLS
    }  # fmt: skip
    check_program.run(arguments, checks, engine.lives)


if __name__ == "__main__":
    main()
