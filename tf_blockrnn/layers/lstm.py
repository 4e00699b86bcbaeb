"""A Keras LSTM layer on the op LSTMSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fused_call, _fused_layer, _fusing, _zoneout
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell, extra_config
from tf_blockrnn.layers._fused_layer import FusedLayer

_GATES = 4


def _run_op(
    cell: Any,
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    states: list[tf.Tensor],
    options: dict[str, Any],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    dtype = cell.compute_dtype
    if getattr(cell, "use_peephole", False):
        peepholes = (cell.wci, cell.wcf, cell.wco)
        options["peepholes"] = [_fusing.weight_in_dtype(weight, dtype) for weight in peepholes]
    if getattr(cell, "projection", None) is not None:
        options["w_p"] = _fusing.weight_in_dtype(cell.w_p, dtype)
    outputs, state = sequences.lstm(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, dtype),
        _fused_call.bias_or_zeros(cell, _GATES),
        initial_state=states,
        cell_clip=getattr(cell, "cell_clip", None) or 0.0,
        **options,
    )
    return outputs, list(state)


SPEC = _fused_call.LayerSpec(
    keras_class=keras.layers.LSTM,
    cells=(keras.layers.LSTMCell, ExtendedLSTMCell),
    activations={"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID},
    gates=_GATES,
    run_op=_run_op,
)


def _extended_cell(
    units: int, arguments: dict[str, Any], of_layer: dict[str, Any]
) -> ExtendedLSTMCell:
    """The cell with the additional features, made as `keras.layers.LSTM` makes Keras' cell."""
    return ExtendedLSTMCell(
        units,
        **arguments,
        dtype=of_layer.get("dtype"),
        trainable=of_layer.get("trainable", True),
        name="lstm_cell",
        implementation=of_layer.pop("implementation", 2),
    )


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class LSTM(FusedLayer, keras.layers.LSTM):
    """A `keras.layers.LSTM` that computes a sequence in one fused op, `BlockRNN>LSTMSequence`.

    Constructor and call arguments, defaults, weights (names, shapes, order), config and results are
    those of `keras.layers.LSTM`, and each loads the other's weights. A step is

        i = sigmoid(x W_i + h_prev R_i + b_i [+ c_prev * wci])
        f = sigmoid(x W_f + h_prev R_f + b_f [+ c_prev * wcf])
        c = f * c_prev + i * tanh(x W_c + h_prev R_c + b_c), clipped to +-cell_clip
        o = sigmoid(x W_o + h_prev R_o + b_o [+ c * wco])
        h = o * tanh(c), or with a projection w_p (o * tanh(c))

    (Gers, Schraudolph, Schmidhuber 2002,
    https://www.jmlr.org/papers/volume3/gers02a/gers02a.pdf; the projection is that of Sak, Senior,
    Beaufays 2014, https://arxiv.org/abs/1402.1128). As in Keras, the forget bias of 1 is part of
    the bias (`unit_forget_bias`).

    Six arguments are additions to Keras'. With peepholes there are three more weights `wci`,
    `wcf`, `wco`, each `[units]`, after Keras' own; they are initially zero. The clip is
    straight-through: its derivative counts as 1. With a projection there is one more weight `w_p`,
    `[projection, units]`, and the outputs and the state h have the width `projection`.

    Any mask, `dropout`, `recurrent_dropout`, zoneout, `go_backwards`, `stateful`, `unroll` (which
    has no effect) and `Bidirectional` are supported by the op too. Activations other than tanh and
    sigmoid, a custom cell, `use_cudnn=True`, or a GPU where this build has no CUDA are not: the
    layer then falls back to Keras' own operations and warns once; `layer.fused` and
    `layer.why_not_fused` report it. XLA compiles the op too (`jit_compile=True`).

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      *args, **kwargs: as for `keras.layers.LSTM`.
      use_peephole: whether the gates read the cell state through peepholes.
      cell_clip: bound of the cell state, above 0, a float32 number; None for no bound.
      projection: size of the projected output; None for no projection.
      zoneout_state: rate of zoneout of h (Krueger et al. 2016, https://arxiv.org/abs/1606.01305),
        0..1: in training the probability with which, drawn anew for every step, row and unit, h
        stays as it was before a step; otherwise h is the mean, rate * h_prev + (1 - rate) * h.
      zoneout: the same of the cell state; h is made of the new cell state, before its zoneout.
      recompute: for long sequences: whether training computes the gates of all steps again in the
        backward pass instead of keeping them, in a fraction of the memory; or the least number of
        steps that are computed again together. See `tf_blockrnn.lstm`.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: a list of h, `[batch, projection or units]`, and c, `[batch, units]`; zeros
        when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied, and zoneout is drawn.

    Returns:
      The output after the last step, `[batch, projection or units]`, or with `return_sequences`
      the outputs of all steps, `[batch, steps, projection or units]`; with `return_state` a tuple
      of this and the last states h and c. All have the layer's compute dtype: float16, bfloat16,
      float32 or float64.

    Raises:
      ValueError: an argument that Keras' layer refuses; a `cell_clip`, `projection` or number for
        `recompute` that is not above 0; a rate of zoneout that is not in 0..1; `use_cudnn=True`
        together with a feature that Keras' cuDNN path lacks.

    Example:

    >>> import numpy as np
    >>> import tf_blockrnn
    >>> layer = tf_blockrnn.layers.LSTM(4, use_peephole=True, recurrent_dropout=0.2)
    >>> outputs = layer(np.ones((2, 5, 3), "float32"), mask=np.array([[1, 1, 1, 0, 0], [1] * 5]))
    >>> tuple(outputs.shape)
    (2, 4)
    >>> layer.fused
    True
    >>> [weight.name for weight in layer.weights]
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
        use_cudnn: bool | str = "auto",
        *,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        zoneout_state: float = 0.0,
        zoneout: float = 0.0,
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
            "unit_forget_bias": unit_forget_bias,
            "kernel_regularizer": kernel_regularizer,
            "recurrent_regularizer": recurrent_regularizer,
            "bias_regularizer": bias_regularizer,
            "kernel_constraint": kernel_constraint,
            "recurrent_constraint": recurrent_constraint,
            "bias_constraint": bias_constraint,
            "dropout": dropout,
            "recurrent_dropout": recurrent_dropout,
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
        extras = {"use_peephole": use_peephole, "cell_clip": cell_clip, "projection": projection}
        rates = {
            name: _zoneout.rate(self, name, value)
            for name, value in (("zoneout_state", zoneout_state), ("zoneout", zoneout))
        }
        extras |= rates
        if use_peephole or cell_clip is not None or projection is not None or any(rates.values()):
            cell = _extended_cell(units, {**of_cell, **extras}, kwargs)
            # Past the constructor of keras.layers.LSTM, which creates Keras' cell.
            super(keras.layers.LSTM, self).__init__(cell, **of_layer, **kwargs)
            self.input_spec = keras.InputSpec(ndim=3)
            self.use_cudnn = _fused_layer.without_cudnn(
                use_cudnn, "use_peephole, cell_clip, projection or zoneout"
            )
        else:
            super().__init__(units, **of_cell, **of_layer, use_cudnn=use_cudnn, **kwargs)
        self._finish_init(recompute)

    use_cudnn = _fused_layer.use_cudnn_of(ExtendedLSTMCell)

    @property
    def use_peephole(self) -> bool:
        return getattr(self.cell, "use_peephole", False)

    @property
    def cell_clip(self) -> float | None:
        return getattr(self.cell, "cell_clip", None)

    @property
    def projection(self) -> int | None:
        return getattr(self.cell, "projection", None)

    @property
    def zoneout_state(self) -> float:
        return getattr(self.cell, "zoneout_state", 0.0)

    @property
    def zoneout(self) -> float:
        return getattr(self.cell, "zoneout", 0.0)

    def get_config(self):
        # Our arguments only when they are in use, so that keras.layers.LSTM accepts the config of
        # a plain layer.
        return {**super().get_config(), **extra_config(self)}
