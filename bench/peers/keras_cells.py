"""Keras' cells and ours: in `keras.layers.RNN`, or called by hand step by step as a decoder does.

Cells with layer normalisation are compared with cells on Keras' own operations that are written
here, since Keras has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from bench import data
from bench.peers import base, tensorflow_base
from bench.shapes import LAYERS, Case

_EPSILON = 1e-3
_ORDERS = {1: (0,), 3: (1, 0, 2), 4: (0, 1, 2, 3)}  # Keras' gates: GRU z, r, h; LSTM i, f, c, o


def _norm(width: int) -> keras.layers.LayerNormalization:
    norm = keras.layers.LayerNormalization(epsilon=_EPSILON)
    norm.build((None, width))
    return norm


class LayerNormLSTMCell(keras.layers.LSTMCell):
    """Keras' LSTM cell with norms of both GEMMs and of the cell state."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.kernel_norm, self.recurrent_norm = (_norm(4 * self.units) for _ in range(2))
        self.state_norm = _norm(self.units)

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        h, c = states
        z = self.kernel_norm(keras.ops.matmul(inputs, self.kernel))
        z += self.recurrent_norm(keras.ops.matmul(h, self.recurrent_kernel))
        z_i, z_f, z_c, z_o = keras.ops.split(z + self.bias, 4, axis=1)
        c = self.recurrent_activation(z_f) * c
        c += self.recurrent_activation(z_i) * self.activation(z_c)
        c = self.state_norm(c)
        h = self.recurrent_activation(z_o) * self.activation(c)
        return h, [h, c]


class LayerNormGRUCell(keras.layers.GRUCell):
    """Keras' GRU cell, with the reset gate after the GEMM, with norms of both GEMMs."""

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.kernel_norm, self.recurrent_norm = (_norm(3 * self.units) for _ in range(2))

    def call(self, inputs: Any, states: Any, training: bool = False) -> Any:
        (h,) = states
        of_x = self.kernel_norm(keras.ops.matmul(inputs, self.kernel)) + self.bias[0]
        of_h = self.recurrent_norm(keras.ops.matmul(h, self.recurrent_kernel)) + self.bias[1]
        x_z, x_r, x_h = keras.ops.split(of_x, 3, axis=1)
        h_z, h_r, h_h = keras.ops.split(of_h, 3, axis=1)
        z = self.recurrent_activation(x_z + h_z)
        candidate = self.activation(x_h + self.recurrent_activation(x_r + h_r) * h_h)
        h = z * h + (1 - z) * candidate
        return h, [h]


def make_cell(cell: str, units: int, ours: bool) -> Any:
    """A cell, of a name in `shapes.LAYERS`."""
    import tf_blockrnn

    kind = f"{LAYERS[cell]}Cell"
    whose = tf_blockrnn.layers if ours else keras.layers
    if cell.startswith("ln_") and not ours:
        return {"ln_lstm": LayerNormLSTMCell, "ln_gru": LayerNormGRUCell}[cell](units)
    return getattr(whose, kind)(units, **({"reset_after": False} if cell == "gru_before" else {}))


def _set_weights(cell: Any, case: Case, arrays: data.Arrays) -> None:
    """Builds the cell with the weights of a case; the norms' are ones and zeros."""
    cell.build((case.batch, case.inputs))
    w, r, bias = arrays.first.beside(_ORDERS[len(arrays.first.w)])
    if getattr(cell, "reset_after", False):
        bias = np.stack([bias, np.zeros_like(bias)])  # input bias, recurrent bias
    cell.set_weights([w, r, bias, *cell.get_weights()[3:]])


class Peer:
    """`option`: "ours" or "keras", then ",xla" or nothing."""

    def __init__(self, option: str, threads: int) -> None:
        self._tf = tensorflow_base.start(threads)
        whose, _, xla = option.partition(",")
        self._ours, self._xla = whose == "ours", xla == "xla"

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        tf = self._tf
        cell = make_cell(case.cell, case.units, self._ours)
        _set_weights(cell, case, arrays)
        looped = case.cells_in == "RNN"

        def major(array: np.ndarray) -> np.ndarray:
            # RNN takes [B, T, I]: the transpose is made here, outside of the measured call.
            return np.ascontiguousarray(array.swapaxes(0, 1)) if looped else array

        model = tensorflow_base.Model(
            x=tf.Variable(major(arrays.x)),
            weights=[weight.value for weight in cell.trainable_weights],
            cotangent=tf.constant(major(arrays.cotangent)),
            forward=self._loop(cell, case) if looped else self._by_hand(cell, case),
            batch_major=looped,
            xla=self._xla,
        )
        return tensorflow_base.prepared(tf, model, case.kind == "train")

    def gemm(self, size: int) -> Callable[[], object]:
        """TensorFlow's GEMM."""
        return tensorflow_base.gemm(self._tf, size)

    def _loop(self, cell: Any, case: Case) -> Callable[[Any], Any]:
        layer = keras.layers.RNN(cell, return_sequences=True)
        if self._ours:
            from tf_blockrnn.layers import _cell_loop

            if why := _cell_loop.why_not_fused(layer):
                raise RuntimeError(f"the loop does not run on the op: {why}")
        train = case.kind == "train"
        return lambda x: layer(self._tf.convert_to_tensor(x), training=train)

    def _by_hand(self, cell: Any, case: Case) -> Callable[[Any], Any]:
        if self._ours and not cell.fused:
            # Otherwise Keras' own operations would be measured under our name.
            raise RuntimeError(f"the cell does not run on the op: {cell.why_not_fused}")
        tf, train = self._tf, case.kind == "train"

        def forward(x: Any) -> Any:
            states = cell.get_initial_state(case.batch)
            states = list(states) if isinstance(states, (list, tuple)) else [states]
            outputs = []
            for step in tf.unstack(tf.convert_to_tensor(x)):
                h, states = cell(step, states, training=train)
                outputs.append(h)
            return tf.stack(outputs)

        return forward
