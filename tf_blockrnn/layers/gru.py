"""A Keras GRU layer on the ops GRUAfterSequence and GRUSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fused_call, _fused_layer, _fusing, _zoneout
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._fused_layer import FusedLayer

_GATES = 3


def _run_op(
    cell: Any,
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    states: list[tf.Tensor],
    options: dict[str, Any],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    b_x, b_h = _fused_call.bias_or_zeros(cell, _GATES), None
    if cell.reset_after and cell.bias is not None:
        # In eager mode tf.unstack takes several times as long as the op that it calls.
        b_x, b_h = tf.raw_ops.Unpack(value=b_x, num=2)
    outputs, state = sequences.gru(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, cell.compute_dtype),
        b_x,
        b_h,
        initial_state=states[0],
        reset_after=cell.reset_after,
        gate_order="urc",
        **options,
    )
    return outputs, [state]


SPEC = _fused_call.LayerSpec(
    keras_class=keras.layers.GRU,
    cells=(keras.layers.GRUCell, ExtendedGRUCell),
    activations={"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID},
    gates=_GATES,
    run_op=_run_op,
)


def _extended_cell(
    units: int, arguments: dict[str, Any], of_layer: dict[str, Any]
) -> ExtendedGRUCell:
    """The cell with zoneout, made as `keras.layers.GRU` makes Keras' cell."""
    return ExtendedGRUCell(
        units,
        **arguments,
        dtype=of_layer.get("dtype"),
        trainable=of_layer.get("trainable", True),
        name="gru_cell",
        implementation=of_layer.pop("implementation", 2),
    )


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class GRU(FusedLayer, keras.layers.GRU):
    """A `keras.layers.GRU` that computes a whole sequence in one fused op.

    Constructor and call arguments, defaults, weights (names, shapes, order), config and results are
    those of `keras.layers.GRU`, and each loads the other's weights. A step is, with z, r, h for
    Keras' gates and `reset_after=True`,

        z = sigmoid(x W_z + b_z + h_prev R_z + d_z)
        r = sigmoid(x W_r + b_r + h_prev R_r + d_r)
        c = tanh(x W_h + b_h + r * (h_prev R_h + d_h))
        h = z * h_prev + (1 - z) * c

    (Cho et al. 2014, https://arxiv.org/abs/1406.1078v1), and with `reset_after=False`
    `c = tanh(x W_h + b_h + (r * h_prev) R_h)` and no d (version 3 of the paper).

    Any mask, `dropout`, `recurrent_dropout`, zoneout, `go_backwards`, `stateful`, `unroll` (which
    has no effect) and `Bidirectional` are supported by the op too. Activations other than tanh and
    sigmoid, a custom cell, `use_cudnn=True`, or a GPU where this build has no CUDA are not: the
    layer then falls back to Keras' own operations and warns once; `layer.fused` and
    `layer.why_not_fused` report it. XLA compiles the op too (`jit_compile=True`).

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.GRU`.
      zoneout_state: rate of zoneout of h (Krueger et al. 2016, https://arxiv.org/abs/1606.01305),
        0..1: in training the probability with which, drawn anew for every step, row and unit, h
        stays as it was before a step; otherwise h is the mean, rate * h_prev + (1 - rate) * h.
      recompute: for long sequences: whether training computes the gates of all steps again in the
        backward pass instead of keeping them, in a fraction of the memory; or the least number of
        steps that are computed again together. See `tf_blockrnn.gru`.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: `[batch, units]`, or a list of this one tensor; zeros when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied, and zoneout is drawn.

    Returns:
      The output after the last step, `[batch, units]`, or with `return_sequences` the outputs of
      all steps, `[batch, steps, units]`; with `return_state` a tuple of this and the last state,
      `[batch, units]`. All have the layer's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' layer refuses; a number for `recompute` that is not above
        0; a rate of zoneout that is not in 0..1.

    Example:

    >>> import numpy as np
    >>> import tf_blockrnn
    >>> layer = tf_blockrnn.layers.GRU(4, return_sequences=True)
    >>> outputs = layer(np.ones((2, 5, 3), "float32"), mask=np.array([[1, 1, 1, 0, 0], [1] * 5]))
    >>> tuple(outputs.shape)
    (2, 5, 4)
    >>> layer.fused
    True
    >>> tf_blockrnn.layers.GRU(4, activation="relu", name="other").why_not_fused
    'activation is relu, the op has tanh'
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
        reset_after: bool = True,
        use_cudnn: bool | str = "auto",
        *,
        zoneout_state: float = 0.0,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        of_cell = {
            "activation": activation,
            "recurrent_activation": recurrent_activation,
            "use_bias": use_bias,
            "kernel_initializer": kernel_initializer,
            "recurrent_initializer": recurrent_initializer,
            "bias_initializer": bias_initializer,
            "kernel_regularizer": kernel_regularizer,
            "recurrent_regularizer": recurrent_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "recurrent_constraint": recurrent_constraint,
            "bias_constraint": bias_constraint,
            "dropout": dropout,
            "recurrent_dropout": recurrent_dropout,
            "reset_after": reset_after,
            "seed": seed,
        }
        of_layer = {
            "activity_regularizer": activity_regularizer,
            "return_sequences": return_sequences,
            "return_state": return_state,
            "go_backwards": go_backwards,
            "stateful": stateful,
            "unroll": unroll,
        }
        if _zoneout.rate(self, "zoneout_state", zoneout_state):
            cell = _extended_cell(units, {**of_cell, "zoneout_state": zoneout_state}, kwargs)
            # Past the constructor of keras.layers.GRU, which creates Keras' cell.
            super(keras.layers.GRU, self).__init__(cell, **of_layer, **kwargs)
            self.input_spec = keras.InputSpec(ndim=3)
            self.use_cudnn = _fused_layer.without_cudnn(use_cudnn, "zoneout_state")
        else:
            super().__init__(units, **of_cell, **of_layer, use_cudnn=use_cudnn, **kwargs)
        self._finish_init(recompute)

    use_cudnn = _fused_layer.use_cudnn_of(ExtendedGRUCell)

    @property
    def zoneout_state(self) -> float:
        return getattr(self.cell, "zoneout_state", 0.0)

    def get_config(self):
        return {**super().get_config(), **_zoneout.config(self)}
