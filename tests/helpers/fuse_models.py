"""Keras models of every kind that holds recurrent layers, for the tests of fusing."""

from __future__ import annotations

import keras
import numpy as np

BATCH, STEPS, INPUTS, UNITS = 3, 5, 4, 6


def _input(*shape):
    return keras.Input(shape or (None, INPUTS))


def called(model):
    """The model, which a call has built."""
    model(np.zeros((BATCH, STEPS, INPUTS), "float32"))
    return model


def sequential():
    return keras.Sequential(
        [
            _input(),
            keras.layers.Masking(),
            keras.layers.GRU(UNITS, return_sequences=True, name="first"),
            keras.layers.BatchNormalization(),
            keras.layers.LSTM(UNITS, go_backwards=True, use_bias=False),
            keras.layers.Dense(2),
        ]
    )


def functional():
    """An encoder that hands its states on, operations, a mask by hand; inputs and outputs named."""
    x = keras.Input((None, INPUTS), name="x")
    mask = keras.Input((None,), dtype="bool", name="mask")
    encoder = keras.layers.LSTM(UNITS, return_sequences=True, return_state=True)
    y, h, c = encoder(x, mask=mask)
    z = keras.layers.LSTM(UNITS, return_sequences=True)(x + 1.0, initial_state=[h, c])
    last = keras.layers.GRU(UNITS, reset_after=False)(keras.ops.tanh(y * z))
    return keras.Model({"x": x, "mask": mask}, {"steps": z, "last": last})


def bidirectional():
    x = _input()
    backward = keras.layers.LSTM(UNITS, return_sequences=True, go_backwards=True)
    y = keras.layers.Masking()(x)
    y = keras.layers.Bidirectional(
        keras.layers.GRU(UNITS, return_sequences=True), backward_layer=backward, merge_mode="sum"
    )(y)
    return keras.Model(x, keras.layers.Bidirectional(keras.layers.SimpleRNN(UNITS))(y))


def time_distributed():
    part = keras.Sequential([_input(), keras.layers.LSTM(UNITS), keras.layers.Dense(INPUTS)])
    x = _input(2, STEPS, INPUTS)
    y = keras.layers.TimeDistributed(keras.layers.GRU(INPUTS, return_sequences=True))(x)
    return keras.Model(x, keras.layers.TimeDistributed(part)(y))


def shared():
    """One layer in the outer model, in a nested one and in a wrapper."""
    layer = keras.layers.GRU(UNITS, name="shared")
    inner = keras.Sequential([_input(), layer, keras.layers.Dense(UNITS)], name="inner")
    x = _input()
    wrapped = keras.layers.TimeDistributed(layer)(keras.ops.expand_dims(x, 1))
    parts = [inner(x), inner(2.0 * x), layer(x), keras.ops.squeeze(wrapped, 1)]
    return keras.Model(x, keras.layers.Add()(parts))


def cells():
    x = _input()
    stack = [
        keras.layers.LSTMCell(UNITS),
        keras.layers.GRUCell(UNITS, reset_after=False),
        keras.layers.GRUCell(UNITS),
        keras.layers.SimpleRNNCell(UNITS),
    ]
    y = keras.layers.RNN(stack, return_sequences=True)(x)
    return keras.Model(x, keras.layers.RNN(keras.layers.LSTMCell(UNITS))(y))


class Small(keras.Model):
    """A subclassed model that is quickly trained."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.recurrent = keras.layers.GRU(units)

    def call(self, x):
        return self.recurrent(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def small():
    return called(Small(UNITS))


class Bare(keras.Model):
    """As most people write a model: no arguments, no get_config."""

    def __init__(self):
        super().__init__()
        self.r = keras.layers.GRU(UNITS)

    def call(self, x):
        return self.r(x)


def text():
    """Words, of which only the vocabulary knows the numbers."""
    words = keras.layers.TextVectorization(output_mode="int", output_sequence_length=STEPS)
    words.adapt(["one two three", "two three four five"])
    x = keras.Input((), dtype="string")
    y = keras.layers.Embedding(words.vocabulary_size(), INPUTS, mask_zero=True)(words(x))
    return keras.Model(x, keras.layers.LSTM(UNITS)(y))


MODELS = {
    function.__name__: function
    for function in (
        sequential,
        functional,
        bidirectional,
        time_distributed,
        shared,
        cells,
        small,
        text,
    )
}


def inputs(name: str):
    """What the model of this name is called with; some steps are zeros, which Masking skips."""
    if name == "text":
        import tensorflow as tf

        return tf.constant(["three two one", "five", "none of these four"])
    shape = (BATCH, 2, STEPS, INPUTS) if name == "time_distributed" else (BATCH, STEPS, INPUTS)
    x = np.random.default_rng(5).normal(size=shape).astype("float32")
    x[1, ..., -2:, :] = 0.0
    if name == "functional":
        return {"x": x, "mask": x[..., 0] != 0.0}
    return x


def make(name: str) -> keras.Model:
    """The model, with random weights: with Keras' zeros much would not show."""
    keras.utils.set_random_seed(7)
    model = MODELS[name]()
    random = np.random.default_rng(11)
    for layer in model._flatten_layers():
        for weight in layer._trainable_variables + layer._non_trainable_variables:
            value = random.normal(0, 0.4, weight.shape)
            weight.assign(np.abs(value) if "variance" in weight.name else value)
    return model
