"""The reference of whole sequences: its gradients are the differences of its forward pass.

In every variant that the CUDA engine is checked with: masks, lengths, dropout, projections, inputs
without weights. The forward is compared with other frameworks' in the tests of stacks and layers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest
from helpers import compare, tolerances
from helpers.reference import sequence
from helpers.second_cases import along

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import check_sequences
import sequences

DIMS = (3, 4, 2, 3)


def _cotangents(call, seed=3):
    """Gradients of the outputs by name."""
    t, b, _, h = call.dims
    shapes = {"h": (t, b, call.width), "h_last": (b, call.width)}
    if call.has_cs:
        shapes |= {"cs": (t, b, h), "cs_last": (b, h)}
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def _gradients(call, values, cotangents):
    outputs = sequence.forward(call.cell, values, call.oracle_options())
    given = {**values, **{k: v for k, v in outputs.items() if not k.endswith("_last")}}
    given |= {f"{name}_grad": value for name, value in cotangents.items()}
    return sequence.backward(call.cell, given, call.oracle_options())


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


@pytest.mark.types
@pytest.mark.parametrize("cell", sequences.CELLS)
def test_gradients_are_finite_differences(cell):
    for call in _calls(cell):
        values = sequences.random_values(call)
        cotangents = _cotangents(call)

        def total(moved, call=call, cotangents=cotangents):
            outputs = sequence.forward(call.cell, moved, call.oracle_options())
            return sum((c * outputs[name]).sum() for name, c in cotangents.items())

        step = tolerances.FINITE_DIFFERENCE_STEP
        for seed, (name, gradient) in enumerate(_gradients(call, values, cotangents).items()):
            direction = along(gradient, seed)
            up, down = (
                total({**values, name: values[name] + sign * step * direction}) for sign in (1, -1)
            )
            got, want = np.sum(gradient * direction), (up - down) / (2 * step)
            compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, f"{name} of {call}")
