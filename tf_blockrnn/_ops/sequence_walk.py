"""The steps of a sequence in TensorFlow's own ops: their order, which are skipped, recurrences.

The building blocks of `second_derivatives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import tensors


class Order(NamedTuple):
    """The order of steps in sequences."""

    time_major: bool
    go_backwards: bool


class Walk:
    """The steps of a sequence in the order in which they are done, as [T, B, …] or [B, T, …].

    axis: that of the steps, as it is in the op's arguments.
    inside: [T, B, 1] or [B, T, 1], whether a step is within its row's length.
    valid: the same, whether it is done, not skipped.
    complete: whether it is known that all steps are done.
    begins: [T, B, 1] or [B, T, 1], whether a reset comes before a step; None without resets.
    """

    def __init__(
        self,
        order: Order,
        outputs: tf.Tensor,
        mask: tf.Tensor,
        lengths: tf.Tensor,
        resets: tf.Tensor,
    ) -> None:
        self._backwards = order.go_backwards
        self.axis = 0 if order.time_major else 1
        self.complete = mask.shape.rank == 1 and lengths.shape.num_elements() == 0
        shape = tf.shape(outputs)
        steps, batch = shape[self.axis], shape[1 - self.axis]
        # No lengths, [0], mean T for each row.
        lengths = tf.concat(
            [tf.cast(lengths, tf.int32), tf.fill([batch - tf.size(lengths)], steps)], axis=0
        )
        count = tf.range(steps)
        if self._backwards:
            count = tf.reverse(count, [0])
        count, lengths = tf.expand_dims(count, 1 - self.axis), tf.expand_dims(lengths, self.axis)
        self.inside = (count < lengths)[..., tf.newaxis]
        self.valid = self.inside
        if mask.shape.rank != 1:
            self.valid &= self.in_order(mask[..., tf.newaxis])
        self.begins = None
        if resets.shape.rank != 1:
            # One past a row's length does not count.
            self.begins = self.in_order(resets[..., tf.newaxis]) & self.inside
            if self._backwards:
                # It lies between its step and the one that is done next.
                self.begins = self.later(self.begins, self._none(self.begins))

    def in_order(self, sequence: tf.Tensor) -> tf.Tensor:
        """From the order in memory to the order of processing, or back."""
        return tf.reverse(sequence, [self.axis]) if self._backwards else sequence

    def time_major(self, sequence: tf.Tensor) -> tf.Tensor:
        """From [B, T, …] to [T, B, …], or back."""
        return sequence if self.axis == 0 else tf.transpose(sequence, [1, 0, 2])

    def done(self, sequence: tf.Tensor) -> tf.Tensor:
        """Zeros for skipped steps, whose values may be NaN, and 0 times NaN is NaN."""
        if self.complete:
            return sequence
        return tf.where(self.valid, sequence, tf.zeros_like(sequence))

    def read(self, sequence: tf.Tensor) -> tf.Tensor:
        """A sequence that is read where steps are done, in order and in the type computed in."""
        return self.done(self.in_order(util.wide(sequence)))

    def cotangent(self, given: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
        """The gradient of states, which count where steps are skipped, too; [0] for zeros."""
        if given.shape.rank == 1:
            return tf.zeros_like(util.wide(like))
        return self.of_rows(self.in_order(util.wide(given)))

    def of_rows(self, sequence: tf.Tensor) -> tf.Tensor:
        """Zeros past the rows' lengths."""
        if self.complete:
            return sequence
        return tf.where(self.inside, sequence, tf.zeros_like(sequence))

    def before(self, first: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """The state before each step. Zeros past a row's length are none of its states.

        They come before its first step when the last is done first, and after its last otherwise.
        """
        first, states = util.wide(first), self.in_order(util.wide(states))
        moved = self.later(states, first)
        if not self.complete:
            moved = tf.where(self._follows(), moved, tf.expand_dims(first, self.axis))
        return self.from_before(moved)

    def from_before(self, sequence: tf.Tensor) -> tf.Tensor:
        """Zeros where a reset comes before a step, in what belongs to the state before it."""
        if self.begins is None:
            return sequence
        return tf.where(self.begins, tf.zeros_like(sequence), sequence)

    def later(self, sequence: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """Of each step what is at the one before, and `first` of the first step."""
        moved = tf.concat([tf.expand_dims(first, self.axis), sequence], self.axis)
        return _part(moved, self.axis, size=tensors.dim(sequence, self.axis, 3))

    def sooner(self, sequence: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
        """Of each step what is at the next one, and `last` of the last step."""
        moved = tf.concat([sequence, tf.expand_dims(last, self.axis)], self.axis)
        return _part(moved, self.axis, begin=1)

    def _follows(self) -> tf.Tensor:
        """Whether the state before a step is an output, not the first state."""
        return self.later(self.inside, self._none(self.inside))

    def _none(self, steps: tf.Tensor) -> tf.Tensor:
        """False for one step of all rows."""
        return tf.zeros(tf.gather(tf.shape(steps), [1 - self.axis, 2]), tf.bool)

    def onto_states(self, on_before: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """From gradients of what `before` gives: that of the first state, those of the outputs."""
        on_before = self.from_before(on_before)
        axis, rest, zeros = self.axis, on_before, tf.zeros_like(on_before)
        if self.complete:
            first = tf.reduce_sum(on_before[:1] if axis == 0 else on_before[:, :1], axis)  # or none
        else:
            follows = self._follows()
            first = tf.reduce_sum(tf.where(follows, zeros, on_before), axis)
            rest = tf.where(follows, on_before, zeros)
        return first, self.sooner(rest, tf.zeros_like(first))


def _part(
    sequence: tf.Tensor, axis: int, begin: int | tf.Tensor = 0, size: int | tf.Tensor = -1
) -> tf.Tensor:
    """Some steps of a sequence. The gradient of a strided slice takes ten times as long."""
    if axis == 0:
        return tf.slice(sequence, [begin, 0, 0], [size, -1, -1])
    return tf.slice(sequence, [0, begin, 0], [-1, size, -1])


def solve_back(
    walk: Walk,
    factor: tf.Tensor | None,
    rest: tf.Tensor,
    cotangents: tf.Tensor,
    last: tf.Tensor,
) -> tf.Tensor:
    """The gradients of a state after each step, all included, of all steps at once.

    That of the state before a step is factor ∘ that after it + rest; a step that is skipped passes
    it on, and a reset does not.

    Args:
      walk: the steps.
      factor, rest: of each step; no factor is 0.
      cotangents: gradients of the states as outputs.
      last: the gradient of the last state.
    """
    own = cotangents + walk.sooner(walk.from_before(walk.done(rest)), last)
    if factor is None:
        if walk.complete:
            return own
        factor = tf.zeros_like(rest)
    if not walk.complete:
        factor = tf.where(walk.valid, factor, tf.ones_like(factor))
    factor = walk.from_before(factor)
    return _linear_back(walk.sooner(factor, tf.zeros_like(last)), own, walk.axis)


def _linear_back(factor: tf.Tensor, own: tf.Tensor, axis: int) -> tf.Tensor:
    """s with s[t] = own[t] + factor[t] ∘ s[t+1], by doubling: log₂ T rounds over all steps."""
    steps = tensors.known_dim(own, axis)
    if steps is not None:
        reach = 1
        while reach < steps:
            own += factor * _ahead(own, axis, reach)
            reach *= 2
            if reach < steps:
                factor *= _ahead(factor, axis, reach // 2)
        return own
    steps = tf.shape(own)[axis]
    count = tf.reshape(tf.range(steps), [-1, 1, 1] if axis == 0 else [1, -1, 1])

    def one(reach: tf.Tensor, factor: tf.Tensor, own: tf.Tensor) -> tuple[tf.Tensor, ...]:
        zeros = tf.zeros_like(own)
        ahead, next_factor = (
            tf.where(count < steps - reach, tf.roll(each, -reach, axis), zeros)
            for each in (own, factor)
        )
        return 2 * reach, factor * next_factor, own + factor * ahead

    return tf.while_loop(
        lambda reach, *_: reach < steps, one, (1, factor, own), maximum_iterations=31
    )[2]


def _ahead(sequence: tf.Tensor, axis: int, reach: int) -> tf.Tensor:
    """Of each step what is `reach` steps on; zeros past the end."""
    zeros = tf.zeros_like(_part(sequence, axis, size=reach))
    return tf.concat([_part(sequence, axis, begin=reach), zeros], axis)


class Pushed(NamedTuple):
    """Tangents of the states: before each step, after each, and after the last."""

    before: tuple[tf.Tensor, ...]
    after: tuple[tf.Tensor, ...]
    last: tuple[tf.Tensor, ...]


def push(
    walk: Walk,
    step: Callable[..., Sequence[tf.Tensor]],
    first: Sequence[tf.Tensor],
    added: Sequence[tf.Tensor],
    saved: Sequence[tf.Tensor],
) -> Pushed:
    """Goes from the first step done to the last: the transpose of what `solve_back` solves.

    Args:
      walk: the steps.
      step: from the tangents of the states before a step, and what is saved of it, to those of the
        states after it.
      first: tangents of the first states.
      added: what is added to them after each step.
      saved: what the step takes of each step.
    """
    first, given = tuple(first), [*added, *saved]
    flags = [
        each for each in (None if walk.complete else walk.valid, walk.begins) if each is not None
    ]
    given += [tf.cast(flag, given[0].dtype) for flag in flags]
    widths = [tensors.dim(each, 2, 3) for each in given]
    count = len(first)

    def one(before: tuple[tf.Tensor, ...], now: tf.Tensor) -> tuple[tf.Tensor, ...]:
        parts = tf.split(now, widths, axis=1, num=len(widths))
        own, kept = parts[:count], parts[count : count + len(saved)]
        valid_and_begins = iter(parts[count + len(saved) :])
        valid = None if walk.complete else next(valid_and_begins) > 0
        if walk.begins is not None:
            begins = next(valid_and_begins) > 0
            before = tuple(tf.where(begins, tf.zeros_like(each), each) for each in before)
        after = step(before, kept)
        if valid is not None:
            after = [tf.where(valid, a, b) for a, b in zip(after, before, strict=True)]
        after = tuple(a + b for a, b in zip(after, own, strict=True))
        return keep_shapes(after, before)

    def run(sequences: tf.Tensor, *first: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return tf.scan(one, sequences, initializer=first)

    if not tf.executing_eagerly() and not tf.compat.v1.control_flow_v2_enabled():
        # Gradients of loops of version 1 cannot be differentiated; those of a function are of 2.
        run = tf.function(run, autograph=False)
    if tensors.known_dim(given[0], walk.axis) == 0:
        after = [tf.zeros_like(each) for each in added]
    else:
        # One sequence, so that a step of the loop reads once.
        after = run(walk.time_major(tf.concat(given, axis=2)), *first)
        after = [walk.time_major(each) for each in after]
    return Pushed(
        before=tuple(
            walk.from_before(walk.later(each, start))
            for start, each in zip(first, after, strict=True)
        ),
        after=tuple(after),
        last=tuple(_last(walk, start, each) for start, each in zip(first, after, strict=True)),
    )


def keep_shapes(
    after: tuple[tf.Tensor, ...], before: tuple[tf.Tensor, ...]
) -> tuple[tf.Tensor, ...]:
    """The states after a step of a loop: a graph may not know less of their shapes than before."""
    for tensor, shaped in zip(after, before, strict=True):
        tensor.set_shape(shaped.shape)
    return after


def _last(walk: Walk, first: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
    """The last of them, the first one if there is no step."""
    both = tf.concat([tf.expand_dims(first, walk.axis), states], walk.axis)
    return both[-1] if walk.axis == 0 else both[:, -1]


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
    """The gradient of the input of `as_given`: zeros, [0], where the tensor is left out."""
    if tensor.shape.rank is not None:
        return gradient
    return tf.cond(_is_left_out(tensor), lambda: tf.zeros_like(tensor), lambda: gradient)


def _is_left_out(tensor: tf.Tensor) -> tf.Tensor:
    return tf.equal(tf.rank(tensor), 1)


def optional(given: tf.Tensor, otherwise: Callable[[], tf.Tensor]) -> tf.Tensor:
    """An input of an op in the type of the computation; [0] if it is left out."""
    return otherwise() if given.shape.rank == 1 else util.wide(given)


class Weights(NamedTuple):
    """Weights from a state to gates, [P, G·H], and the factors of the state before each gate.

    axis: that of the steps in sequences.
    """

    w_h: tf.Tensor
    dropout: tf.Tensor | None
    axis: int

    def _gates(self, like: tf.Tensor, count: int) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """The weights and factors of each gate, for a state of one step or of all."""
        factors = [self.dropout[k] for k in range(count)]
        if like.shape.rank == 3:
            factors = [tf.expand_dims(factor, self.axis) for factor in factors]
        return list(zip(tf.split(self.w_h, count, axis=1), factors, strict=True))

    def onto_state(self, bars: Sequence[tf.Tensor]) -> tf.Tensor:
        """The gradient of the state, given those of the pre-activations, of one step or of all."""
        if self.dropout is None:
            return times(tf.concat(bars, axis=-1), self.w_h, transpose=True)
        return tf.add_n(
            [
                times(bar, w, transpose=True) * factor
                for bar, (w, factor) in zip(bars, self._gates(bars[0], len(bars)), strict=True)
            ]
        )

    def of_state(self, state: tf.Tensor, count: int) -> tf.Tensor:
        """What a state puts on the pre-activations of `count` gates."""
        if self.dropout is None:
            return times(state, self.w_h)
        return tf.concat(
            [times(state * factor, w) for w, factor in self._gates(state, count)], axis=-1
        )

    def gradient(self, state: tf.Tensor, bars: Sequence[tf.Tensor]) -> tf.Tensor:
        """That of the weights; state is that before each step."""
        if self.dropout is None:
            return util.sum_of_products(state, tf.concat(bars, axis=2))
        return tf.concat(
            [
                util.sum_of_products(state * factor, bar)
                for bar, (_, factor) in zip(bars, self._gates(bars[0], len(bars)), strict=True)
            ],
            axis=1,
        )


def times(values: tf.Tensor, w: tf.Tensor, transpose: bool = False) -> tf.Tensor:
    """values · w, or · wᵀ, of one step or of all, as one GEMM."""
    if values.shape.rank == 2:
        return tf.raw_ops.MatMul(a=values, b=w, transpose_b=transpose)
    steps, rows = (tensors.dim(values, axis, 3) for axis in (0, 1))
    product = tf.raw_ops.MatMul(a=util.last_two(values), b=w, transpose_b=transpose)
    return tf.reshape(product, [steps, rows, tensors.dim(w, 0 if transpose else 1, 2)])


def weights_of(w_h: tf.Tensor, dropout: tf.Tensor, axis: int) -> Weights:
    return Weights(util.wide(w_h), None if dropout.shape.rank == 1 else util.wide(dropout), axis)


def input_gradients(
    walk: Walk, x: tf.Tensor, w_x: tf.Tensor, bar: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Those of x and w_x; bar are the gradients of the pre-activations, [T, B, G·H]."""
    if w_x.shape.rank == 1:  # x is already x · w_x
        return walk.in_order(bar), tf.zeros_like(w_x)
    x_grad = times(bar, util.wide(w_x), transpose=True)
    return walk.in_order(x_grad), util.sum_of_products(walk.read(x), bar)


def summed(sequence: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(sequence, axis=[0, 1])
