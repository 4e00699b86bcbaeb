"""tf_keras' layers with and without the fused ops, and what comes of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from helpers import tolerances
from helpers.compare import assert_close
from tf_blockrnn import disable_keras as disable  # noqa: F401, for the tests
from tf_blockrnn import enable_keras as enable
from tf_blockrnn import keras_enabled as enabled  # noqa: F401, for the tests

BATCH, TIME, INPUT, UNITS = 5, 4, 2, 3
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

# A row padded on the right, one on the left, one with holes, one of padding only, and a full one.
MASK = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)


@contextlib.contextmanager
def fused() -> Iterator[None]:
    """tf_keras' layers run on the fused ops within."""
    enable()
    try:
        yield
    finally:
        disable()


def sequence(dtype: str = "float32", seed: int = 5) -> tf.Tensor:
    x = np.random.default_rng(seed).normal(size=(BATCH, TIME, INPUT))
    return tf.cast(tf.constant(x), dtype)


def initial_states(kind: str, dtype: str = "float32") -> list[tf.Tensor]:
    random = np.random.default_rng(3)
    count = 2 if kind.startswith("LSTM") else 1
    return [tf.cast(random.normal(size=(BATCH, UNITS)), dtype) for _ in range(count)]


def randomise(layer: Any, seed: int = 11) -> None:
    """Random weights, biases included: with Keras' zeros a wrong order of gates would not show."""
    random = np.random.default_rng(seed)
    layer.set_weights([random.normal(0, 0.6, w.shape) for w in layer.get_weights()])


def make(kind: str, x: tf.Tensor, **arguments: Any) -> Any:
    """A layer with random weights; Keras' initializer of recurrent kernels knows no bfloat16."""
    layer_class, own, _ = KINDS[kind]
    layer = layer_class(UNITS, **{"recurrent_initializer": "zeros", **own, **arguments})
    layer.build(x.shape)
    randomise(layer)
    return layer


def values(layer: Any, x: tf.Tensor, states: list[tf.Tensor] | None = None, **call: Any) -> list:
    """Outputs, states where the layer returns them, and the gradients of everything.

    The loss weights each number by itself, so that one in the wrong place shows.
    """
    watched = [x, *(states or [])]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = tf.nest.flatten(layer(x, initial_state=states, **call))
        loss = tf.add_n([tf.reduce_sum(tf.sin(tf.cast(y, tf.float64))) for y in outputs])
    gradients = tape.gradient(
        loss, [*watched, *layer.trainable_variables], unconnected_gradients="zero"
    )
    return [*outputs, *gradients]


def assert_same(mine: list, theirs: list, dtype: str = "float32") -> None:
    """All values of the same type and within rounding."""
    bound = tolerances.composed_bound(dtype, (INPUT + UNITS) * TIME)
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert a.dtype == b.dtype, f"value {number}"
        assert_close(a, b, bound, f"value {number}")


def both(function: Callable[[], list]) -> tuple[list, list]:
    """What a function gives on the fused ops and on Keras' own, from equal random seeds."""
    tf.random.set_seed(7)
    theirs = function()
    tf.random.set_seed(7)
    with fused():
        return function(), theirs


def fused_ops(function: Callable, *arguments: Any) -> set[str]:
    """The types of our ops in the graph of a function, and in the functions that it calls."""
    graph = tf.function(function).get_concrete_function(*arguments).graph.as_graph_def()
    nodes = list(graph.node)
    for each in graph.library.function:
        nodes += each.node_def
    return {node.op for node in nodes if node.op.startswith("BlockRNN>")}
