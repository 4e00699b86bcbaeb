"""A Keras GRU cell with layer normalisation, in Keras' own operations."""

from typing import Any

import keras
from keras import ops

from tf_blockrnn.layers import _fusing, _layer_norm

_GATES = 3


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LayerNormGRUCell(_layer_norm.NormalizedCell, keras.layers.GRUCell):
    """Keras' GRU cell with layer normalisation (arXiv:1607.06450), for `keras.layers.RNN`.

        [x_z x_r x_h] = kernel_norm(x W) + b
        [h_z h_r h_h] = recurrent_norm(h_prev R) + d
        z = sigmoid(x_z + h_z)      r = sigmoid(x_r + h_r)
        h = z * h_prev + (1 - z) * tanh(x_h + r * h_h)

    Each norm is over all gates of a row. The weights after Keras' own are gamma and beta of
    `kernel_norm` and `recurrent_norm`, each `[3 * units]`. The layer with this cell in one op is
    `tf_blockrnn.layers.LayerNormGRU`.

    Args:
      units: H, the size of the state and the output.
      norm_gamma_initializer, norm_beta_initializer: of the norms' weights.
      norm_epsilon: added to the variances, above 0.
      **kwargs: as for `keras.layers.GRUCell`; `reset_after` may only be True.

    Call arguments:
      inputs: `[batch, features]`.
      states: `[batch, units]`, or a list of this one tensor.
      training: whether the dropouts are applied.

    Returns:
      The output h, `[batch, units]`, and the new state, in a list if `states` is one. Both have the
      cell's compute dtype.

    Raises:
      ValueError: an argument that Keras' cell refuses, `reset_after=False`, or a `norm_epsilon`
        that is not above 0.

    Example:
      >>> import keras, numpy as np
      >>> import tf_blockrnn
      >>> layer = keras.layers.RNN(tf_blockrnn.layers.LayerNormGRUCell(4))
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
        **kwargs: Any,
    ):
        norm_epsilon = _layer_norm.checked_epsilon(norm_epsilon)
        if not kwargs.pop("reset_after", True):
            raise ValueError(f"{type(self).__name__}: reset_after must be True, got False.")
        super().__init__(units, **kwargs)
        self.norm_epsilon = norm_epsilon
        self._init_norms(
            ("kernel_norm", "recurrent_norm"), norm_gamma_initializer, norm_beta_initializer
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.kernel_norm.build((None, _GATES * self.units))
        self.recurrent_norm.build((None, _GATES * self.units))

    def call(self, inputs, states, training=False):
        in_list = isinstance(states, (list, tuple))
        h_prev = states[0] if in_list else states
        of_x, of_h = self._normalized_sums(inputs, h_prev, _GATES, training)
        if self.bias is not None:
            of_x, of_h = of_x + self.bias[0], of_h + self.bias[1]
        x_z, x_r, x_h = ops.split(of_x, _GATES, axis=1)
        h_z, h_r, h_h = ops.split(of_h, _GATES, axis=1)
        z = self.recurrent_activation(x_z + h_z)
        r = self.recurrent_activation(x_r + h_r)
        h = z * h_prev + (1 - z) * self.activation(x_h + r * h_h)
        return h, [h] if in_list else h

    def get_config(self):
        return {**super().get_config(), **self.norm_config()}
