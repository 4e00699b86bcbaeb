"""The public functions of the ops, their gradients, and what these share.

Importing it, or any module in it, loads the op library and registers all gradients. Outside of this
folder `_registration.load_all()` does so, which imports TensorFlow first.
"""

from tf_blockrnn import _loader

# First, because its error explains failures under another version of TensorFlow.
_extends = _loader.extends_tensorflow()
_loader.load()

# ruff: noqa: E402
from tf_blockrnn._ops import (
    block_gru,
    block_lstm,
    cudnn_rnn,
    extend_tf,
    gru_block_cell,
    layer_norm,
    lstm_block_cell,
    sequences,
    simple_rnn,
)

if _extends:
    extend_tf.extend()

__all__ = [
    "block_gru",
    "block_lstm",
    "cudnn_rnn",
    "gru_block_cell",
    "layer_norm",
    "lstm_block_cell",
    "sequences",
    "simple_rnn",
]
