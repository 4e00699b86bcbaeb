"""A Keras LSTM cell on the op LSTMSequence."""

from typing import Any

import keras

from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers.lstm import SPEC


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LSTMCell(FusedCell, ExtendedLSTMCell):
    """A `keras.layers.LSTMCell` that computes a step in one fused op, `BlockRNN>LSTMSequence`.

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

    Five arguments are additions to Keras'. With peepholes there are three more weights `wci`,
    `wcf`, `wco`, each `[units]`, after Keras' own; they are initially zero. The clip is
    straight-through: its derivative counts as 1. With a projection there is one more weight `w_p`,
    `[projection, units]`, and h has the width `projection`.

    `dropout` and `recurrent_dropout` are supported by the op too. Activations other than tanh and
    sigmoid, or a GPU where this build has no CUDA are not: the cell then falls back to Keras' own
    operations and warns once; `cell.fused` and `cell.why_not_fused` report it.

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      activation ... seed, **kwargs: as for `keras.layers.LSTMCell`.
      use_peephole: whether the gates read the cell state through peepholes.
      cell_clip: bound of the cell state, above 0; None for no bound.
      projection: size of the projected output; None for no projection.
      zoneout_state: rate of zoneout of h (Krueger et al. 2016, https://arxiv.org/abs/1606.01305),
        0..1: in training the probability with which, drawn anew for every step, row and unit, h
        stays as it was before a step; otherwise h is the mean, rate * h_prev + (1 - rate) * h.
      zoneout: the same of the cell state; h is made of the new cell state, before its zoneout.

    Call arguments:
      inputs: `[batch, features]`.
      states: h, `[batch, projection or units]`, and c, `[batch, units]`.
      training: whether the dropouts are applied, and zoneout is drawn.

    Returns:
      The output h, `[batch, projection or units]`, and the new states `[h, c]`, in the cell's
      compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' cell refuses; a `cell_clip` or `projection` that is not
        above 0; a rate of zoneout that is not in 0..1.

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

    _SPEC = SPEC

    def __init__(
        self,
        units: int,
        activation: _fusing.Activation = "tanh",
        recurrent_activation: _fusing.Activation = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: _fusing.Initializer = "glorot_uniform",
        recurrent_initializer: _fusing.Initializer = "orthogonal",
        bias_initializer: _fusing.Initializer = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: _fusing.Regularizer = None,
        recurrent_regularizer: _fusing.Regularizer = None,
        bias_regularizer: _fusing.Regularizer = None,
        kernel_constraint: _fusing.Constraint = None,
        recurrent_constraint: _fusing.Constraint = None,
        bias_constraint: _fusing.Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        *,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        zoneout_state: float = 0.0,
        zoneout: float = 0.0,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        super().__init__(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            use_peephole=use_peephole,
            cell_clip=cell_clip,
            projection=projection,
            zoneout_state=zoneout_state,
            zoneout=zoneout,
            **kwargs,
        )
        self._warn_if_not_fused()
