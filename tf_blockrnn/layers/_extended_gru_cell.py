"""A Keras GRU cell with zoneout, in Keras' own operations."""

from typing import Any

import keras

from tf_blockrnn.layers import _zoneout


class ExtendedGRUCell(keras.layers.GRUCell):
    """Keras' GRU cell with zoneout of its state (Krueger et al. 2016, arXiv:1606.01305).

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
      >>> layer = keras.layers.RNN(ExtendedGRUCell(4, zoneout_state=0.1))
      >>> tuple(layer(np.ones([1, 5, 3], "float32")).shape)
      (1, 4)
    """

    # Of a cell that was created as a Keras cell.
    zoneout_state: float = 0.0

    def __init__(self, units: int, *, zoneout_state: float = 0.0, **kwargs: Any):
        zoneout_state = _zoneout.rate(self, "zoneout_state", zoneout_state)
        super().__init__(units, **kwargs)
        if zoneout_state:
            self.zoneout_state = zoneout_state

    def call(self, inputs, states, training=False):
        h, new_states = super().call(inputs, states, training=training)
        if not self.zoneout_state:
            return h, new_states
        nested = isinstance(states, (list, tuple))
        before = states[0] if nested else states
        h = _zoneout.step(self, "zoneout_state", before, h, training)
        return h, [h] if nested else h

    def get_config(self):
        # Our argument only when it is in use, so that keras.layers.GRUCell accepts the config of a
        # plain cell.
        return {**super().get_config(), **_zoneout.config(self)}
