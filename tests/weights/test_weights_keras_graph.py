"""Lists of layers that are a stack in their model, and lists that are not."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers import weight_stacks
from helpers.compare import assert_close
from helpers.weight_stacks import Stack

from tf_blockrnn import weights

K = keras.layers


def gru(name: str, **options):
    return K.GRU(4, return_sequences=True, name=name, **options)


@keras.saving.register_keras_serializable("tests")
class LoudDropout(K.Dropout):
    def call(self, inputs, training=False):
        return 2 * inputs


def chain(*between, **options) -> keras.Model:
    """below, what is between, above."""
    layers = [gru("below", **options), *between, gru("above")]
    return keras.Sequential([keras.Input((5, 4)), *layers])


def two(model: keras.Model) -> list:
    return [model.get_layer("below"), model.get_layer("above")]


@pytest.mark.parametrize(
    "between",
    [
        lambda: [],
        lambda: [K.Dropout(0.5), K.SpatialDropout1D(0.5)],
        lambda: [K.GaussianNoise(0.5), K.Identity(), K.ActivityRegularization(0.1)],
        lambda: [K.Activation("linear"), K.TimeDistributed(K.Dropout(0.5))],
        lambda: [keras.Sequential([K.Dropout(0.5)])],
    ],
)
def test_layers_that_return_their_input_may_be_between(between):
    model = chain(*between())
    stack = weights.from_keras(two(model))
    x = weight_stacks.inputs(Stack("gru", inputs=4)).astype("f4")
    x = np.concatenate([x, x[:1]])  # 5 steps
    want = weight_stacks.run(stack, x).output
    got = keras.ops.convert_to_numpy(model(x.swapaxes(0, 1))).swapaxes(0, 1)
    assert_close(got, want, weight_stacks.tolerances.stack_bound("float", 200, 2), "output")


@pytest.mark.parametrize(
    "between, words",
    [
        (lambda: [K.Dense(4, name="d")], r"between them is d \(Dense\)\. As a stack"),
        (lambda: [K.Masking(name="m")], r"between them is m \(Masking\)"),
        (lambda: [K.LayerNormalization(name="n")], r"between them is n \(LayerNormalization\)"),
        (lambda: [K.Activation("tanh", name="t")], r"between them is t \(Activation\)"),
        (lambda: [LoudDropout(0.5, name="l")], r"between them is l \(LoudDropout\)"),
        (lambda: [gru("middle")], r"between them is middle \(GRU\)"),
        (
            lambda: [K.Dense(4, name="d"), K.Dropout(0.5, name="o"), K.Dense(4, name="e")],
            r"between them is d \(Dense\), then o \(Dropout\), then e \(Dense\)",
        ),
        (
            lambda: [keras.Sequential([K.Dense(4, name="inner")], name="s")],
            r"inner \(Dense\)",
        ),
    ],
)
def test_layers_that_change_values_between(between, words):
    model = chain(*between())
    with pytest.raises(
        weights.UnsupportedError, match=f"above does not take .* of below: .*{words}"
    ):
        weights.from_keras(two(model))
    for layer in two(model):
        assert weights.from_keras(layer).num_layers == 1
    cells = weights.from_keras([layer.cell for layer in two(model)])
    arrays = weights.from_keras([layer.get_weights() for layer in two(model)], cell="gru")
    assert cells == arrays and cells.num_layers == 2


def autoencoder():
    encoder, decoder = K.LSTM(4, name="below"), K.LSTM(4, name="above")
    keras.Sequential([keras.Input((5, 4)), encoder, K.RepeatVector(5, name="repeat"), decoder])
    return [encoder, decoder]


def branches():
    x, left, right, top = keras.Input((5, 4)), gru("below"), gru("above"), gru("top")
    keras.Model(x, top(K.Add(name="add")([left(x), right(x)])))
    return [left, right, top]


def around(connect, **options):
    """below and above, which a function connects, given inputs."""
    below, above = gru("below", **options), gru("above")
    connect(below, above, keras.Input((5, 4)), keras.Input((5, 4)))
    return [below, above]


def noise_that_stays(below, above, x, _):
    above(K.Dropout(0.5, name="always")(below(x), training=True))


def last_state(below, above, x, _):
    above(keras.ops.reshape(below(x)[1], [-1, 1, 4]))


def as_initial_state(below, above, x, y):
    above(y, initial_state=[below(x)[1]])


def in_one_call_of_two(below, above, x, y):
    above(below(x)), above(y)


def in_both_calls(below, above, x, y):
    above(below(x)), above(below(y))


def outputs_beside_the_state(below, above, x, _):
    above(below(x)[0])


def from_a_model_in_a_model(below, above, x, _):
    inner = keras.Sequential([keras.Input((5, 4)), below, K.Dropout(0.1)])
    keras.Model(x, above(inner(x)))


def without_a_graph(below, above, *_):
    """Then the order is the caller's."""
    for layer in (below, above):
        layer.build((None, 5, 4))


STATE = {"return_state": True}


@pytest.mark.parametrize(
    "layers, words",
    [
        (autoencoder, r"between them is repeat \(RepeatVector\)"),
        (lambda: two(chain())[::-1], "below does not .*: it takes an input of"),
        (lambda: branches()[:2], "above does not .*: it takes an input of"),
        (lambda: branches()[::2], r"top .* below: between them is add \(Add\)"),
        (lambda: around(noise_that_stays), r"between them is always \(Dropout\)"),
        (lambda: around(last_state, **STATE), r"between them is reshape.* \(Reshape\)"),
        (lambda: around(as_initial_state, **STATE), "above does not .* takes an input of"),
        (lambda: around(in_one_call_of_two), "above does not take the outputs of below"),
    ],
)
def test_layers_that_are_no_stack(layers, words):
    with pytest.raises(weights.UnsupportedError, match=words):
        weights.from_keras(layers())


@pytest.mark.parametrize(
    "connect, options",
    [
        (in_both_calls, {}),
        (outputs_beside_the_state, STATE),
        (from_a_model_in_a_model, {}),
        (without_a_graph, {}),
    ],
)
def test_layers_that_are_a_stack(connect, options):
    assert weights.from_keras(around(connect, **options)).num_layers == 2
