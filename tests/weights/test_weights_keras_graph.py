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


def test_an_autoencoder_is_no_stack():
    encoder, decoder = K.LSTM(4, name="encoder"), K.LSTM(4, name="decoder")
    repeat = K.RepeatVector(5, name="repeat")
    keras.Sequential([keras.Input((5, 4)), encoder, repeat, decoder])
    with pytest.raises(weights.UnsupportedError, match=r"between them is repeat \(RepeatVector\)"):
        weights.from_keras([encoder, decoder])


def test_an_order_that_is_not_the_model_s():
    model = chain()
    with pytest.raises(weights.UnsupportedError, match="below does not .*: it takes an input of"):
        weights.from_keras(two(model)[::-1])


def test_parallel_branches():
    x = keras.Input((5, 4))
    left, right, top = gru("left"), gru("right"), gru("top")
    both = K.Add(name="add")([left(x), right(x)])
    keras.Model(x, top(both))
    with pytest.raises(weights.UnsupportedError, match="right does not .*: it takes an input of"):
        weights.from_keras([left, right])
    with pytest.raises(weights.UnsupportedError, match=r"top .* left: between them is add \(Add\)"):
        weights.from_keras([left, top])


def test_noise_that_stays_at_inference():
    x = keras.Input((5, 4))
    below, above = gru("below"), gru("above")
    above(K.Dropout(0.5, name="always")(below(x), training=True))
    with pytest.raises(weights.UnsupportedError, match=r"between them is always \(Dropout\)"):
        weights.from_keras([below, above])


def test_the_last_state_is_not_the_outputs():
    x = keras.Input((5, 4))
    below, above = gru("below", return_state=True), gru("above")
    _, state = below(x)
    above(keras.ops.reshape(state, [-1, 1, 4]))
    with pytest.raises(weights.UnsupportedError, match=r"between them is reshape.* \(Reshape\)"):
        weights.from_keras([below, above])
    sequences, _ = below(x)
    other = gru("other")
    other(sequences)
    assert weights.from_keras([below, other]).num_layers == 2


def test_a_decoder_that_starts_with_the_encoder_s_state():
    x, y = keras.Input((5, 4)), keras.Input((5, 4))
    encoder, decoder = gru("encoder", return_state=True), gru("decoder")
    _, state = encoder(x)
    for given in ({"sequences": y, "initial_state": [state]},):
        decoder(**given)
    with pytest.raises(weights.UnsupportedError, match="decoder does not .* takes an input of"):
        weights.from_keras([encoder, decoder])


def test_layers_of_models_in_models():
    x = keras.Input((5, 4))
    below, above = gru("below"), gru("above")
    inner = keras.Sequential([keras.Input((5, 4)), below, K.Dropout(0.1)])
    keras.Model(x, above(inner(x)))
    assert weights.from_keras([below, above]).num_layers == 2


def test_a_shared_layer_must_be_above_in_each_call():
    x, y = keras.Input((5, 4)), keras.Input((5, 4))
    below, above = gru("below"), gru("above")
    above(below(x)), above(below(y))
    assert weights.from_keras([below, above]).num_layers == 2
    above(y)
    with pytest.raises(weights.UnsupportedError, match="above does not take the outputs of below"):
        weights.from_keras([below, above])


def test_layers_without_a_graph_are_the_caller_s():
    layers = [gru("below"), gru("above")]
    for layer in layers:
        layer.build((None, 5, 4))
    assert weights.from_keras(layers).num_layers == 2
