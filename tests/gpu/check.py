"""Checks the CUDA engine in a library that run.py has built, on a GPU or in the emulation.

Needs Python and NumPy. Every check prints one line, and what failed if it fails.
"""

from __future__ import annotations

import functools
import itertools

import check_program
import device_engine
import numpy as np
from helpers import block_cells, compare, covering, tolerances

# More slices than warps in the peepholes' sums.
LONG_DIMS = ((1, 1, 1), (300, 1, 5), (1000, 1, 33))
SMALL_DIMS = ((1, 1, 1), (2, 3, 5), (17, 33, 31), (0, 3, 5), (3, 5, 0), (3, 0, 5), (33, 9, 65))
SPECIAL_CLIPS = (float("inf"), float("nan"), -0.0, 1e-3)


# A norm over a few elements is no measure: where one of them cancels, the whole array does. So
# small sizes are tried with many inputs and compared all together, over about this many elements.
ELEMENTS = 64


def seeds_for(dims) -> range:
    elements = dims[0] * max(dims[1:])
    return range(max(1, -(-ELEMENTS // elements)) if elements else 1)


def encoded(values, dtype: str) -> dict[str, np.ndarray]:
    return {name: device_engine.encode(value, dtype) for name, value in values.items()}


def encoded_inputs(op, dims, dtype: str, seed: int = 0) -> dict[str, np.ndarray]:
    return encoded(block_cells.random_inputs(op, dims, np.float64, seed), dtype)


def compare_with_oracle(engine, op, dims, dtype, attrs, inputs_list) -> None:
    """All of inputs_list, inputs as they lie in memory, in one comparison for each output."""
    got, want = [], []
    for inputs in inputs_list:
        outputs = engine.run(op, dims, dtype, inputs, attrs)
        got.append({name: device_engine.decode(v, dtype) for name, v in outputs.items()})
        exact = {name: device_engine.decode(v, dtype) for name, v in inputs.items()}
        with np.errstate(all="ignore"):  # NaN, infinities and overflow are asked for
            want.append(block_cells.oracle(op, exact, attrs))
    length = block_cells.reduction_length(dims, op, attrs)
    bound = tolerances.bound(dtype, length, op.backward)
    for name in got[0]:
        compare.assert_close(
            np.stack([outputs[name] for outputs in got]),
            np.stack([outputs[name] for outputs in want]),
            bound,
            f"{op.name} {dtype} {dims} {dict(attrs)}: {name}",
        )


def check_random(engine, op, dims, dtype, attrs) -> None:
    inputs_list = [encoded_inputs(op, dims, dtype, seed) for seed in seeds_for(dims)]
    compare_with_oracle(engine, op, dims, dtype, attrs, inputs_list)


def numbers(engine, dims_list) -> int:
    """Every op, type and attribute against the oracle, in pairs."""
    cases = covering.pairwise(dims_list, block_cells.op_cases(), block_cells.DTYPES)

    def check(dims, case, dtype) -> None:
        check_random(engine, case[0], dims, dtype, case[1])

    return check_program.each(cases, check)


def long_batches(engine) -> int:
    """Sums of the peepholes' gradients over many slices of rows."""

    def check(dtype, dims) -> None:
        check_random(engine, block_cells.LSTM_GRAD, dims, dtype, {"use_peephole": True})

    return check_program.each(itertools.product(block_cells.DTYPES, LONG_DIMS), check)


def clips(engine) -> int:
    """Clips of no effect, of infinite and of tiny size, over a NaN and infinities in the state."""
    op, dims = block_cells.LSTM, (5, 7, 9)
    cases = itertools.product(block_cells.DTYPES, SPECIAL_CLIPS, (False, True))

    def check(dtype, clip, peephole) -> None:
        attrs = {"cell_clip": clip, "use_peephole": peephole}
        check_random(engine, op, dims, dtype, attrs)
        values = block_cells.random_inputs(op, dims, np.float64)
        values["cs_prev"][0, 0] = np.inf
        values["cs_prev"][1, 8] = -np.inf
        values["cs_prev"][2, 1] = np.nan
        compare_with_oracle(engine, op, dims, dtype, attrs, [encoded(values, dtype)])

    return check_program.each(cases, check)


def special_values(engine) -> int:
    """A NaN or infinity in any argument gives what the equations give, and stays in its row."""
    dims = (3, 5, 9)
    cases = (
        (op, attrs, argument, special, dtype)
        for first, (op, attrs) in enumerate(block_cells.op_cases())
        for (argument, special), dtype in covering.in_turn(
            block_cells.special_arguments(op), block_cells.DTYPES, first
        )
    )

    def check(op, attrs, argument, special, dtype) -> None:
        values = block_cells.random_inputs(op, dims, np.float64, seed=2)
        values[argument].flat[1] = special
        compare_with_oracle(engine, op, dims, dtype, attrs, [encoded(values, dtype)])

    return check_program.each(cases, check)


def integers(engine, dims_list) -> int:
    """Small integers: nothing rounds before it is stored, so every bit must be right."""
    dims_list = [dims for dims in dims_list if 0 not in dims]
    cases = covering.pairwise(dims_list, block_cells.OPS.values(), block_cells.DTYPES)

    def check(dims, op, dtype) -> None:
        values = {}
        for position, (name, shape) in enumerate(op.shapes(dims).items()):
            rng = np.random.default_rng([position, *dims])
            sparse = rng.random(shape) < 4 / (1 + sum(dims))  # keeps the sums small
            values[name] = rng.integers(-2, 3, shape) * (sparse | (len(shape) == 1))
            values[name] = values[name].astype(np.float64)
        attrs = {"use_peephole": True} if "wci" in op.inputs else {}
        forward = op in (block_cells.GRU, block_cells.LSTM)
        attrs |= {"cell_clip": 0.0} if op is block_cells.LSTM else {}
        identity = {"identity": True} if forward else {}
        want = block_cells.oracle(op, values, attrs | identity)
        assert max(np.abs(v).max() for v in want.values()) < 2**24, "not exact in float32"
        got = engine.run(op, dims, dtype, encoded(values, dtype), attrs, identity=forward)
        for name, value in got.items():
            with np.errstate(over="ignore"):
                stored = device_engine.encode(want[name] + 0.0, dtype)
            np.testing.assert_array_equal(
                device_engine.decode(value, dtype),
                device_engine.decode(stored, dtype),
                err_msg=f"{op.name} {dtype} {dims}: {name}",
            )

    return check_program.each(cases, check)


def same_bits(engine) -> int:
    """Repeats, and in the emulation other orders of threads and other grids, give the same bits."""
    cases = covering.pairwise(
        block_cells.op_cases(), ("float", "half"), ((35, 40, 67), (100, 1, 33))
    )

    def check(case, dtype, dims) -> None:
        op, attrs = case
        inputs = encoded_inputs(op, dims, dtype)
        seen = set()
        for _ in engine.repeats():
            outputs = engine.run(op, dims, dtype, inputs, attrs)
            seen.add(b"".join(compare.bits(value) for value in outputs.values()))
        assert len(seen) == 1, f"{op.name} {dtype} {dims} {dict(attrs)}: bits differ"

    return check_program.each(cases, check)


def no_scratch(engine) -> int:
    """Each allocation that fails is reported."""
    count = 0
    for op, attrs in block_cells.op_cases():
        run = functools.partial(
            engine.run, op, (3, 5, 7), "half", encoded_inputs(op, (3, 5, 7), "half"), attrs
        )
        count += device_engine.allocations_of(lambda n, run=run: run(scratch_calls=n))
    assert count > 0, "no op asked for scratch"
    return count


def zeros(engine) -> int:
    """FillZero writes what it must and nothing else."""
    sizes = (0, 1, 3, 16, 1000)
    for size in sizes:
        host = engine.zeros(size)
        assert not host[:size].any() and (host[size:] == 0xFF).all(), f"FillZero of {size} bytes"
    return len(sizes)


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    engine = device_engine.Engine(arguments)
    engine.load_cublas(arguments.cublas, arguments.small)
    dims = SMALL_DIMS if arguments.small else block_cells.ODD_DIMS + block_cells.EMPTY_DIMS

    checks = {
        "zeros": lambda: zeros(engine),
        "integers, exactly": lambda: integers(engine, dims),
        "numbers": lambda: numbers(engine, dims),
        "same bits": lambda: same_bits(engine),
    }
    if not arguments.small:
        checks["clips"] = lambda: clips(engine)
        checks["special values"] = lambda: special_values(engine)
        checks["failed allocations"] = lambda: no_scratch(engine)
        checks["long batches"] = lambda: long_batches(engine)
    check_program.run(arguments, checks, engine.lives)


if __name__ == "__main__":
    main()
