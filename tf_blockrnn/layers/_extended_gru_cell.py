"""A Keras GRU cell with zoneout, in Keras' own operations."""

from typing import Any

import keras

from tf_blockrnn.layers import _fusing, _zoneout


class ExtendedGRUCell(keras.layers.GRUCell):
    """Keras' GRU cell with zoneout of its state (Krueger et al. 2016, arXiv:1606.01305)."""

    # Of a cell that was created as a Keras cell.
    zoneout_h: float = 0.0

    def __init__(self, *args: Any, zoneout_h: float = 0.0, **kwargs: Any):
        zoneout_h = _zoneout.rate(self, "zoneout_h", zoneout_h)
        super().__init__(*args, **kwargs)
        if zoneout_h:
            self.zoneout_h = zoneout_h

    def call(self, inputs, states, training=False):
        h, new_states = super().call(inputs, states, training=training)
        if not self.zoneout_h:
            return h, new_states
        nested = isinstance(states, (list, tuple))
        before = states[0] if nested else states
        h = _zoneout.step(self, "zoneout_h", before, h, training)
        return h, [h] if nested else h

    def get_config(self):
        return {**super().get_config(), **_fusing.own_config(self)}
