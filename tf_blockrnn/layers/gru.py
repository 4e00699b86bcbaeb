"""A Keras GRU layer on the ops GRUAfterSequence and GRUSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fused_call, _fusing, _zoneout
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._fused_layer import FusedLayer, of_cell
from tf_blockrnn.layers._like_keras import like_keras

_GATES = 3


def _run_op(cell, x, w_x, states, options):
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
    gates=_GATES,
    run_op=_run_op,
    own_cell=ExtendedGRUCell,
)


@like_keras(keras.layers.GRU)
class GRU(FusedLayer, keras.layers.GRU):
    """A `keras.layers.GRU` that computes a whole sequence in one fused op.

    {layer_of_keras}
    {gru}

    {layer_support}

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {zoneout_h}
      {recompute}

    {layer_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' layer refuses; a number for `recompute` that is not above
        0; a rate of zoneout that is not in 0..1; `use_cudnn=True` together with zoneout.

    Example:
      >>> import numpy as np
      >>> import tf_blockrnn
      >>> layer = tf_blockrnn.layers.GRU(4, return_sequences=True)
      >>> outputs = layer(np.ones((2, 5, 3), "float32"), mask=np.array([[1, 1, 1, 0, 0], [1] * 5]))
      >>> tuple(outputs.shape)
      (2, 5, 4)
      >>> two_sequences = np.array([[False, False, True, False, False], [False] * 5])
      >>> outputs = layer(np.ones((2, 5, 3), "float32"), resets=two_sequences)
      >>> bool(np.allclose(outputs[0, 2:], outputs[1, :3], atol=1e-6))
      True
      >>> layer.fused
      True
      >>> tf_blockrnn.layers.GRU(4, activation="relu", name="other").why_not_fused
      'activation is relu, the op has tanh'
    """

    _SPEC = SPEC

    def __init__(
        self,
        *args: Any,
        zoneout_h: float = 0.0,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        own = _zoneout.in_use(self, zoneout_h=zoneout_h)
        self._construct(args, kwargs, own, recompute)
        _fusing.check_flag(self, "reset_after", self.cell.reset_after)

    zoneout_h = of_cell("zoneout_h", 0.0)
