"""A Keras LSTM cell with layer normalisation, in Keras' own operations."""

import math
from typing import Any

import keras
from keras import ops

from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import gate_gemms

_GATES = 4


class LayerNormLSTMCell(keras.layers.LSTMCell):
    """Keras' LSTM cell with layer normalisation (arXiv:1607.06450).

        z = kernel_norm(x W) + recurrent_norm(h_prev R) + b
        c = state_norm(sigmoid(z_f) * c_prev + sigmoid(z_i) * tanh(z_c))
        h = sigmoid(z_o) * tanh(c)

    The two norms of z are over all gates of a row. c, the state that the next step gets, is the
    normalised one; with `norm_output_only` it is the one before its norm. The weights after Keras'
    own are gamma and beta of `kernel_norm`, `recurrent_norm`, each `[4 * units]`, and `state_norm`,
    `[units]`, as those of TensorFlow Addons' cell of this name.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn.layers.layer_norm_lstm_cell import LayerNormLSTMCell
      >>> layer = keras.layers.RNN(LayerNormLSTMCell(4))
      >>> tuple(layer(np.ones([1, 5, 3], "float32")).shape)
      (1, 4)
    """

    def __init__(
        self,
        units: int,
        *,
        norm_gamma_initializer: _fusing.Initializer = "ones",
        norm_beta_initializer: _fusing.Initializer = "zeros",
        norm_epsilon: float = 1e-3,
        norm_output_only: bool = False,
        **kwargs: Any,
    ):
        if not 0 < norm_epsilon < math.inf:  # nor a NaN
            raise ValueError(f"norm_epsilon must be a finite number above 0, got {norm_epsilon!r}.")
        super().__init__(units, **kwargs)
        self.norm_gamma_initializer = keras.initializers.get(norm_gamma_initializer)
        self.norm_beta_initializer = keras.initializers.get(norm_beta_initializer)
        self.norm_epsilon = float(norm_epsilon)
        self.norm_output_only = bool(norm_output_only)
        self.kernel_norm, self.recurrent_norm, self.state_norm = (
            self._norm(name) for name in ("kernel_norm", "recurrent_norm", "state_norm")
        )

    def _norm(self, name: str) -> keras.layers.LayerNormalization:
        return keras.layers.LayerNormalization(
            epsilon=self.norm_epsilon,
            # Of their own: an initializer may not be used twice.
            gamma_initializer=_copied(self.norm_gamma_initializer),
            beta_initializer=_copied(self.norm_beta_initializer),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.kernel_norm.build((None, _GATES * self.units))
        self.recurrent_norm.build((None, _GATES * self.units))
        self.state_norm.build((None, self.units))

    def call(self, inputs, states, training=False):
        h_prev, c_prev = states
        inputs_mask = recurrent_mask = None
        if training and 0.0 < self.dropout < 1.0:
            inputs_mask = self.get_dropout_mask(inputs)
        if training and 0.0 < self.recurrent_dropout < 1.0:
            recurrent_mask = self.get_recurrent_dropout_mask(h_prev)
        of_x = ops.concatenate(gate_gemms(inputs, self.kernel, inputs_mask), axis=1)
        of_h = ops.concatenate(gate_gemms(h_prev, self.recurrent_kernel, recurrent_mask), axis=1)
        z = self.kernel_norm(of_x) + self.recurrent_norm(of_h)
        if self.bias is not None:
            z = z + self.bias
        z_i, z_f, z_c, z_o = ops.split(z, _GATES, axis=1)
        c = self.recurrent_activation(z_f) * c_prev
        c = c + self.recurrent_activation(z_i) * self.activation(z_c)
        normalized = self.state_norm(c)
        h = self.recurrent_activation(z_o) * self.activation(normalized)
        return h, [h, c if self.norm_output_only else normalized]

    def get_config(self):
        return {**super().get_config(), **norm_config(self)}


def _copied(initializer: Any) -> Any:
    return keras.initializers.get(keras.initializers.serialize(initializer))


def norm_config(cell: LayerNormLSTMCell) -> dict[str, Any]:
    """The arguments that Keras' LSTM does not have."""
    return {
        "norm_gamma_initializer": keras.initializers.serialize(cell.norm_gamma_initializer),
        "norm_beta_initializer": keras.initializers.serialize(cell.norm_beta_initializer),
        "norm_epsilon": cell.norm_epsilon,
        "norm_output_only": cell.norm_output_only,
    }
