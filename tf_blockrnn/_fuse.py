"""Models of Keras' recurrent layers on the fused ops, and back: `fuse_model` and `unfuse_model`.

A fused layer is a subclass of Keras' layer with the same weights and attributes, so a layer is
fused by assigning its `__class__`. Nothing is created again: the model, its layers, variables,
optimizer and metrics remain the same objects. Only functions that were traced before must be traced
again.
"""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras

from tf_blockrnn import _keras_private, _model_functions, layers
from tf_blockrnn._copy_model import copy_model
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._layer_norm import NormalizedCell

_LAYERS = ("GRU", "LSTM", "SimpleRNN")
_CELLS = ("GRUCell", "LSTMCell", "SimpleRNNCell")
_FUSED = {getattr(keras.layers, name): getattr(layers, name) for name in _LAYERS + _CELLS}
_PLAIN = {fused: plain for plain, fused in _FUSED.items()}
_OURS_ALONE = (
    *(layers.LayerNormGRU, layers.LayerNormGRUCell),
    *(layers.LayerNormLSTM, layers.LayerNormLSTMCell),
)
_OURS = (FusedLayer, FusedCell, NormalizedCell)
# Their cells are parts of them, and remain Keras'.
_KERAS_LAYERS = tuple(getattr(keras.layers, name) for name in _LAYERS)


class _Change(NamedTuple):
    layer: keras.Layer
    to: type


def fuse_model(model: keras.Model, copy: bool = False) -> keras.Model:
    """Puts the recurrent layers of a model on the fused ops, in place.

    Every `keras.layers.GRU`, `LSTM` and `SimpleRNN`, and every `GRUCell`, `LSTMCell` and
    `SimpleRNNCell` of a `keras.layers.RNN` or of other code, becomes the class of the same name in
    `tf_blockrnn.layers`. It remains the same object, with the same name, weights and state: the
    optimizer, the compiled configuration, `trainable`, shared layers and every reference to the
    layer do not change. This holds for all kinds of models, including subclassed ones without
    `get_config`, nested models, wrappers and layers in lists, tuples, dicts and sets.
    Fusing a fused model again changes nothing.

    Two kinds of layers are not fused: a layer that the ops do not support (another activation, a
    visible GPU where the build has no CUDA), and a custom subclass of Keras' layers, whose changes
    would be lost. A warning names them and the reasons.

    Keras' functions for `fit`, `evaluate` and `predict` of this model and of the models in it are
    traced again. Your own `tf.function`, an exported model, and a model that contains this one keep
    the operations with which they were traced; the results are the same. A model that was compiled
    with `jit_compile=True` remains so.

    A saved fused model loads with the layers of this package, which must then be imported; use
    `unfuse_model` first to save one for Keras alone. A subclassed model whose constructor creates
    Keras' layers has Keras' layers after loading.

    Args:
      model: any Keras model, built or not, compiled or not.
      copy: whether to return a fused copy and leave the model unchanged. The copy is a clone with
        equal names, weights and states, compiled configuration, and state of the optimizer; its
        metrics are reset. A subclassed model is recreated from its `get_config`.

    Returns:
      The model, or with `copy=True` a new one.

    Raises:
      TypeError: model is not a Keras model, or one of tf_keras (use `tf_blockrnn.enable_keras`
        for those).
      ValueError: with `copy=True`, the model cannot be cloned, or the clone would not be equal.
        Fuse such a model in place.
      RuntimeError: Keras' backend is not TensorFlow.

      The model is not changed when an error is raised.

    Example:
      >>> import keras, numpy as np, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4)])
      >>> x = np.ones((2, 5, 3), "float32")
      >>> before = model.predict(x, verbose=0)
      >>> tf_blockrnn.fuse_model(model) is model
      True
      >>> type(model.layers[0]).__module__.split(".")[0], model.layers[0].fused
      ('tf_blockrnn', True)
      >>> bool(np.allclose(model.predict(x, verbose=0), before, atol=1e-6))
      True
    """
    check("fuse_model", model)
    if copy:
        model = copy_model("fuse_model", model)
    parts = parts_of(model)
    changes, left = changes_to_fuse(parts)
    apply(changes, parts)
    if left:
        warnings.warn(f"fuse_model did not fuse: {', '.join(dict.fromkeys(left))}.", stacklevel=2)
    return model


def changes_to_fuse(parts: list[keras.Layer]) -> tuple[list[_Change], list[str]]:
    """What fuses the layers among the parts of a model.

    Returns:
      The changes, and the recurrent layers that cannot be fused, each with the reason.
    """
    changes, left = [], []
    for layer in recurrent(parts):
        reason = why_not_changed(layer)
        if reason:
            left.append(f"{layer.name} ({reason})")
        elif type(layer) in _FUSED:
            changes.append(_Change(layer, _FUSED[type(layer)]))
    return changes, left


def unfuse_model(model: keras.Model, copy: bool = False) -> keras.Model:
    """Puts Keras' own layers in place of those of this package, in place.

    The reverse of `fuse_model`, which describes what stays as it is. The result does not depend on
    this package: it can be saved, shipped and loaded with Keras alone.

    Args:
      model: any Keras model, also one that was created with the layers of this package.
      copy: whether to leave the model as it is and return a copy, as `fuse_model` does.

    Returns:
      The model, or with `copy=True` a new one.

    Raises:
      TypeError: as `fuse_model`.
      ValueError: a layer is one that Keras lacks (with layer normalisation) or uses a feature that
        Keras' layer lacks (peepholes, a clip, a projection, zoneout) or is of a subclass of a layer
        of this package; or as `fuse_model`.
      RuntimeError: Keras' backend is not TensorFlow.

      The model is not changed when an error is raised.

    Example:
      >>> import keras, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((None, 3)), tf_blockrnn.layers.GRU(4, name="gru")])
      >>> model = tf_blockrnn.unfuse_model(model)
      >>> type(model.layers[0]) is keras.layers.GRU, model.layers[0].name
      (True, 'gru')
    """
    check("unfuse_model", model)
    _changes_back(parts_of(model))  # Refuses what no copy could become, before there is one.
    if copy:
        model = copy_model("unfuse_model", model)
    parts = parts_of(model)
    apply(_changes_back(parts), parts)
    return model


def check(function: str, model: Any) -> None:
    if any(cls.__module__.split(".")[0] == "tf_keras" for cls in type(model).__mro__):
        raise TypeError(
            f"{function}: {type(model).__name__} is a model of tf_keras (Keras 2), whose layers "
            "cannot become those of Keras 3. Call tf_blockrnn.enable_keras(): tf_keras' own "
            "recurrent layers then run on the fused ops."
        )
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"{function}: Keras' backend must be tensorflow, it is {keras.backend.backend()}"
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"{function}: model must be a keras.Model, got {type(model).__name__}")


# ---- which layers


def parts_of(model: keras.Model) -> list[keras.Layer]:
    """The model and all layers reachable from it, including those that Keras does not track."""
    return [part for part, _ in parts_with_owners(model)]


def parts_with_owners(model: keras.Layer) -> list[tuple[keras.Layer, keras.Layer | None]]:
    """The same, each with the layer that holds it: the one that is nearest to the model."""
    found, seen = [], set()
    queue: list[tuple[Any, keras.Layer | None]] = [(model, None)]
    for value, owner in queue:  # grows; it keeps its values alive, so their ids are unique
        if id(value) in seen:
            continue
        seen.add(id(value))
        held: Iterable[Any] = ()
        if isinstance(value, (list, tuple, set, frozenset)):
            held = value
        elif isinstance(value, dict):
            held = value.values()
        elif isinstance(value, functools.partial):
            held = (value.func, *value.args, *value.keywords.values())
        elif isinstance(value, types.MethodType):
            held = (value.__self__,)
        elif isinstance(value, keras.Layer):
            found.append((value, owner))
            owner = value
            held = (*_keras_private.held_layers(value), *vars(value).values())
        elif _is_cell(value):
            held = vars(value).values()
        queue.extend((each, owner) for each in held)
    return found


def _is_cell(value: Any) -> bool:
    """Whether `keras.layers.RNN` takes the object for a cell; it need not be a layer."""
    return (
        not isinstance(value, type)
        and callable(getattr(type(value), "call", None))
        and hasattr(value, "__dict__")
        and hasattr(value, "state_size")
    )


def recurrent(parts: list[keras.Layer]) -> Iterator[keras.Layer]:
    """The recurrent layers and the cells that are not a part of one."""
    own = {id(part.cell) for part in parts if isinstance(part, _KERAS_LAYERS)}
    for part in parts:
        if isinstance(part, tuple(_FUSED)) and id(part) not in own:
            yield part


def why_not_changed(layer: keras.Layer) -> str | None:
    """The reason why `fuse_model` does not put a recurrent layer or cell on the ops, or None."""
    cls = type(layer)
    return _why_not(_FUSED[cls], layer) if cls in _FUSED else _why_custom(layer)


def _why_custom(layer: keras.Layer) -> str | None:
    if isinstance(layer, _OURS):
        return None  # It reports the reason itself where it does not use the op.
    return f"{type(layer).__name__} is a custom subclass"


def _why_not(fused: type, layer: keras.Layer) -> str | None:
    """The reason why the ops do not support a Keras layer, or None."""
    if "call" in vars(layer):
        return "its method call was replaced"
    # The same attributes under the other class, so that the layer itself is not touched.
    trial = object.__new__(fused)
    vars(trial).update(vars(layer))
    return trial.why_not_fused


def _changes_back(parts: list[keras.Layer]) -> list[_Change]:
    changes = []
    for layer in recurrent(parts):
        plain = _PLAIN.get(type(layer))
        if type(layer) in _OURS_ALONE:
            raise ValueError(
                f"unfuse_model: layer {layer.name!r} is of {type(layer).__name__}, which Keras "
                "does not have"
            )
        if plain is None and isinstance(layer, _OURS):
            raise ValueError(
                f"unfuse_model: layer {layer.name!r} is of {type(layer).__name__}, a custom "
                "subclass of a layer of tf_blockrnn"
            )
        if plain is None:
            continue
        extras = _fusing.own_config(layer)
        if extras:
            raise ValueError(
                f"unfuse_model: layer {layer.name!r} has {', '.join(extras)}, which "
                f"keras.layers.{plain.__name__} does not have"
            )
        if vars(layer).get("_uses_resets"):
            raise ValueError(
                f"unfuse_model: layer {layer.name!r} is called with resets, which "
                f"keras.layers.{plain.__name__} does not have"
            )
        changes.append(_Change(layer, plain))
    return changes


# ---- the change


def apply(changes: list[_Change], parts: list[keras.Layer]) -> None:
    """Changes the classes, then the functions of the models; all, or nothing."""
    if not changes:
        return
    models = [part for part in parts if isinstance(part, keras.Model)]
    with contextlib.ExitStack() as undo:  # in the reverse order
        for model in models:
            if model.compiled and model.jit_compile:
                undo.callback(setattr, model, "jit_compile", True)
        for layer, cls in changes:
            undo.callback(_set_class, layer, type(layer))
            _set_class(layer, cls)
        for model in models:
            for name in (f"{kind}_function" for kind in _model_functions.KINDS):
                if name in vars(model):
                    undo.callback(setattr, model, name, vars(model)[name])
            _stop_xla_if_refused(model)
            _renew_functions(model)
        undo.pop_all()


def _set_class(layer: keras.Layer, cls: type) -> None:
    # Past the method of Keras, which would track the class as an attribute.
    object.__setattr__(layer, "__class__", cls)


def _stop_xla_if_refused(model: keras.Model) -> None:
    """Does what `compile` does if a layer, of the class that it has now, is not one for XLA.

    Keras' layers are none where cuDNN may run them, and ours are none where the library that lowers
    the ops cannot be loaded.
    """
    if not (model.compiled and model.jit_compile):
        return
    parts = _keras_private.flat_layers(model)
    refused = [layer.name for layer in parts if not layer.supports_jit]
    if refused:
        model.jit_compile = False
        warnings.warn(
            f"Model {model.name!r} was compiled with jit_compile=True and goes on with "
            f"jit_compile=False: XLA cannot compile {', '.join(refused)}.",
            stacklevel=4,
        )


def _renew_functions(model: keras.Model) -> None:
    """Makes Keras recreate the functions that have traced the previous layers.

    They are replaced, not removed: another thread may be within `predict`. Those that the user set
    are kept.
    """
    for kind in _model_functions.KINDS:
        if _model_functions.is_of_keras(getattr(model, f"{kind}_function", None)):
            getattr(model, f"make_{kind}_function")(force=True)
