"""`freeze`: Keras models for inference whose recurrent weights are packed once."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import keras

from tf_blockrnn import _fuse
from tf_blockrnn._copy_model import copy_model
from tf_blockrnn._ops import frozen
from tf_blockrnn.layers import _fused_call
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._layer_norm import NormalizedCell

_PRECISIONS = ("float32", "bfloat16", "int8")
# Terms of which int32 holds any sum.
_MOST_INT8_DEPTH = (2**31 - 1) // 127**2
_CELL = "it is a cell, and layers alone are frozen"


def freeze(model: keras.Model, precision: str = "float32") -> keras.Model:
    """Copies a Keras model for inference, with recurrent weights that are packed once.

    An op packs its weights, that is, copies them into the order in which it reads them, at every
    call. The weights of a frozen model's layers do not change: they are packed in the first call,
    once for each process and layer, shared by all functions and threads, and the packed copy is
    freed with the model. All other layers are as in the model.

    With precision "float32" predictions are bitwise those of the fused model, for any type of its
    layers. "bfloat16" and "int8" store the weights of the layers in half and a quarter of the
    memory.

    Layers of this package and Keras' own `LSTM`, `GRU` and `SimpleRNN` are frozen, as `fuse_model`
    fuses them. Cells and layers that `fuse_model` does not fuse are not frozen; a warning names
    them and the reasons.

    A frozen model predicts in eager mode, in functions and under XLA. `export` writes a SavedModel
    that loads on any machine, because the weights are stored unpacked. A frozen model cannot be
    trained, and any gradient through it, including that of its inputs, is an error: use the
    original model, or `tf.stop_gradient` of the frozen model's outputs to train another model on
    them. `save`, `copy` and `pickle` give a model that is not frozen: freeze it again.

    Args:
      model: a built Keras model, whose layers can be created again from their configs. It is not
        changed.
      precision: "float32", "bfloat16" or "int8"; the latter two are for layers that compute in
        float32, on CPUs.

    Returns:
      The frozen copy, of the type of the model.

    Raises:
      TypeError: model is not a Keras model, or one of tf_keras; precision is not a string.
      ValueError: model is not built or cannot be copied; precision is none of the three, or not
        float32 for a layer that computes in another type, or int8 for one of more than 133,144
        inputs or units. The frozen model raises it in training and for a gradient.
      RuntimeError: Keras' backend is not TensorFlow.
      tf.errors.InvalidArgumentError: in a later call, the weights of a frozen layer have changed.

    Example:
      >>> import keras, numpy as np, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4)])
      >>> frozen = tf_blockrnn.freeze(model)
      >>> x = np.ones((2, 5, 3), "float32")
      >>> fused = tf_blockrnn.fuse_model(model)
      >>> bool(np.all(frozen.predict(x, verbose=0) == fused.predict(x, verbose=0)))
      True
    """
    _check(model, precision)
    copy = copy_model("freeze", model, "Give it a get_config from which it can be.")
    parts = _fuse.parts_of(copy)
    changes, left = _fuse.changes_to_fuse(parts)
    _fuse.apply(changes, parts)
    chosen = []
    for layer in _fuse.recurrent(parts):
        if isinstance(layer, FusedLayer) and layer.fused:
            chosen.append(layer)
        elif isinstance(layer, FusedLayer):
            left.append(f"{layer.name} ({layer.why_not_fused})")
        elif isinstance(layer, (FusedCell, NormalizedCell)):
            left.append(f"{layer.name} ({_CELL})")
    for layer in chosen:
        _check_precision(layer, precision)
    for layer in chosen:
        _freeze_layer(layer, precision)
    if copy.compiled:
        # The optimizer has variables for weights that are no longer trainable.
        copy.compile_from_config(copy.get_compile_config())
    if left:
        warnings.warn(f"freeze did not freeze: {', '.join(dict.fromkeys(left))}.", stacklevel=2)
    return copy


def _check(model: Any, precision: str) -> None:
    _fuse.check("freeze", model)
    if not isinstance(precision, str) or precision not in _PRECISIONS:
        names = ", ".join(f'"{name}"' for name in _PRECISIONS)
        error = ValueError if isinstance(precision, str) else TypeError
        raise error(f"freeze: precision must be one of {names}, got {precision!r}")
    unbuilt = [layer.name for layer in _fuse.recurrent(_fuse.parts_of(model)) if not layer.built]
    if unbuilt:
        have = "has" if len(unbuilt) == 1 else "have"
        raise ValueError(
            f"freeze: model must be built, but {', '.join(unbuilt)} {have} no weights yet; call it "
            "once"
        )


def _check_precision(layer: keras.Layer, precision: str) -> None:
    if precision != "float32" and layer.compute_dtype != "float32":
        raise ValueError(
            f'freeze: precision must be "float32" for layer {layer.name!r}, which computes in '
            f'{layer.compute_dtype}, got "{precision}"'
        )
    depth = max(weight.shape[0] for weight in layer.weights)
    if precision == "int8" and depth > _MOST_INT8_DEPTH:
        raise ValueError(
            f'freeze: precision must not be "int8" for layer {layer.name!r}: it adds up to '
            f"{_MOST_INT8_DEPTH} terms, and inputs or units are {depth}"
        )


def _freeze_layer(layer: keras.Layer, precision: str) -> None:
    layer.trainable = False
    fingerprints = _fused_call.weights_fingerprint(layer, layer._SPEC)
    vars(layer)["_frozen"] = frozen.Frozen(fingerprints, precision)
    # TensorFlow may keep kernels after the functions that used them.
    weakref.finalize(layer, frozen.release, fingerprints).atexit = False
