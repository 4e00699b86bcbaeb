"""Training steps with changing batch sizes, lengths and types: eager, in functions, by Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bench.soak import figures
from tf_blockrnn import layers

_INPUTS, _UNITS = 12, 24
_BATCHES, _STEPS = (1, 2, 3, 5, 8, 17, 32), (1, 2, 7, 16, 33, 50)
_SHORT_BATCHES, _SHORT_STEPS = (1, 3, 8), (1, 7, 16)
_CELLS = ("LSTM", "GRU", "LayerNormLSTM", "LayerNormGRU")
_TYPES = ("float32", "bfloat16", "float16", "float64")
_FIT_BATCH = 4


def _layer(name: str, dtype: str, peer: bool) -> Callable[..., Any]:
    """A layer; of the peer, which has none with layer normalisation, one and a norm."""
    uniform = keras.initializers.RandomUniform(-0.2, 0.2, seed=5)
    options = {"return_sequences": True, "dtype": dtype, "recurrent_initializer": uniform}
    options["kernel_initializer"] = uniform
    if not peer:
        return getattr(layers, name)(_UNITS, **options)
    plain = getattr(keras.layers, name.removeprefix("LayerNorm"))(_UNITS, **options)
    if plain.__class__.__name__ == name:
        return plain
    return keras.Sequential([plain, keras.layers.LayerNormalization(dtype=dtype)])


class _Trained:
    """One layer, trained by a tape in eager mode and in a function, and by a model's methods."""

    def __init__(self, name: str, dtype: str, peer: bool) -> None:
        self._layer, self._dtype = _layer(name, dtype, peer), dtype
        inputs = keras.Input((None, _INPUTS), dtype=dtype)
        self._model = keras.Model(inputs, self._layer(inputs))
        self._model.compile(keras.optimizers.SGD(0.1), "mean_squared_error", jit_compile=False)
        self._function = tf.function(self._step, reduce_retracing=True)
        self.ways = (self._step, self._function, self._train_on_batch, self._fit)

    def data(self, rng: np.random.Generator, batch: int, steps: int) -> tuple[Any, Any]:
        """An input and a mask of padding at the ends of rows."""
        x = rng.standard_normal((batch, steps, _INPUTS)).astype(np.float32)
        mask = np.arange(steps) < rng.integers(1, steps + 1, (batch, 1))
        return tf.cast(x, self._dtype), tf.constant(mask)

    def gradients(self, x: Any, mask: Any) -> list[Any]:
        """The outputs, and the gradients of all weights."""
        with tf.GradientTape() as tape:
            y = self._layer(x, mask=mask, training=True)
            loss = tf.reduce_sum(tf.square(y))
        return [y, *tape.gradient(loss, self._layer.trainable_variables)]

    def _step(self, x: Any, mask: Any) -> None:
        _, *gradients = self.gradients(x, mask)
        scale = tf.cast(0.1, self._dtype) / tf.cast(tf.size(x), self._dtype)
        for variable, gradient in zip(self._layer.trainable_variables, gradients, strict=True):
            variable.assign_sub(tf.cast(scale, variable.dtype) * gradient)

    def _train_on_batch(self, x: Any, mask: Any) -> None:
        target = tf.zeros([*mask.shape, _UNITS], self._dtype)
        self._model.train_on_batch(x, target, sample_weight=tf.cast(mask, self._dtype))

    def _fit(self, x: Any, mask: Any) -> None:
        target = tf.zeros([*mask.shape, _UNITS], self._dtype)
        self._model.fit(x, target, batch_size=_FIT_BATCH, verbose=0)


class Training:
    """A round is one step of each layer, in one of the ways, with a shape drawn at random."""

    def __init__(self, peer: bool, short: bool) -> None:
        cells, types = (_CELLS[:3:2], _TYPES[:2]) if short else (_CELLS, _TYPES)
        batches, steps = (_SHORT_BATCHES, _SHORT_STEPS) if short else (_BATCHES, _STEPS)
        self._shapes = [(batch, length) for batch in batches for length in steps]
        kinds = [(name, dtype) for name in cells for dtype in types]
        self._trained = [_Trained(*kind, peer) for kind in kinds]
        self._fixed = [_Trained(*kind, peer) for kind in kinds]
        self._functions = [
            tf.function(fixed.gradients, reduce_retracing=True) for fixed in self._fixed
        ]

    def warm_up(self) -> None:
        """All ways with all shapes: functions relax theirs, and remember each type of a call."""
        rng = np.random.default_rng(0)
        for trained in self._trained:
            for way in trained.ways:
                for shape in self._shapes:
                    way(*trained.data(rng, *shape))

    def round(self, number: int) -> tuple[str, ...]:
        rng = np.random.default_rng(number)
        for trained in self._trained:
            way = trained.ways[rng.integers(len(trained.ways))]
            way(*trained.data(rng, *self._shapes[rng.integers(len(self._shapes))]))
        return ()

    def probe(self) -> str:
        return figures.digest(self._outcomes())

    def _outcomes(self) -> Iterator[Any]:
        """Of layers that are not trained, eagerly and in functions."""
        for fixed, function in zip(self._fixed, self._functions, strict=True):
            x, mask = fixed.data(np.random.default_rng(1), 5, 9)
            for run in (fixed.gradients, function):
                yield from map(np.asarray, run(x, mask))
