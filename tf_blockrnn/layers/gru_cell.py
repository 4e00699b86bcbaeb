"""A Keras GRU cell on the op GRUBlockCell."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_blockrnn import raw_ops
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._fused_cell import FusedCell


class _Weights(NamedTuple):
    w_ru: tf.Tensor  # [I+H, 2H]
    w_c: tf.Tensor  # [I+H, H]
    b_ru: tf.Tensor  # [2H]
    b_c: tf.Tensor  # [H]


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class GRUCell(FusedCell, keras.layers.GRUCell):
    """A `keras.layers.GRUCell` that computes a step in one fused op, `BlockRNN>GRUBlockCell`.

    Constructor arguments, defaults, weights (names, shapes, order) and config are those of
    `keras.layers.GRUCell`, so weights and configs are interchangeable. With
    `reset_after=False` and z, r, h for Keras' gates (u, r, c in the op), a step is

        z = sigmoid(x W_z + h_prev R_z + b_z)
        r = sigmoid(x W_r + h_prev R_r + b_r)
        c = tanh(x W_h + (h_prev * r) R_h + b_h)
        h = z * h_prev + (1 - z) * c

    (Cho et al. 2014, https://arxiv.org/abs/1406.1078).

    The op does not support every configuration of Keras' cell. With `reset_after=True` (**Keras'
    default**), activations other than tanh and sigmoid, `recurrent_dropout`, or `dropout` with
    `implementation=1`, the cell falls back to Keras' own operations and warns once; `cell.fused`
    and `cell.why_not_fused` report it.

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.GRUCell`.

    Call arguments:
      inputs: `[batch, features]`.
      states: `[batch, units]`, or a list of this one tensor.
      training: whether `dropout` is applied.

    Returns:
      The output h, `[batch, units]`, and the new state, in a list if `states` is one. Both
      have the cell's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' cell refuses.

    Example:

    >>> import numpy as np
    >>> import keras
    >>> import tf_blockrnn
    >>> cell = tf_blockrnn.layers.GRUCell(4, reset_after=False)
    >>> layer = keras.layers.RNN(cell, return_sequences=True)
    >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
    (2, 5, 4)
    >>> cell.fused
    True
    """

    @_fusing.with_signature_of(keras.layers.GRUCell.__init__)
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._init_fused()

    def _own_reason(self) -> str | None:
        if self.reset_after:
            return "reset_after is True, the op resets before the GEMM"
        return None

    def _pack_weights(self) -> _Weights:
        (w_z, w_r, w_h), (b_z, b_r, b_h) = self._gate_columns(3)
        return _Weights(
            w_ru=tf.concat([w_r, w_z], axis=1),
            w_c=w_h,
            b_ru=tf.concat([b_r, b_z], axis=0),
            b_c=b_h,
        )

    def call(self, inputs, states, training=False):
        if not self.fused:
            return super().call(inputs, states, training=training)
        nested = isinstance(states, (list, tuple))
        h_prev = self._op_tensor(states[0] if nested else states)
        step = raw_ops.GRUBlockCell(
            x=self._op_input(inputs, training), h_prev=h_prev, **self._op_weights()._asdict()
        )
        return step.h, [step.h] if nested else step.h
