"""Registers the gradients of the ops with layer normalisation, of every order.

First derivatives are those of the fused Grad ops. Of what is saved for backward, and of the Grad
ops themselves, there are no fused ones: these are derived from the same cells in TensorFlow's ops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import second_derivatives, signatures, tensors
from tf_blockrnn._ops import sequence_walk as walks
from tf_blockrnn._ops.sequence_cells import Attrs

_States = Sequence[tf.Tensor]
_ATTRS = ("epsilon", "time_major", "go_backwards")


class _Norm(NamedTuple):
    hat: tf.Tensor
    rstd: tf.Tensor


def _normalized(sums: tf.Tensor, epsilon: float) -> _Norm:
    centred = sums - tf.reduce_mean(sums, axis=-1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    rstd = tf.math.rsqrt(variance + tf.constant(epsilon, sums.dtype))
    return _Norm(centred * rstd, rstd)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell in TensorFlow's ops.

    `offset(given)`: what is added to gamma_x ∘ x_hat, `given` being the inputs of the op by name.
    `step(z_x, h_hat, states, given, attrs)`: the new states, from gamma_x ∘ x_hat + offset, h · w_h
    normalised, and the states before the step.
    """

    op: str
    gates: int
    states: tuple[str, ...]
    weights: tuple[str, ...]
    offset: Callable[[Any], tf.Tensor]
    step: Callable[..., _States]
    attrs: tuple[str, ...]

    @property
    def differentiated(self) -> tuple[str, ...]:
        return ("x", *(f"{state}_prev" for state in self.states), "w_x", "w_h", *self.weights)

    def attrs_of(self, op: tf.Operation) -> Attrs:
        return signatures.attrs_of(op, self.attrs)


def _lstm_step(
    z_x: tf.Tensor, h_hat: tf.Tensor, states: _States, given: Any, attrs: Attrs
) -> _States:
    i, f, ci, o = tf.split(z_x + h_hat * given.gamma_h, 4, axis=1)
    c = tf.sigmoid(f) * states[1] + tf.sigmoid(i) * tf.tanh(ci)
    normalized = _normalized(c, attrs["epsilon"]).hat * given.gamma_c + given.beta_c
    return tf.sigmoid(o) * tf.tanh(normalized), c if attrs["norm_output_only"] else normalized


def _gru_step(
    z_x: tf.Tensor, h_hat: tf.Tensor, states: _States, given: Any, attrs: Attrs
) -> _States:
    of_x = tf.split(z_x, 3, axis=1)
    of_h = tf.split(h_hat * given.gamma_h + (given.beta_h + given.b_h), 3, axis=1)
    r, u = (tf.sigmoid(of_x[k] + of_h[k]) for k in (0, 1))
    if attrs["gate_order"] == b"urc":
        r, u = u, r
    c = tf.tanh(of_x[2] + r * of_h[2])
    return (u * states[0] + (1 - u) * c,)


LSTM = Cell(
    "LayerNormLSTMSequence",
    gates=4,
    states=("h", "cs"),
    weights=("b", "gamma_x", "beta_x", "gamma_h", "beta_h", "gamma_c", "beta_c"),
    offset=lambda given: given.beta_x + given.beta_h + given.b,
    step=_lstm_step,
    attrs=("norm_output_only", *_ATTRS),
)
GRU = Cell(
    "LayerNormGRUSequence",
    gates=3,
    states=("h",),
    weights=("b_x", "b_h", "gamma_x", "beta_x", "gamma_h", "beta_h"),
    offset=lambda given: given.beta_x + given.b_x,
    step=_gru_step,
    attrs=("gate_order", *_ATTRS),
)


def _composed(cell: Cell, given: Any, attrs: Attrs) -> dict[str, tf.Tensor]:
    """The outputs of the forward op by name, but for span_states, from its inputs."""
    dtype, epsilon = given.x.dtype, attrs["epsilon"]
    order = walks.Order(attrs["time_major"], attrs["go_backwards"])
    steps = tf.shape(given.x)[:2]
    given = given._replace(
        mask=walks.as_given(given.mask, 2, lambda: tf.ones(steps, tf.bool)),
        resets=walks.as_given(given.resets, 2, lambda: tf.zeros(steps, tf.bool)),
    )
    walk = walks.Walk(order, given.x, given.mask, given.sequence_lengths, given.resets)
    given = given._make(util.wide(t) if t.dtype.is_floating else t for t in given)

    x = walk.time_major(walk.read(given.x))
    of_x = _normalized(x if given.w_x.shape.rank == 1 else walks.times(x, given.w_x), epsilon)
    z_x = of_x.hat * given.gamma_x + cell.offset(given)
    valid = tf.broadcast_to(walk.time_major(walk.valid), tf.shape(z_x[..., :1]))
    begins = () if walk.begins is None else (walk.time_major(walk.begins),)
    dropout = None if given.recurrent_dropout.shape.rank == 1 else given.recurrent_dropout
    weights = walks.Weights(given.w_h, dropout, walk.axis)
    count = len(cell.states)

    def step(before: tuple[tf.Tensor, ...], now: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        states, (z, counts, *of_begins) = before[:count], now
        for begin in of_begins:
            states = tuple(tf.where(begin, tf.zeros_like(each), each) for each in states)
        of_h = _normalized(weights.of_state(states[0], cell.gates), epsilon)
        after = cell.step(z, of_h.hat, states, given, attrs)
        kept = (tf.where(counts, new, old) for new, old in zip(after, states, strict=True))
        return walks.keep_shapes((*kept, of_h.hat, of_h.rstd), before)

    first = tuple(getattr(given, f"{state}_prev") for state in cell.states)
    if tensors.known_dim(z_x, 0) == 0:
        empty = tf.zeros_like(z_x[..., : tensors.dim(given.h_prev, 1, 2)])
        states, last = (empty,) * count, first
        h_hat, h_rstd = z_x, tf.zeros_like(z_x[..., :1])
    else:
        no_norm = (tf.zeros_like(z_x[:1])[0], tf.zeros_like(z_x[:1, :, :1])[0])
        *states, h_hat, h_rstd = tf.scan(
            step, (z_x, valid, *begins), initializer=(*first, *no_norm)
        )
        last = tuple(state[-1] for state in states)

    def in_memory(sequence: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        sequence = walk.time_major(sequence)
        return walk.in_order(tf.where(where, sequence, tf.zeros_like(sequence)))

    outputs = {
        "x_hat": in_memory(of_x.hat, walk.valid),
        "h_hat": in_memory(h_hat, walk.valid),
        "rstd": in_memory(tf.concat([of_x.rstd, h_rstd], axis=-1), walk.valid),
    }
    for name, every, final in zip(cell.states, states, last, strict=True):
        outputs |= {name: in_memory(every, walk.inside), f"{name}_last": final}
    return {name: tf.cast(tensor, dtype) for name, tensor in outputs.items()}


def _composed_gradients(
    cell: Cell, given: Any, attrs: Attrs, cotangents: dict[str, tf.Tensor]
) -> list[tf.Tensor]:
    """The outputs of a Grad op, from the forward op's inputs and cotangents of its outputs."""
    inputs = [getattr(given, name) for name in cell.differentiated]
    if not cotangents:
        return [tf.zeros_like(tensor) for tensor in inputs]

    def outputs(*inputs: tf.Tensor) -> list[tf.Tensor]:
        replaced = given._replace(**dict(zip(cell.differentiated, inputs, strict=True)))
        found = _composed(cell, replaced, attrs)
        return [found[name] for name in cotangents]

    found = util.gradient_of(outputs, inputs, list(cotangents.values()))
    return [
        tf.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(inputs, found, strict=True)
    ]


def register(cell: Cell) -> None:
    """Registers the gradients of the forward op and of its Grad op."""
    forward, backward = f"BlockRNN>{cell.op}", f"BlockRNN>{cell.op}Grad"
    call = signatures.Backward(forward, backward, "_grad")

    def composed(op: tf.Operation, cotangents: Sequence[Any], *_: Any) -> list[tf.Tensor]:
        by_name = {
            name: tf.convert_to_tensor(cotangent)
            for name, cotangent in signatures.outputs_of(op, cotangents)._asdict().items()
            if name != "span_states" and not util.known_zero(cotangent)
        }
        return _composed_gradients(cell, signatures.inputs_of(op), cell.attrs_of(op), by_name)

    @util.register_gradient(backward)
    def second(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        """What was saved depends on the other inputs: it has no gradient."""
        attrs = cell.attrs_of(op)
        # With recompute there is no cs.
        states = ("h",) if op.get_attr("recompute") else cell.states
        outputs = [*states, *(f"{state}_last" for state in cell.states)]

        def function(given: Any) -> list[tf.Tensor]:
            of_outputs = {name: getattr(given, f"{name}_grad", None) for name in outputs}
            return _composed_gradients(
                cell,
                signatures.collect(call.forward.inputs, given),
                attrs,
                {k: t for k, t in of_outputs.items() if t is not None and t.shape.rank != 1},
            )

        saved = {"x_hat", "h_hat", "rstd", "span_states", "recurrent_dropout", *cell.states}
        with util.recorded_where_of_use():
            cotangents = [tf.convert_to_tensor(each) for each in cotangents]
            return util.gradient_of_call(op, cotangents, function, without=saved, of_loops=True)

    second_derivatives.register_first(call, composed)
