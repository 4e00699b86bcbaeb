"""tf_keras' layers with and without the fused ops, and what comes of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tf_keras

from helpers import layer_pairs
from helpers.layer_pairs import (  # noqa: F401, for the tests
    BATCH,
    INPUT,
    MASK,
    TIME,
    UNITS,
    assert_same,
    randomise,
    values,
)
from tf_blockrnn import disable_keras as disable  # noqa: F401, for the tests
from tf_blockrnn import enable_keras as enable
from tf_blockrnn import keras_enabled as enabled  # noqa: F401, for the tests

_V1 = tf.compat.v1.keras.layers

# Each kind of layer: its class, the arguments that make it of this kind, and the op it runs on.
KINDS = {
    "GRU": (tf_keras.layers.GRU, {}, "BlockRNN>GRUAfterSequence"),
    "GRU-before": (tf_keras.layers.GRU, {"reset_after": False}, "BlockRNN>GRUSequence"),
    "LSTM": (tf_keras.layers.LSTM, {}, "BlockRNN>LSTMSequence"),
    "RNN-tanh": (tf_keras.layers.SimpleRNN, {}, "BlockRNN>RNNSequence"),
    "RNN-relu": (tf_keras.layers.SimpleRNN, {"activation": "relu"}, "BlockRNN>RNNSequence"),
    "GRU-v1": (_V1.GRU, {"recurrent_activation": "sigmoid"}, "BlockRNN>GRUSequence"),
    "LSTM-v1": (_V1.LSTM, {"recurrent_activation": "sigmoid"}, "BlockRNN>LSTMSequence"),
}


@contextlib.contextmanager
def fused() -> Iterator[None]:
    """tf_keras' layers run on the fused ops within."""
    enable()
    try:
        yield
    finally:
        disable()


def sequence(dtype: str = "float32") -> tf.Tensor:
    return tf.cast(layer_pairs.sequence(), dtype)


def initial_states(kind: str) -> list[tf.Tensor]:
    return [tf.constant(state) for state in layer_pairs.initial_states(kind.partition("-")[0])]


def make(kind: str, x: tf.Tensor, **arguments: Any) -> Any:
    """A layer with random weights; Keras' initializer of recurrent kernels knows no bfloat16."""
    layer_class, own, _ = KINDS[kind]
    layer = layer_class(UNITS, **{"recurrent_initializer": "zeros", **own, **arguments})
    layer.build(x.shape)
    randomise(layer)
    return layer


def both(function: Callable[[], list]) -> tuple[list, list]:
    """What a function gives on the fused ops and on Keras' own, from equal random seeds."""
    tf.random.set_seed(7)
    theirs = function()
    tf.random.set_seed(7)
    with fused():
        return function(), theirs


def fused_ops(function: Callable, *arguments: Any) -> set[str]:
    """The types of our ops in the graph of a function, and in the functions that it calls."""
    types = layer_pairs.op_types(tf.function(function), *arguments)
    return {op for op in types if op.startswith("BlockRNN>")}
