"""A Keras LSTM cell with layer normalisation, in Keras' own operations."""

from typing import Any

import keras
from keras import ops

from tf_blockrnn.layers import _fusing, _layer_norm

_GATES = 4


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LayerNormLSTMCell(_layer_norm.NormalizedCell, keras.layers.LSTMCell):
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
        norm_epsilon = _layer_norm.checked_epsilon(norm_epsilon)
        super().__init__(units, **kwargs)
        self.norm_epsilon = norm_epsilon
        self.norm_output_only = bool(norm_output_only)
        self._init_norms(
            ("kernel_norm", "recurrent_norm", "state_norm"),
            norm_gamma_initializer,
            norm_beta_initializer,
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.kernel_norm.build((None, _GATES * self.units))
        self.recurrent_norm.build((None, _GATES * self.units))
        self.state_norm.build((None, self.units))

    def call(self, inputs, states, training=False):
        h_prev, c_prev = states
        of_x, of_h = self._normalized_sums(inputs, h_prev, _GATES, training)
        z = of_x + of_h
        if self.bias is not None:
            z = z + self.bias
        z_i, z_f, z_c, z_o = ops.split(z, _GATES, axis=1)
        c = self.recurrent_activation(z_f) * c_prev
        c = c + self.recurrent_activation(z_i) * self.activation(z_c)
        normalized = self.state_norm(c)
        h = self.recurrent_activation(z_o) * self.activation(normalized)
        return h, [h, c if self.norm_output_only else normalized]

    def get_config(self):
        return {**super().get_config(), **self.norm_config()}

    def norm_config(self) -> dict[str, Any]:
        return {**super().norm_config(), "norm_output_only": self.norm_output_only}
