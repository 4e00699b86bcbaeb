"""Conversion of models to the fused layers, and back to plain Keras."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from tf_blockrnn import layers
from tf_blockrnn._copy_model import copy_model, recreate
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import extra_config

_NAMES = ("GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell")
_FUSED = {getattr(keras.layers, name): getattr(layers, name) for name in _NAMES}
_PLAIN = {fused: plain for plain, fused in _FUSED.items()}
_RECURRENT = (*_FUSED, *_PLAIN)


def convert_model(model: keras.Model) -> keras.Model:
    """Copies a model, with the fused layers of this package in place of Keras' recurrent ones.

    Every `keras.layers.GRU`, `LSTM` and `SimpleRNN`, and every `GRUCell` and `LSTMCell` in a
    `keras.layers.RNN`, becomes its namesake in `tf_blockrnn.layers`: in Sequential, functional and
    nested models, in `Bidirectional`, `TimeDistributed` and other wrappers, and in the attributes
    of custom layers and subclassed models (layers themselves, and lists, tuples, dicts and sets of
    them). The copy keeps names, weights, states of stateful layers, seed generators, statistics,
    vocabularies, `supports_masking`, `trainable`, the attributes of single variables (`trainable`,
    regularizer, constraint) and the sharing of layers. The original is not changed.

    Two kinds of layers are not converted: a layer that the ops do not support (another activation,
    a GRUCell with reset_after, a visible GPU where the build has no CUDA), because it would gain
    nothing and need this package; and a subclass of Keras' layers, whose changes would be lost. A
    warning names them and the reasons.

    A compiled model is compiled again with the same configuration, as `clone_model` does it: the
    optimizer and the metrics are new. XLA cannot compile the ops; with jit_compile=True Keras warns
    and compiles without XLA. A subclassed model that creates its layers in its constructor creates
    Keras' again when it is loaded from a `.keras` file, and then has to be converted again. Its
    copy is built but has never been called: call it once before `export`.

    Custom layers and models are copied through their `get_config`. Attributes that were set after
    the constructor, and are not in the config, are lost: a warning names those that are numbers,
    strings or bools, but not arrays and other objects. Functions and lambdas are not copied: the
    copy calls those of the original. During the copy they have other names (`__name__`), so that
    Keras does not confuse them; do not save a model in another thread meanwhile.

    Objects that a constructor creates from a layer with weights, such as `tf.function(self.rnn)`, a
    `functools.partial` or a closure over it, cannot be copied. Their use is an error, here if the
    model is called to build it, otherwise when the copy is called; `tf.function(lambda x:
    self.rnn(x))`, which looks up the layer when it is called, works. Code that reads such a layer's
    weights without calling it gets NaN.

    Args:
      model: any Keras model that `get_config` describes.

    Returns:
      A new model of the same type, with equal predictions as far as configs and weights determine
      them.

    Raises:
      TypeError: model is not a Keras model.
      NotImplementedError: a custom layer or a subclassed model has no `get_config`.
      ValueError: a subclass of Sequential or Functional whose constructor takes other arguments, a
        part whose copy has other variables or seed generators, a layer that is used through an
        object that cannot be copied, or two classes or registered functions with the same name,
        where Keras can find them only by name.
      RuntimeError: Keras' backend is not TensorFlow.

    Example:
      >>> import keras, numpy as np, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(4)])
      >>> fused = tf_blockrnn.convert_model(model)
      >>> type(fused.layers[0]).__module__.split(".")[0], fused.layers[0].fused
      ('tf_blockrnn', True)
      >>> x = np.ones((2, 5, 3), "float32")
      >>> bool(np.allclose(fused(x), model(x), atol=1e-6))
      True
    """
    _check("convert_model", model)
    left: list[tuple[str, Callable[[], str]]] = []

    def class_of(layer: keras.Layer) -> type | None:
        cls = type(layer)
        fused = _FUSED.get(cls)
        if fused:
            attempt = _attempt(fused, layer)
            if attempt.fused:
                return fused
            # Evaluated later, when the functions have their own names again.
            left.append((layer.name, lambda: attempt.why_not_fused))
        elif isinstance(layer, _RECURRENT) and cls not in _RECURRENT:
            left.append((layer.name, lambda: f"{cls.__name__} is a custom subclass"))
        return cls if cls in _RECURRENT else None

    copy = copy_model(model, class_of)
    if left:
        names = dict.fromkeys(f"{name} ({reason()})" for name, reason in left)
        warnings.warn(f"convert_model did not convert: {', '.join(names)}.", stacklevel=2)
    return copy


def restore_model(model: keras.Model) -> keras.Model:
    """Copies a model, with Keras' own layers in place of those of this package.

    The inverse of `convert_model`, which describes what the copy keeps and loses. The result does
    not depend on this package: it can be saved, shipped and loaded with Keras alone.

    Args:
      model: any Keras model that `get_config` describes.

    Returns:
      A new model of the same type, with equal predictions as far as configs and weights determine
      them.

    Raises:
      TypeError: model is not a Keras model.
      ValueError: a layer uses a feature that Keras' lacks (peepholes, a clip, a projection), or one
        of the reasons of `convert_model`.
      RuntimeError: Keras' backend is not TensorFlow.

    Example:
      >>> import keras, tf_blockrnn
      >>> fused = keras.Sequential([keras.Input((None, 3)), tf_blockrnn.layers.GRU(4, name="gru")])
      >>> plain = tf_blockrnn.restore_model(fused)
      >>> type(plain.layers[0]) is keras.layers.GRU, plain.layers[0].name
      (True, 'gru')
    """
    _check("restore_model", model)

    def class_of(layer: keras.Layer) -> type | None:
        plain = _PLAIN.get(type(layer))
        if plain:
            _refuse_extras(plain, layer)
            return plain
        return type(layer) if type(layer) in _RECURRENT else None

    return copy_model(model, class_of)


def _check(function: str, model: Any) -> None:
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"{function}: Keras' backend must be tensorflow, it is {keras.backend.backend()}"
        )
    if not isinstance(model, keras.Model):
        raise TypeError(f"{function}: model must be a keras.Model, got {type(model).__name__}")


def _attempt(fused: type, layer: keras.Layer) -> keras.Layer:
    """The fused counterpart of a Keras layer; its `fused` says whether the ops support it."""
    # A layer that is not fused warns once. This one is only a trial.
    warned = set(_fusing._warned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attempt = recreate(fused, layer)
    _fusing._warned.intersection_update(warned)
    return attempt


def _refuse_extras(plain: type, layer: keras.Layer) -> None:
    extras = extra_config(layer) if isinstance(layer, (layers.LSTM, layers.LSTMCell)) else {}
    if extras:
        raise ValueError(
            f"restore_model: layer {layer.name!r} has {', '.join(extras)}, "
            f"which keras.layers.{plain.__name__} does not have"
        )
