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


def as_custom_objects(model_config: str) -> str:
    """A model's config, in JSON, in which these classes are custom ones and not Keras' own.

    Keras looks for its own only among its modules, and finds nothing there.

    Example:
      >>> from tf_blockrnn.weights._keras_2_layers import as_custom_objects
      >>> as_custom_objects('{"class_name": "CuDNNGRU", "module": "keras.layers", "config": {}}')
      '{"class_name": "CuDNNGRU", "module": null, "config": {}, "registered_name": "CuDNNGRU"}'
    """

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        name = found.get("class_name")
        if name in CUSTOM_OBJECTS and "module" in found:
            found |= {"module": None, "registered_name": name}
        return found

    return json.dumps(json.loads(model_config, object_hook=changed))
