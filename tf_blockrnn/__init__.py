"""Fused recurrent ops for TensorFlow and Keras: LSTM, GRU and simple RNN.

`__all__` lists the public names.

Example:
  >>> import tensorflow as tf
  >>> import tf_blockrnn
  >>> x = tf.ones([2, 5, 3])  # batch, steps, inputs
  >>> w_x, w_h, b = tf.ones([3, 16]), tf.ones([4, 16]), tf.zeros([16])
  >>> outputs, state = tf_blockrnn.lstm(x, w_x, w_h, b)
  >>> outputs.shape.as_list(), state.h.shape.as_list()
  ([2, 5, 4], [2, 4])
"""

import importlib as _importlib
import os as _os
from typing import TYPE_CHECKING
from typing import Any as _Any

from tf_blockrnn import _loader
from tf_blockrnn._loader import build_info
from tf_blockrnn._version import VERSION as __version__


def _extends_tensorflow() -> bool:
    """Whether to add gradients and CPU kernels to TensorFlow's own ops."""
    switch = _os.environ.get("TF_BLOCKRNN_EXTEND_TF", "")
    if switch not in ("", "0", "1"):
        raise _loader.import_error(
            f"TF_BLOCKRNN_EXTEND_TF must be 0 or 1, or not set; it is {switch!r}"
        )
    return switch != "0"


_extends = _extends_tensorflow()  # before the library is loaded, which reads the switch too
# First, because its error explains failures under another version of TensorFlow.
_loader.load()

# ruff: noqa: E402
from tf_blockrnn import _integrations, raw_ops
from tf_blockrnn._ops import cudnn_rnn as _cudnn_rnn  # noqa: F401, registers gradients
from tf_blockrnn._ops.block_gru import block_gru
from tf_blockrnn._ops.block_lstm import block_lstm, block_lstm_v2
from tf_blockrnn._ops.extend_tf import extend as _extend
from tf_blockrnn._ops.gru_block_cell import gru_block_cell
from tf_blockrnn._ops.lstm_block_cell import lstm_block_cell
from tf_blockrnn._ops.sequences import gru, lstm
from tf_blockrnn._ops.simple_rnn import simple_rnn
from tf_blockrnn._ops.types import GRUOutputs, LSTMOutputs, LSTMState

if _extends:
    _extend()
_integrations.register()

# Keras takes seconds to import and the ops do not need it: what does is imported at its first use.
# Each such name is in `_LAZY` with its module, below for type checkers, and in `__all__`.
_LAZY = {
    "disable_keras": "_enable_keras",
    "enable_keras": "_enable_keras",
    "fuse_model": "_fuse",
    "keras_enabled": "_enable_keras",
    "layers": "layers",
    "unfuse_model": "_fuse",
    "weights": "weights",
}
if TYPE_CHECKING:
    from tf_blockrnn import layers, weights
    from tf_blockrnn._enable_keras import disable_keras, enable_keras, keras_enabled
    from tf_blockrnn._fuse import fuse_model, unfuse_model

__all__ = [
    "GRUOutputs",
    "LSTMOutputs",
    "LSTMState",
    "__version__",
    "block_gru",
    "block_lstm",
    "block_lstm_v2",
    "build_info",
    "disable_keras",
    "enable_keras",
    "fuse_model",
    "gru",
    "gru_block_cell",
    "keras_enabled",
    "layers",
    "lstm",
    "lstm_block_cell",
    "raw_ops",
    "simple_rnn",
    "unfuse_model",
    "weights",
]


def __dir__() -> list[str]:
    return __all__


def _lazy(name: str) -> _Any:
    if name in _LAZY:
        module = _importlib.import_module(f"tf_blockrnn.{_LAZY[name]}")
        return module if name == _LAZY[name] else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not TYPE_CHECKING:  # to a type checker it would mean that every name is there
    __getattr__ = _lazy
