"""Fused recurrent ops for TensorFlow. The names here are the public ones."""

import importlib as _importlib
import os as _os
from typing import Any as _Any

from tf_blockrnn import (
    block_gru,
    block_lstm,
    cudnn_rnn,
    gru_block_cell,
    lstm_block_cell,
    raw_ops,
)
from tf_blockrnn._extend_tf import extend as _extend
from tf_blockrnn._loader import build_info
from tf_blockrnn._version import VERSION as __version__
from tf_blockrnn.sequences import LSTMState, gru, lstm

__all__ = [
    "LSTMState",
    "__version__",
    "block_gru",
    "block_lstm",
    "build_info",
    "cudnn_rnn",
    "gru",
    "gru_block_cell",
    "layers",
    "lstm",
    "lstm_block_cell",
    "raw_ops",
]

if _os.environ.get("TF_BLOCKRNN_EXTEND_TF") != "0":
    _extend()


def __getattr__(name: str) -> _Any:
    # Keras takes seconds to import and the ops do not need it.
    if name == "layers":
        return _importlib.import_module("tf_blockrnn.layers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
