"""Layers and models of tf_keras as sources of weights and sessions, beside Keras 3."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tf_blockrnn import weights
from tf_blockrnn.inference import Session

layers = tf.keras.layers  # tf_keras' under TF_USE_LEGACY_KERAS=1
X = np.random.default_rng(3).normal(size=(2, 5, 3)).astype("f4")
STEPS = {"return_sequences": True}
LAYERS = {
    "lstm": lambda: layers.LSTM(4, **STEPS),
    "gru": lambda: layers.GRU(4, **STEPS),
    "gru, before": lambda: layers.GRU(4, reset_after=False, use_bias=False, **STEPS),
    "tanh": lambda: layers.SimpleRNN(4, activation=tf.tanh, **STEPS),
    "relu": lambda: layers.SimpleRNN(4, activation="relu", **STEPS),
    "both": lambda: layers.Bidirectional(layers.LSTM(4, **STEPS)),
    "cell": lambda: layers.RNN(layers.GRUCell(4), **STEPS),
    "cells": lambda: layers.RNN([layers.LSTMCell(4), layers.LSTMCell(2)], **STEPS),
}


def filled(source):
    """The layer or model with weights that are nowhere the same."""
    source.build((None, None, 3))
    rng = np.random.default_rng(4)
    source.set_weights([rng.uniform(-0.7, 0.7, w.shape) for w in source.get_weights()])
    return source


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    layer = filled(LAYERS[name]())
    outputs, _ = Session(layer).run(X)
    np.testing.assert_allclose(outputs, layer(X), rtol=0, atol=1e-6)
    assert weights.from_keras(layer) == weights.read(layer)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_cudnn_layers(cell):
    layer = filled(getattr(tf.compat.v1.keras.layers, f"CuDNN{cell}")(4, **STEPS))
    want = weights.from_keras(layer.get_weights(), cell=cell.lower())
    assert weights.read(layer) == want


def test_models():
    low, top = layers.GRU(4, name="low", **STEPS), layers.GRU(2, name="top", **STEPS)
    inner = tf.keras.Sequential([layers.Input((5, 4)), top], name="inner")
    x = tf.keras.Input((5, 3))
    model = filled(tf.keras.Model(x, inner(layers.Dropout(0.5)(low(x)))))
    np.testing.assert_allclose(Session(model).run(X)[0], model(X), rtol=0, atol=1e-6)
    outputs, _ = Session(model, layer="low").run(X)
    np.testing.assert_allclose(outputs, low(X), rtol=0, atol=1e-6)
    with pytest.raises(weights.UnsupportedError, match="low does not take the outputs of top"):
        Session(model, layer="inner/top,low")
    chain = [layers.GRU(4, name="a", **STEPS), layers.Dense(3), layers.GRU(4, name="b", **STEPS)]
    model = filled(tf.keras.Sequential(chain))
    with pytest.raises(ValueError, match="several recurrent layers: a, b. Select with layer="):
        Session(model)
    with pytest.raises(weights.UnsupportedError, match=r"between them is dense.* \(Dense\)"):
        Session([chain[0], chain[2]])


class Negative(layers.LSTM):
    def call(self, *arguments, **options):
        return -super().call(*arguments, **options)


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: layers.LSTM(4, time_major=True), "layers with time_major=True are not supported"),
        (
            lambda: layers.Bidirectional(layers.LSTM(4, time_major=True)),
            "layers with time_major=True are not supported",
        ),
        (lambda: layers.GRU(4, activation="gelu"), "activation must be tanh or relu, got gelu"),
        (lambda: layers.GRU(4, go_backwards=True), "begins with the last"),
        (lambda: layers.Bidirectional(layers.GRU(4), "sum"), "got 'sum' of bidirectional"),
        (lambda: Negative(4), "Negative overrides call"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(weights.UnsupportedError, match=words):
        Session(filled(make()))


def test_hard_sigmoid_is_that_of_keras_2():
    read = weights.read(filled(layers.LSTM(4, recurrent_activation="hard_sigmoid")))
    assert read.hard_sigmoid == 0.2


@pytest.mark.parametrize("by_argument", [False, True])
def test_masks_and_repeated_calls_are_reported(by_argument, tmp_path):
    """Of a model, and of its files."""
    x, mask = layers.Input((5, 3)), layers.Input((5,), dtype="bool")
    layer = layers.LSTM(3, name="l", **STEPS)
    if by_argument:
        outputs = layer(layer(x, mask=mask), mask=mask)
    else:
        outputs = layer(layer(layers.Masking()(x)))
    model = tf.keras.Model([x, mask] if by_argument else x, outputs)
    paths = [tmp_path / f"model{ending}" for ending in (".keras", ".h5")]
    for path in paths:
        model.save(path)
    for source in (model, *paths):
        with pytest.raises(weights.UnsupportedError, match="calls it 2 times, on its own outputs"):
            Session(source)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", weights.AssumptionWarning)
            weights.read(source, layer="l")
        repeated, masked = (one.message for one in caught if "l: " in str(one.message))
        assert "2 times" in str(repeated) and "l: the model masks steps" in str(masked)
