"""A Keras GRU layer with layer normalisation, on the op LayerNormGRUSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import layer_norm
from tf_blockrnn.layers import _fused_call, _fusing, _layer_norm
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers.layer_norm_gru_cell import LayerNormGRUCell

_GATES = 3


def _run_op(
    cell: Any,
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    states: list[tf.Tensor],
    options: dict[str, Any],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
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
    activations={"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID},
    gates=_GATES,
    run_op=_run_op,
)


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LayerNormGRU(_layer_norm.NormalizedLayer, FusedLayer, keras.layers.GRU):
    """A GRU layer with layer normalisation in one fused op, `BlockRNN>LayerNormGRUSequence`.

        [x_z x_r x_h] = kernel_norm(x W) + b
        [h_z h_r h_h] = recurrent_norm(h_prev R) + d
        z = sigmoid(x_z + h_z)      r = sigmoid(x_r + h_r)
        h = z * h_prev + (1 - z) * tanh(x_h + r * h_h)

    (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, in the form of Haste's `LayerNormGRU`
    with betas.) Each norm is over all gates of a row. The weights are Keras' three, then gamma and
    beta of `kernel_norm` and of `recurrent_norm`, each `[3 * units]`. Constructor and call
    arguments and defaults are those of `keras.layers.GRU` but for `reset_after`, which is true, and
    `use_cudnn`, and there are four more.

    Args:
      units: H, the size of the state and of the output.
      *args, **kwargs: as for `keras.layers.GRU`.
      norm_gamma_initializer, norm_beta_initializer: of the norms' weights.
      norm_epsilon: added to the variances, above 0.
      recompute: as of `tf_blockrnn.layers.GRU`.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: `[batch, units]`, or a list of this one tensor; zeros when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied.

    Returns:
      The output after the last step, `[batch, units]`, or with `return_sequences` the outputs of
      all steps, `[batch, steps, units]`; with `return_state` a tuple of this and the last state,
      `[batch, units]`. All have the layer's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
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

    def __init__(
        self,
        units: int,
        activation: _fusing.Activation = "tanh",
        recurrent_activation: _fusing.Activation = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: _fusing.Initializer = "glorot_uniform",
        recurrent_initializer: _fusing.Initializer = "orthogonal",
        bias_initializer: _fusing.Initializer = "zeros",
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
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        cell = LayerNormGRUCell(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
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
            norm_gamma_initializer=norm_gamma_initializer,
            norm_beta_initializer=norm_beta_initializer,
            norm_epsilon=norm_epsilon,
            dtype=kwargs.get("dtype"),
            trainable=kwargs.get("trainable", True),
            name="gru_cell",
            implementation=kwargs.pop("implementation", 2),
        )
        # Past the constructor of keras.layers.GRU, which creates Keras' cell.
        super(keras.layers.GRU, self).__init__(
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

    def get_config(self):
        config = super().get_config()
        del config["reset_after"]
        return config
