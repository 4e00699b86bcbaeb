"""Functions that XLA compiles for shape after shape, and that are then dropped."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import tf_blockrnn
from bench.soak import figures

_INPUTS, _UNITS = 8, 16
# 200 of them: batch, steps.
_SHAPES = [(batch, steps) for steps in range(1, 21) for batch in range(1, 11)]
_OF_A_FUNCTION, _OF_A_SHORT_FUNCTION = 20, 4


class Jit:
    """A round is a new function that is compiled for 20 shapes, each with its gradients."""

    def __init__(self, peer: bool, short: bool) -> None:
        rng = np.random.default_rng(6)
        shapes = ((_INPUTS, 4 * _UNITS), (_UNITS, 4 * _UNITS), (4 * _UNITS,))
        self._weights = [
            tf.Variable(rng.uniform(-0.3, 0.3, shape).astype(np.float32)) for shape in shapes
        ]
        self._forward = self._matmul if peer else self._lstm
        self._count = _OF_A_SHORT_FUNCTION if short else _OF_A_FUNCTION
        self._kept = self._new()

    def _lstm(self, x: Any) -> Any:
        return tf_blockrnn.lstm(x, *self._weights)[0]

    def _matmul(self, x: Any) -> Any:
        w_x, w_h, b = self._weights
        return tf.tanh(tf.matmul(tf.matmul(x, w_x) + b, w_h, transpose_b=True))

    def _new(self) -> Callable[[Any], list[Any]]:
        @tf.function(jit_compile=True)
        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = self._forward(x)
            return [y, *tape.gradient(y, [x, *self._weights])]

        return step

    def warm_up(self) -> None:
        for number in range(2):
            self.round(number)

    def round(self, number: int) -> tuple[str, ...]:
        function = self._new()
        for place in range(number * self._count, (number + 1) * self._count):
            function(tf.zeros([*_SHAPES[place % len(_SHAPES)], _INPUTS]))
        del function
        gc.collect()
        return ()

    def probe(self) -> str:
        """Of a function that is kept."""
        x = np.random.default_rng(1).standard_normal((3, 6, _INPUTS)).astype(np.float32)
        x = tf.constant(x)
        return figures.digest(np.asarray(y) for y in self._kept(x))
