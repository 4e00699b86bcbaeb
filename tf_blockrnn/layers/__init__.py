"""Keras layers on the fused ops of this package."""

from tf_blockrnn.layers.gru_cell import GRUCell
from tf_blockrnn.layers.lstm_cell import LSTMCell

__all__ = ["GRUCell", "LSTMCell"]
