"""A layer or cell of ours and Keras' own with the same weights, and what comes of both."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from helpers import tolerances
from helpers.compare import assert_close

BATCH, TIME, INPUT, UNITS = 5, 4, 2, 3
REDUCTION = (INPUT + UNITS) * TIME

# Each kind of layer: the class, the arguments that make it of this kind, and the op that it runs
# on. Its cell is `<class>Cell`.
_KINDS = {
    "GRU": ("GRU", {}, "BlockRNN>GRUAfterSequence"),
    "GRU-before": ("GRU", {"reset_after": False}, "BlockRNN>GRUSequence"),
    "LSTM": ("LSTM", {}, "BlockRNN>LSTMSequence"),
    "RNN-tanh": ("SimpleRNN", {}, "BlockRNN>RNNSequence"),
    "RNN-relu": ("SimpleRNN", {"activation": "relu"}, "BlockRNN>RNNSequence"),
}
KINDS = tuple(_KINDS)
OPS = {kind: op for kind, (_, _, op) in _KINDS.items()}
LOOPS = {"While", "StatelessWhile"}

# A row padded on the right, one on the left, one with holes, one of padding only, and a full one.
MASK = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)


def needs_a_rate_of_one(*rates: float) -> None:
    """Skips a test of a dropout rate of 1 where Keras refuses it, as 3.11 does."""
    if 1.0 in rates:
        try:
            keras.random.dropout(np.ones([1]), 1.0, seed=1)
        except ValueError:
            pytest.skip(f"not run: Keras {keras.__version__} refuses a rate of 1")


def class_name(kind: str) -> str:
    return _KINDS[kind][0]


def _make(package, kind: str, units: int, cell: bool, arguments: dict):
    name, own, _ = _KINDS[kind]
    return getattr(package, f"{name}Cell" if cell else name)(units, **{**own, **arguments})


def make_ours(kind: str, units: int = UNITS, cell: bool = False, **arguments):
    from tf_blockrnn import layers

    return _make(layers, kind, units, cell, arguments)


def make_peer(kind: str, units: int = UNITS, cell: bool = False, **arguments):
    return _make(keras.layers, kind, units, cell, arguments)


def randomise(layer, seed: int = 11) -> None:
    """Random weights, biases included: with Keras' zeros a wrong order of gates would not show."""
    random = np.random.default_rng(seed)
    layer.set_weights([random.normal(0, 0.6, w.shape) for w in layer.get_weights()])


def share_weights(layers: list, shape=(BATCH, TIME, INPUT)) -> None:
    """Builds the layers, and gives all of them the same random weights."""
    for layer in layers:
        layer.build(shape)
    randomise(layers[0])
    for other in layers[1:]:
        other.set_weights(layers[0].get_weights())


# The arguments of keras.layers.RNN; the others are those of its cell.
_OF_RNN = {
    *("return_sequences", "return_state", "go_backwards", "stateful", "unroll"),
    "zero_output_for_mask",
}


class Stepped(keras.layers.RNN):
    """Steps its cell in Keras' own loop: an `inner_loop` of a subclass is respected."""

    def inner_loop(self, *args, **kwargs):
        return super().inner_loop(*args, **kwargs)


def _of_cell(make, kind: str, arguments: dict, layer: type = keras.layers.RNN):
    own = {name: value for name, value in arguments.items() if name not in _OF_RNN}
    rest = {name: arguments[name] for name in arguments.keys() & _OF_RNN}
    return layer(make(kind, cell=True, **own), dtype=arguments["dtype"], **rest)


def pair(
    kind: str,
    dtype: str = "float32",
    shape=(BATCH, TIME, INPUT),
    cell: bool | str = False,
    **arguments,
) -> list:
    """Ours and Keras', built, with the same random weights; what `peer` holds is for Keras' only.

    Two layers, or keras.layers.RNN over a cell of each: ours in one op, or with cell="stepped" in
    one for each step. Keras' initializer of recurrent kernels
    knows no bfloat16, hence the zeros, set below.
    """
    for_peer = arguments.pop("peer", {})
    arguments = {"dtype": dtype, "recurrent_initializer": "zeros", **arguments}
    if kind.startswith("RNN"):
        arguments.pop("implementation", None)  # Keras' SimpleRNN has but one.
    if cell:
        layer = Stepped if cell == "stepped" else keras.layers.RNN
        both = [_of_cell(make_ours, kind, arguments, layer), _of_cell(make_peer, kind, arguments)]
    else:
        both = [make_ours(kind, **arguments), make_peer(kind, **arguments, **for_peer)]
    share_weights(both, shape)
    assert (both[0].cell if cell else both[0]).fused
    return both


def sequence(batch: int = BATCH, time: int = TIME, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, time, INPUT)).astype(np.float32)


def initial_states(kind: str, batch: int = BATCH, units: int = UNITS) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    count = 2 if kind == "LSTM" else 1
    return [random.normal(size=(batch, units)).astype(np.float32) for _ in range(count)]


def values(layer, x, states=None, **call) -> list[tf.Tensor]:
    """Outputs, states where the layer returns them, and the gradients of everything.

    The loss weights each number by itself, so that one in the wrong place shows.
    """
    # The layers cast, so that the states given get their gradients in the type they came in.
    x = tf.convert_to_tensor(x)
    if states is not None:
        states = keras.tree.map_structure(tf.convert_to_tensor, states)
    watched = [x, *keras.tree.flatten(states or [])]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = keras.tree.flatten(layer(x, initial_state=states, **call))
        loss = tf.add_n([tf.reduce_sum(tf.sin(tf.cast(y, tf.float64))) for y in outputs])
    gradients = tape.gradient(
        loss, [*watched, *layer.trainable_variables], unconnected_gradients="zero"
    )
    return [*outputs, *gradients]


def assert_same(mine, theirs, dtype: str = "float32", steps: int = 1, what: str = "") -> None:
    """All values of the same type and within rounding; steps: sequences that feed one another."""
    bound = tolerances.composed_bound(dtype, steps * REDUCTION)
    for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert a.dtype == b.dtype, f"{what} value {number}"
        assert_close(a, b, bound, f"{what} value {number}")


def op_types(function, *arguments) -> list[str]:
    """The types of all nodes in a tf.function's graph and in the functions that it calls."""
    definition = function.get_concrete_function(*arguments).graph.as_graph_def()
    nodes = list(definition.node)
    for each in definition.library.function:
        nodes += each.node_def
    return [node.op for node in nodes]
