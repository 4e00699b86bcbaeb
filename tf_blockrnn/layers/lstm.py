"""A Keras LSTM layer and cell on the op LSTMSequence."""

from typing import Any

import keras

from tf_blockrnn._ops import sequences
from tf_blockrnn.layers import _fused_call, _fusing, _zoneout
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell, check_own
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._fused_layer import FusedLayer, of_cell
from tf_blockrnn.layers._like_keras import like_keras

_GATES = 4


def _run_op(cell, x, w_x, states, options):
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
    gates=_GATES,
    run_op=_run_op,
    own_cell=ExtendedLSTMCell,
)


@like_keras(keras.layers.LSTM)
class LSTM(FusedLayer, keras.layers.LSTM):
    """A `keras.layers.LSTM` that computes a sequence in one fused op, `BlockRNN>LSTMSequence`.

    {layer_of_keras}

    {lstm}

    {layer_support}

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {peephole_arguments}
      {zoneout_h}
      {zoneout_c}
      {recompute}

    {lstm_layer_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' layer refuses; a `cell_clip`, `projection` or number for
        `recompute` that is not above 0; a rate of zoneout that is not in 0..1; `use_cudnn=True`
        together with an argument that Keras' layer lacks.

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
        *args: Any,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        zoneout_h: float = 0.0,
        zoneout_c: float = 0.0,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        own = _zoneout.in_use(self, zoneout_h=zoneout_h, zoneout_c=zoneout_c)
        check_own(self, use_peephole, cell_clip, projection)
        if use_peephole:
            own["use_peephole"] = True
        given = {"cell_clip": cell_clip, "projection": projection}
        own |= {name: value for name, value in given.items() if value is not None}
        self._construct(args, kwargs, own, recompute)

    use_peephole = of_cell("use_peephole", False)
    cell_clip = of_cell("cell_clip", None)
    projection = of_cell("projection", None)
    zoneout_h = of_cell("zoneout_h", 0.0)
    zoneout_c = of_cell("zoneout_c", 0.0)


@like_keras(keras.layers.LSTMCell)
class LSTMCell(FusedCell, ExtendedLSTMCell):
    """A `keras.layers.LSTMCell` that computes a step in one fused op, `BlockRNN>LSTMSequence`.

    {cell_of_keras}

    {lstm}

    {cell_support}

    Args:
      units: H, the size of the cell state and, without a projection, of the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {peephole_arguments}
      {zoneout_h}
      {zoneout_c}

    {lstm_cell_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' cell refuses; a `cell_clip` or `projection` that is not
        above 0; a rate of zoneout that is not in 0..1.

    Example:
      >>> import numpy as np
      >>> import keras
      >>> import tf_blockrnn
      >>> cell = tf_blockrnn.layers.LSTMCell(4, use_peephole=True)
      >>> layer = keras.layers.RNN(cell)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 4)
      >>> [weight.name for weight in cell.weights]
      ['kernel', 'recurrent_kernel', 'bias', 'wci', 'wcf', 'wco']
    """

    _SPEC = SPEC
