"""Ways of training."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import tensorflow as tf

from . import FEATURES, STEPS, UNITS, WORDS, Scenario, series, words


def _classifier(r: SimpleNamespace) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((STEPS, FEATURES)),
            r.LSTM(UNITS, return_sequences=True),
            keras.layers.Dropout(0.3, seed=4),
            r.GRU(UNITS),
            keras.layers.Dense(2),
        ]
    )


def _language_model(r: SimpleNamespace) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(WORDS, FEATURES),
            r.GRU(UNITS, return_sequences=True),
            keras.layers.Dense(WORDS),
        ]
    )


class OwnStep(keras.Model):
    """A training step of its own, with a gradient with respect to the input in the loss."""

    def __init__(self, r):
        super().__init__()
        self.rnn, self.head = r.LSTM(UNITS), keras.layers.Dense(1)

    def call(self, inputs):
        return self.head(self.rnn(inputs))

    def train_step(self, data):
        x, y = data[:2]
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.ops.square(self(x, training=True) - y))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"loss": loss}


def _frozen_part(r: SimpleNamespace) -> keras.Model:
    """Transfer learning: the lower layer stays as it is."""
    model = _classifier(r)
    model.layers[0].trainable = False
    return model


SCENARIOS = [
    Scenario("Adam", _classifier, series, optimizer=lambda: keras.optimizers.Adam(0.01, epsilon=1)),
    Scenario(
        "RMSprop, clipped",
        _classifier,
        series,
        optimizer=lambda: keras.optimizers.RMSprop(0.01, epsilon=1, clipnorm=0.1),
    ),
    Scenario(
        "moving averages",
        _classifier,
        series,
        optimizer=lambda: keras.optimizers.SGD(0.1, use_ema=True, momentum=0.9),
    ),
    Scenario("eager", _classifier, series, compile={"run_eagerly": True}),
    Scenario("XLA as Keras chooses", _classifier, series, compile={"jit_compile": "auto"}),
    Scenario("XLA", _language_model, words, compile={"jit_compile": True}),
    Scenario("language model", _language_model, words),
    Scenario("own training step", OwnStep, series),
    Scenario("frozen part", _frozen_part, series),
]
