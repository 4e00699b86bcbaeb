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
import sys as _sys
from typing import Any as _Any

from tf_blockrnn._loader import build_info
from tf_blockrnn._loader import load as _load
from tf_blockrnn._version import VERSION as __version__


def _is_command() -> bool:
    """Whether this is imported for `python -m tf_blockrnn`."""
    # While Python searches for the module of `-m`, sys.argv[0] is "-m".
    if _sys.argv[:1] != ["-m"]:
        return False
    return _sys.orig_argv[-len(_sys.argv)].removeprefix("-m") == "tf_blockrnn"


if _is_command():
    # Hides TensorFlow's informational messages before the output of a command; keeps its warnings.
    _os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")


def _extends_tensorflow() -> bool:
    """Whether to add gradients and CPU kernels to TensorFlow's own ops."""
    switch = _os.environ.get("TF_BLOCKRNN_EXTEND_TF", "")
    if switch not in ("", "0", "1"):
        raise ImportError(f"TF_BLOCKRNN_EXTEND_TF must be 0 or 1, or not set; it is {switch!r}")
    return switch != "0"


# The reason why the ops are missing; only for the command, whose doctor reports it.
_problem: Exception | None = None
try:
    _extends = _extends_tensorflow()  # before the library is loaded, which reads the switch too
    # First, because its error explains failures under another version of TensorFlow.
    _load()
    from tf_blockrnn import raw_ops
    from tf_blockrnn._ops import cudnn_rnn as _cudnn_rnn  # noqa: F401, registers gradients
    from tf_blockrnn._ops.block_gru import block_gru
    from tf_blockrnn._ops.block_lstm import block_lstm, block_lstm_v2
    from tf_blockrnn._ops.extend_tf import extend as _extend
    from tf_blockrnn._ops.gru_block_cell import gru_block_cell
    from tf_blockrnn._ops.lstm_block_cell import lstm_block_cell
    from tf_blockrnn._ops.sequences import LSTMState, gru, lstm
    from tf_blockrnn._ops.simple_rnn import simple_rnn

    if _extends:
        _extend()
except Exception as _error:  # an incompatible TensorFlow raises other errors than ImportError too
    if not _is_command():
        raise
    _problem = _error

__all__ = [
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


# Keras takes seconds to import and the ops do not need it: modules that do are imported lazily.
_LAZY = {
    "disable_keras": "_enable_keras",
    "enable_keras": "_enable_keras",
    "keras_enabled": "_enable_keras",
    "fuse_model": "_fuse",
    "layers": "layers",
    "unfuse_model": "_fuse",
    "weights": "weights",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        module = _importlib.import_module(f"tf_blockrnn.{_LAZY[name]}")
        return module if name == _LAZY[name] else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
