"""Keras layers on the fused ops of this package.

Importing this module tells Keras of them; a program that only loads a saved model
needs `import tf_blockrnn.layers` for that.
"""

from tf_blockrnn.layers.gru_cell import GRUCell
from tf_blockrnn.layers.lstm_cell import LSTMCell

__all__ = ["GRUCell", "LSTMCell"]
