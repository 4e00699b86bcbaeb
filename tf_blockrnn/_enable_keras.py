"""The switch that lets plain Keras layers run on the fused ops.

While it is on, `call` of `keras.layers.GRU`, `LSTM` and `SimpleRNN` is a function of this module,
which asks for each call whether the op supports the layer; and `supports_jit` of these classes and
of `keras.layers.RNN` is a property. Both are attributes of the classes, so existing layers and
subclasses have them too, and nothing of it is stored in a layer. The loop of `keras.layers.RNN`
over Keras' own cells is one op for each cell, by `layers/_cell_loop.py`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

_lock = threading.RLock()
# What is to be set again: (class or module, name of the attribute, the value or _ABSENT).
_replaced: list[tuple[type | ModuleType, str, Any]] = []
_ABSENT = object()
_CALL = ("self", "sequences", "initial_state", "mask", "training")


def enable_keras() -> contextlib.AbstractContextManager:
    """Runs plain Keras layers on the fused ops, in the whole process, until `disable_keras`.

    From now on `keras.layers.GRU`, `LSTM` and `SimpleRNN`, existing and new, in all models, in
    `Bidirectional` and in subclasses, compute a sequence by the op of the layer of the same name in
    `tf_blockrnn.layers`, under the same conditions, with the same results and dropout masks as
    before; and `keras.layers.RNN` over Keras' cells of these layers, or a stack of them, by one op
    for each cell. A configuration that the op does not support and a subclass with its own
    `inner_loop` or cell fall back to Keras' own operations, with one warning for each class and
    reason; `tf_blockrnn.report(model)` lists them. Models and weights stay plain Keras ones, and
    what `save`, `save_weights`, `to_json` and `pickle` write is the same as without the switch: it
    loads without this package.

    `model.export` of Keras 3 is the exception, since a SavedModel has the traced operations: while
    the switch is on, it has the ops, and a warning says so. A program that loads the file has to
    import `tf_blockrnn` first or to load the op library (docs/serving.md); without, TensorFlow
    reports "Op type not registered". `with tf_blockrnn.disable_keras(): model.export(...)` exports
    on Keras' own operations. For `tf.saved_model.save` and `keras.export.ExportArchive` the same
    holds, without the warning. tf_keras exports on Keras' own operations always.

    `tf_keras` (Keras 2) is included if it is imported, before or later, or TF_USE_LEGACY_KERAS is
    set.

    A second call changes nothing, and one `disable_keras` is enough. The switch may be called from
    any thread and applies to all of them, and to models that were used before: `fit`, `evaluate`
    and `predict` trace their layers again at the next call after a switch. A `tf.function` of your
    own that is already traced does not change. XLA compiles the ops too: a model with
    `jit_compile=True` runs on them.

    Returns:
      A context manager; at its exit the state before this call is restored.

    Raises:
      RuntimeError: Keras runs on another backend than TensorFlow, or this version of Keras has
        other layers than the supported ones.

    Example:
      >>> import keras, numpy as np, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4)])
      >>> with tf_blockrnn.enable_keras():
      ...     on_the_op = model(np.ones([2, 5, 3]))
      >>> bool(np.allclose(on_the_op, model(np.ones([2, 5, 3])), atol=1e-6))
      True
      >>> tf_blockrnn.keras_enabled()
      False
    """
    with _lock:
        before = _to_be_restored()
        _enable_keras3(required=_legacy_switch() is None)
        # Looked for again: a thread that has imported tf_keras since may have found the switch off.
        legacy = _legacy_switch()
        if legacy is not None:
            legacy.enable()
        return before


def disable_keras() -> contextlib.AbstractContextManager:
    """Lets plain Keras layers run on Keras' own operations again; see `enable_keras`.

    Each `tf.function` of your own that was traced in between keeps the ops, and a model compiled in
    between its `jit_compile`.

    Returns:
      A context manager; at its exit the state before this call is restored. Within it
      `model.export` writes a SavedModel that loads without this package.

    Example:
      >>> import tf_blockrnn
      >>> _ = tf_blockrnn.enable_keras()
      >>> with tf_blockrnn.disable_keras():
      ...     tf_blockrnn.keras_enabled()
      False
      >>> tf_blockrnn.keras_enabled()
      True
      >>> _ = tf_blockrnn.disable_keras()
      >>> tf_blockrnn.keras_enabled()
      False
    """
    with _lock:
        before = _to_be_restored()
        _disable_keras3()
        legacy = _legacy_switch()
        if legacy is not None:
            legacy.disable()
        return before


def _to_be_restored() -> contextlib.ExitStack:
    """A context manager at whose exit the switch is as it is now."""
    legacy = _legacy_switch()
    before = contextlib.ExitStack()
    before.callback(_restore, keras3_enabled(), legacy is not None and legacy.enabled())
    return before


def _restore(keras3: bool, tf_keras: bool) -> None:
    with _lock:
        if keras3:
            _enable_keras3(required=True)
        else:
            _disable_keras3()
        legacy = _legacy_switch()
        if legacy is not None and tf_keras:
            legacy.enable()
        elif legacy is not None:
            legacy.disable()


def keras_enabled() -> bool:
    """Whether plain Keras layers, those of Keras 3 or of tf_keras, run on the fused ops.

    Example:
      >>> import tf_blockrnn
      >>> with tf_blockrnn.enable_keras():
      ...     tf_blockrnn.keras_enabled()
      True
    """
    with _lock:
        legacy = _legacy_switch()
        return keras3_enabled() or (legacy is not None and legacy.enabled())


def keras3_enabled() -> bool:
    """Whether plain layers of Keras 3 run on the fused ops."""
    return bool(_replaced)


def _legacy_switch() -> ModuleType | None:
    """The module that does the same for tf_keras, or None where tf_keras is not in use."""
    if "tf_keras" not in sys.modules:
        # TensorFlow's own reading of the variable.
        legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")
        if not legacy or importlib.util.find_spec("tf_keras") is None:
            return None
    from tf_blockrnn import _enable_tf_keras

    return _enable_tf_keras


def _enable_keras3(required: bool) -> None:
    if _replaced:
        return
    import keras

    if keras.backend.backend() != "tensorflow":
        if not required:
            return
        raise RuntimeError(
            f"The Keras backend is {keras.backend.backend()}, and the fused ops are TensorFlow's: "
            "set KERAS_BACKEND=tensorflow before keras is imported."
        )
    from tf_blockrnn import _keras_private, _model_functions
    from tf_blockrnn.layers import _cell_loop, _fused_call, gru, lstm, simple_rnn

    _keras_private.warn_if_untested(stacklevel=3)
    specs = [module.SPEC for module in (gru, lstm, simple_rnn)]
    for spec in specs:
        if tuple(inspect.signature(spec.keras_class.call).parameters) != _CALL:
            raise RuntimeError(
                f"keras.layers.{spec.keras_class.__name__}.call of Keras {keras.__version__} has "
                "other arguments than those of the supported versions."
            )
    for spec in specs:
        _replace(spec.keras_class, "call", _fused_or_keras(spec, spec.keras_class.call))
        jit = _keras_private.supports_jit(
            lambda layer, spec=spec: _fused_call.why_not_fused(layer, spec) is None
        )
        _replace(spec.keras_class, "supports_jit", jit)
    jit = _keras_private.supports_jit(lambda layer: _cell_loop.why_not_fused(layer) is None)
    _replace(keras.layers.RNN, "supports_jit", jit)
    _replace(_cell_loop, "keras_cells", True)
    _replace(keras.Model, "export", _warning_export(keras.Model.export))
    _model_functions.watch(keras.Model, keras3_enabled)


def _replace(owner: type | ModuleType, name: str, value: Any) -> None:
    _replaced.append((owner, name, vars(owner).get(name, _ABSENT)))
    setattr(owner, name, value)


def _disable_keras3() -> None:
    while _replaced:
        owner, name, value = _replaced.pop()
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


def _fused_or_keras(spec: Any, keras_call: Callable) -> Callable:
    """The `call` of a Keras layer's class: on the op where it supports the layer."""
    from tf_blockrnn.layers import _fused_call
    from tf_blockrnn.layers._fused_layer import FusedLayer

    @functools.wraps(keras_call)
    def call(self, sequences, initial_state=None, mask=None, training=False):
        options = {"initial_state": initial_state, "mask": mask, "training": training}
        plain = functools.partial(keras_call, self)
        if isinstance(self, FusedLayer):  # which has come here because it does not use the op
            return plain(sequences, **options)
        reason = _fused_call.why_not_fused(self, spec)
        return _fused_call.fused_or_keras(self, spec, reason, plain, sequences, **options)

    return call


def _warning_export(keras_export: Callable) -> Callable:
    """The `export` of Keras' models: with a warning where a SavedModel gets the ops."""
    from tf_blockrnn import _recurrent_parts

    @functools.wraps(keras_export)
    def export(self, filepath, format="tf_saved_model", *args, **kwargs):
        layers = _recurrent_parts.switched(self) if format == "tf_saved_model" else []
        if layers:
            warnings.warn(
                f"The SavedModel {str(filepath)!r} needs tf_blockrnn: enable_keras() is on, so it "
                f"has the fused ops ({', '.join(layers)}). A program that loads it has to import "
                "tf_blockrnn first, or load its op library (docs/serving.md). To write it with "
                "Keras' own operations: `with tf_blockrnn.disable_keras(): model.export(...)`.",
                stacklevel=2,
            )
        return keras_export(self, filepath, format, *args, **kwargs)

    return export
