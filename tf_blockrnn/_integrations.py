"""Makes this package known to TensorFlow, Keras, tf_keras and tf2onnx when those are imported.

Importing them takes seconds, and a program may need none of them, so this package imports them for
nobody. Once TensorFlow is imported, graphs and SavedModels find the ops and their gradients.

A process that loads a model must import `tf_blockrnn` itself: a pickle of a Keras model names Keras
only, so in a process that has not, Keras reports that it cannot locate the class.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from tf_blockrnn import _import_hook, _registration

_PACKAGE = "tf_blockrnn"
# The classes that are registered as serializable, all in tf_blockrnn.layers.
_LAYERS = (
    *("GRU", "GRUCell", "LSTM", "LSTMCell", "SimpleRNN", "SimpleRNNCell"),
    *("LayerNormGRU", "LayerNormGRUCell", "LayerNormLSTM", "LayerNormLSTMCell"),
)


def _deferred(name: str) -> type:
    """What Keras makes of a layer's saved config until tf_blockrnn.layers is imported."""

    def from_config(config: dict[str, Any]) -> Any:
        """An instance of the layer, whose module registers the class itself in place of this."""
        layers = importlib.import_module("tf_blockrnn.layers")
        return getattr(layers, name).from_config(config)

    return type(name, (), {"from_config": staticmethod(from_config)})


def _register_layers(keras: ModuleType) -> None:
    """Lets Keras load saved models and pickles: they name a layer `tf_blockrnn>LSTM`."""
    registered = keras.saving.get_custom_objects()
    for name in _LAYERS:
        registered.setdefault(f"{_PACKAGE}>{name}", _deferred(name))


def _register_handlers(tfonnx: ModuleType) -> None:
    importlib.import_module("tf_blockrnn._onnx_export").register(tfonnx)


def _enable_tf_keras(_: ModuleType) -> None:
    """Lets enable_keras, called before tf_keras was imported, include it."""
    switch = sys.modules.get(f"{_PACKAGE}._enable_keras")
    if switch is not None and switch.keras_enabled():
        switch.enable_keras()


def register() -> None:
    """Does so where they are imported already, and else once they are."""
    _import_hook.when_imported("keras", _register_layers)
    _import_hook.when_imported("tf_keras", _enable_tf_keras)
    # The module whose functions convert a graph; all entry points of tf2onnx import it.
    _import_hook.when_imported("tf2onnx.tfonnx", _register_handlers)
    # Last: a thread that is importing Keras imports TensorFlow, and must not wait for this module
    # while it is waited for above.
    _import_hook.when_imported("tensorflow", _registration.when_tensorflow_is_imported)
