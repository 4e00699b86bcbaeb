"""A Keras LSTM layer with layer normalisation, on the op LayerNormLSTMSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import layer_norm
from tf_blockrnn.layers import _fused_call, _fusing, _layer_norm
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers.layer_norm_lstm_cell import LayerNormLSTMCell

_GATES = 4


def _run_op(
    cell: Any,
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    states: list[tf.Tensor],
    options: dict[str, Any],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
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
    activations={"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID},
    gates=_GATES,
    run_op=_run_op,
)


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LayerNormLSTM(_layer_norm.NormalizedLayer, FusedLayer, keras.layers.LSTM):
    """An LSTM layer with layer normalisation in one fused op, `BlockRNN>LayerNormLSTMSequence`.

        z = kernel_norm(x W) + recurrent_norm(h_prev R) + b
        c = state_norm(sigmoid(z_f) * c_prev + sigmoid(z_i) * tanh(z_c))
        h = sigmoid(z_o) * tanh(c)

    (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, in the form of TensorFlow Addons'
    `LayerNormLSTMCell`, whose weights it loads: `layer.set_weights(addons_layer.get_weights())`.)
    The norms of z are over all gates of a row.
    Constructor and call arguments and defaults are those of `keras.layers.LSTM` but for
    `use_cudnn`, and there are five more.

    Args:
      units: H, the size of the states and of the output.
      *args, **kwargs: as for `keras.layers.LSTM`.
      norm_gamma_initializer, norm_beta_initializer: of the norms' weights.
      norm_epsilon: added to the variances, above 0.
      norm_output_only: False: the next step reads the normalised c, as above. True: it reads c as
        it is before its norm, which the output alone reads, as in the paper.
      recompute: as of `tf_blockrnn.layers.LSTM`.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: a list of h and c, each `[batch, units]`; zeros when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied.

    Returns:
      The output after the last step, `[batch, units]`, or with `return_sequences` the outputs of
      all steps, `[batch, steps, units]`; with `return_state` a tuple of this and the last states h
      and c. All have the layer's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
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
        activity_regularizer: _fusing.Regularizer = None,
        kernel_constraint: _fusing.Constraint = None,
        recurrent_constraint: _fusing.Constraint = None,
        bias_constraint: _fusing.Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        *,
        norm_gamma_initializer: _fusing.Initializer = "ones",
        norm_beta_initializer: _fusing.Initializer = "zeros",
        norm_epsilon: float = 1e-3,
        norm_output_only: bool = False,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        cell = LayerNormLSTMCell(
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
            norm_gamma_initializer=norm_gamma_initializer,
            norm_beta_initializer=norm_beta_initializer,
            norm_epsilon=norm_epsilon,
            norm_output_only=norm_output_only,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="lstm_cell",
            implementation=kwargs.pop("implementation", 2),
        )
        # Past the constructor of keras.layers.LSTM, which creates Keras' cell.
        super(keras.layers.LSTM, self).__init__(
            cell,
            activity_regularizer=activity_regularizer,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            **kwargs,
        )
        self.input_spec = keras.InputSpec(ndim=3)
        self._finish_init(recompute)
