"""What tf_blockrnn.layers.LSTM has beyond Keras: peepholes, a cell clip, a projection."""

from __future__ import annotations

import itertools
import warnings

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
    op_types,
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


@pytest.fixture(autouse=True)
def _package(tfb):
    keras.utils.set_random_seed(7)


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
@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.3, 0.3)])
def test_gradients_are_those_of_keras_own_operations(monkeypatch, extras, rates):
    """The same layer on its other path; the masks are of equal seeds."""
    arguments = {"dropout": rates[0], "recurrent_dropout": rates[1], "seed": 5}
    ours, slow = (
        make(**extras, **arguments, return_sequences=True, return_state=True) for _ in range(2)
    )
    for cls in {type(slow)}:
        monkeypatch.setattr(
            cls,
            "why_not_fused",
            property(
                lambda self, original=cls.why_not_fused: (
                    "test" if self is slow else original.__get__(self)
                )
            ),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = [
            values(layer, sequence().astype("float64"), mask=MASK, training=True)
            for layer in (ours, slow)
        ]
    assert ours.fused and not slow.fused
    assert_same(*both, dtype="float64")


@pytest.mark.parametrize("extras", EXTRAS, ids=str)
def test_config_and_weights_come_back(extras):
    layer = make(**extras, go_backwards=True, dropout=0.1, recurrent_dropout=0.1, seed=3)
    config = layer.get_config()
    assert {k: config[k] for k in ("use_peephole", "cell_clip", "projection") if k in config} == (
        extras
    )
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(again) is type(layer) and again.get_config() == config
    again.build((BATCH, TIME, INPUT))
    again.set_weights(layer.get_weights())
    assert_same([again(sequence())], [layer(sequence())], dtype="float64")
    names = ["kernel", "recurrent_kernel", "bias"]
    names += ["wci", "wcf", "wco"] if layer.use_peephole else []
    names += ["w_p"] if layer.projection else []
    assert [w.name for w in layer.weights] == names
    assert len({w.path for w in layer.weights}) == len(names)
    # Of Keras' own cell, which was in this one's place, nothing is left.
    assert len(layer.variables) == len(names) + 1, "the state of one seed generator and no more"


def test_a_plain_layer_says_nothing_of_them():
    config = make().get_config()
    assert keras.layers.LSTM.from_config(config).get_config() == config
    with pytest.raises((TypeError, ValueError), match="projection"):
        keras.layers.LSTM.from_config(make(projection=2).get_config())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cell_clip": 0.0}, ValueError, "cell_clip must be a number above 0"),
        ({"cell_clip": float("nan")}, ValueError, "cell_clip must be a number above 0"),
        ({"cell_clip": "1"}, TypeError, "cell_clip must be a number above 0"),
        ({"projection": 0}, ValueError, "projection must be an integer above 0"),
        ({"projection": 2.5}, TypeError, "projection must be an integer above 0"),
        ({"projection": "4"}, TypeError, "projection must be an integer above 0"),
        ({"use_peephole": True, "use_cudnn": True}, ValueError, "use_cudnn=True"),
    ],
)
def test_refuses_what_makes_no_sense(arguments, error, message):
    with pytest.raises(error, match=message):
        make(**arguments)


def test_other_activations_and_cells_have_them_too(tf, monkeypatch):
    """Keras' own operations, and steps of a cell, leave none of them out."""
    from tf_blockrnn import layers
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    extras = {"use_peephole": True, "cell_clip": 0.1875, "projection": PROJECTION}
    with pytest.warns(UserWarning, match="activation is relu"):
        layer = make(**extras, activation="relu")
        unclipped = make(use_peephole=True, projection=PROJECTION, activation="relu")
    x = sequence().astype("float64")
    assert not layer.fused and layer(x).shape == (BATCH, PROJECTION)
    assert np.abs(np.asarray(layer(x)) - np.asarray(unclipped(x))).max() > 1e-3

    fused = make(**extras)
    cell = layers.LSTMCell(UNITS, dtype="float64", **extras)
    stepwise = keras.layers.RNN(cell, dtype="float64")
    stepwise.build((BATCH, TIME, INPUT))
    stepwise.set_weights(fused.get_weights())
    assert_same([fused(x, mask=MASK)], [stepwise(x, mask=MASK)], dtype="float64")
    assert cell.fused
    assert "BlockRNN>LSTMSequence" in op_types(tf.function(stepwise), tf.constant(x))


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


def test_cells_with_peepholes_equal_the_layer():
    from tf_blockrnn import layers

    layer = make(use_peephole=True, cell_clip=0.1875)
    cell = layers.LSTMCell(UNITS, dtype="float64", use_peephole=True, cell_clip=0.1875)
    stepwise = keras.layers.RNN(cell, dtype="float64")
    stepwise.build((BATCH, TIME, INPUT))
    stepwise.set_weights(layer.get_weights())
    assert cell.fused
    both = [values(each, sequence().astype("float64")) for each in (layer, stepwise)]
    assert_same(*both, dtype="float64")


def test_a_bidirectional_projection_in_a_model(tmp_path):
    from tf_blockrnn import layers

    inputs = keras.Input((None, INPUT))
    y = keras.layers.Bidirectional(
        layers.LSTM(UNITS, projection=PROJECTION, use_peephole=True, return_sequences=True)
    )(inputs)
    assert y.shape == (None, None, 2 * PROJECTION)
    y, h, c = layers.LSTM(UNITS, projection=PROJECTION, return_state=True)(y)
    assert (h.shape, c.shape) == ((None, PROJECTION), (None, UNITS))
    model = keras.Model(inputs, keras.layers.Dense(1)(y))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    losses = model.fit(sequence(), np.ones((BATCH, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(sequence()), model(sequence()))


def test_a_stateful_projection_goes_on():
    layer = make(projection=PROJECTION, stateful=True)
    assert [tuple(state.shape) for state in layer.states] == [(BATCH, PROJECTION), (BATCH, UNITS)]
    x = sequence().astype("float64")
    first, second = np.asarray(layer(x)), np.asarray(layer(x))
    whole = make(projection=PROJECTION)
    assert_same([first], [whole(x)], dtype="float64")
    assert_same([second], [whole(np.concatenate([x, x], axis=1))], dtype="float64", steps=2)
