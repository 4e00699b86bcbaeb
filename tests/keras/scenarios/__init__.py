"""Real uses of Keras' recurrent layers, each a model and its data.

A scenario is written once, over `r`, which holds the recurrent classes: Keras' own or ours. So the
same model runs on stock Keras, under enable_keras, fused by fuse_model and on our layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
import numpy as np

NAMES = ("GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell", "SimpleRNNCell")

BATCH, STEPS, FEATURES, UNITS, WORDS = 4, 5, 3, 6, 9


class Scenario(NamedTuple):
    """A model, what it is called with, and what is to be expected of it.

    build: makes the model from the recurrent classes.
    inputs: makes what `predict_on_batch` and `train_on_batch` take.
    fused: how many recurrent layers and cells of it run on the ops; None for all.
    tolerance: of predictions and weights, relative to 1 and to their sizes.
    optimizer: makes the optimizer of the training step.
    compile: further arguments of `compile`.
    """

    name: str
    build: Callable[[SimpleNamespace], keras.Model]
    inputs: Callable[[], Any]
    fused: int | None = None
    tolerance: float = 1e-5
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.SGD(0.1)
    compile: dict[str, Any] = {}


def classes_of(package: Any) -> SimpleNamespace:
    """The recurrent classes of keras.layers, or of tf_blockrnn.layers."""
    return SimpleNamespace(**{name: getattr(package, name) for name in NAMES})


def series(*shape: int) -> np.ndarray:
    """Numbers of a time series, [batch, steps, features] if no other shape is given."""
    shape = shape or (BATCH, STEPS, FEATURES)
    return np.random.default_rng(5).normal(size=shape).astype("float32")


def words() -> np.ndarray:
    """Numbers of words, [batch, steps]; 0 pads on the right, on the left, inside and everywhere."""
    found = np.random.default_rng(6).integers(1, WORDS, (BATCH, STEPS))
    found[0, 3:] = 0
    found[1, :2] = 0
    found[2, 2] = 0
    found[3] = 0
    return found


def padded() -> np.ndarray:
    """A series in which the steps that `words` pads are zeros, which keras.layers.Masking skips."""
    return series() * (words() > 0)[:, :, np.newaxis]


def everything() -> Iterator[Scenario]:
    """All scenarios."""
    from . import arguments, masks, models, states, training

    for module in (arguments, masks, states, models, training):
        yield from module.SCENARIOS
