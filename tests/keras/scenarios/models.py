"""Whole models: wrappers, branches, nesting, subclasses, layers in attributes."""

from __future__ import annotations

from types import SimpleNamespace

import keras

from . import BATCH, FEATURES, STEPS, UNITS, WORDS, Scenario, series, words


def _directions_apart(r: SimpleNamespace) -> keras.Model:
    layer = keras.layers.Bidirectional(r.LSTM(UNITS, return_sequences=True), merge_mode=None)
    inputs = keras.Input((None, FEATURES))
    return keras.Model(inputs, layer(inputs))


def _different_directions(r: SimpleNamespace) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((None, FEATURES)),
            keras.layers.Bidirectional(r.GRU(UNITS), backward_layer=r.LSTM(4, go_backwards=True)),
        ]
    )


def _cells_in_both_directions(r: SimpleNamespace) -> keras.Model:
    layer = keras.layers.Bidirectional(keras.layers.RNN(r.LSTMCell(UNITS)))
    return keras.Sequential([keras.Input((STEPS, FEATURES)), layer])


def _sentences_of_words(r: SimpleNamespace) -> keras.Model:
    """A hierarchical classifier: a layer over the words of each sentence, one over sentences."""
    inputs = keras.Input((3, STEPS, FEATURES))
    y = keras.layers.TimeDistributed(r.LSTM(UNITS))(inputs)
    return keras.Model(inputs, keras.layers.Dense(2)(r.GRU(UNITS)(y)))


def _attention(r: SimpleNamespace) -> keras.Model:
    inputs = keras.Input((None,), dtype="int32")
    y = keras.layers.Embedding(WORDS, UNITS, mask_zero=True)(inputs)
    y = keras.layers.Bidirectional(r.LSTM(UNITS, return_sequences=True))(y)
    y = keras.layers.MultiHeadAttention(2, 4)(y, y)
    return keras.Model(inputs, keras.layers.GlobalAveragePooling1D()(y))


class Plain(keras.Model):
    """The commonest subclass: a constructor without arguments."""

    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(2)

    def call(self, inputs):
        return self.head(self.recurrent(inputs))


def _plain(r: SimpleNamespace) -> keras.Model:
    model = Plain()
    model.recurrent = r.GRU(UNITS)
    return model


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


class Encoder(keras.layers.Layer):
    """Somebody's layer, without get_config and without **kwargs."""

    def __init__(self, r, units):
        super().__init__()
        self.rnn = keras.layers.Bidirectional(r.LSTM(units, return_sequences=True))
        self.norm = keras.layers.LayerNormalization()

    def call(self, inputs, mask=None):
        return self.norm(self.rnn(inputs, mask=mask))


def _custom_layer(r: SimpleNamespace) -> keras.Model:
    inputs = keras.Input((None, FEATURES))
    return keras.Model(inputs, keras.layers.Dense(2)(Encoder(r, UNITS)(inputs)))


class Decoder(keras.Model):
    """Steps a cell in Python, feeding each output back."""

    def __init__(self, r):
        super().__init__()
        self.cell = r.LSTMCell(UNITS)
        self.head = keras.layers.Dense(FEATURES)

    def call(self, inputs):
        states = self.cell.get_initial_state(batch_size=keras.ops.shape(inputs)[0])
        y, outputs = inputs[:, 0], []
        for _ in range(3):
            y, states = self.cell(y, states)
            y = self.head(y)
            outputs.append(y)
        return keras.ops.stack(outputs, axis=1)


SCENARIOS = [
    Scenario("both directions, apart", _directions_apart, series),
    Scenario("two kinds of layers", _different_directions, series),
    Scenario("cells in both directions", _cells_in_both_directions, series),
    Scenario("sentences of words", _sentences_of_words, lambda: series(BATCH, 3, STEPS, FEATURES)),
    Scenario("attention", _attention, words),
    Scenario("plain subclass", _plain, series),
    Scenario("layers in containers", InContainers, series),
    Scenario("layers made in build", BuiltLate, series),
    Scenario("custom layer", _custom_layer, series),
    Scenario("decoder of a cell", Decoder, series),
]
