"""Functions that XLA compiles for shape after shape, and that are then dropped.

They run in sessions of TensorFlow 1. Outside of one, TensorFlow keeps the compiled program of each
shape until the process ends, even after the function is gone: about 1 MB for two GEMMs with their
gradients. A session frees the programs when it is closed, so what is left is a leak.
"""

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


def _lstm(x: Any, w_x: Any, w_h: Any, b: Any) -> Any:
    return tf_blockrnn.lstm(x, w_x, w_h, b)[0]


def _matmul(x: Any, w_x: Any, w_h: Any, b: Any) -> Any:
    return tf.tanh(tf.matmul(tf.matmul(x, w_x) + b, w_h, transpose_b=True))


class Jit:
    """A round is a new function that is compiled for 20 shapes, each with its gradients."""

    def __init__(self, peer: bool, short: bool) -> None:
        rng = np.random.default_rng(6)
        shapes = ((_INPUTS, 4 * _UNITS), (_UNITS, 4 * _UNITS), (4 * _UNITS,))
        self._weights = [rng.uniform(-0.3, 0.3, shape).astype(np.float32) for shape in shapes]
        self._forward = _matmul if peer else _lstm
        self._count = _OF_A_SHORT_FUNCTION if short else _OF_A_FUNCTION
        self._kept = self._new()

    def _new(self) -> Callable[..., list[Any]]:
        @tf.function(jit_compile=True)
        def step(*given):
            with tf.GradientTape() as tape:
                tape.watch(given)
                y = self._forward(*given)
            return [y, *tape.gradient(y, given)]

        return step

    def warm_up(self) -> None:
        for number in range(3):
            self.round(number)

    def round(self, number: int) -> tuple[str, ...]:
        places = range(number * self._count, (number + 1) * self._count)
        self._compile([(*_SHAPES[place % len(_SHAPES)], _INPUTS) for place in places])
        gc.collect()
        return ()

    def _compile(self, shapes: list[tuple[int, ...]]) -> None:
        graph, function = tf.Graph(), self._new()
        with graph.as_default():
            inputs = [tf.compat.v1.placeholder(tf.float32, shape) for shape in shapes]
            outputs = [function(x, *map(tf.constant, self._weights)) for x in inputs]
        with tf.compat.v1.Session(graph=graph) as session:
            for x, some, shape in zip(inputs, outputs, shapes, strict=True):
                session.run(some, {x: np.ones(shape)})

    def probe(self) -> str:
        """Of a function that is kept."""
        x = np.random.default_rng(1).standard_normal((3, 6, _INPUTS)).astype(np.float32)
        outcomes = self._kept(*map(tf.constant, (x, *self._weights)))
        return figures.digest(np.asarray(y) for y in outcomes)
