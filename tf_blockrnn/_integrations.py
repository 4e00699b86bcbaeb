"""Makes this package known to TensorFlow, Keras, tf_keras and tf2onnx when those are imported.

Importing them takes seconds, and a program may need none of them, so this package does not import
them. Once TensorFlow is imported, graphs and SavedModels find the ops and their gradients.

A finder at the front of `sys.meta_path`, which finds nothing itself, lets the loader that another
finder returns for one of them call back after the module has run.

A process that loads a model must import `tf_blockrnn` itself: a pickle of a Keras model names Keras
only, so in a process that has not, Keras reports that it cannot locate the class.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tf_blockrnn import _registration

# The classes that are registered as serializable, all in tf_blockrnn.layers.
_LAYERS = (
    *("GRU", "GRUCell", "LSTM", "LSTMCell", "SimpleRNN", "SimpleRNNCell"),
    *("LayerNormGRU", "LayerNormGRUCell", "LayerNormLSTM", "LayerNormLSTMCell"),
)

Callback = Callable[[ModuleType], None]

_callbacks: dict[str, list[Callback]] = {}
# What an import raises, by the name of a module.
refused: dict[str, ImportError] = {}


def register() -> None:
    """Does so where they are imported already, and else once they are."""
    when_imported("keras", _register_layers)
    when_imported("tf_keras", _enable_tf_keras)
    # The module whose functions convert a graph; all entry points of tf2onnx import it.
    when_imported("tf2onnx.tfonnx", _register_handlers)
    # Last: a thread that is importing Keras imports TensorFlow, and must not wait for this module
    # while it is waited for above.
    when_imported("tensorflow", _registration.when_tensorflow_is_imported)


def _register_layers(keras: ModuleType) -> None:
    """Lets Keras load saved models and pickles: they name a layer `tf_blockrnn>LSTM`."""
    registered = keras.saving.get_custom_objects()
    for name in _LAYERS:
        registered.setdefault(f"tf_blockrnn>{name}", _deferred(name))
    private = sys.modules.get("tf_blockrnn._tf_private")  # None with another backend
    if private is not None:
        private.fill_dispatch_caches(keras.Variable)


def _deferred(name: str) -> type:
    """What Keras makes of a layer's saved config until tf_blockrnn.layers is imported."""

    def from_config(config: dict[str, Any]) -> Any:
        """An instance of the layer, whose module registers the class itself in place of this."""
        layers = importlib.import_module("tf_blockrnn.layers")
        return getattr(layers, name).from_config(config)

    return type(name, (), {"from_config": staticmethod(from_config)})


def _enable_tf_keras(_: ModuleType) -> None:
    """Lets enable_keras, called before tf_keras was imported, include it.

    Without the lock of the switch: a thread that holds it may be waiting for this import.
    """
    switch = sys.modules.get("tf_blockrnn._enable_keras")
    legacy = sys.modules.get("tf_blockrnn._enable_tf_keras")
    if legacy and legacy.enabled():  # tf_keras was reloaded
        legacy.enable()
    elif switch and switch.keras3_enabled():
        legacy = importlib.import_module("tf_blockrnn._enable_tf_keras")
        legacy.enable()
        if not switch.keras3_enabled():  # switched off by another thread meanwhile
            legacy.disable()


def _register_handlers(tfonnx: ModuleType) -> None:
    importlib.import_module("tf_blockrnn._onnx_export").register(tfonnx)


def when_imported(name: str, callback: Callback) -> None:
    """Calls `callback(module)` after each execution of the module of that full name.

    At once if it is imported already, and else in the thread that imports it; reloads are included,
    and failed imports are not. An exception of the callback becomes a warning: it must not break
    somebody else's import.
    """
    _callbacks.setdefault(name, []).append(callback)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    module = sys.modules.get(name)
    if module is not None and getattr(module.__spec__, "_initializing", False):
        # Another thread is importing it, which may have passed the finder already: wait for it.
        # By the builtin, which returns where that thread waits for a module of this one's;
        # importlib.import_module would raise an error. If the import fails, that thread reports it.
        with contextlib.suppress(Exception):
            __import__(name)
        module = sys.modules.get(name)
    if module is not None:
        _call(callback, module)


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        warnings.warn(
            f"tf_blockrnn could not extend {module.__name__}: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        if fullname in refused:
            raise refused[fullname]
        if fullname not in _callbacks:
            return None
        others = (finder for finder in tuple(sys.meta_path) if finder is not self)
        found = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:  # as that of a folder without __init__.py
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for callback in tuple(_callbacks.get(module.__name__, ())):
                    _call(callback, module)

            spec.loader.exec_module = exec_module  # most loaders are of one module alone
        return spec


_FINDER = _Finder()
