"""A Keras LSTM cell on the op LSTMBlockCell."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_blockrnn import raw_ops
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell
from tf_blockrnn.layers._fused_cell import FusedCell


class _Weights(NamedTuple):
    w: tf.Tensor  # [I+H, 4H]
    wci: tf.Tensor  # [H], or [0] without peepholes
    wcf: tf.Tensor  # [H], or [0] without peepholes
    wco: tf.Tensor  # [H], or [0] without peepholes
    b: tf.Tensor  # [4H]


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LSTMCell(FusedCell, ExtendedLSTMCell):
    """A `keras.layers.LSTMCell` that computes a step in one fused op, `BlockRNN>LSTMBlockCell`.

    Constructor arguments, defaults, weights (names, shapes, order) and config are those of
    `keras.layers.LSTMCell`, so weights and configs are interchangeable. A step is

        i = sigmoid(x W_i + h_prev R_i + b_i [+ c_prev * wci])
        f = sigmoid(x W_f + h_prev R_f + b_f [+ c_prev * wcf])
        c = f * c_prev + i * tanh(x W_c + h_prev R_c + b_c), clipped to +-cell_clip
        o = sigmoid(x W_o + h_prev R_o + b_o [+ c * wco])
        h = o * tanh(c), or with a projection w_p (o * tanh(c))

    (Gers, Schraudolph, Schmidhuber 2002,
    https://www.jmlr.org/papers/volume3/gers02a/gers02a.pdf; the projection is that of Sak, Senior,
    Beaufays 2014, https://arxiv.org/abs/1402.1128). As in Keras, the forget bias of 1 is part of
    the bias (`unit_forget_bias`).

    Three arguments are additions to Keras'. With peepholes there are three more weights `wci`,
    `wcf`, `wco`, each `[units]`, after Keras' own; they are initially zero. The clip is
    straight-through: its derivative counts as 1. With a projection there is one more weight `w_p`,
    `[projection, units]`, and h has the width `projection`.

    With a projection, activations other than tanh and sigmoid, `recurrent_dropout`, or `dropout`
    with `implementation=1`, the cell falls back to Keras' own operations and warns once;
    `cell.fused` and `cell.why_not_fused` report it.

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      *args, **kwargs: as for `keras.layers.LSTMCell`.
      use_peephole: whether the gates read the cell state through peepholes.
      cell_clip: bound of the cell state, above 0; None for no bound.
      projection: size of the projected output; None for no projection.

    Call arguments:
      inputs: `[batch, features]`.
      states: h, `[batch, projection or units]`, and c, `[batch, units]`.
      training: whether `dropout` is applied.

    Returns:
      The output h, `[batch, projection or units]`, and the new states `[h, c]`, in the cell's
      compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' cell refuses; a `cell_clip` or `projection` that is not
        above 0.

    Example:

    >>> import numpy as np
    >>> import keras
    >>> import tf_blockrnn
    >>> cell = tf_blockrnn.layers.LSTMCell(4, use_peephole=True)
    >>> layer = keras.layers.RNN(cell)
    >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
    (2, 4)
    >>> [weight.name for weight in cell.weights]
    ['kernel', 'recurrent_kernel', 'bias', 'wci', 'wcf', 'wco']
    """

    @_fusing.with_signature_of(ExtendedLSTMCell.__init__)
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._init_fused()

    def _own_reason(self) -> str | None:
        if self.projection is not None:
            return "projection is given, the op has none"
        return None

    def _pack_weights(self) -> _Weights:
        (w_i, w_f, w_c, w_o), (b_i, b_f, b_c, b_o) = self._gate_columns(4)
        if self.use_peephole:
            peepholes = [
                _fusing.weight_in_dtype(weight, self.compute_dtype)
                for weight in (self.wci, self.wcf, self.wco)
            ]
        else:
            peepholes = [tf.zeros([0], self.compute_dtype)] * 3
        return _Weights(
            tf.concat([w_i, w_c, w_f, w_o], axis=1),
            *peepholes,
            tf.concat([b_i, b_c, b_f, b_o], axis=0),
        )

    def call(self, inputs, states, training=False):
        if not self.fused:
            return super().call(inputs, states, training=training)
        h_prev, cs_prev = (self._op_tensor(state) for state in states)
        step = raw_ops.LSTMBlockCell(
            x=self._op_input(inputs, training),
            cs_prev=cs_prev,
            h_prev=h_prev,
            **self._op_weights()._asdict(),
            forget_bias=0.0,
            cell_clip=self.cell_clip or 0.0,
            use_peephole=self.use_peephole,
        )
        return step.h, [step.h, step.cs]
