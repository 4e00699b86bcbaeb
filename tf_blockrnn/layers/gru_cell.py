"""A Keras GRU cell on the ops GRUAfterSequence and GRUSequence."""

from typing import Any

import keras

from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._like_keras import like_keras
from tf_blockrnn.layers.gru import SPEC


@like_keras(keras.layers.GRUCell)
class GRUCell(FusedCell, ExtendedGRUCell):
    """A `keras.layers.GRUCell` that computes a step in one fused op.

    {cell_of_keras}
    {gru}

    {cell_support}

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {zoneout_h}

    {cell_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' cell refuses; a rate of zoneout that is not in 0..1.

    Example:
      >>> import numpy as np
      >>> import keras
      >>> import tf_blockrnn
      >>> cell = tf_blockrnn.layers.GRUCell(4)
      >>> layer = keras.layers.RNN(cell, return_sequences=True)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 5, 4)
      >>> cell.fused
      True
    """

    _SPEC = SPEC

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        _fusing.check_flag(self, "reset_after", self.reset_after)
