"""A Keras SimpleRNN cell on the op RNNSequence."""

from typing import Any

import keras

from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers.simple_rnn import SPEC


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class SimpleRNNCell(FusedCell, keras.layers.SimpleRNNCell):
    """A `keras.layers.SimpleRNNCell` that computes a step in one op, `BlockRNN>RNNSequence`.

    Constructor arguments, defaults, weights (names, shapes, order) and config are those of
    `keras.layers.SimpleRNNCell`, so weights and configs are interchangeable. A step is

        h = activation(x W + h_prev R + b)

    (Elman 1990, https://doi.org/10.1207/s15516709cog1402_1).

    `dropout` and `recurrent_dropout` are supported by the op too. Activations other than tanh and
    relu, or a GPU where this build has no CUDA are not: the cell then falls back to Keras' own
    operations and warns once; `cell.fused` and `cell.why_not_fused` report it.

    Args:
      units: H, the size of the state and the output.
      activation ... seed, **kwargs: as for `keras.layers.SimpleRNNCell`.

    Call arguments:
      inputs: `[batch, features]`.
      states: `[batch, units]`, or a list of this one tensor.
      training: whether the dropouts are applied.

    Returns:
      The output h, `[batch, units]`, and the new state, in a list if `states` is one. Both
      have the cell's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' cell refuses.

    Example:

    >>> import numpy as np
    >>> import keras
    >>> import tf_blockrnn
    >>> cell = tf_blockrnn.layers.SimpleRNNCell(4, activation="relu")
    >>> layer = keras.layers.RNN(cell, return_sequences=True)
    >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
    (2, 5, 4)
    >>> cell.fused
    True
    """

    _SPEC = SPEC

    def __init__(
        self,
        units: int,
        activation: _fusing.Activation = "tanh",
        use_bias: bool = True,
        kernel_initializer: _fusing.Initializer = "glorot_uniform",
        recurrent_initializer: _fusing.Initializer = "orthogonal",
        bias_initializer: _fusing.Initializer = "zeros",
        kernel_regularizer: _fusing.Regularizer = None,
        recurrent_regularizer: _fusing.Regularizer = None,
        bias_regularizer: _fusing.Regularizer = None,
        kernel_constraint: _fusing.Constraint = None,
        recurrent_constraint: _fusing.Constraint = None,
        bias_constraint: _fusing.Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            **kwargs,
        )
        self._warn_if_not_fused()

    def _masks(self, x, h_prev, training):
        # Unlike Keras' other cells, this one draws masks that it does not use, and drops everything
        # at a rate of 1.
        masks = self.get_dropout_mask(x), self.get_recurrent_dropout_mask(h_prev)
        return masks if training else (None, None)
