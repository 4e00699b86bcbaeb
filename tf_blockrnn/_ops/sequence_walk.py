"""The steps of a sequence in TensorFlow's own ops: in which order, which are done, one by one.

What `_second_derivatives.py` is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import gradient_util as util


class Order(NamedTuple):
    """How steps stand in sequences."""

    time_major: bool
    go_backwards: bool


class Walk:
    """The steps of a sequence as [T, B, …] in the order in which they are done.

    inside: [T, B, 1], whether a step is within its row's length.
    valid: [T, B, 1], whether it is done, not skipped.
    """

    def __init__(
        self, order: Order, outputs: tf.Tensor, mask: tf.Tensor, lengths: tf.Tensor
    ) -> None:
        self._order = order
        shape = tf.shape(outputs)
        batch_axis = 1 if order.time_major else 0
        steps, batch = shape[1 - batch_axis], shape[batch_axis]
        # No lengths, [0], mean T for each row.
        lengths = tf.concat(
            [tf.cast(lengths, tf.int32), tf.fill([batch - tf.size(lengths)], steps)], axis=0
        )
        count = tf.range(steps)
        if order.go_backwards:
            count = tf.reverse(count, [0])
        self.inside = (count[:, tf.newaxis] < lengths)[..., tf.newaxis]
        self.valid = self.inside
        if mask.shape.rank != 1:
            # As numbers: TensorFlow complains of each transpose of truth values, and does it.
            self.valid &= self.in_order(tf.cast(mask, tf.int32)[..., tf.newaxis]) > 0

    def in_order(self, sequence: tf.Tensor) -> tf.Tensor:
        """From how a sequence stands to how it is done."""
        if not self._order.time_major:
            sequence = tf.transpose(sequence, [1, 0, 2])
        return tf.reverse(sequence, [0]) if self._order.go_backwards else sequence

    def as_it_stands(self, sequence: tf.Tensor) -> tf.Tensor:
        """The other way."""
        sequence = tf.reverse(sequence, [0]) if self._order.go_backwards else sequence
        return sequence if self._order.time_major else tf.transpose(sequence, [1, 0, 2])

    def done(self, sequence: tf.Tensor) -> tf.Tensor:
        """Zeros for skipped steps: what stands there may be NaN, and 0 times that is NaN."""
        return tf.where(self.valid, sequence, tf.zeros_like(sequence))

    def read(self, sequence: tf.Tensor) -> tf.Tensor:
        """A sequence that is read where steps are done, in order and in the type computed in."""
        return self.done(self.in_order(util.wide(sequence)))

    def cotangent(self, given: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """The gradient of states, which count where steps are skipped, too; [0] for zeros."""
        if given.shape.rank == 1:
            return tf.zeros_like(self.in_order(util.wide(like)))
        wide = self.in_order(util.wide(given))
        return tf.where(self.inside, wide, tf.zeros_like(wide))

    def before(self, first: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """The state before each step. Zeros past a row's length are none of its states.

        They come before its first step when the last is done first, and after its last otherwise.
        """
        first, states = util.wide(first)[tf.newaxis], self.in_order(util.wide(states))
        moved = tf.concat([first, states], axis=0)[:-1]
        there = tf.concat([tf.zeros_like(self.inside[:1]), self.inside], axis=0)
        return tf.where(there[:-1], moved, first)


class Back(NamedTuple):
    """Gradients of the states: of those after each step, all included, and of the first."""

    after: tuple[tf.Tensor, ...]
    first: tuple[tf.Tensor, ...]


def walk_back(
    walk: Walk,
    step: Callable[..., Sequence[tf.Tensor]],
    last: Sequence[tf.Tensor],
    cotangents: Sequence[tf.Tensor],
    saved: Sequence[tf.Tensor],
) -> Back:
    """Goes from the last step done to the first.

    Args:
      walk: the steps.
      step: from the gradients of the states after a step, and what is saved of it, to those of the
        states before it.
      last: gradients of the last states.
      cotangents: gradients of the states of each step, as outputs.
      saved: what the step takes of each step.
    """
    last, cotangents = tuple(last), tuple(cotangents)

    def one(
        after: tuple[tf.Tensor, ...], now: tuple[tf.Tensor, tuple, tuple]
    ) -> tuple[tf.Tensor, ...]:
        valid, own, kept = now
        states = tuple(a + b for a, b in zip(after, own, strict=True))
        before = step(states, kept)
        chosen = tuple(tf.where(valid, b, s) for b, s in zip(before, states, strict=True))
        for tensor, shaped in zip(chosen, after, strict=True):
            tensor.set_shape(shaped.shape)  # a loop in a graph may not know less than before
        return chosen

    # A skipped step in front, as a loop over no steps could not tell the shapes of its results.
    padded = tf.nest.map_structure(
        lambda sequence: tf.pad(sequence, [[1, 0], [0, 0], [0, 0]]),
        (tf.cast(walk.valid, tf.int32), cotangents, tuple(saved)),
    )
    before = tf.scan(one, (padded[0] > 0, *padded[1:]), initializer=last, reverse=True)
    after = tuple(
        tf.concat([grads, end[tf.newaxis]], axis=0)[2:] + own
        for grads, end, own in zip(before, last, cotangents, strict=True)
    )
    return Back(after, tuple(grads[0] for grads in before))


def as_given(tensor: tf.Tensor, rank: int, neutral: Callable[[], tf.Tensor]) -> tf.Tensor:
    """An input of which only a run shows whether it is [0], left out: then what changes nothing.

    Elsewhere a rank of 1 tells. Forward mode traces one gradient for all shapes that it has met,
    though, and that of an input which is left out at times is then unknown.
    """
    if tensor.shape.rank is not None:
        return tensor
    tensor = tf.cond(_is_left_out(tensor), neutral, lambda: tensor)
    return tf.ensure_shape(tensor, [None] * rank)


def as_it_was(tensor: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor:
    """The gradient of what `as_given` stands for: zeros, [0], where the tensor is left out."""
    if tensor.shape.rank is not None:
        return gradient
    return tf.cond(_is_left_out(tensor), lambda: tf.zeros_like(tensor), lambda: gradient)


def _is_left_out(tensor: tf.Tensor) -> tf.Tensor:
    return tf.equal(tf.rank(tensor), 1)


def optional(given: tf.Tensor, otherwise: Callable[[], tf.Tensor]) -> tf.Tensor:
    """An input of an op in the type computed in; [0] stands for one that is left out."""
    return otherwise() if given.shape.rank == 1 else util.wide(given)


def zeros(state: tf.Tensor) -> Callable[[], tf.Tensor]:
    return lambda: tf.zeros_like(util.wide(state))


class Weights(NamedTuple):
    """Weights from a state to gates, [P, G·H], and the factors of the state before each gate."""

    w_h: tf.Tensor
    dropout: tf.Tensor | None

    def gates(self, count: int) -> list[tuple[tf.Tensor, tf.Tensor | float]]:
        factors = [1.0] * count if self.dropout is None else [self.dropout[k] for k in range(count)]
        return list(zip(tf.split(self.w_h, count, axis=1), factors, strict=True))

    def onto_state(self, bars: Sequence[tf.Tensor]) -> tf.Tensor:
        """The gradient of the state, given those of the pre-activations, of one step or of all."""
        return tf.add_n(
            [
                tf.linalg.matmul(bar, w, transpose_b=True) * factor
                for bar, (w, factor) in zip(bars, self.gates(len(bars)), strict=True)
            ]
        )

    def gradient(self, state: tf.Tensor, bars: Sequence[tf.Tensor]) -> tf.Tensor:
        """That of the weights; state is that before each step."""
        return tf.concat(
            [
                util.sum_of_products(state * factor, bar)
                for bar, (_, factor) in zip(bars, self.gates(len(bars)), strict=True)
            ],
            axis=1,
        )


def weights_of(w_h: tf.Tensor, dropout: tf.Tensor) -> Weights:
    return Weights(util.wide(w_h), None if dropout.shape.rank == 1 else util.wide(dropout))


def input_gradients(
    walk: Walk, x: tf.Tensor, w_x: tf.Tensor, bar: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Those of x and w_x; bar are the gradients of the pre-activations, [T, B, G·H]."""
    if w_x.shape.rank == 1:  # x is the product itself
        return walk.as_it_stands(bar), tf.zeros_like(w_x)
    x_grad = tf.linalg.matmul(bar, util.wide(w_x), transpose_b=True)
    return walk.as_it_stands(x_grad), util.sum_of_products(walk.read(x), bar)


def summed(sequence: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(sequence, axis=[0, 1])


def own(walk: Walk, gates: Sequence[tf.Tensor | None], like: tf.Tensor) -> list[tf.Tensor]:
    """The cotangents of gates, which are zeros where steps are skipped; None for zeros."""
    zeros = tf.zeros_like(walk.in_order(util.wide(like)))
    return [
        zeros if util.known_zero(gate) else walk.read(tf.convert_to_tensor(gate)) for gate in gates
    ]


def rounded(gradients: Sequence[tf.Tensor], dtype: tf.DType) -> list[tf.Tensor]:
    return [tf.cast(gradient, dtype) for gradient in gradients]
