"""Keras layers on the fused ops of this package.

Importing this module tells Keras of them; a program that only loads a saved model
needs `import tf_blockrnn.layers` for that.
"""

from tf_blockrnn.layers.gru import GRU
from tf_blockrnn.layers.gru_cell import GRUCell
from tf_blockrnn.layers.lstm import LSTM
from tf_blockrnn.layers.lstm_cell import LSTMCell
from tf_blockrnn.layers.simple_rnn import SimpleRNN

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "SimpleRNN"]
