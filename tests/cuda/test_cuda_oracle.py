"""The oracle of tests/gpu/check_sequences.py, which no other test would find wrong: against the
oracle of the CPU's tests, and its gradients against finite differences."""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest
from helpers import compare, sequence_reference, tolerances

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import check_sequences
import sequence_oracle
import sequences

DIMS = (3, 4, 2, 3)
# Both are float64, and sums differ in their order.
_BOUND = tolerances.bound("double", DIMS[0] * DIMS[1] * 4 * DIMS[3], backward=True)


def _cotangents(call, seed=3):
    """Gradients of the outputs by name."""
    t, b, _, h = call.dims
    shapes = {"h": (t, b, call.width), "h_last": (b, call.width)}
    if call.cell == "lstm":
        shapes |= {"cs": (t, b, h), "cs_last": (b, h)}
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _gradients(call, values, cotangents):
    outputs = sequence_oracle.forward(call.cell, values, call.oracle_options())
    given = {**values, **{k: v for k, v in outputs.items() if not k.endswith("_last")}}
    given |= {f"{name}_grad": value for name, value in cotangents.items()}
    return sequence_oracle.backward(call.cell, given, call.oracle_options())


def _calls(cell):
    """One of each kind of numbers; how they lie in memory is not the oracle's."""
    seen = {}
    for call in check_sequences.variants(cell):
        t, b, i, h = call.dims
        dims = (3, b, 3 * i // h if i % h == 0 else 2, 3)
        lengths = call.lengths and tuple(min(n, 3) for n in call.lengths)
        proj = min(call.proj, 2)
        call = dataclasses.replace(
            call, dims=dims, lengths=lengths, proj=proj, dtype="double", cell_clip=0.0, without=()
        )
        seen[call.oracle_options().__repr__().split("stored")[0], call.mask, call.dropout, proj] = (
            call
        )
    return list(seen.values())


@pytest.mark.parametrize("cell", sequences.FUNCTIONS)
def test_gradients_are_finite_differences(cell):
    for call in _calls(cell):
        values = sequences.random_values(call)
        cotangents = _cotangents(call)

        def total(moved, call=call, cotangents=cotangents):
            outputs = sequence_oracle.forward(call.cell, moved, call.oracle_options())
            return sum((c * outputs[name]).sum() for name, c in cotangents.items())

        step = tolerances.FINITE_DIFFERENCE_STEP
        for name, got in _gradients(call, values, cotangents).items():
            want = np.zeros_like(got)
            for index in np.ndindex(*want.shape):
                sides = []
                for sign in (1, -1):
                    moved = {**values, name: values[name].copy()}
                    moved[name][index] += sign * step
                    sides.append(total(moved))
                want[index] = (sides[0] - sides[1]) / (2 * step)
            compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, f"{name} of {call}")


def _reference_cell(call, values):
    if call.cell == "lstm":
        return sequence_reference.lstm_cell(
            np.concatenate([values["w_x"], values["w_h"]]),
            *(values.get(name, np.zeros(0)) for name in ("wci", "wcf", "wco")),
            values["b"] + values["b_h"],
            order="icfo" if call.layout == 0 else "ifco",
            use_peephole=call.peephole,
            forget_bias=call.forget_bias,
            cell_clip=float(np.float32(call.cell_clip)),
        )
    if call.cell == "gru":
        w, h = np.concatenate([values["w_x"], values["w_h"]]), call.dims[3]
        b = values["b_x"]
        return sequence_reference.gru_cell(w[:, : 2 * h], w[:, 2 * h :], b[: 2 * h], b[2 * h :])
    return sequence_reference.gru_after_cell(*(values[n] for n in ("w_x", "w_h", "b_x", "b_h")))


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize(
    "call",
    [
        sequences.Call("lstm", DIMS, "double", forget_bias=0.5, cell_clip=0.4),
        sequences.Call("lstm", DIMS, "double", layout=1, peephole=True),
        sequences.Call("gru", DIMS, "double"),
        sequences.Call("gru_after", DIMS, "double"),
    ],
    ids=lambda call: f"{call.cell}{call.layout}",
)
def test_agrees_with_the_other_oracle(call, backwards):
    call = dataclasses.replace(call, backwards=backwards, mask=True)
    values = sequences.random_values(call)
    cell = _reference_cell(call, values)
    names = ("cs", "h") if call.cell == "lstm" else ("h",)
    state = [values[f"{name}_prev"] for name in names]
    arguments = (cell, values["x"], state)
    outputs, last, _ = sequence_reference.forward(*arguments, values["mask"], backwards)
    got = sequence_oracle.forward(call.cell, values, call.oracle_options())
    compare.assert_close(got["h"], outputs[-1], _BOUND, "h")
    for name, want in zip(names, last, strict=True):
        compare.assert_close(got[name + "_last"], want, _BOUND, name + "_last")

    cotangents = _cotangents(call)
    given = [None] * cell.outputs
    given[-1] = cotangents["h"]
    if call.cell == "lstm":
        given[1] = cotangents["cs"]
    want = sequence_reference.backward(
        *arguments[:3],
        given,
        [cotangents[f"{name}_last"] for name in names],
        values["mask"],
        backwards,
    )
    gradients = _gradients(call, values, cotangents)
    compare.assert_close(gradients["x"], want[0], _BOUND, "x")
    for name, expected in zip(names, want[1:], strict=False):
        compare.assert_close(gradients[f"{name}_prev"], expected, _BOUND, name)
    weights = np.concatenate([gradients["w_x"], gradients["w_h"]])
    rest = want[1 + len(names) :]
    if call.cell == "gru":
        rest = (np.concatenate(rest[:2], axis=1),)
    elif call.cell == "gru_after":
        rest = (np.concatenate(rest[:2]),)
    compare.assert_close(weights, rest[0], _BOUND, "weights")
