"""Real uses of Keras' recurrent layers, each a model and its data.

A scenario is written once, over `r`, which holds the recurrent classes: Keras' own or ours. So the
same model runs on stock Keras, under enable_keras, fused by fuse_model and on our layers.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

NAMES = ("GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell", "SimpleRNNCell")
BATCH, STEPS, FEATURES, UNITS, WORDS = 4, 5, 3, 6, 9
K = keras.layers


def classes_of(package: Any) -> SimpleNamespace:
    """The recurrent classes of keras.layers, or of tf_blockrnn.layers."""
    return SimpleNamespace(**{name: getattr(package, name) for name in NAMES})


STOCK = classes_of(K)


# ---- data


def series(*shape: int) -> np.ndarray:
    """Numbers of a time series, [batch, steps, features] if no other shape is given."""
    shape = shape or (BATCH, STEPS, FEATURES)
    return np.random.default_rng(5).normal(size=shape).astype("float32")


def words() -> np.ndarray:
    """Numbers of words, [batch, steps]; 0 pads on the right, on the left, inside and everywhere."""
    found = np.random.default_rng(6).integers(1, WORDS, (BATCH, STEPS))
    found[0, 3:] = 0
    found[1, :2] = 0
    found[2, 2] = 0
    found[3] = 0
    return found


def padded() -> np.ndarray:
    """A series in which the steps that `words` pads are zeros, which keras.layers.Masking skips."""
    return series() * (words() > 0)[:, :, np.newaxis]


# ---- models


class Scenario(NamedTuple):
    """A model, what it is called with, and what is to be expected of it.

    build: makes the model from the recurrent classes.
    inputs: makes what `predict_on_batch` and `train_on_batch` take.
    fused: how many recurrent layers and cells of it run on the ops; None for all.
    tolerance: of predictions and weights, relative to 1 and to their sizes.
    """

    build: Callable[[SimpleNamespace], keras.Model]
    inputs: Callable[[], Any] = series
    fused: int | None = None
    tolerance: float = 1e-5


def _sequential(make: Callable[[SimpleNamespace], list], **options: Any) -> Callable:
    """Layers in a row, after an input of steps that are known, or of what the options say."""
    options = {"shape": (STEPS, FEATURES), **options}
    return lambda r: keras.Sequential([keras.Input(**options), *make(r)])


def _of_words(make: Callable[[SimpleNamespace], list]) -> Callable:
    """The same behind an embedding that masks its padding."""

    def build(r):
        embedding = K.Embedding(WORDS, FEATURES, mask_zero=True)
        return keras.Sequential([keras.Input((None,), dtype="int32"), embedding, *make(r)])

    return build


def _of_policy(policy: str) -> Callable:
    return _sequential(
        lambda r: [
            r.LSTM(UNITS, return_sequences=True, dtype=policy),
            r.GRU(UNITS, dtype=policy),
            K.Dense(2, dtype="float32"),
        ],
        dtype="float32",
    )


def _states_given(r: SimpleNamespace) -> keras.Model:
    inputs, state = keras.Input((None,), dtype="int32"), keras.Input((UNITS,))
    y = K.Embedding(WORDS, FEATURES, mask_zero=True)(inputs)
    y = r.GRU(UNITS, return_sequences=True)(y, initial_state=state)
    return keras.Model([inputs, state], K.Dense(2)(y))


def _translation(r: SimpleNamespace) -> keras.Model:
    """An encoder whose states are the first ones of a decoder."""
    source, target = (keras.Input((None,), dtype="int32", name=n) for n in ("source", "target"))
    embed = K.Embedding(WORDS, FEATURES, mask_zero=True)
    _, *states = r.LSTM(UNITS, return_state=True)(embed(source))
    decoded = r.LSTM(UNITS, return_sequences=True)(embed(target), initial_state=states)
    return keras.Model([source, target], K.Dense(WORDS)(decoded))


def _states_of_both_directions(r: SimpleNamespace) -> keras.Model:
    inputs = keras.Input((None, FEATURES))
    options = {"return_sequences": True, "return_state": True}
    y, *states = K.Bidirectional(r.LSTM(UNITS, **options))(inputs)
    return keras.Model(inputs, K.Bidirectional(r.LSTM(UNITS))(y, initial_state=states))


def _named(r: SimpleNamespace) -> keras.Model:
    """Names of inputs and outputs, a mask by hand, operations, states from layer to layer."""
    x, mask = keras.Input((None, FEATURES), name="x"), keras.Input((None,), dtype="bool", name="m")
    y, h, c = r.LSTM(UNITS, return_sequences=True, return_state=True)(x, mask=mask)
    z = r.LSTM(UNITS, return_sequences=True)(x + 1.0, initial_state=[h, c])
    last = r.GRU(UNITS, reset_after=False)(keras.ops.tanh(y * z))
    return keras.Model({"x": x, "m": mask}, {"steps": z, "last": last})


def _shared(r: SimpleNamespace) -> keras.Model:
    """One layer in the outer model, in a nested one and in a wrapper."""
    layer = r.GRU(UNITS, name="shared")
    inner = keras.Sequential([keras.Input((None, FEATURES)), layer, K.Dense(UNITS)], name="inner")
    x = keras.Input((None, FEATURES))
    wrapped = K.TimeDistributed(layer)(keras.ops.expand_dims(x, 1))
    parts = [inner(x), inner(2.0 * x), layer(x), keras.ops.squeeze(wrapped, 1)]
    return keras.Model(x, K.Add()(parts))


class Small(keras.Model):
    """A subclass that Keras can make again."""

    def __init__(self, units=UNITS, make=K.GRU, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.recurrent = make(units)

    def call(self, x):
        return self.recurrent(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}


class InContainers(keras.Model):
    """Layers in lists, and in dicts of lists."""

    def __init__(self, r):
        super().__init__()
        self.stack = [r.LSTM(UNITS, return_sequences=True) for _ in range(2)]
        self.heads = {"a": r.GRU(2), "b": [r.SimpleRNN(2)]}

    def call(self, inputs):
        for layer in self.stack:
            inputs = layer(inputs)
        return self.heads["a"](inputs) + self.heads["b"][0](inputs)


class BuiltLate(keras.Model):
    """Layers made when the shapes are known."""

    def __init__(self, r):
        super().__init__()
        self._classes = [r.LSTM, r.GRU]

    def build(self, input_shape):
        units = input_shape[-1]
        self.parts = [make(units, return_sequences=True) for make in self._classes]
        for part in self.parts:
            part.build(input_shape)
        super().build(input_shape)

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Encoder(K.Layer):
    """Somebody's layer, without get_config and without **kwargs."""

    def __init__(self, r, units):
        super().__init__()
        self.rnn = K.Bidirectional(r.LSTM(units, return_sequences=True))
        self.norm = K.LayerNormalization()

    def call(self, inputs, mask=None):
        return self.norm(self.rnn(inputs, mask=mask))


class Decoder(keras.Model):
    """Steps a cell in Python, feeding each output back."""

    def __init__(self, r):
        super().__init__()
        self.cell = r.LSTMCell(UNITS)
        self.head = K.Dense(FEATURES)

    def call(self, inputs):
        states = self.cell.get_initial_state(batch_size=keras.ops.shape(inputs)[0])
        y, outputs = inputs[:, 0], []
        for _ in range(3):
            y, states = self.cell(y, states)
            y = self.head(y)
            outputs.append(y)
        return keras.ops.stack(outputs, axis=1)


class OwnStep(keras.Model):
    """A training step of its own."""

    def __init__(self, r):
        super().__init__()
        self.rnn, self.head = r.LSTM(UNITS), K.Dense(1)

    def call(self, inputs):
        return self.head(self.rnn(inputs))

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


_DROPOUTS = {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 3}
_ALL = {"return_sequences": True}

ALL = {
    # One layer's arguments.
    "GRU of the first paper": Scenario(_sequential(lambda r: [r.GRU(UNITS, reset_after=False)])),
    "dropout, a mask per gate": Scenario(
        _sequential(lambda r: [r.LSTM(UNITS, implementation=1, **_DROPOUTS)])
    ),
    "another activation": Scenario(_sequential(lambda r: [r.LSTM(UNITS, "relu")]), fused=0),
    "mixed float16": Scenario(_of_policy("mixed_float16"), tolerance=0.004),
    # Layers in a row.
    "mixed stack": Scenario(
        _sequential(
            lambda r: [
                *(make(UNITS, **_ALL) for make in (r.SimpleRNN, r.GRU, r.LSTM)),
                K.TimeDistributed(K.Dense(2)),
            ],
            shape=(None, FEATURES),
        )
    ),
    "padding, both ways": Scenario(
        _sequential(
            lambda r: [
                K.Masking(),
                r.GRU(UNITS, **_ALL),
                K.BatchNormalization(),
                r.LSTM(UNITS, go_backwards=True, use_bias=False),
            ]
        ),
        padded,
    ),
    "zeros, backwards": Scenario(
        _sequential(
            lambda r: [
                K.Masking(),
                r.LSTM(UNITS, go_backwards=True, zero_output_for_mask=True, **_ALL),
                K.Dense(2),
            ]
        ),
        padded,
    ),
    "words, a stack": Scenario(_of_words(lambda r: [r.LSTM(UNITS, **_ALL), r.GRU(UNITS)]), words),
    "words, both directions": Scenario(
        _of_words(lambda r: [K.Bidirectional(r.LSTM(UNITS)), K.Dense(2)]), words
    ),
    "two kinds of layers": Scenario(
        _sequential(
            lambda r: [K.Bidirectional(r.GRU(UNITS), backward_layer=r.LSTM(4, go_backwards=True))],
            shape=(None, FEATURES),
        )
    ),
    "sentences of words": Scenario(
        _sequential(
            lambda r: [K.TimeDistributed(r.LSTM(UNITS)), r.GRU(UNITS)], shape=(3, STEPS, FEATURES)
        ),
        lambda: series(BATCH, 3, STEPS, FEATURES),
    ),
    # Cells.
    "RNN of a stack of cells": Scenario(
        _sequential(
            lambda r: [K.RNN([r.LSTMCell(UNITS), r.GRUCell(UNITS), r.SimpleRNNCell(UNITS)])]
        )
    ),
    "RNN of StackedRNNCells": Scenario(
        _sequential(lambda r: [K.RNN(K.StackedRNNCells([r.GRUCell(4), r.GRUCell(UNITS)]))])
    ),
    "cell with dropout": Scenario(
        _sequential(lambda r: [K.RNN(r.LSTMCell(UNITS, dropout=0.3, seed=3), unroll=True)])
    ),
    "words, RNN of a cell": Scenario(
        _of_words(lambda r: [K.RNN(r.LSTMCell(UNITS)), K.Dense(2)]), words
    ),
    "decoder of a cell": Scenario(Decoder),
    # States that are given, returned, or kept from batch to batch.
    "states given, masked": Scenario(_states_given, lambda: [words(), series(BATCH, UNITS)]),
    "translation": Scenario(_translation, lambda: [words(), words()[:, ::-1]]),
    "states of both directions": Scenario(_states_of_both_directions),
    "stateful, both directions": Scenario(
        _sequential(lambda r: [K.Bidirectional(r.GRU(UNITS, stateful=True))], batch_size=BATCH)
    ),
    # Models in other forms.
    "names": Scenario(_named, lambda: {"x": series(), "m": words() > 0}),
    "shared layer": Scenario(_shared),
    "small subclass": Scenario(lambda r: Small(make=r.GRU)),
    "layers in containers": Scenario(InContainers),
    "layers made in build": Scenario(BuiltLate),
    "custom layer": Scenario(_sequential(lambda r: [Encoder(r, UNITS), K.Dense(2)])),
    "own training step": Scenario(OwnStep),
}
