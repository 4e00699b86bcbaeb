"""Our Keras cells and Keras' own in layers with the same weights."""

from __future__ import annotations

import keras
import numpy as np

BATCH, TIME, INPUT, UNITS = 3, 5, 4, 6
# Each kind of cell: the class and the arguments that make it of this kind.
_CELLS = {
    "GRU": ("GRUCell", {}),
    "GRU-before": ("GRUCell", {"reset_after": False}),
    "LSTM": ("LSTMCell", {}),
    "RNN-tanh": ("SimpleRNNCell", {}),
    "RNN-relu": ("SimpleRNNCell", {"activation": "relu"}),
}
KINDS = tuple(_CELLS)
# The ops that a kind of cell runs on.
OPS = {
    "GRU": "BlockRNN>GRUAfterSequence",
    "GRU-before": "BlockRNN>GRUSequence",
    "LSTM": "BlockRNN>LSTMSequence",
    "RNN-tanh": "BlockRNN>RNNSequence",
    "RNN-relu": "BlockRNN>RNNSequence",
}
REDUCTION = (INPUT + UNITS) * TIME


def class_name(kind):
    return _CELLS[kind][0]


def make_ours(kind, units=UNITS, **arguments):
    from tf_blockrnn import layers

    name, own = _CELLS[kind]
    return getattr(layers, name)(units, **{**own, **arguments})


def make_peer(kind, units=UNITS, **arguments):
    name, own = _CELLS[kind]
    return getattr(keras.layers, name)(units, **{**own, **arguments})


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
