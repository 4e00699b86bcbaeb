"""Our Keras cells and Keras' own in layers with the same weights."""

from __future__ import annotations

import keras
import numpy as np

BATCH, TIME, INPUT, UNITS = 3, 5, 4, 6
KINDS = ("GRU", "LSTM")
REDUCTION = (INPUT + UNITS) * TIME


def make_ours(kind, units=UNITS, **arguments):
    from tf_blockrnn import layers

    if kind == "GRU":
        arguments.setdefault("reset_after", False)
    return getattr(layers, f"{kind}Cell")(units, **arguments)


def make_peer(kind, units=UNITS, **arguments):
    if kind == "GRU":
        arguments.setdefault("reset_after", False)
    return getattr(keras.layers, f"{kind}Cell")(units, **arguments)


def randomise(layer):
    """Random weights, biases included: with Keras' zeros a wrong order of gates would not show."""
    random = np.random.default_rng(11)
    layer.set_weights([random.normal(0, 0.5, w.shape) for w in layer.get_weights()])


def layer_pair(kind, dtype="float32", cell=None, **arguments):
    """RNN over our cell and over Keras', built, with the same random weights."""
    # Keras' own initializer of recurrent kernels knows no bfloat16; the weights are set below.
    cell = {"dtype": dtype, "recurrent_initializer": "zeros", **(cell or {})}
    pair = [
        keras.layers.RNN(make(kind, **cell), dtype=dtype, **arguments)
        for make in (make_ours, make_peer)
    ]
    for layer in pair:
        layer.build((BATCH, TIME, INPUT))
    randomise(pair[0])
    pair[1].set_weights(pair[0].get_weights())
    return pair


def sequence(batch=BATCH, time=TIME):
    return np.random.default_rng(5).normal(size=(batch, time, INPUT)).astype(np.float32)
