"""Weights of recurrent layers, from one framework's arrangement to another's.

`RecurrentWeights` describes the weights of a layer or a stack of layers in NumPy arrays, in one
order. Each framework has a function that reads it from there and one that writes it:

    from_keras, to_keras, to_keras_layers    Keras' GRU, LSTM, SimpleRNN, and ours
    from_cudnn, to_cudnn                     params of TensorFlow's CudnnRNN ops
    from_torch, to_torch                     PyTorch's nn.GRU, LSTM, RNN and their state dicts
    from_onnx, to_onnx, to_onnx_model        ONNX GRU, LSTM and RNN nodes (onnx_layers lists them)
    from_tf1, to_tf1                         checkpoints of TensorFlow 1 (list_tf1 lists the cells)
    from_npz, to_npz                         a file of NumPy's, without any framework

A conversion keeps every bit where the target has a place for it. What it cannot hold is an
`UnsupportedError`, and what it can only hold as a sum (two biases in one) its docstring says.
"""

import importlib as _importlib
from typing import Any as _Any

from tf_blockrnn.weights.layer import (
    GATES,
    DirectionWeights,
    LayerWeights,
    RecurrentWeights,
    UnsupportedError,
)

# A module is loaded with the first use of a function of it: Keras takes seconds.
_MODULES = {
    "from_cudnn": "cudnn",
    "from_keras": "keras",
    "from_npz": "npz",
    "from_onnx": "onnx",
    "from_tf1": "tf1",
    "from_torch": "torch",
    "list_tf1": "tf1",
    "onnx_layers": "onnx",
    "to_cudnn": "cudnn",
    "to_keras": "keras",
    "to_keras_layers": "keras",
    "to_npz": "npz",
    "to_onnx": "onnx",
    "to_onnx_model": "onnx_model",
    "to_tf1": "tf1",
    "to_torch": "torch",
}

__all__ = [
    "GATES",
    "DirectionWeights",
    "LayerWeights",
    "RecurrentWeights",
    "UnsupportedError",
    *_MODULES,
]


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        module = _importlib.import_module(f"tf_blockrnn.weights.{_MODULES[name]}")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
