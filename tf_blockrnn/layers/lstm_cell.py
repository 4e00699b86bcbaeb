"""A Keras LSTM cell on the op LSTMBlockCell."""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_blockrnn import raw_ops
from tf_blockrnn.layers._fused_cell import FusedCell


class _Weights(NamedTuple):
    w: tf.Tensor  # [I+H, 4H]
    wci: tf.Tensor  # [H], or [0] without peepholes
    wcf: tf.Tensor  # [H], or [0] without peepholes
    wco: tf.Tensor  # [H], or [0] without peepholes
    b: tf.Tensor  # [4H]


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LSTMCell(FusedCell, keras.layers.LSTMCell):
    """A `keras.layers.LSTMCell` that computes a step in one fused op, `BlockRNN>LSTMBlockCell`.

    Constructor arguments, defaults, weights (names, shapes, order) and config are those of
    `keras.layers.LSTMCell`, so weights and configs go from one to the other as they are. A step is

        i = sigmoid(x W_i + h_prev R_i + b_i [+ c_prev * wci])
        f = sigmoid(x W_f + h_prev R_f + b_f [+ c_prev * wcf])
        c = f * c_prev + i * tanh(x W_c + h_prev R_c + b_c), clipped to +-cell_clip
        o = sigmoid(x W_o + h_prev R_o + b_o [+ c * wco])
        h = o * tanh(c)

    (Gers, Schraudolph, Schmidhuber 2002,
    https://www.jmlr.org/papers/volume3/gers02a/gers02a.pdf). The forget gate's
    1 is in the bias (`unit_forget_bias`), as Keras has it.

    Two arguments are more than Keras has: peepholes and a cell clip. With peepholes there are three
    more weights `wci`, `wcf`, `wco` `[units]` after Keras' own; they start at zero. The clip is
    straight-through: its derivative counts as 1.

    With activations other than tanh and sigmoid, `recurrent_dropout`, or `dropout` with
    `implementation=1`, the cell computes with Keras' own operations and says so once in a warning;
    `cell.fused` and `cell.why_not_fused` tell.

    Args:
      units: H, the size of each state and of the output.
      *args, **kwargs: as for `keras.layers.LSTMCell`.
      use_peephole: whether the gates see the cell state.
      cell_clip: bound of the cell state, above 0; None for no bound.

    Call arguments:
      inputs: `[batch, features]`.
      states: h and c, each `[batch, units]`.
      training: whether `dropout` acts.

    Returns:
      The output h, `[batch, units]`, and the new states `[h, c]`, in the cell's compute
      dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' cell refuses; a `cell_clip` that is not above 0; peepholes
        or a clip together with something that the op does not have.

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

    def __init__(
        self,
        units: int,
        *args: Any,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        **kwargs: Any,
    ):
        # Not `<= 0`: a NaN is refused too.
        if cell_clip is not None and not cell_clip > 0:
            raise ValueError(f"cell_clip must be above 0, or None for no clip; got {cell_clip}.")
        super().__init__(units, *args, **kwargs)
        self.use_peephole = bool(use_peephole)
        self.cell_clip = None if cell_clip is None else float(cell_clip)
        self._check_extras()
        self._init_fused()

    def build(self, input_shape):
        super().build(input_shape)
        if self.use_peephole:
            self.wci, self.wcf, self.wco = (
                self.add_weight(shape=(self.units,), name=name, initializer="zeros")
                for name in ("wci", "wcf", "wco")
            )

    def _own_reason(self) -> str | None:
        return None

    def _check_extras(self) -> None:
        if (self.use_peephole or self.cell_clip) and not self.fused:
            raise ValueError(
                "use_peephole and cell_clip need the fused op, which cannot be used here: "
                f"{self.why_not_fused}."
            )

    def _pack_weights(self) -> _Weights:
        (w_i, w_f, w_c, w_o), (b_i, b_f, b_c, b_o) = self._gate_columns(4)
        if self.use_peephole:
            peepholes = [
                tf.cast(keras.ops.convert_to_tensor(weight), self.compute_dtype)
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
            self._check_extras()
            return super().call(inputs, states, training=training)
        h_prev, cs_prev = (tf.cast(state, self.compute_dtype) for state in states)
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

    def get_config(self):
        # The keys of Keras' own cell, and ours only when they say something, so that
        # keras.layers.LSTMCell takes the config of a plain cell.
        config = super().get_config()
        if self.use_peephole:
            config["use_peephole"] = True
        if self.cell_clip is not None:
            config["cell_clip"] = self.cell_clip
        return config
