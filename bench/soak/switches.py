"""Everything that moves Keras models onto the fused ops and back, on new models."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn
from bench.soak import figures
from tf_blockrnn._ops import frozen

_INPUTS, _UNITS = 8, 16
_SHAPES = ((1, 1), (2, 7), (5, 12), (3, 3), (8, 20))


def _model(short: bool) -> keras.Model:
    """Plain layers of Keras, with the same weights each time."""
    inputs = keras.Input((None, _INPUTS))
    options = {"return_sequences": True, "seed": 3}
    y = keras.layers.LSTM(_UNITS, **options)(inputs)
    if not short:
        y = keras.layers.Bidirectional(keras.layers.GRU(_UNITS, **options))(y)
        y = keras.layers.SimpleRNN(_UNITS, **options)(y)
    model = keras.Model(inputs, y)
    rng = np.random.default_rng(4)
    model.set_weights([rng.uniform(-0.3, 0.3, weight.shape) for weight in model.weights])
    return model


def _train(model: keras.Model, x: np.ndarray) -> None:
    """A step by a tape: Keras' optimizers leak the graph of each function that traces them."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True)))
    for weight, gradient in zip(
        model.trainable_weights, tape.gradient(loss, model.trainable_weights), strict=True
    ):
        weight.assign_sub(0.1 * gradient)


class _Ours:
    """The functions of this package."""

    enable = staticmethod(tf_blockrnn.enable_keras)
    disable = staticmethod(tf_blockrnn.disable_keras)
    fuse = staticmethod(tf_blockrnn.fuse_model)
    unfuse = staticmethod(tf_blockrnn.unfuse_model)
    freeze = staticmethod(tf_blockrnn.freeze)


class _Keras:
    """What traces as often, and copies where `freeze` does, on Keras alone."""

    @staticmethod
    def enable() -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    disable = enable

    @staticmethod
    def fuse(model: keras.Model) -> keras.Model:
        model.make_predict_function(force=True)
        return model

    unfuse = fuse

    @staticmethod
    def freeze(model: keras.Model) -> keras.Model:
        copy = keras.models.clone_model(model)
        copy.set_weights(model.get_weights())
        return copy


class Keras:
    """A round is one new model that goes through all switches, and its frozen copy."""

    def __init__(self, peer: bool, short: bool) -> None:
        self._to: Any = _Keras if peer else _Ours
        self._short, self._shapes = short, _SHAPES[:2] if short else _SHAPES

    def warm_up(self) -> None:
        for number in range(len(self._shapes)):
            self.round(number)

    def round(self, number: int) -> tuple[str, ...]:
        batch, steps = self._shapes[number % len(self._shapes)]
        x = np.random.default_rng(number).standard_normal((batch, steps, _INPUTS))
        self._through_all(x.astype(np.float32))
        keras.backend.clear_session()  # frees the names of layers, which Keras remembers
        gc.collect()
        if frozen.frozen_bytes():
            raise RuntimeError(f"{frozen.frozen_bytes()} bytes of frozen weights are left")
        return ()

    def _through_all(self, x: np.ndarray) -> None:
        model = _model(self._short)
        with self._to.enable():
            model.predict_on_batch(x)
            _train(model, x)
            with self._to.disable():
                model.predict_on_batch(x)
        self._to.enable()
        model(x)
        self._to.disable()
        self._to.fuse(model)
        _train(model, x)
        copy = self._to.freeze(model)
        copy.predict_on_batch(x)
        copy(x)
        self._to.unfuse(model)
        model.predict_on_batch(x)

    def probe(self) -> str:
        return figures.digest(self._outcomes())

    def _outcomes(self) -> Iterator[np.ndarray]:
        """Without Keras' own layers, whose bits may depend on the number of threads."""
        x = np.random.default_rng(1).standard_normal((3, 6, _INPUTS)).astype(np.float32)
        model = _model(self._short)
        with self._to.enable():
            yield np.asarray(model(x))
            yield model.predict_on_batch(x)
        self._to.fuse(model)
        yield model.predict_on_batch(x)
        yield self._to.freeze(model).predict_on_batch(x)
