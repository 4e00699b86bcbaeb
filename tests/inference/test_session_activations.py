"""Sessions of cells with relu and hard sigmoids: against NumPy float64 and Keras' layers."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from helpers import tolerances, weight_stacks
from helpers.compare import assert_close
from helpers.covering import in_turn
from helpers.session_oracle import F32, assert_same, leaves, normal, random_state
from helpers.weight_stacks import Stack

from tf_blockrnn.inference import Session

RELU, STEEP, FLAT = {"activation": "relu"}, {"hard_sigmoid": 0.2}, {"hard_sigmoid": 1 / 6}
BOTH = RELU | STEEP
SMALL, LARGE = {"inputs": 5, "units": 17}, {"inputs": 70, "units": 150}
STACKS = [
    Stack("lstm", **SMALL, **BOTH, dtype=F32),
    Stack("lstm", **SMALL, **STEEP, biases=("b_x",), dtype=F32),
    Stack("lstm", **SMALL, **RELU, cell_clip=0.3, dtype=F32),
    Stack("lstm", **SMALL, **FLAT, peepholes=True, dtype=F32),
    Stack(
        "lstm", **SMALL, **BOTH, peepholes=True, cell_clip=0.5, proj=7, zoneout_c=0.25, dtype=F32
    ),
    Stack("lstm", layers=2, directions=2, **SMALL, **STEEP, dtype=F32),
    Stack("gru", **SMALL, **BOTH, dtype=F32),
    Stack("gru", layers=2, directions=2, **SMALL, **FLAT, zoneout_h=0.25, dtype=F32),
    Stack("gru", **SMALL, **RELU, reset_after=False, biases=(), dtype=F32),
    Stack("gru", directions=2, **SMALL, **STEEP, reset_after=False, dtype=F32),
    Stack("lstm", **LARGE, **STEEP, dtype=F32),
    Stack("gru", **LARGE, **BOTH, dtype=F32),
    Stack("gru", **LARGE, **FLAT, reset_after=False, dtype=F32),
]


def _weights(stack: Stack):
    """With those of the state scaled, so that what relu lets through does not grow without end."""
    described = weight_stacks.random_weights(stack)

    def scaled(one):
        return one and dataclasses.replace(one, w_h=one.w_h / np.float32(np.sqrt(stack.units)))

    layers = [
        dataclasses.replace(layer, forward=scaled(layer.forward), backward=scaled(layer.backward))
        for layer in described.layers
    ]
    return dataclasses.replace(described, layers=layers)


@pytest.mark.parametrize(("stack", "threads"), in_turn(STACKS, [1, 2]), ids=str)
def test_computes_the_equations(stack, threads):
    """Each row as a call of its steps alone."""
    described = _weights(stack)
    session = Session(described, threads=threads)
    bound = tolerances.stack_bound(F32, stack.reduction_length, stack.layers)
    x, lengths = normal(3, 12, stack.inputs), [12, 0, 5]
    y, state = session.run(x, lengths=lengths)
    for row, length in enumerate(lengths):
        want = weight_stacks.run(described, x[row : row + 1, :length].swapaxes(0, 1))
        assert_close(y[row, :length], want.output[:, 0], bound, f"outputs of row {row}")
        assert not y[row, length:].any()
        parts = [want.h, want.c] if stack.cell == "lstm" else [want.h]
        states = [part[n, 0] for n in range(len(want.h)) for part in parts]
        for got, one in zip(leaves(state), states, strict=True):
            assert_close(got[row], one, bound, f"state of row {row}")


@pytest.mark.parametrize("stack", STACKS, ids=str)
def test_bits_on_any_number_of_threads_and_of_steps(stack):
    described = _weights(stack)
    one, *others = (Session(described, threads=threads) for threads in (1, 2, 3))
    for batch, steps in ((1, 40), (20, 9)):
        x, state = normal(batch, steps, stack.inputs), random_state(one, batch)
        want = one.run(x, state=state)
        for session in others:
            assert_same(session.run(x, state=state), want)
            if stack.directions == 1:
                assert_same(session.step(x[:, 0], state=state), one.step(x[:, 0], state=state))
        if stack.directions == 1:
            for t in range(steps):
                y, state = one.step(x[:, t], state=state)
                np.testing.assert_allclose(y, want[0][:, t], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("options", [RELU, FLAT, RELU | FLAT], ids=str)
@pytest.mark.parametrize(
    ("kind", "form"),
    [("LSTM", {}), ("GRU", {"reset_after": True}), ("GRU", {"reset_after": False})],
    ids=str,
)
def test_computes_what_keras_does(kind, form, options, bidirectional):
    names = {"activation": options.get("activation", "tanh")}
    if "hard_sigmoid" in options:
        names["recurrent_activation"] = "hard_sigmoid"
    keras.utils.set_random_seed(4)
    layer = getattr(keras.layers, kind)(11, return_sequences=True, **names, **form)
    if bidirectional:
        layer = keras.layers.Bidirectional(layer)
    x = normal(3, 9, 7)
    want = keras.ops.convert_to_numpy(layer(x))
    assert_close(Session(layer).run(x)[0], want, tolerances.bound(F32, 9 * 18))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_what_is_not_finite(precision):
    """A NaN stays one in relu and in the hard sigmoid."""
    session = Session(_weights(STACKS[0]), precision)
    x = normal(2, 3, 5)
    want, _ = session.run(x)
    x[0, 1, 2] = np.nan
    got, _ = session.run(x)
    assert np.isnan(got[0, 1:]).all()
    np.testing.assert_array_equal(got[0, 0], want[0, 0])
    np.testing.assert_array_equal(got[1], want[1])
