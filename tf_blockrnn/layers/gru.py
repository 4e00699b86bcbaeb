"""A Keras GRU layer on the ops GRUAfterSequence and GRUSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._fused_layer import FusedLayer


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

    Any mask, `dropout`, `recurrent_dropout`, `go_backwards`, `stateful`, `unroll` (which has no
    effect) and `Bidirectional` are supported by the op too. Activations other than tanh and
    sigmoid, a custom cell, `use_cudnn=True`, or a GPU where this build has no CUDA are not: the
    layer then falls back to Keras' own operations and warns once; `layer.fused` and
    `layer.why_not_fused` report it. XLA cannot compile the op, and `model.compile` takes this into
    account.

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.GRU`.

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
      ValueError: an argument that Keras' layer refuses.

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

    _ACTIVATIONS = {"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID}
    _GATES = 3
    _CELLS = (keras.layers.GRUCell,)

    @_fusing.with_signature_of(keras.layers.GRU.__init__)
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._warn_if_not_fused()

    def _run_op(self, x, w_x, states, **options):
        cell, dtype = self.cell, self.cell.compute_dtype
        b_x, b_h = self._bias_or_zeros(), None
        if cell.reset_after and cell.bias is not None:
            # In eager mode tf.unstack takes several times as long as the op that it calls.
            b_x, b_h = tf.raw_ops.Unpack(value=b_x, num=2)
        outputs, state = sequences.gru(
            x,
            w_x,
            _fusing.weight_in_dtype(cell.recurrent_kernel, dtype),
            b_x,
            b_h,
            initial_state=states[0],
            reset_after=cell.reset_after,
            gate_order="urc",
            **options,
        )
        return outputs, [state]
