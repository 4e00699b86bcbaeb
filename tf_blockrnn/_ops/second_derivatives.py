"""The gradients of the Grad ops over whole sequences, and of the gates that they read.

They serve second derivatives: gradient penalties, Hessians, forward mode. d_ marks a gradient,
a bar a pre-activation, and gradients pass the bound of an LSTM's cell state unchanged.

**A Grad op** takes the gradients s of the states from step to step, last step first:

    bars[t] = B(s[t])    before[t] = S(s[t])    s[t] = cotangent[t] + before[t+1]

B and S are linear in s, with coefficients that the saved tensors give; the op's outputs are GEMMs
and sums of the bars. Its own gradient has three parts:

1. s, from the bars, which the fused op returns if x is already x · w_x: GEMMs of all steps at once,
   and an element-wise recurrence.
2. The gradients of s, first step first: a recurrence with the same weights, transposed. They are
   the tangents of the states, if the gradients of the Grad op's outputs are those of its inputs.
3. The gradients of everything else, given the first two: TensorFlow differentiates B, S and the
   outputs, for all steps at once.

**The saved tensors** are inputs of a Grad op like any other, so they have gradients, too, which are
cotangents of the outputs of the forward op. The contribution of the cotangents of gates to the bars
of their own step is known from the start; to earlier steps they contribute through the state before
their step, so there they are added to the cotangents of the states, which the fused op propagates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import frozen, sequence_util, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import sequence_walk as walks
from tf_blockrnn._ops.sequence_cells import Attrs, Cell, Sequences


def _all_given(given: NamedTuple, gates: int) -> NamedTuple:
    """The inputs of a Grad op with `walks.as_given` for each that may be left out.

    w_x is left out where x is already x · w_x: then it is the identity.
    """
    h_prev, x = given.h_prev, given.x
    neutral = {
        "mask": (2, lambda: tf.ones(tf.shape(given.h)[:2], tf.bool)),
        "resets": (2, lambda: tf.zeros(tf.shape(given.h)[:2], tf.bool)),
        "h_grad": (3, lambda: tf.zeros_like(given.h)),
        "cs_grad": (3, lambda: tf.zeros_like(given.cs)),
        "h_last_grad": (2, lambda: tf.zeros_like(h_prev)),
        "cs_last_grad": (2, lambda: tf.zeros_like(given.cs_prev)),
        "recurrent_dropout": (3, lambda: tf.ones([gates, *tf.unstack(tf.shape(h_prev))], x.dtype)),
        "peepholes": (2, lambda: tf.zeros([3, tf.shape(given.cs_prev)[1]], x.dtype)),
        "w_p": (2, lambda: tf.eye(tf.shape(h_prev)[1], dtype=x.dtype)),
        "w_x": (2, lambda: tf.eye(tf.shape(x)[2], dtype=x.dtype)),
    }
    return given._replace(
        **{
            name: walks.as_given(getattr(given, name), *neutral[name])
            for name in given._fields
            if name in neutral
        }
    )


def _cell(kind: type[Cell], given: NamedTuple, attrs: Attrs) -> Cell:
    """The cell of a call, of the inputs as they are given."""
    given = _all_given(given, kind.GATES)
    return kind(given._make(util.wide(t) if t.dtype.is_floating else t for t in given), attrs)


# Gradients of weights that may be left out.
_LEFT_OUT = {"w_x_grad", "peepholes_grad", "w_p_grad"}


def _as_it_was(own: NamedTuple, name: str, gradient: tf.Tensor) -> tf.Tensor:
    """An output of a Grad op; own are the inputs as they are given."""
    if name not in _LEFT_OUT:
        return gradient
    return walks.as_it_was(getattr(own, name.removesuffix("_grad")), gradient)


class GradOp(NamedTuple):
    """A Grad op over whole sequences."""

    name: str  # in full
    kind: type[Cell]  # the same in TensorFlow's ops
    gates: int  # of which the op does not take the cotangents


def _bars(
    cell: Cell, states: Sequences, gates: Sequence[tf.Tensor | None]
) -> tuple[Any, list[tf.Tensor]]:
    """Gradients of the pre-activations and of the states before each step; skipped ones are 0."""
    bars = cell.bars(states, gates)
    before = [cell.walk.done(each) for each in cell.before(states, bars)]
    return bars._make(cell.walk.done(bar) for bar in bars), before


def with_gates(op: GradOp, own: NamedTuple, attrs: Attrs, gates: Sequence[tf.Tensor | None]) -> Any:
    """The outputs of a Grad op, given cotangents of the gates as well; None for zeros.

    Args:
      op: the Grad op.
      own: its inputs.
      attrs: its attrs.
      gates: of those outputs of the forward op of which it takes no cotangents, in their order.
    """
    cell = _cell(op.kind, own, attrs)
    walk, given, names = cell.walk, cell.given, op.kind.STATES
    gates = [
        None if util.known_zero(gate) else walk.read(tf.convert_to_tensor(gate)) for gate in gates
    ]
    cotangents = [
        walk.cotangent(getattr(given, f"{name}_grad"), getattr(given, name)) for name in names
    ]
    zeros = [tf.zeros_like(cotangent) for cotangent in cotangents]
    bars, before = _bars(cell, zeros, gates)
    onto = [walk.onto_states(each) for each in before]
    joined = {
        f"{name}_grad": walk.in_order(cotangent + after)
        for name, cotangent, (_, after) in zip(names, cotangents, onto, strict=True)
    }
    back = signatures.call(op.name, given._replace(**joined), attrs)
    own_steps = cell.gradients(zeros, bars)
    own_steps |= {f"{name}_prev_grad": first for name, (first, _) in zip(names, onto, strict=True)}
    found = [
        _as_it_was(own, name, gradient + own_steps[name])
        for name, gradient in back._asdict().items()
    ]
    return back._make(tf.cast(gradient, own.x.dtype) for gradient in found)


def _solved(cell: Cell, op: GradOp, attrs: Attrs) -> Sequences:
    """The gradients of the states after each step, intermediate results of a Grad op."""
    given = cell.given
    steps, rows = (tensors.dim(given.x, axis, 3) for axis in (0, 1))
    units = tensors.dim(given.cs_prev if "cs" in cell.STATES else given.h_prev, 1, 2)
    # Of x it reads the shape alone.
    x = tf.zeros([steps, rows, cell.GATES * units], given.x.dtype)
    given = given._replace(x=x, w_x=tensors.none(x.dtype))
    back = signatures.call(op.name, given, attrs)
    return cell.solve(cell.walk.in_order(back.x_grad))


def _second(
    op: GradOp, call: tf.Operation, attrs: Attrs, cotangents: Sequence[tf.Tensor]
) -> list[tf.Tensor | None]:
    """The gradient of a call of a Grad op."""
    own, outputs = signatures.inputs_of(call), signatures.outputs_of(call, cotangents)
    states, no_gates = op.kind.STATES, [None] * op.gates
    first = [util.wide(tf.convert_to_tensor(getattr(outputs, f"{n}_prev_grad"))) for n in states]
    others = {
        name: util.wide(tf.convert_to_tensor(cotangent))
        for name, cotangent in outputs._asdict().items()
        if name.removesuffix("_prev_grad") not in states and not util.known_zero(cotangent)
    }

    def outputs_of(own: NamedTuple, cell: Cell, after: Sequences, bars: Any) -> list[tf.Tensor]:
        found = cell.gradients(after, bars)
        return [_as_it_was(own, name, found[name]) for name in others]

    cell = _cell(op.kind, own, attrs)
    # 1.
    after = _solved(cell, op, attrs)
    # 2.
    added = [tf.zeros_like(state) for state in after]
    if others:
        found = util.gradient_of(
            lambda *after: outputs_of(own, cell, after, _bars(cell, after, no_gates)[0]),
            after,
            list(others.values()),
        )
        added = [z if g is None else g for z, g in zip(added, found, strict=True)]
    pushed = walks.push(cell.walk, cell.push, first, added, cell.coefficients())
    # 3.

    def step(given: NamedTuple) -> list[tf.Tensor]:
        cell = _cell(op.kind, given, attrs)
        bars, before = _bars(cell, after, no_gates)
        return [*before, *outputs_of(given, cell, after, bars)]

    of_states = {}
    for name, every, last in zip(states, pushed.after, pushed.last, strict=True):
        every = cell.walk.in_order(cell.walk.of_rows(every))
        of_states |= {f"{name}_grad": every, f"{name}_last_grad": last}
    found = util.gradient_of_call(
        call,
        [*pushed.before, *others.values()],
        step,
        without={"recurrent_dropout", *of_states},
    )
    for name, gradient in of_states.items():
        found[own._fields.index(name)] = _of_left_out(getattr(own, name), gradient)
    return found


def _of_left_out(own: tf.Tensor, gradient: tf.Tensor) -> tf.Tensor | None:
    """The gradient of an input that may be left out."""
    if own.shape.rank == 1:
        return None
    return tf.cast(walks.as_it_was(own, gradient), own.dtype)


def register_first(
    call: signatures.Backward, composed: Callable[..., Sequence[tf.Tensor]]
) -> list[int]:
    """Registers the gradient of an op over whole sequences: the Grad op, or that with cotangents.

    Args:
      call: of the Grad op.
      composed: `composed(op, cotangents, given, attrs)` computes the outputs of the Grad op by
        TensorFlow's ops, from the forward op, the cotangents of all its outputs, and the inputs of
        the Grad op.

    Returns:
      The outputs of the forward op whose cotangents the Grad op does not take.
    """
    gates_at = [k for k in call.untaken if call.forward.outputs._fields[k] != "span_states"]

    def given(op: tf.Operation, cotangents: Sequence[tf.Tensor | None]) -> NamedTuple:
        taken = [
            None if k in call.untaken else sequence_util.or_none(cotangent)
            for k, cotangent in enumerate(cotangents)
        ]
        return call.inputs(op, taken)

    @util.register_gradient(call.op)
    def first(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        frozen.refuse_gradient(op)
        if "is_training" in call.forward.attrs and not op.get_attr("is_training"):
            op, cotangents = sequence_util.for_training(op, cotangents)
        attrs = call.attrs(op)
        grads = sequence_util.gradients(
            op,
            cotangents,
            # With recompute there are no gates that anything could depend on.
            [] if attrs.get("recompute") else gates_at,
            lambda op, cotangents: signatures.call(call.name, given(op, cotangents), attrs),
            lambda op, cotangents: composed(op, cotangents, given(op, cotangents), attrs),
        )
        return call.gradients(grads)

    return gates_at


def register(name: str, kind: type[Cell]) -> None:
    """Registers the gradients of an op over whole sequences and of its Grad op.

    Args:
      name: of the forward op, without the namespace.
      kind: the Grad op in TensorFlow's ops.
    """
    forward, backward = f"BlockRNN>{name}", f"BlockRNN>{name}Grad"
    call = signatures.Backward(forward, backward, "_grad")
    gates_at = register_first(
        call,
        lambda _, cotangents, given, attrs: with_gates(
            grad_op, given, attrs, [cotangents[k] for k in gates_at]
        ),
    )
    grad_op = GradOp(backward, kind, len(gates_at))

    @util.register_gradient(backward)
    def second(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        attrs = call.attrs(op)
        if attrs.get("recompute"):
            return second_of_recomputed(op, attrs | {"recompute": 0}, cotangents)
        with util.recorded_where_of_use():
            return _second(grad_op, op, attrs, cotangents)

    def second_of_recomputed(
        op: tf.Operation, attrs: Attrs, cotangents: Sequence[tf.Tensor]
    ) -> list[tf.Tensor | None]:
        forward_attrs = {name: attrs[name] for name in attrs if name in call.forward.attrs}

        def function(given: NamedTuple) -> Any:
            """The same with the gates, which depend on the forward op's inputs."""
            of_forward = signatures.collect(call.forward.inputs, given)
            saved = signatures.call(forward, of_forward, {**forward_attrs, "is_training": True})
            none = tensors.none(given.x.dtype)
            taken = signatures.collect(call.backward.inputs, given, saved, cs_grad=none)
            return signatures.call(backward, taken, attrs)

        return util.gradient_of_call(
            op, cotangents, function, without={"recurrent_dropout", "h", "span_states"}
        )
