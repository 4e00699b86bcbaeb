"""Layers for reading the CuDNNLSTM and CuDNNGRU of Keras 2 models, which Keras 3 does not have.

They have the weights of those layers, so that Keras can load a model with them, but compute
nothing.
"""

from __future__ import annotations

import json
from typing import Any

import keras

from tf_blockrnn.weights.layer import UnsupportedError


class _Cell:
    """Has the biases of both GEMMs in one array, [2 · G · H]."""

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        if kwargs.get("name") == "bias":
            columns = self.recurrent_kernel.shape[-1]
            kwargs |= {"shape": (2 * columns,), "initializer": "zeros"}
        return super().add_weight(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("this layer is only for reading its weights")


class CuDNNLSTMCell(_Cell, keras.layers.LSTMCell):
    """The weights of a CuDNNLSTM.

    Example:
      >>> from tf_blockrnn.weights._keras_2_layers import CuDNNLSTMCell
      >>> cell = CuDNNLSTMCell(4)
      >>> cell.build((None, 3))
      >>> tuple(cell.bias.shape)
      (32,)
    """


class CuDNNGRUCell(_Cell, keras.layers.GRUCell):
    """The weights of a CuDNNGRU."""


def _refuse_time_major(time_major: bool) -> None:
    if time_major:
        raise UnsupportedError("layers with time_major=True are not supported")


class CuDNNLSTM(keras.layers.LSTM):
    """A layer with the weights of a CuDNNLSTM."""

    def __init__(self, units: int, *, time_major: bool = False, **kwargs: Any):
        _refuse_time_major(time_major)
        super().__init__(units, **kwargs)
        self.cell.__class__ = CuDNNLSTMCell


class CuDNNGRU(keras.layers.GRU):
    """A layer with the weights of a CuDNNGRU."""

    def __init__(self, units: int, *, time_major: bool = False, **kwargs: Any):
        _refuse_time_major(time_major)
        super().__init__(units, **kwargs)
        self.cell.__class__ = CuDNNGRUCell


CUSTOM_OBJECTS = {"CuDNNLSTM": CuDNNLSTM, "CuDNNGRU": CuDNNGRU}


def for_keras_3(model_config: str) -> str:
    """The config of a model in an HDF5 file, in JSON, as Keras 3 can read it.

    These classes become custom ones: Keras looks for its own only among its modules. The shape of
    the first layer's input, which Keras 3 takes to be without the batch, and the list of layers
    that was the config of a Sequential until Keras 2.2.2, get the form of Keras 3. A GRU without
    `reset_after`, of an early release, resets before the GEMM, unlike the default of Keras 3.

    Example:
      >>> from tf_blockrnn.weights._keras_2_layers import for_keras_3
      >>> for_keras_3('{"class_name": "CuDNNGRU", "module": "keras.layers", "config": {}}')
      '{"class_name": "CuDNNGRU", "module": null, "config": {}, "registered_name": "CuDNNGRU"}'
    """

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        name, config = found.get("class_name"), found.get("config")
        if name in CUSTOM_OBJECTS and "module" in found:
            found |= {"module": None, "registered_name": name}
        if name == "GRU" and isinstance(config, dict):
            config.setdefault("reset_after", False)
        if name == "Sequential" and isinstance(config, list):
            found["config"] = {"name": "sequential", "layers": config}
        if name != "InputLayer" and isinstance(config, dict) and "batch_input_shape" in config:
            config["input_shape"] = config.pop("batch_input_shape")[1:]
        return found

    return json.dumps(json.loads(model_config, object_hook=changed))
