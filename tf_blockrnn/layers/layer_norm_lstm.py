"""A Keras LSTM layer with layer normalisation, on the op LayerNormLSTMSequence, and its cell."""

from typing import Any

import keras
from keras import ops

from tf_blockrnn._ops import layer_norm
from tf_blockrnn.layers import _fused_call, _fusing, _layer_norm
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._like_keras import like_keras

_GATES = 4


@like_keras(keras.layers.LSTMCell)
class LayerNormLSTMCell(_layer_norm.NormalizedCell, keras.layers.LSTMCell):
    """Keras' LSTM cell with layer normalisation (arXiv:1607.06450), for `keras.layers.RNN`.

    {layer_norm_lstm}

    The two norms of z are over all gates of a row. c, the state that the next step gets, is the
    normalised one; with `norm_output_only` it is the one before its norm. The weights after Keras'
    own are gamma and beta of `kernel_norm`, `recurrent_norm`, each `[4 * units]`, and `state_norm`,
    `[units]`, as those of TensorFlow Addons' cell of this name. The layer with this cell
    is `tf_blockrnn.layers.LayerNormLSTM`; `keras.layers.RNN` over it computes a sequence in one op
    too.

    Args:
      units: H, the size of the states and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {norm_arguments}
      {norm_output_only}

    {lstm_cell_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' cell refuses, or a `norm_epsilon` that is not above 0.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn.layers import LayerNormLSTMCell
      >>> layer = keras.layers.RNN(LayerNormLSTMCell(4))
      >>> tuple(layer(np.ones([1, 5, 3], "float32")).shape)
      (1, 4)
    """

    _GATES = _GATES
    _NORMS = ("kernel_norm", "recurrent_norm", "state_norm")

    def __init__(self, *args: Any, norm_output_only: bool = False, **kwargs: Any):
        _fusing.check_flag(self, "norm_output_only", norm_output_only)
        super().__init__(*args, **kwargs)
        self.norm_output_only = bool(norm_output_only)

    def call(self, inputs, states, training=False):
        (h_prev, c_prev), _ = self._checked(inputs, states)
        of_x, of_h = self._normalized_sums(inputs, h_prev, training)
        z = of_x + of_h
        if self.bias is not None:
            z = z + self.bias
        z_i, z_f, z_c, z_o = ops.split(z, self._GATES, axis=1)
        c = self.recurrent_activation(z_f) * c_prev
        c = c + self.recurrent_activation(z_i) * self.activation(z_c)
        normalized = self.state_norm(c)
        h = self.recurrent_activation(z_o) * self.activation(normalized)
        return h, [h, c if self.norm_output_only else normalized]

    def norm_config(self) -> dict[str, Any]:
        return {**super().norm_config(), "norm_output_only": self.norm_output_only}


def _run_op(cell, x, w_x, states, options):
    outputs, state = layer_norm.layer_norm_lstm(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, cell.compute_dtype),
        _fused_call.bias_or_zeros(cell, _GATES),
        kernel_norm=_layer_norm.weights_of(cell, "kernel_norm"),
        recurrent_norm=_layer_norm.weights_of(cell, "recurrent_norm"),
        state_norm=_layer_norm.weights_of(cell, "state_norm"),
        epsilon=cell.norm_epsilon,
        norm_output_only=cell.norm_output_only,
        initial_state=states,
        **options,
    )
    return outputs, list(state)


SPEC = _fused_call.LayerSpec(
    keras_class=keras.layers.LSTM,
    cells=(LayerNormLSTMCell,),
    gates=_GATES,
    run_op=_run_op,
    own_cell=LayerNormLSTMCell,
)
LayerNormLSTMCell._SPEC = SPEC


@like_keras(keras.layers.LSTM, without=("use_cudnn",))
class LayerNormLSTM(_layer_norm.NormalizedLayer, FusedLayer, keras.layers.LSTM):
    """An LSTM layer with layer normalisation in one fused op, `BlockRNN>LayerNormLSTMSequence`.

    {layer_norm_lstm}

    (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, in the form of TensorFlow Addons'
    `LayerNormLSTMCell`, whose weights it loads: `layer.set_weights(addons_layer.get_weights())`.)
    The norms of z are over all gates of a row.
    Constructor and call arguments and defaults are those of `keras.layers.LSTM` but for
    `use_cudnn`, and there are five more.

    Args:
      units: H, the size of the states and of the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {norm_arguments}
      {norm_output_only}
      {recompute}

    {lstm_layer_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' layer refuses, a `norm_epsilon` or number for `recompute`
        that is not above 0.

    Example:
      >>> import numpy as np
      >>> import tf_blockrnn
      >>> layer = tf_blockrnn.layers.LayerNormLSTM(4)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 4)
      >>> [weight.path.split("/")[-2] for weight in layer.weights[3:]]
      ['kernel_norm', 'kernel_norm', 'recurrent_norm', 'recurrent_norm', 'state_norm', 'state_norm']
    """

    _SPEC = SPEC

    def __init__(self, *args: Any, norm_output_only: bool = False, **kwargs: Any):
        _fusing.check_flag(self, "norm_output_only", norm_output_only)
        super().__init__(*args, norm_output_only=norm_output_only, **kwargs)
