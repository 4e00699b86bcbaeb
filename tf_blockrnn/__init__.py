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
import sys as _sys
from typing import TYPE_CHECKING
from typing import Any as _Any

from tf_blockrnn import _integrations, _loader, _registration
from tf_blockrnn._build_info import build_info
from tf_blockrnn._types import GRUOutputs, LSTMOutputs, LSTMState, PackedSequences
from tf_blockrnn._version import VERSION as __version__

# The functions that are imported on their first use, with their modules. Each is also below, as are
# the modules that are, for type checkers, and in `__all__`.
_LAZY = {
    "block_gru": "_ops.block_gru",
    "block_lstm": "_ops.block_lstm",
    "block_lstm_v2": "_ops.block_lstm",
    "disable_keras": "_enable_keras",
    "enable_keras": "_enable_keras",
    "freeze": "_freeze",
    "fuse_model": "_fuse",
    "gru": "_ops.sequences",
    "gru_block_cell": "_ops.gru_block_cell",
    "keras_enabled": "_enable_keras",
    "layer_norm_gru": "_ops.layer_norm",
    "layer_norm_lstm": "_ops.layer_norm",
    "lstm": "_ops.sequences",
    "lstm_block_cell": "_ops.lstm_block_cell",
    "pack_dataset": "_pack_dataset",
    "pack_sequences": "_packing",
    "report": "_report",
    "simple_rnn": "_ops.simple_rnn",
    "to_litert": "_litert",
    "unfuse_model": "_fuse",
    "unpack_sequences": "_packing",
}
_WITHOUT_TENSORFLOW = {"inference", "pack_sequences", "unpack_sequences", "weights"}
if TYPE_CHECKING:
    from tf_blockrnn import inference, layers, raw_ops, weights
    from tf_blockrnn._enable_keras import disable_keras, enable_keras, keras_enabled
    from tf_blockrnn._freeze import freeze
    from tf_blockrnn._fuse import fuse_model, unfuse_model
    from tf_blockrnn._litert import to_litert
    from tf_blockrnn._ops.block_gru import block_gru
    from tf_blockrnn._ops.block_lstm import block_lstm, block_lstm_v2
    from tf_blockrnn._ops.gru_block_cell import gru_block_cell
    from tf_blockrnn._ops.layer_norm import layer_norm_gru, layer_norm_lstm
    from tf_blockrnn._ops.lstm_block_cell import lstm_block_cell
    from tf_blockrnn._ops.sequences import gru, lstm
    from tf_blockrnn._ops.simple_rnn import simple_rnn
    from tf_blockrnn._pack_dataset import pack_dataset
    from tf_blockrnn._packing import pack_sequences, unpack_sequences
    from tf_blockrnn._report import report

__all__ = [
    "GRUOutputs",
    "LSTMOutputs",
    "LSTMState",
    "PackedSequences",
    "__version__",
    "block_gru",
    "block_lstm",
    "block_lstm_v2",
    "build_info",
    "disable_keras",
    "enable_keras",
    "freeze",
    "fuse_model",
    "gru",
    "gru_block_cell",
    "inference",
    "keras_enabled",
    "layer_norm_gru",
    "layer_norm_lstm",
    "layers",
    "lstm",
    "lstm_block_cell",
    "pack_dataset",
    "pack_sequences",
    "raw_ops",
    "report",
    "simple_rnn",
    "to_litert",
    "unfuse_model",
    "unpack_sequences",
    "weights",
]


def __dir__() -> list[str]:
    return __all__


def _lazy(name: str) -> _Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _WITHOUT_TENSORFLOW:
        try:
            _registration.load_all()
        except ImportError as error:
            # hasattr is False then. An import of the name, which drops this text, looks for a
            # module in its place, and gets the first error.
            _integrations.refused[f"{__name__}.{name}"] = error
            raise AttributeError(f"{__name__}.{name}: {error}") from error
    module = _importlib.import_module(f"tf_blockrnn.{_LAZY.get(name, name)}")
    value = getattr(module, name) if name in _LAZY else module
    globals()[name] = value  # so that this function is called once for each name
    return value


if not TYPE_CHECKING:  # to a type checker it would mean that every name is there
    __getattr__ = _lazy


_loader.extends_tensorflow()  # refuses a wrong value at once
# TensorFlow and Keras take seconds to import, and weights are converted without them. So the op
# library is loaded at once only if TensorFlow is imported already; otherwise when it is
# imported, or on the first use of a name that needs it.
if _sys.modules.get("tensorflow") is not None:
    _registration.load_all()
_integrations.register()
