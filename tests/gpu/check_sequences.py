"""Checks the CUDA engine's whole sequences in a library that run.py has built.

Needs Python and NumPy. Every check prints one line, and what failed if it fails.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import check_program
import device_engine
import numpy as np
import sequences
from helpers import block_cells, compare, tolerances
from helpers.reference import sequence as sequence_oracle

CELLS = sequences.CELLS
DIMS = (5, 4, 3, 6)  # T, B, I, H
LENGTHS = (3, 5, 0, 4)
# Ones, primes, a panel's width less or more one, chunks and slices that end inside.
ODD_DIMS = (
    (1, 1, 1, 1),
    (2, 1, 1, 17),
    (3, 7, 2, 1),
    (4, 3, 5, 7),
    (2, 9, 8, 33),
    (3, 2, 70, 11),
    (2, 33, 3, 10),
    (7, 1, 1, 300),
)
EMPTY_DIMS = (
    (0, 3, 4, 5),
    (4, 0, 3, 5),
    (4, 3, 0, 5),
    (4, 3, 5, 0),
    (0, 0, 3, 5),
    (4, 3, 0, 0),
    (0, 0, 0, 0),
)
# Enough rows and units for the larger tiles of a step's GEMM, forward and backward.
LARGE = (
    sequences.Call("rnn", (1, 130, 2, 420)),
    sequences.Call("lstm", (1, 130, 2, 104), "double", use_peephole=True),
    sequences.Call("gru", (1, 130, 2, 420)),
    sequences.Call("gru_after", (2, 130, 2, 124), "half"),
    sequences.Call("layer_norm_lstm", (1, 130, 2, 104)),
    sequences.Call("layer_norm_gru", (1, 130, 2, 124), "half"),
)
# More depths than a block takes at once, with blocks of few threads' rows; and none at all.
DEEP = (
    sequences.Call("lstm", (3, 3, 5, 0), proj=2),
    sequences.Call("lstm", (3, 3, 5, 0), "half", proj=2),
    sequences.Call("lstm", (2, 3, 5, 270), proj=261),
    sequences.Call("gru", (2, 3, 5, 530), "double"),
    # More units than a block of threads.
    sequences.Call("layer_norm_lstm", (2, 2, 5, 270), "double"),
    sequences.Call("layer_norm_gru", (2, 2, 5, 270), "double"),
    # More rows with lengths than a kernel's parameters hold.
    sequences.Call("rnn", (2, 490, 1, 1), lengths=tuple(b % 3 for b in range(490))),
)


def variants(cell: str) -> list[sequences.Call]:
    """Calls that between them use every field of the cell's arguments."""
    plain = sequences.Call(cell, DIMS)
    skip = dataclasses.replace(plain, dims=(5, 4, 6, 6), skip_input=True)
    gates = len(plain.gates)
    projected = dataclasses.replace(plain, dims=(5, 4, 6 * gates, 6), projected_input=True)

    def make(base=plain, **changes):
        return dataclasses.replace(base, **changes)

    found = [
        plain,
        make(time_major=False),
        make(backwards=True, state_stride=3),
        make(lengths=LENGTHS),
        make(lengths=LENGTHS, time_major=False, backwards=True, mask=True),
        make(mask=True, time_major=False, state_stride=2),
        make(mask=True, backwards=True, dropout=True),
        make(dropout=True, lengths=LENGTHS),
        make(lengths=(0, 0, 0, 0)),
        make(lengths=(2, 2, 3, 3), block_bytes=1),
        make(skip, lengths=LENGTHS, time_major=False),
        make(projected, mask=True, backwards=True),
        make(block_bytes=1),
        make(block_bytes=2000, mask=True, lengths=LENGTHS, dropout=True),
        make(without=("x", "w_x", "w_h", "w_p", "b", "b_x", "b_h", "h_prev", "cs_prev")),
        make(without=("h_last", "cs_last", "h_grad", "h_last_grad", "cs_grad", "cs_last_grad")),
        make(keeps=False, without=("h",)),
        make(resets=True),
        make(resets=True, dropout=True, lengths=LENGTHS, backwards=True),
        make(resets=True, mask=True, time_major=False, state_stride=2, block_bytes=1),
        make(projected, resets=True, lengths=LENGTHS, time_major=False),
    ]
    if cell in ("lstm", "gru", "gru_after"):
        drawn = {"zoneout": "draws", "without": ("co",)}
        found += [
            make(**drawn, mask=True, lengths=LENGTHS, backwards=True, block_bytes=1),
            make(**drawn, dropout=True, time_major=False, state_stride=2),
            make(zoneout="mean", without=("co",), mask=True),
            make(**drawn, resets=True, mask=True, backwards=True),
        ]
    orders = [make(layout=1), make(layout=1, dropout=True), make(projected, layout=1)]
    if cell == "gru":
        apart = {"candidate_apart": True}
        found += [make(**apart), make(**apart, dropout=True, mask=True, block_bytes=1)]
        return found + orders
    stack = {"weights_by_unit": True, "saved_in_steps": True, "h_extra": 5}
    found += [
        make(**stack),
        make(**stack, lengths=LENGTHS, backwards=True, time_major=False, state_stride=2),
        make(**stack, dropout=True, mask=True),
        make(skip, **stack, block_bytes=1),
        make(state_bias=False, weights_by_unit=True),
    ]
    if cell == "rnn":
        found += [make(call, relu=True) for call in found[:8]]
    if cell == "gru_after":
        found += orders
    if cell == "layer_norm_lstm":
        found += [
            make(norm_output_only=True),
            make(norm_output_only=True, lengths=LENGTHS, mask=True, block_bytes=1),
        ]
    if cell in sequences.NORMALIZED:
        found += [
            make(layout=1, epsilon=0.25),
            make(projected, layout=1, weights_by_unit=True, block_bytes=1),
            make(without=("b", "b_x", "gamma_h", "beta_c"), lengths=LENGTHS),
            make(without=("b", "b_x", "b_h", "beta_x", "gamma_x", "gamma_c")),
        ]
    if cell == "lstm":
        clipped = {"forget_bias": 0.75, "cell_clip": 0.3}
        found += [
            make(layout=1, **clipped),
            make(use_peephole=True, **clipped, mask=True, lengths=LENGTHS),
            make(use_peephole=True, layout=1, block_bytes=1, without=("wcf", "co")),
            make(proj=2, lengths=LENGTHS, mask=True),
            make(proj=2, resets=True, use_peephole=True, block_bytes=1),
            make(proj=2, **stack, dropout=True, block_bytes=1, time_major=False),
            make(proj=6, layout=1, use_peephole=True, backwards=True, state_stride=2),
            make(cell_clip=float("nan")),
            make(**drawn, **clipped, proj=2, lengths=LENGTHS),
            make(**drawn, **clipped, use_peephole=True, mask=True),
            make(zoneout="mean", without=("co",), proj=6, layout=1, use_peephole=True),
        ]
    return found


def with_modes(calls):
    """Each call in one of four modes: with cuBLAS or the checks' own BLAS, persistent or not.

    So over a few calls all of them meet all of both.
    """
    modes = list(itertools.product((False, True), repeat=2))
    for n, call in enumerate(calls):
        with_blas, persistent = modes[(n + n // 4) % 4]
        yield dataclasses.replace(call, with_blas=with_blas, persistent=persistent)


def given_backward(call, values, want, seed=0):
    """All that the backward is given: the forward's outputs as they are stored, and gradients."""
    given = dict(values)
    for name in (*sequence_oracle.saved_names(call.cell), "h"):
        if name in want:  # co may not be
            given[name] = sequences.stored(want[name], call.dtype)
    t, b, _, h = call.dims
    shapes = {"h_grad": (t, b, call.width), "h_last_grad": (b, call.width)}
    if call.has_cs:
        shapes |= {"cs_grad": (t, b, h), "cs_last_grad": (b, h)}
    rng = np.random.default_rng([seed, 7, *call.dims])
    for name, shape in shapes.items():
        given[name] = sequences.stored(rng.normal(size=shape), call.dtype)
    for name in (*call.without, *(("b", "b_x") if call.cell == "gru" else ())):
        # An input named in `without` gets no gradient.
        if name.endswith("_grad") or name == "co":
            given.pop(name, None)
    return given


def spoil(call, values, names):
    """NaN wherever a step is skipped or past the row's length, where nothing may be read."""
    dead = ~sequences.valid(call)
    if "mask" in values:
        dead = dead | ~values["mask"]
    spoilt = dict(values)
    for name in names:
        if name in values:
            spoilt[name] = np.where(dead[..., None], np.nan, values[name])
    return spoilt


def well_conditioned(cell: str, dims):
    """Sizes at which gradients are more than rounding errors.

    A norm hides the mean and the scale of a row. So the gradients of a single x or state, which
    only scales its row, and of a cell state of two units are zeros but for what epsilon leaves.
    """
    t, b, i, h = dims
    if cell in sequences.NORMALIZED:
        return (t, b, i if i == 0 else max(i, 2), h if h == 0 else max(h, 3))
    return dims


def forward_options(call) -> sequence_oracle.Options:
    """Those of the oracle's forward. What the rounding of a state for its GEMM changes, a norm may
    enlarge from step to step, so there the oracle rounds it too."""
    if call.cell not in sequences.NORMALIZED:
        return call.oracle_options()
    return dataclasses.replace(
        call.oracle_options(), multiplied=lambda h: sequences.stored(h, call.dtype)
    )


def check_forward(engine, call, values) -> dict[str, np.ndarray]:
    want = sequence_oracle.forward(call.cell, values, forward_options(call))
    got = engine.forward(call, spoil(call, values, ("x",)))
    t, _, i, h = call.dims
    # A 16-bit state is also rounded for its GEMM; observed: 0.73 of the bound.
    bound = tolerances.bound(call.precision, max(t, 1) * (i + max(h, call.width)))
    for name, value in got.items():
        numbers = device_engine.decode(value, call.dtype)
        compare.assert_close(numbers, want[name], bound, f"forward, {call}: {name}")
    return want


def check_backward(engine, call, values, want) -> None:
    given = given_backward(call, values, want)
    oracle_given = dict(given)
    if call.cell == "lstm":
        oracle_given.setdefault("co", np.tanh(given["cs"]))
    grads = sequence_oracle.backward(call.cell, oracle_given, call.oracle_options())
    past = ["x", "h_grad", "cs_grad"] if call.lengths is not None and not call.mask else ["x"]
    got = engine.backward(call, spoil(call, given, past))
    t, b, i, h = call.dims
    longest = max(t, 1) * max(i + h, len(call.gates) * h, b)
    bound = tolerances.gpu_gradient_bound(call.precision, longest)
    for name, value in got.items():
        numbers = device_engine.decode(value, call.dtype)
        compare.assert_close(numbers, grads[name], bound, f"backward, {call}: {name}")


MOST_RSTD = 8.0


def values_of(call):
    """Random numbers whose norms enlarge no error more than MOST_RSTD times.

    A row of sums that are nearly equal has a large rstd, and what is left of them is their rounding
    errors: a random one of ulp / 2 in each input moved an element by four times its bound (seen).
    """
    for seed in range(10):
        values = sequences.random_values(call, seed)
        if call.cell not in sequences.NORMALIZED:
            break
        rstd = sequence_oracle.forward(call.cell, values, forward_options(call))["rstd"]
        if rstd.max(initial=0.0) <= MOST_RSTD:
            break
    return values


def check_call(engine, call) -> None:
    values = values_of(call)
    check_backward(engine, call, values, check_forward(engine, call, values))


def check_calls(engine, calls) -> int:
    return check_program.each(calls, lambda call: check_call(engine, call))


def numbers(engine, cell: str) -> int:
    """Every variant, in float64, where the oracle shows any wrong term."""
    return check_calls(
        engine, with_modes(dataclasses.replace(c, dtype="double") for c in variants(cell))
    )


def types(engine) -> int:
    calls = [
        dataclasses.replace(call, dtype=dtype)
        for cell in CELLS
        for call in (variants(cell)[7], variants(cell)[-1], variants(cell)[-2])
        for dtype in ("half", "bfloat16", "float")
    ]
    return check_calls(engine, with_modes(calls))


def sizes(engine, dims_list) -> int:
    calls = []
    for count, (cell, dims) in enumerate(itertools.product(CELLS, dims_list)):
        dtype = block_cells.DTYPES[count % 4]
        dims = well_conditioned(cell, dims)
        lengths = tuple(range(dims[1]))[::-1]
        lengths = tuple(min(n, dims[0]) for n in lengths) if count % 3 == 0 else None
        call = sequences.Call(cell, dims, dtype, lengths=lengths, time_major=count % 2 == 0)
        calls.append(list(with_modes([call] * 4))[(count + count // len(dims_list)) % 4])
    return check_calls(engine, calls)


def blas_steps(engine) -> int:
    """Variants with each step's GEMM in the BLAS, in every layout of the weights."""
    calls = []
    for cell in CELLS:
        for number, call in enumerate(variants(cell)):
            if number % 3 and not (call.weights_by_unit or call.proj):
                continue
            dtype = "double" if len(calls) % 3 else "bfloat16"
            # More rows than the kernel for a few of them has.
            rows = 10 if dtype == "double" else 18
            dims = (call.dims[0], rows, *call.dims[2:])
            lengths = call.lengths and tuple(call.lengths[b % 4] for b in range(rows))
            call = dataclasses.replace(call, dims=dims, lengths=lengths, dtype=dtype)
            calls.append(dataclasses.replace(call, with_blas=True, blas_step_work=1))
    return check_calls(engine, calls)


def bits_of_repeats(engine, call: sequences.Call, repeats: Iterable) -> list[str]:
    """Of a forward and its backward call, as often as there are `repeats`."""
    values = sequences.random_values(call)
    want = sequence_oracle.forward(call.cell, values, call.oracle_options())
    given = given_backward(call, values, want)
    return [
        compare.digest(
            (*engine.forward(call, values).values(), *engine.backward(call, given).values())
        )
        for _ in repeats
    ]


def all_bits(engine, call: sequences.Call) -> str:
    return bits_of_repeats(engine, call, (None,))[0]


def same_bits(engine) -> int:
    """Repeats, and in the emulation other orders of threads and grids, give the same bits."""
    calls = (
        dataclasses.replace(variants(cell)[n], dtype=dtype)
        for cell, dtype, n in itertools.product(CELLS, ("float", "bfloat16"), (4, 7, -1))
    )

    def check(call) -> None:
        seen = set(bits_of_repeats(engine, call, engine.engine.repeats()))
        assert len(seen) == 1, f"{call}: bits differ"

    return check_program.each(calls, check)


def layouts_agree(engine) -> int:
    """The layout of arrays in memory changes no bit."""

    def check(cell) -> None:
        base = sequences.Call(cell, DIMS, lengths=LENGTHS, mask=True)
        values = sequences.random_values(base)
        want = engine.forward(base, values)
        changes = [{"time_major": False}, {"state_stride": 3}]
        if cell == "gru":
            changes += [{"candidate_apart": True}]
        else:
            changes += [{"weights_by_unit": True}, {"saved_in_steps": True}, {"h_extra": 3}]
        for change in changes:
            got = engine.forward(dataclasses.replace(base, **change), values)
            for name, value in got.items():
                assert compare.bits(value) == compare.bits(want[name]), f"{cell} {change} {name}"

    return check_program.each(CELLS, check)


def recomputed(engine) -> int:
    """A backward call that runs the forward pass again has the bits of one that reads it."""
    calls = (
        dataclasses.replace(call, dtype=dtype, state_bias=False)
        for cell, (n, dtype) in itertools.product(
            sequences.RECOMPUTED, enumerate(block_cells.DTYPES)
        )
        for call in with_modes(variants(cell)[n :: len(block_cells.DTYPES)])
        if call.keeps and ("co" not in call.without or call.zoneout)
    )

    def check(call) -> None:
        values = sequences.random_values(call)
        outputs = engine.forward(call, values)
        outputs = {k: device_engine.decode(v, call.dtype) for k, v in outputs.items()}
        given = given_backward(call, values, outputs)
        given.pop("co", None)  # tanh(cs) then, as a call with spans has it
        want = engine.backward(call, given)
        for name in sequence_oracle.saved_names(call.cell):
            given.pop(name, None)
        got = engine.backward(dataclasses.replace(call, span_steps=2), given)
        for name, value in want.items():
            assert compare.bits(got[name]) == compare.bits(value), f"{call}: {name}"

    return check_program.each(calls, check)


def not_multiplied(engine) -> int:
    """A row's last step has no step after it, and then no recurrent weight: it may be a NaN."""
    modes = itertools.product(CELLS, (1, 5), (False, True), (1, 1 << 40))

    def check(cell, longest, persistent, blas_step_work) -> None:
        call = sequences.Call(
            cell,
            (5, 10, 2, 5),
            "double",
            lengths=(longest, *(1,) * 9),
            persistent=persistent,
            with_blas=True,
            blas_step_work=blas_step_work,
        )
        values = sequences.random_values(call)
        want = sequence_oracle.forward(cell, values, call.oracle_options())
        values["w_h"][:, 0] = np.nan  # of a gate whose GEMM follows the others
        check_backward(engine, call, values, want)

    return check_program.each(modes, check)


def no_scratch(engine) -> int:
    """Each allocation that fails is reported."""

    def check(cell) -> None:
        call = dataclasses.replace(variants(cell)[-1], dtype="half", lengths=LENGTHS)
        values = sequences.random_values(call)
        want = sequence_oracle.forward(cell, values, call.oracle_options())
        given = given_backward(call, values, want)
        for run, arrays in ((engine.forward, values), (engine.backward, given)):
            needed = device_engine.allocations_of(
                lambda n, run=run, arrays=arrays: run(
                    dataclasses.replace(call, scratch_calls=n), arrays
                )
            )
            assert needed > 0, "asks for no scratch"

    return check_program.each(CELLS, check)


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    engine = device_engine.Engine(arguments)
    engine.load_cublas(arguments.cublas, arguments.small)
    calls = sequences.Sequences(engine)
    checks = {f"sequences, {cell}": lambda cell=cell: numbers(calls, cell) for cell in CELLS}
    if not arguments.small:
        checks["sequences, types"] = lambda: types(calls)
        checks["sequences, sizes"] = lambda: sizes(calls, ODD_DIMS + EMPTY_DIMS)
        checks["sequences, steps by the BLAS"] = lambda: blas_steps(calls)
        checks["sequences, larger tiles"] = lambda: check_calls(calls, LARGE)
        checks["sequences, deep GEMMs"] = lambda: check_calls(calls, DEEP)
        checks["sequences, recomputed"] = lambda: recomputed(calls)
        checks["sequences, not multiplied"] = lambda: not_multiplied(calls)
        checks["sequences, failed allocations"] = lambda: no_scratch(calls)
        checks["sequences, layouts agree"] = lambda: layouts_agree(calls)
    checks["sequences, same bits"] = lambda: same_bits(calls)
    check_program.run(arguments, checks, engine.lives)


if __name__ == "__main__":
    main()
