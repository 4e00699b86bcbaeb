"""A Keras LSTM layer on the op LSTMSequence."""

import inspect
from typing import Any

import keras

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell, extra_config
from tf_blockrnn.layers._fused_layer import FusedLayer

# The constructor arguments of Keras' cell that are attributes of the same names.
_CELL_ARGUMENTS = [
    name
    for name, parameter in inspect.signature(keras.layers.LSTMCell).parameters.items()
    if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
] + ["implementation", "name", "trainable"]


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

    Three arguments are additions to Keras'. With peepholes there are three more weights `wci`,
    `wcf`, `wco`, each `[units]`, after Keras' own; they are initially zero. The clip is
    straight-through: its derivative counts as 1. With a projection there is one more weight `w_p`,
    `[projection, units]`, and the outputs and the state h have the width `projection`.

    Any mask, `dropout`, `recurrent_dropout`, `go_backwards`, `stateful`, `unroll` (which has no
    effect) and `Bidirectional` are supported by the op too. Activations other than tanh and
    sigmoid, a custom cell, `use_cudnn=True`, or a GPU where this build has no CUDA are not: the
    layer then falls back to Keras' own operations and warns once; `layer.fused` and
    `layer.why_not_fused` report it. XLA cannot compile the op, and `model.compile` takes this into
    account.

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      *args, **kwargs: as for `keras.layers.LSTM`.
      use_peephole: whether the gates read the cell state through peepholes.
      cell_clip: bound of the cell state, above 0, a float32 number; None for no bound.
      projection: size of the projected output; None for no projection.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: a list of h, `[batch, projection or units]`, and c, `[batch, units]`; zeros
        when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied.

    Returns:
      The output after the last step, `[batch, projection or units]`, or with `return_sequences`
      the outputs of all steps, `[batch, steps, projection or units]`; with `return_state` a tuple
      of this and the last states h and c. All have the layer's compute dtype: float16, bfloat16,
      float32 or float64.

    Raises:
      ValueError: an argument that Keras' layer refuses; a `cell_clip` or `projection` that is not
        above 0; `use_cudnn=True` together with a feature that Keras' cuDNN path lacks.

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

    _ACTIVATIONS = {"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID}
    _GATES = 4
    _CELLS = (keras.layers.LSTMCell, ExtendedLSTMCell)

    @_fusing.with_signature_of(keras.layers.LSTM.__init__)
    def __init__(
        self,
        *args: Any,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        if use_peephole or cell_clip is not None or projection is not None:
            self._extend(use_peephole=use_peephole, cell_clip=cell_clip, projection=projection)
        self._warn_if_not_fused()

    def _extend(self, **extras: Any) -> None:
        """Replaces Keras' cell by one with the additional features."""
        if self.use_cudnn is True:
            raise ValueError(
                "use_cudnn=True was given together with use_peephole, cell_clip or projection, "
                "and Keras has no cuDNN path with these."
            )
        plain = self.cell
        arguments = {name: getattr(plain, name) for name in _CELL_ARGUMENTS}
        # Otherwise Keras would still count the plain cell's variables as this layer's.
        self._tracker.untrack(plain)
        self.cell = ExtendedLSTMCell(**arguments, dtype=plain.dtype_policy, **extras)
        self.state_size = list(self.cell.state_size)

    @property
    def use_cudnn(self) -> bool | str:
        # Keras' cuDNN path reads three weights of the cell and would ignore the others;
        # and keras.layers.Bidirectional copies one direction's value to the other.
        return self._use_cudnn if type(self.cell) is not ExtendedLSTMCell else False

    @use_cudnn.setter
    def use_cudnn(self, value: bool | str) -> None:
        self._use_cudnn = value

    @property
    def use_peephole(self) -> bool:
        return getattr(self.cell, "use_peephole", False)

    @property
    def cell_clip(self) -> float | None:
        return getattr(self.cell, "cell_clip", None)

    @property
    def projection(self) -> int | None:
        return getattr(self.cell, "projection", None)

    def get_config(self):
        # Our arguments only when they are in use, so that keras.layers.LSTM accepts the config of
        # a plain layer.
        return {**super().get_config(), **extra_config(self)}

    def _run_op(self, x, w_x, states, **options):
        cell, dtype = self.cell, self.cell.compute_dtype
        if self.use_peephole:
            peepholes = (cell.wci, cell.wcf, cell.wco)
            options["peepholes"] = [_fusing.weight_in_dtype(weight, dtype) for weight in peepholes]
        if self.projection is not None:
            options["w_p"] = _fusing.weight_in_dtype(cell.w_p, dtype)
        outputs, state = sequences.lstm(
            x,
            w_x,
            _fusing.weight_in_dtype(cell.recurrent_kernel, dtype),
            self._bias_or_zeros(),
            initial_state=states,
            cell_clip=self.cell_clip or 0.0,
            **options,
        )
        return outputs, list(state)
