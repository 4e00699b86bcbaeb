"""Keras layers on the fused ops of this package.

A program that only loads a saved model needs `import tf_blockrnn`, which lets Keras find them.

Example:
  >>> import keras
  >>> from tf_blockrnn import layers
  >>> model = keras.Sequential([keras.Input((None, 3)), layers.LSTM(4), keras.layers.Dense(1)])
  >>> model.output_shape, model.layers[0].fused
  ((None, 1), True)
"""

from tf_blockrnn import _registration

_registration.load_all()  # before Keras imports TensorFlow, for an error that explains

# ruff: noqa: E402
from tf_blockrnn.layers import _cell_loop

_cell_loop.install()  # before the modules below look at Keras' layers

from tf_blockrnn.layers.gru import GRU
from tf_blockrnn.layers.gru_cell import GRUCell
from tf_blockrnn.layers.layer_norm_gru import LayerNormGRU, LayerNormGRUCell
from tf_blockrnn.layers.layer_norm_lstm import LayerNormLSTM, LayerNormLSTMCell
from tf_blockrnn.layers.lstm import LSTM, LSTMCell
from tf_blockrnn.layers.simple_rnn import SimpleRNN, SimpleRNNCell

__all__ = [
    "GRU",
    "LSTM",
    "GRUCell",
    "LSTMCell",
    "LayerNormGRU",
    "LayerNormGRUCell",
    "LayerNormLSTM",
    "LayerNormLSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
]


def __dir__() -> list[str]:
    return __all__
