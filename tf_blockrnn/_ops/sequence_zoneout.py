"""Zoneout in TensorFlow's own ops, for `sequence_cells.py`."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import sequence_walk as walks

Sequences = Sequence[tf.Tensor]


class Kept(NamedTuple):
    """Zoneout of a state: the share of the previous state in the state after a step, or None.

    1 or 0 for draws, the rate for the mean.
    """

    share: tf.Tensor | None

    def of_new(self, value: tf.Tensor) -> tf.Tensor:
        """The new state's part of the gradient, or its contribution to the state after it."""
        return value if self.share is None else (1 - self.share) * value

    def plus(self, onto: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        """The same of the state before the step, added to `onto`."""
        return onto if self.share is None else onto + self.share * value

    def factor(self, factor: tf.Tensor | None) -> tf.Tensor | None:
        """Of the state before a step in that after it, given its factor in the new one.

        None is 0.
        """
        if self.share is None or factor is None:
            return self.share if factor is None else factor
        return self.share + (1 - self.share) * factor

    def coefficients(self) -> Sequences:
        """What `push` takes of each step."""
        return () if self.share is None else (self.share,)

    def pushed(self, share: Sequences, before: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
        """The tangent after a step, given `coefficients` of it."""
        return share[0] * before + (1 - share[0]) * new if share else new


def kept_of(walk: walks.Walk, draws: tf.Tensor, rate: float, states: tf.Tensor) -> Kept:
    """Of an op's input and attr for zoneout; states are the outputs that it is for."""
    if draws.shape.rank == 1 and not rate:
        return Kept(None)
    mean = functools.partial(tf.fill, tf.shape(states), tf.constant(rate, states.dtype))
    if draws.shape.rank == 1:
        return Kept(mean())
    return Kept(walk.read(walks.as_given(tf.cast(draws, states.dtype), 3, mean)))
