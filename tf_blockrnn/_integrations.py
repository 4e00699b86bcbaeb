"""Registers the layers with Keras, and the ONNX conversion with tf2onnx, when these are imported.

A saved model names its layers `tf_blockrnn>LSTM`, and Keras finds only names that are registered.
Importing Keras takes seconds and the ops do not need it, so the package imports it for nobody.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from tf_blockrnn import _import_hook


def _legacy_keras() -> bool:
    """Whether `tf.keras` is tf_keras, whose models cannot hold our layers."""
    return os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True")


def _register_layers(keras: ModuleType) -> None:
    del keras
    if not _legacy_keras():
        importlib.import_module("tf_blockrnn.layers")


def _register_handlers(tfonnx: ModuleType) -> None:
    importlib.import_module("tf_blockrnn._onnx_export").register(tfonnx)


def register() -> None:
    """Watches for the imports of Keras and of tf2onnx."""
    _import_hook.when_imported("keras", _register_layers)
    # The module whose functions convert a graph; all entry points of tf2onnx import it.
    _import_hook.when_imported("tf2onnx.tfonnx", _register_handlers)
