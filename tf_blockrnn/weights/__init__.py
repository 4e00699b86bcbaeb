"""Conversion of the weights of recurrent layers between frameworks.

`RecurrentWeights` describes the weights of a layer or a stack of layers as NumPy arrays, with one
gate order. For each framework there is a function that reads weights and one that writes them:

    from_keras, to_keras, to_keras_layers    Keras' GRU, LSTM, SimpleRNN, and ours
    from_cudnn, to_cudnn                     params of TensorFlow's CudnnRNN ops
    from_torch, to_torch                     PyTorch's nn.GRU, LSTM, RNN and their state dicts
    from_onnx, to_onnx, to_onnx_model        ONNX GRU, LSTM and RNN nodes (onnx_layers lists them)
    from_tf1, to_tf1                         checkpoints of TensorFlow 1 (list_tf1 lists the cells)
    from_addons, to_addons                   TensorFlow Addons' LayerNormLSTMCell
    from_haste, to_haste                     haste's LayerNormLSTM and LayerNormGRU
    from_npz, to_npz                         an .npz file of NumPy, without any framework

`read` takes any of these, and files, and finds the recurrent layers in them by name.

A conversion is exact, bit for bit, where the target can represent the weights. Otherwise it raises
`UnsupportedError`, as for anything in a source that `RecurrentWeights` cannot represent. Where a
target stores only a sum (of two biases), the docstring says so. All functions raise ValueError for
a wrong value, shape or content of a file, TypeError for a wrong type and OSError for a file that
cannot be read or written; their docstrings list further errors and reasons.

Example:
  >>> import numpy as np
  >>> from tf_blockrnn import weights
  >>> one = weights.DirectionWeights(w_x=np.ones([3, 5, 4]), w_h=np.ones([3, 4, 4]))
  >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=False)
  >>> [array.shape for array in weights.to_keras(gru)[0]]
  [(5, 12), (4, 12)]
"""

import importlib as _importlib
from typing import Any as _Any

from tf_blockrnn.weights._cells import GATES
from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._read import AssumptionWarning, read
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

# A module is imported on the first use of one of its functions: Keras takes seconds.
_MODULES = {
    "addons": ("from_addons", "to_addons"),
    "cudnn": ("from_cudnn", "to_cudnn"),
    "haste": ("from_haste", "to_haste"),
    "keras": ("from_keras", "to_keras", "to_keras_layers"),
    "npz": ("from_npz", "to_npz"),
    "onnx": ("OnnxLayer", "from_onnx", "onnx_layers", "to_onnx", "to_onnx_model"),
    "tf1": ("TF1Cell", "from_tf1", "list_tf1", "to_tf1"),
    "torch": ("from_torch", "to_torch"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "GATES",
    "AssumptionWarning",
    "DirectionWeights",
    "LayerWeights",
    "RecurrentWeights",
    "UnsupportedError",
    "read",
    *_MODULE_OF,
]


def __getattr__(name: str) -> _Any:
    if name in _MODULE_OF:
        module = _importlib.import_module(f"tf_blockrnn.weights.{_MODULE_OF[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
