"""Models on the fused layers, and back to plain Keras."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import keras

from tf_blockrnn import layers
from tf_blockrnn._copy_model import copy_model, made_again
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
    them). Names, weights, states of stateful layers, seed generators, statistics, vocabularies,
    `supports_masking`, `trainable` and what single variables say (`trainable`, regularizer,
    constraint) are kept, and a layer that is shared stays shared. The original is not changed.

    What stays as it is: a layer that the ops cannot compute (another activation, a GRUCell with
    reset_after, a GPU in sight where the build has no CUDA), because it would gain nothing and need
    this package; and a subclass of Keras' layers, whose changes would be lost. A warning names them
    and says why.

    A compiled model is compiled again with the same configuration, as `clone_model` does it: the
    optimizer and the metrics start afresh. XLA cannot compile the ops; where jit_compile=True asks
    for it, Keras warns and does without. A subclassed model that creates its layers in its
    constructor creates Keras' again when it is loaded from a `.keras` file; convert it again then.
    Its copy is built and has never been called: call it once before `export`.

    Custom layers and models are copied through their `get_config`. What was set on them after the
    constructor, and is not in the config, is lost: a warning names the numbers, strings and truth
    values, arrays and other objects it does not see. Functions are not copied, lambdas neither: the
    copy calls those of the original. While it copies, they have other names (`__name__`), so that
    Keras does not mistake one for another; do not save a model in another thread meanwhile.

    What a constructor makes of a layer with weights, as `tf.function(self.rnn)`, a
    `functools.partial` or a closure over it, has no copy. Its use is an error, here if the model is
    run to build it, else when the copy is called; `tf.function(lambda x: self.rnn(x))`, which finds
    the layer when it is called, is fine. Who reads such a layer's weights without a call gets NaN.

    Args:
      model: any Keras model that `get_config` describes.

    Returns:
      A new model of the same type, with equal predictions as far as configs and weights tell.

    Raises:
      TypeError: model is no Keras model.
      NotImplementedError: a custom layer or a subclassed model has no `get_config`.
      ValueError: a subclass of Sequential or Functional whose constructor takes other arguments, a
        part whose copy turns out to have other variables or seed generators, a layer that is used
        through something that has no copy, or two classes of one name, or functions registered by
        one name, where Keras has but the name to find them.
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
            # Asked later, when the functions have their own names again.
            left.append((layer.name, lambda: attempt.why_not_fused))
        elif isinstance(layer, _RECURRENT) and cls not in _RECURRENT:
            left.append((layer.name, lambda: f"{cls.__name__} is a subclass of its own"))
        return cls if cls in _RECURRENT else None

    copy = copy_model(model, class_of)
    if left:
        names = dict.fromkeys(f"{name} ({reason()})" for name, reason in left)
        warnings.warn(f"convert_model left as they are: {', '.join(names)}.", stacklevel=2)
    return copy


def restore_model(model: keras.Model) -> keras.Model:
    """Copies a model, with Keras' own layers in place of those of this package.

    The opposite of `convert_model`, kept and lost alike. What it returns needs nothing of this
    package: it can be saved, sent and loaded where only Keras is.

    Args:
      model: any Keras model that `get_config` describes.

    Returns:
      A new model of the same type, with equal predictions as far as configs and weights tell.

    Raises:
      TypeError: model is no Keras model.
      ValueError: a layer uses what Keras' has not (peepholes, a clip, a projection), or a reason
        that `convert_model` has.
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
    """A layer of Keras made fused, if the ops can compute what it does; it tells."""
    # A layer that is not fused warns of it, once. This one is only tried.
    said = set(_fusing._warned)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attempt = made_again(fused, layer)
    _fusing._warned.intersection_update(said)
    return attempt


def _refuse_extras(plain: type, layer: keras.Layer) -> None:
    extras = extra_config(layer) if isinstance(layer, (layers.LSTM, layers.LSTMCell)) else {}
    if extras:
        raise ValueError(
            f"restore_model: layer {layer.name!r} has {', '.join(extras)}, "
            f"which keras.layers.{plain.__name__} has not"
        )
