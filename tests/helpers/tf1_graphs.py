"""TensorFlow 1 networks in graphs of their own, saved as TensorFlow 1 saves them.

The cells that TensorFlow still has are its own. The others, of tf.contrib, are written here from
their equations, with their ops and the names of their variables.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# tf.compat.v1.nn.rnn_cell gives the same only where Keras 2 is installed.
from tensorflow.python.ops import rnn, rnn_cell_impl

from helpers import weight_stacks

v1 = tf.compat.v1
UNITS, INPUTS = 4, 3


@dataclasses.dataclass(frozen=True)
class Network:
    """A network to build, and the arguments that `from_tf1` needs for it."""

    cell: str
    build: Callable[[tf.Tensor], tf.Tensor]  # x and outputs, [T, B, ·]
    dtype: str = "float64"
    forget_bias: float | None = None
    cell_clip: float = 0.0


def _seven_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype) -> np.ndarray:
    # Multiples of 1/128: adding a forget bias of 1 and taking it off rounds nothing.
    return (rng.integers(-90, 91, shape) / 128).astype(dtype)


def run(network: Network, path: str, restore: str = "") -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Builds, gives random variables or those of a checkpoint, runs and saves to `path`.

    Returns the outputs, [T, B, ·], and the variables by name.
    """
    rng = np.random.default_rng(11)
    with tf.Graph().as_default(), v1.Session() as session:
        stack = weight_stacks.Stack("lstm", inputs=INPUTS)
        x = tf.constant(weight_stacks.inputs(stack).astype(network.dtype))
        outputs = network.build(x)
        variables = v1.global_variables()
        saver = v1.train.Saver(variables)
        if restore:
            saver.restore(session, restore)
        else:
            for variable in variables:
                value = _seven_bits(rng, tuple(variable.shape), network.dtype)
                session.run(v1.assign(variable, value))
        saver.save(session, path, write_meta_graph=False, write_state=False)
        values = session.run({variable.op.name: variable for variable in variables})
        return session.run(outputs), values


def save(path: str, variables: dict[str, np.ndarray]) -> None:
    """Writes a checkpoint of these variables."""
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=list(variables.values()),
    )


def _dynamic_rnn(cell: Any, x: tf.Tensor) -> tf.Tensor:
    outputs, _ = rnn.dynamic_rnn(cell, x, dtype=x.dtype, time_major=True)
    return outputs


def one_layer(name: str, **arguments) -> Callable:
    """A cell of tf.compat.rnn_cell_impl under dynamic_rnn."""
    return lambda x: _dynamic_rnn(getattr(rnn_cell_impl, name)(UNITS, **arguments), x)


def layers(name: str, number: int, **arguments) -> Callable:
    """The same in a MultiRNNCell."""

    def build(x: tf.Tensor) -> tf.Tensor:
        cells = [getattr(rnn_cell_impl, name)(UNITS, **arguments) for _ in range(number)]
        return _dynamic_rnn(rnn_cell_impl.MultiRNNCell(cells), x)

    return build


def _both_ways(make: Callable[[], Any], x: tf.Tensor) -> tf.Tensor:
    outputs, _ = rnn.bidirectional_dynamic_rnn(make(), make(), x, dtype=x.dtype, time_major=True)
    return tf.concat(outputs, -1)


def bidirectional(name: str, number: int = 1, **arguments) -> Callable:
    """Layers whose directions meet in each, as contrib's stack_bidirectional_dynamic_rnn."""
    make = functools.partial(getattr(rnn_cell_impl, name), UNITS, **arguments)

    def build(x: tf.Tensor) -> tf.Tensor:
        if number == 1:
            return _both_ways(make, x)
        with v1.variable_scope("stack_bidirectional_rnn"):
            for layer in range(number):
                with v1.variable_scope(f"cell_{layer}"):
                    x = _both_ways(make, x)
        return x

    return build


def stack_per_direction(x: tf.Tensor) -> tf.Tensor:
    """Two stacks, which meet above their last layers only."""
    cells = [rnn_cell_impl.GRUCell for _ in range(2)]
    return _both_ways(lambda: rnn_cell_impl.MultiRNNCell([cell(UNITS) for cell in cells]), x)


def _variables(scope: str, x: tf.Tensor, **shapes: list[int]) -> list[tf.Tensor]:
    with v1.variable_scope(scope):
        return [
            v1.get_variable(name.replace("__", "/"), shape, x.dtype)
            for name, shape in shapes.items()
        ]


def _zeros(x: tf.Tensor) -> tf.Tensor:
    return tf.zeros([x.shape[1], UNITS], x.dtype)


def _loop(x: tf.Tensor, step: Callable, *states: tf.Tensor) -> tf.Tensor:
    """The last of the states after each step; they begin with zeros."""
    outputs = []
    for row in tf.unstack(x):
        states = step(row, *states)
        outputs.append(states[-1])
    return tf.stack(outputs)


def gru_block(names: tuple[str, str, str, str]) -> Callable:
    """GRUBlockCell, its variables w_ru, b_ru, w_c, b_c under these names."""

    def build(x: tf.Tensor) -> tf.Tensor:
        rows = INPUTS + UNITS
        shapes = [[rows, 2 * UNITS], [2 * UNITS], [rows, UNITS], [UNITS]]
        found = _variables("rnn/gru_cell", x, **dict(zip(names, shapes, strict=True)))
        weights = dict(zip(("w_ru", "b_ru", "w_c", "b_c"), found, strict=True))
        cell = tf.raw_ops.GRUBlockCell
        return _loop(x, lambda row, h: [cell(x=row, h_prev=h, **weights).h], _zeros(x))

    return build


def _lstm_variables(scope: str, x: tf.Tensor, peepholes: bool) -> dict[str, tf.Tensor]:
    shapes = {"kernel": [x.shape[2] + UNITS, 4 * UNITS], "bias": [4 * UNITS]}
    names = ["w", "b"]
    if peepholes:
        shapes |= {name: [UNITS] for name in ("w_i_diag", "w_f_diag", "w_o_diag")}
        names += ["wci", "wcf", "wco"]
    values = dict(zip(names, _variables(scope, x, **shapes), strict=True))
    return {**dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([UNITS], x.dtype)), **values}


def lstm_block(
    scope: str = "rnn/lstm_cell",
    peepholes: bool = False,
    forget_bias: float = 1.0,
    cell_clip: float = -1.0,
) -> Callable:
    """LSTMBlockCell under dynamic_rnn."""

    def build(x: tf.Tensor) -> tf.Tensor:
        weights = _lstm_variables(scope, x, peepholes)
        weights |= {"forget_bias": forget_bias, "cell_clip": cell_clip, "use_peephole": peepholes}

        def step(row, cs, h):
            result = tf.raw_ops.LSTMBlockCell(x=row, cs_prev=cs, h_prev=h, **weights)
            return result.cs, result.h

        return _loop(x, step, _zeros(x), _zeros(x))

    return build


def lstm_fused(x: tf.Tensor) -> tf.Tensor:
    """LSTMBlockFusedCell."""
    return tf.raw_ops.BlockLSTM(
        seq_len_max=tf.constant(x.shape[0], tf.int64),
        x=x,
        cs_prev=_zeros(x),
        h_prev=_zeros(x),
        **_lstm_variables("lstm_fused_cell", x, peepholes=True),
        forget_bias=1.0,
        cell_clip=-1.0,
        use_peephole=True,
    ).h


def cudnn_lstm(number: int) -> Callable:
    """Layers of CudnnCompatibleLSTMCell, a block cell that has no forget bias."""

    def build(x: tf.Tensor) -> tf.Tensor:
        for layer in range(number):
            scope = f"rnn/multi_rnn_cell/cell_{layer}/cudnn_compatible_lstm_cell"
            x = lstm_block(scope, forget_bias=0.0)(x)
        return x

    return build


def _cudnn_gru_layer(scope: str, x: tf.Tensor) -> tf.Tensor:
    inputs = int(x.shape[2])
    kernel, bias, w_x, b_x, w_h, b_h = _variables(
        scope,
        x,
        gates__kernel=[inputs + UNITS, 2 * UNITS],
        gates__bias=[2 * UNITS],
        candidate__input_projection__kernel=[inputs, UNITS],
        candidate__input_projection__bias=[UNITS],
        candidate__hidden_projection__kernel=[UNITS, UNITS],
        candidate__hidden_projection__bias=[UNITS],
    )

    def step(row, h):
        r, u = tf.split(tf.sigmoid(tf.concat([row, h], 1) @ kernel + bias), 2, axis=1)
        c = tf.tanh(row @ w_x + b_x + r * (h @ w_h + b_h))
        return [u * h + (1 - u) * c]

    return _loop(x, step, _zeros(x))


def cudnn_gru_both_ways(number: int) -> Callable:
    """Bidirectional layers of CudnnCompatibleGRUCell."""

    def build(x: tf.Tensor) -> tf.Tensor:
        for layer in range(number):
            scope = f"stack_bidirectional_rnn/cell_{layer}/bidirectional_rnn"
            own = "cudnn_compatible_gru_cell"
            forward = _cudnn_gru_layer(f"{scope}/fw/{own}", x)
            backward = _cudnn_gru_layer(f"{scope}/bw/{own}", tf.reverse(x, [0]))
            x = tf.concat([forward, tf.reverse(backward, [0])], -1)
        return x

    return build


_BLOCK_NAMES = ("w_ru", "b_ru", "w_c", "b_c")
_V2_NAMES = ("gates__kernel", "gates__bias", "candidate__kernel", "candidate__bias")

NETWORKS = {
    "BasicRNNCell": Network("BasicRNNCell", one_layer("BasicRNNCell")),
    "GRUCell": Network("GRUCell", one_layer("GRUCell")),
    "GRUCell, layers": Network("GRUCell", layers("GRUCell", 3)),
    "GRUCell, both ways": Network("GRUCell", bidirectional("GRUCell")),
    "GRUBlockCell": Network("GRUBlockCell", gru_block(_BLOCK_NAMES), "float32"),
    "GRUBlockCell, swapped": Network(
        "GRUBlockCell", gru_block(("w_c", "b_ru", "w_ru", "b_c")), "float32"
    ),
    "GRUBlockCellV2": Network("GRUBlockCellV2", gru_block(_V2_NAMES), "float32"),
    "BasicLSTMCell, forget bias": Network(
        "BasicLSTMCell", one_layer("BasicLSTMCell", forget_bias=0.25), forget_bias=0.25
    ),
    "BasicLSTMCell, layers both ways": Network("BasicLSTMCell", bidirectional("BasicLSTMCell", 2)),
    "LSTMCell, all": Network(
        "LSTMCell",
        layers("LSTMCell", 2, use_peepholes=True, num_proj=2, cell_clip=0.3),
        cell_clip=0.3,
    ),
    "LSTMBlockCell, all": Network(
        "LSTMBlockCell",
        lstm_block(peepholes=True, cell_clip=0.3),
        "float32",
        cell_clip=0.3,
    ),
    "LSTMBlockFusedCell, peepholes": Network("LSTMBlockFusedCell", lstm_fused, "float32"),
    "CudnnLSTM": Network("CudnnLSTM", cudnn_lstm(2), "float32"),
    "CudnnGRU": Network("CudnnGRU", cudnn_gru_both_ways(2)),
}
