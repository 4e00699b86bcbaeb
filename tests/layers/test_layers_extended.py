"""What tf_blockrnn.layers.LSTM has beyond Keras: peepholes, a cell clip, a projection."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
from helpers import tolerances
from helpers.compare import assert_close
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    MASK,
    REDUCTION,
    TIME,
    UNITS,
    assert_same,
    randomise,
    sequence,
    values,
)

PROJECTION = 2
EXTRAS = [
    {
        **({"use_peephole": True} if peephole else {}),
        **({"cell_clip": 0.1875} if clip else {}),
        **({"projection": PROJECTION} if projection else {}),
    }
    for peephole, clip, projection in itertools.product([True, False], repeat=3)
    if peephole or clip or projection
]


def make(dtype="float64", **arguments):
    from tf_blockrnn import layers

    layer = layers.LSTM(UNITS, dtype=dtype, **arguments)
    layer.build((BATCH, TIME, INPUT))
    randomise(layer)
    return layer


def expected(layer, x, mask):
    """The equations of the class's documentation, in NumPy, with Keras' rules of masks."""
    kernel, recurrent, bias, *extras = layer.get_weights()
    wci = wcf = wco = np.zeros(UNITS)
    if layer.use_peephole:
        wci, wcf, wco, *extras = extras
    w_p = extras[0] if layer.projection else np.eye(UNITS)
    h, c = np.zeros((BATCH, w_p.shape[0])), np.zeros((BATCH, UNITS))
    outputs, output = [], np.zeros_like(h)

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, axis=1)
        new_c = sigmoid(f + c * wcf) * c + sigmoid(i + c * wci) * np.tanh(g)
        if layer.cell_clip:
            new_c = np.clip(new_c, -layer.cell_clip, layer.cell_clip)
        new_h = (sigmoid(o + new_c * wco) * np.tanh(new_c)) @ w_p.T
        keep = mask[:, t, None]
        h, c, output = (
            np.where(keep, new_h, h),
            np.where(keep, new_c, c),
            np.where(keep, new_h, output),
        )
        outputs.append(output)
    return np.stack(outputs, axis=1), h, c


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_numbers_are_those_of_the_equations(extras):
    layer = make(**extras, return_sequences=True, return_state=True)
    assert layer.fused
    x = sequence().astype("float64")
    bound = tolerances.composed_bound("float64", REDUCTION)
    for mask in (None, MASK):
        want = expected(layer, x, np.ones_like(MASK) if mask is None else mask)
        for name, mine, its in zip("yhc", layer(x, mask=mask), want, strict=True):
            assert_close(mine, its, bound, name)
    clipped = np.abs(want[2]).max() <= layer.cell_clip if layer.cell_clip else True
    assert clipped
    width = PROJECTION if layer.projection else UNITS
    shapes = layer.compute_output_shape((BATCH, TIME, INPUT))
    assert shapes == ((BATCH, TIME, width), (BATCH, width), (BATCH, UNITS))


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_gradients_are_those_of_keras_own_operations(extras, rate):
    """The same layer on its other path; the masks are of equal seeds."""
    from tf_blockrnn.layers import _fused_call

    arguments = {"dropout": rate, "recurrent_dropout": rate, "seed": 5}
    arguments |= {"return_sequences": True, "return_state": True}
    ours, slow = (make(**extras, **arguments) for _ in range(2))
    call = {"x": sequence().astype("float64"), "mask": MASK, "training": True}
    assert ours.fused
    mine = values(ours, **call)
    with _fused_call.without_ops():
        assert_same(mine, values(slow, **call), dtype="float64")


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_weights_are_named(extras):
    layer = make(**extras, dropout=0.1)
    names = ["kernel", "recurrent_kernel", "bias"]
    names += ["wci", "wcf", "wco"] if layer.use_peephole else []
    names += ["w_p"] if layer.projection else []
    assert [w.name for w in layer.weights] == names
    assert len({w.path for w in layer.weights}) == len(names)
    # Of Keras' own cell, which was in this one's place, nothing is left.
    assert len(layer.variables) == len(names) + 1, "the state of one seed generator and no more"


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_cells_have_the_numbers_of_the_layer(extras):
    """On ops for each step, and on Keras' own operations, which leave none of it out."""
    from tf_blockrnn import layers

    x = sequence().astype("float64")
    for activation in ("tanh", "softsign"):
        layer = make(**extras, activation=activation)
        cell = layers.LSTMCell(UNITS, dtype="float64", **extras, activation=activation)
        stepwise = keras.layers.RNN(cell, dtype="float64")
        stepwise.build((BATCH, TIME, INPUT))
        stepwise.set_weights(layer.get_weights())
        assert layer.fused == cell.fused == (activation == "tanh")
        assert_same(*(values(each, x, mask=MASK) for each in (layer, stepwise)), dtype="float64")


def test_cudnn_is_not_asked_for_what_it_lacks(tf, tfb, monkeypatch):
    """With a GPU, Keras' path would hand three of the weights to cuDNN and forget the others."""
    from keras.src import backend

    def refuse(*args, **kwargs):
        raise AssertionError("cuDNN was asked")

    layer = make(use_peephole=True)
    layer.use_cudnn = "auto"  # as keras.layers.Bidirectional does with a layer that it is given
    want = layer(sequence())
    monkeypatch.setattr(backend, "lstm", refuse)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "no nvcc")
    assert "GPU" in layer.why_not_fused
    assert_same([layer(sequence())], [want], dtype="float64")
    with pytest.raises(AssertionError, match="cuDNN was asked"):
        make()(sequence())


def test_shapes_of_a_bidirectional_projection():
    from tf_blockrnn import layers

    y = keras.layers.Bidirectional(
        layers.LSTM(UNITS, projection=PROJECTION, use_peephole=True, return_sequences=True)
    )(keras.Input((None, INPUT)))
    assert y.shape == (None, None, 2 * PROJECTION)
    y, h, c = layers.LSTM(UNITS, projection=PROJECTION, return_state=True)(y)
    assert y.shape == h.shape == (None, PROJECTION) and c.shape == (None, UNITS)


def test_a_stateful_projection_goes_on():
    layer = make(projection=PROJECTION, stateful=True)
    assert [tuple(state.shape) for state in layer.states] == [(BATCH, PROJECTION), (BATCH, UNITS)]
    x = sequence().astype("float64")
    first, second = np.asarray(layer(x)), np.asarray(layer(x))
    whole = make(projection=PROJECTION)
    assert_same([first], [whole(x)], dtype="float64")
    assert_same([second], [whole(np.concatenate([x, x], axis=1))], dtype="float64", steps=2)
