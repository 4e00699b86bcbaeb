"""A Keras GRU layer with layer normalisation, on the op LayerNormGRUSequence, and its cell."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tf_blockrnn._ops import layer_norm
from tf_blockrnn.layers import _fused_call, _fusing, _layer_norm
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._like_keras import like_keras

_GATES = 3


@like_keras(keras.layers.GRUCell)
class LayerNormGRUCell(_layer_norm.NormalizedCell, keras.layers.GRUCell):
    """Keras' GRU cell with layer normalisation (arXiv:1607.06450), for `keras.layers.RNN`.

    {layer_norm_gru}

    Each norm is over all gates of a row. The weights after Keras' own are gamma and beta of
    `kernel_norm` and `recurrent_norm`, each `[3 * units]`. The layer with this cell is
    `tf_blockrnn.layers.LayerNormGRU`; `keras.layers.RNN` over it computes a sequence in one op too.

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`; `reset_after` may only be True.
      {norm_arguments}

    {cell_call}

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

    _GATES = _GATES
    _NORMS = ("kernel_norm", "recurrent_norm")

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _fusing.check_flag(self, "reset_after", self.reset_after)
        if not self.reset_after:
            raise ValueError(f"{type(self).__name__}: reset_after must be True, got False.")

    def call(self, inputs, states, training=False):
        (h_prev,), in_list = self._checked(inputs, states)
        of_x, of_h = self._normalized_sums(inputs, h_prev, training)
        if self.bias is not None:
            of_x, of_h = of_x + self.bias[0], of_h + self.bias[1]
        x_z, x_r, x_h = ops.split(of_x, self._GATES, axis=1)
        h_z, h_r, h_h = ops.split(of_h, self._GATES, axis=1)
        z = self.recurrent_activation(x_z + h_z)
        r = self.recurrent_activation(x_r + h_r)
        h = z * h_prev + (1 - z) * self.activation(x_h + r * h_h)
        return h, [h] if in_list else h


def _run_op(cell, x, w_x, states, options):
    b_x, b_h = _fused_call.bias_or_zeros(cell, _GATES), None
    if cell.bias is not None:
        b_x, b_h = tf.raw_ops.Unpack(value=b_x, num=2)
    outputs, state = layer_norm.layer_norm_gru(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, cell.compute_dtype),
        b_x,
        b_h,
        kernel_norm=_layer_norm.weights_of(cell, "kernel_norm"),
        recurrent_norm=_layer_norm.weights_of(cell, "recurrent_norm"),
        epsilon=cell.norm_epsilon,
        initial_state=states[0],
        gate_order="urc",
        **options,
    )
    return outputs, [state]


SPEC = _fused_call.LayerSpec(
    keras_class=keras.layers.GRU,
    cells=(LayerNormGRUCell,),
    gates=_GATES,
    run_op=_run_op,
    own_cell=LayerNormGRUCell,
)
LayerNormGRUCell._SPEC = SPEC


@like_keras(keras.layers.GRU, without=("reset_after", "use_cudnn"))
class LayerNormGRU(_layer_norm.NormalizedLayer, FusedLayer, keras.layers.GRU):
    """A GRU layer with layer normalisation in one fused op, `BlockRNN>LayerNormGRUSequence`.

    {layer_norm_gru}

    (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, in the form of Haste's `LayerNormGRU`
    with betas.) Each norm is over all gates of a row. The weights are Keras' three, then gamma and
    beta of `kernel_norm` and of `recurrent_norm`, each `[3 * units]`. Constructor and call
    arguments and defaults are those of `keras.layers.GRU` but for `reset_after`, which is true, and
    `use_cudnn`, and there are four more.

    Args:
      units: H, the size of the state and of the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {norm_arguments}
      {recompute}

    {layer_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' layer refuses, a `norm_epsilon` or number for `recompute`
        that is not above 0.

    Example:
      >>> import numpy as np
      >>> import tf_blockrnn
      >>> layer = tf_blockrnn.layers.LayerNormGRU(4)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 4)
      >>> [weight.path.split("/")[-2] for weight in layer.weights[3:]]
      ['kernel_norm', 'kernel_norm', 'recurrent_norm', 'recurrent_norm']
    """

    _SPEC = SPEC

    def get_config(self):
        config = super().get_config()
        del config["reset_after"]
        return config
