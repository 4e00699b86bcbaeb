"""The gradients of whole sequences in TensorFlow's own ops, which can be differentiated once more.

The fused ops LSTMSequenceGrad, GRUSequenceGrad, GRUAfterSequenceGrad and RNNSequenceGrad are
faster. What is here serves second derivatives (gradient penalties, Hessians, forward mode) and
cotangents of the gates, which the fused ops do not take: right, not fast, as it runs a loop over
the steps. The equations are those of the Grad ops; d_ is the gradient of what follows, a bar marks
a pre-activation, and the bound of an LSTM's cell state is passed through, as if it were not there.

With saved tensors as inputs like any other, the second derivative of an op has two parts: what
reaches its inputs directly, and what reaches the saved tensors; that goes on through the forward
op, as cotangents of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import frozen, sequence_util, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import sequence_walk as walks

Attrs = Mapping[str, Any]  # of an op


def _all_given(given: NamedTuple, gates: int) -> NamedTuple:
    """The inputs of a Grad op with `walks.as_given` for each that may be left out.

    w_x is left out where x is the product itself: then it is the identity, of one gate or more.
    """
    h_prev, x = given.h_prev, given.x

    def identity(size: tf.Tensor, columns: slice = slice(None)) -> tf.Tensor:
        return tf.eye(size, dtype=x.dtype)[:, columns]

    neutral = {
        "mask": (2, lambda: tf.ones(tf.shape(given.h)[:2], tf.bool)),
        "h_grad": (3, lambda: tf.zeros_like(given.h)),
        "cs_grad": (3, lambda: tf.zeros_like(given.cs)),
        "h_last_grad": (2, lambda: tf.zeros_like(h_prev)),
        "cs_last_grad": (2, lambda: tf.zeros_like(given.cs_prev)),
        "recurrent_dropout": (3, lambda: tf.ones([gates, *tf.unstack(tf.shape(h_prev))], x.dtype)),
        "peepholes": (2, lambda: tf.zeros([3, tf.shape(given.cs_prev)[1]], x.dtype)),
        "w_p": (2, lambda: identity(tf.shape(h_prev)[1])),
        "w_x": (2, lambda: identity(tf.shape(x)[2])),
        "w_ru_x": (2, lambda: identity(tf.shape(x)[2], slice(2 * tf.shape(h_prev)[1]))),
        "w_c_x": (2, lambda: identity(tf.shape(x)[2], slice(2 * tf.shape(h_prev)[1], None))),
    }
    return given._replace(
        **{
            name: walks.as_given(getattr(given, name), *neutral[name])
            for name in given._fields
            if name in neutral
        }
    )


class _LSTMBars(NamedTuple):
    """Gradients of the pre-activations in the order of the weights, and of the cell state."""

    i: tf.Tensor
    f: tf.Tensor
    ci: tf.Tensor
    o: tf.Tensor
    cs: tf.Tensor


def _lstm_bars(
    states: Sequence[tf.Tensor], kept: Sequence[tf.Tensor], w_p: tf.Tensor | None, wco: tf.Tensor
) -> _LSTMBars:
    """d_ō = (d_m ∘ co + d_o) ∘ o(1−o), and so on: of one step or of all; m is o ∘ co."""
    d_h, d_cs = states
    cs_before, i, cs, f, o, ci, d_i, d_f, d_o, d_ci = kept
    co = tf.tanh(cs)
    d_m = d_h if w_p is None else tf.linalg.matmul(d_h, w_p)
    o_bar = (d_m * co + d_o) * o * (1 - o)
    d_cs = d_cs + d_m * o * (1 - co * co) + o_bar * wco
    return _LSTMBars(
        i=(d_cs * ci + d_i) * i * (1 - i),
        f=(d_cs * cs_before + d_f) * f * (1 - f),
        ci=(d_cs * i + d_ci) * (1 - ci * ci),
        o=o_bar,
        cs=d_cs,
    )


def lstm_gradients(
    given: NamedTuple, attrs: Attrs, gates: Sequence[tf.Tensor | None]
) -> list[tf.Tensor]:
    """The outputs of LSTMSequenceGrad; gates are cotangents of i, f, o and ci, None for zeros."""
    own, given = given, _all_given(given, gates=4)
    walk = walks.Walk(_order(attrs), given.h, given.mask, given.sequence_lengths)
    weights = walks.weights_of(given.w_h, given.recurrent_dropout)
    w_p = None if given.w_p.shape.rank == 1 else util.wide(given.w_p)
    wci, wcf, wco = (
        [0.0] * 3 if given.peepholes.shape.rank == 1 else tf.unstack(util.wide(given.peepholes), 3)
    )
    cs_before = walk.before(given.cs_prev, given.cs)
    saved = [walk.read(t) for t in (given.i, given.cs, given.f, given.o, given.ci)]
    kept = (cs_before, *saved, *walks.own(walk, gates, given.i))

    def step(states: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        bars = _lstm_bars(states, kept, w_p, wco)
        return weights.onto_state(bars[:4]), bars.cs * kept[3] + bars.i * wci + bars.f * wcf

    back = walks.walk_back(
        walk,
        step,
        last=(
            walks.optional(given.h_last_grad, walks.zeros(given.h_prev)),
            walks.optional(given.cs_last_grad, walks.zeros(given.cs_prev)),
        ),
        cotangents=(
            walk.cotangent(given.h_grad, given.h),
            walk.cotangent(given.cs_grad, given.cs),
        ),
        saved=kept,
    )
    bars = _LSTMBars(*(walk.done(bar) for bar in _lstm_bars(back.after, kept, w_p, wco)))
    bar = tf.concat(bars[:4], axis=2)
    x_grad, w_x_grad = walks.input_gradients(walk, given.x, given.w_x, bar)
    w_h_grad = weights.gradient(walk.before(given.h_prev, given.h), bars[:4])
    _, cs, _, o, _ = saved
    peepholes_grad, w_p_grad = tf.zeros_like(given.peepholes), tf.zeros_like(given.w_p)
    if given.peepholes.shape.rank != 1:
        through = (bars.i * cs_before, bars.f * cs_before, bars.o * cs)
        peepholes_grad = tf.stack([walks.summed(weight) for weight in through])
    if w_p is not None:
        w_p_grad = util.sum_of_products(walk.done(back.after[0]), o * tf.tanh(cs))
    w_x_grad = walks.as_it_was(own.w_x, w_x_grad)
    peepholes_grad = walks.as_it_was(own.peepholes, peepholes_grad)
    w_p_grad = walks.as_it_was(own.w_p, w_p_grad)
    return walks.rounded(
        [x_grad, *back.first, w_x_grad, w_h_grad, walks.summed(bar), peepholes_grad, w_p_grad],
        given.x.dtype,
    )


class _GRUBars(NamedTuple):
    r: tf.Tensor
    u: tf.Tensor
    c: tf.Tensor
    state: tf.Tensor  # the gradient of r ∘ h', or of hc


def _gru_bars(
    d_h: tf.Tensor, kept: Sequence[tf.Tensor], onto_rh: Callable[[tf.Tensor], tf.Tensor]
) -> _GRUBars:
    """Before the product: d_rh = (d_c̄ · w_c_hᵀ), d_r̄ = (d_rh ∘ h' + d_r) ∘ r(1−r)."""
    h_before, r, u, c, d_r, d_u, d_c = kept
    c_bar = (d_h * (1 - u) + d_c) * (1 - c * c)
    d_rh = onto_rh(c_bar)
    return _GRUBars(
        r=(d_rh * h_before + d_r) * r * (1 - r),
        u=(d_h * (h_before - c) + d_u) * u * (1 - u),
        c=c_bar,
        state=d_rh,
    )


def gru_gradients(
    given: NamedTuple, attrs: Attrs, gates: Sequence[tf.Tensor | None]
) -> list[tf.Tensor]:
    """The outputs of GRUSequenceGrad; gates are cotangents of r, u and c, None for zeros."""
    own, given = given, _all_given(given, gates=3)
    walk = walks.Walk(_order(attrs), given.h, given.mask, given.sequence_lengths)
    dropout = walks.weights_of(given.w_ru_h, given.recurrent_dropout).dropout
    of_ru = walks.Weights(util.wide(given.w_ru_h), None if dropout is None else dropout[:2])
    of_c = walks.Weights(util.wide(given.w_c_h), None if dropout is None else dropout[2:])
    h_before = walk.before(given.h_prev, given.h)
    kept = (
        h_before,
        *(walk.read(gate) for gate in (given.r, given.u, given.c)),
        *walks.own(walk, gates, given.h),
    )

    def bars_of(d_h: tf.Tensor, kept: Sequence[tf.Tensor]) -> _GRUBars:
        return _gru_bars(d_h, kept, lambda c_bar: of_c.onto_state([c_bar]))

    def step(states: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tuple[tf.Tensor]:
        bars, (_, r, u, *_) = bars_of(states[0], kept), kept
        return (of_ru.onto_state(bars[:2]) + bars.state * r + states[0] * u,)

    back = walks.walk_back(
        walk,
        step,
        last=(walks.optional(given.h_last_grad, walks.zeros(given.h_prev)),),
        cotangents=(walk.cotangent(given.h_grad, given.h),),
        saved=kept,
    )
    bars = _GRUBars(*(walk.done(bar) for bar in bars_of(back.after[0], kept)))
    ru_bar = tf.concat(bars[:2], axis=2)
    if given.w_ru_x.shape.rank == 1:
        bar = tf.concat(bars[:3], axis=2)
        x_grad, w_ru_x_grad = walks.input_gradients(walk, given.x, given.w_ru_x, bar)
        w_c_x_grad = tf.zeros_like(given.w_c_x)
    else:
        x_of_ru, w_ru_x_grad = walks.input_gradients(walk, given.x, given.w_ru_x, ru_bar)
        x_of_c, w_c_x_grad = walks.input_gradients(walk, given.x, given.w_c_x, bars.c)
        x_grad = x_of_ru + x_of_c
    return walks.rounded(
        [
            x_grad,
            *back.first,
            walks.as_it_was(own.w_ru_x, w_ru_x_grad),
            of_ru.gradient(h_before, bars[:2]),
            walks.as_it_was(own.w_c_x, w_c_x_grad),
            of_c.gradient(h_before * kept[1], [bars.c]),
            walks.summed(ru_bar),
            walks.summed(bars.c),
        ],
        given.x.dtype,
    )


def _gru_after_bars(d_h: tf.Tensor, kept: Sequence[tf.Tensor]) -> _GRUBars:
    """After the product: d_hc = d_c̄ ∘ r + own, d_r̄ = (d_c̄ ∘ hc + d_r) ∘ r(1−r)."""
    h_before, r, u, c, hc, d_r, d_u, d_c, d_hc = kept
    c_bar = (d_h * (1 - u) + d_c) * (1 - c * c)
    return _GRUBars(
        r=(c_bar * hc + d_r) * r * (1 - r),
        u=(d_h * (h_before - c) + d_u) * u * (1 - u),
        c=c_bar,
        state=c_bar * r + d_hc,
    )


def gru_after_gradients(
    given: NamedTuple, attrs: Attrs, gates: Sequence[tf.Tensor | None]
) -> list[tf.Tensor]:
    """The outputs of GRUAfterSequenceGrad; gates are cotangents of r, u, c, hc, None for zeros."""
    reset_first = tf.compat.as_str(attrs["gate_order"]) == "ruc"  # some ops give bytes
    own, given = given, _all_given(given, gates=3)
    walk = walks.Walk(_order(attrs), given.h, given.mask, given.sequence_lengths)
    weights = walks.weights_of(given.w_h, given.recurrent_dropout)
    h_before = walk.before(given.h_prev, given.h)
    kept = (
        h_before,
        *(walk.read(gate) for gate in (given.r, given.u, given.c, given.hc)),
        *walks.own(walk, gates, given.h),
    )

    def in_order(bars: _GRUBars, candidate: tf.Tensor) -> list[tf.Tensor]:
        return [bars.r, bars.u, candidate] if reset_first else [bars.u, bars.r, candidate]

    def step(states: Sequence[tf.Tensor], kept: Sequence[tf.Tensor]) -> tuple[tf.Tensor]:
        bars = _gru_after_bars(states[0], kept)
        return (weights.onto_state(in_order(bars, bars.state)) + states[0] * kept[2],)

    back = walks.walk_back(
        walk,
        step,
        last=(walks.optional(given.h_last_grad, walks.zeros(given.h_prev)),),
        cotangents=(walk.cotangent(given.h_grad, given.h),),
        saved=kept,
    )
    bars = _GRUBars(*(walk.done(bar) for bar in _gru_after_bars(back.after[0], kept)))
    of_x, of_h = in_order(bars, bars.c), in_order(bars, bars.state)
    bar = tf.concat(of_x, axis=2)
    x_grad, w_x_grad = walks.input_gradients(walk, given.x, given.w_x, bar)
    b_h_grad = walks.summed(tf.concat(of_h, axis=2))
    w_x_grad = walks.as_it_was(own.w_x, w_x_grad)
    w_h_grad = weights.gradient(h_before, of_h)
    return walks.rounded(
        [x_grad, *back.first, w_x_grad, w_h_grad, walks.summed(bar), b_h_grad], given.x.dtype
    )


def rnn_gradients(
    given: NamedTuple, attrs: Attrs, gates: Sequence[tf.Tensor | None]
) -> list[tf.Tensor]:
    """The outputs of RNNSequenceGrad: d_h̄ = d_h ∘ (1 − h∘h), or d_h where h > 0; no gates."""
    del gates
    relu = tf.compat.as_str(attrs["activation"]) == "relu"
    own, given = given, _all_given(given, gates=1)
    walk = walks.Walk(_order(attrs), given.h, given.mask, given.sequence_lengths)
    weights = walks.weights_of(given.w_h, given.recurrent_dropout)
    h = walk.read(given.h)

    def bar_of(d_h: tf.Tensor, h: tf.Tensor) -> tf.Tensor:
        return d_h * (tf.cast(h > 0, h.dtype) if relu else 1 - h * h)

    back = walks.walk_back(
        walk,
        lambda states, kept: (weights.onto_state([bar_of(states[0], kept[0])]),),
        last=(walks.optional(given.h_last_grad, walks.zeros(given.h_prev)),),
        cotangents=(walk.cotangent(given.h_grad, given.h),),
        saved=(h,),
    )
    bar = walk.done(bar_of(back.after[0], h))
    x_grad, w_x_grad = walks.input_gradients(walk, given.x, given.w_x, bar)
    w_x_grad = walks.as_it_was(own.w_x, w_x_grad)
    w_h_grad = weights.gradient(walk.before(given.h_prev, given.h), [bar])
    return walks.rounded(
        [x_grad, *back.first, w_x_grad, w_h_grad, walks.summed(bar)], given.x.dtype
    )


def _order(attrs: Attrs) -> walks.Order:
    """The layout of steps in the sequences of an op."""
    return walks.Order(*(attrs[name] for name in walks.Order._fields))


def register(
    name: str,
    fused: Callable[..., Sequence[tf.Tensor]],
    gradients: Callable[[NamedTuple, Attrs, Sequence[tf.Tensor | None]], list[tf.Tensor]],
) -> None:
    """Registers the gradients of an op over whole sequences and of its Grad ops.

    Args:
      name: of the forward op, without the namespace.
      fused: the Grad op.
      gradients: makes the same of its inputs and attrs, for cotangents of the gates as well.
    """
    forward, backward = f"BlockRNN>{name}", f"BlockRNN>{name}Grad"
    call = signatures.Backward(forward, backward, "_grad")
    recompute = "recompute" in call.forward.attrs
    if recompute:
        again = signatures.Backward(forward, f"BlockRNN>{name}RecomputeGrad", "_grad")
    gates_at = [k for k in call.untaken if call.forward.outputs._fields[k] != "span_states"]

    def inputs(call: signatures.Backward, op: tf.Operation, cotangents: Sequence) -> NamedTuple:
        taken = [
            None if k in call.untaken else sequence_util.or_none(cotangent)
            for k, cotangent in enumerate(cotangents)
        ]
        return call.inputs(op, taken)

    @util.register_gradient(forward)
    def first(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        frozen.refuse_gradient(op)
        if "is_training" in call.forward.attrs:
            op = sequence_util.for_training(op)
        if recompute and op.get_attr("recompute"):
            # There are no gates that anything could depend on.
            given, attrs = inputs(again, op, cotangents), again.attrs(op)
            return again.gradients(signatures.call(again.name, given, attrs))
        gates = [cotangents[k] for k in gates_at]
        given, attrs = inputs(call, op, cotangents), call.attrs(op)
        grads = sequence_util.gradients(
            gates, lambda: fused(*given, **attrs), lambda: gradients(given, attrs, gates)
        )
        return call.gradients(grads)

    def of_grad_op(
        op: tf.Operation,
        cotangents: Sequence[tf.Tensor],
        as_given: Callable[[NamedTuple], NamedTuple] = lambda given: given,
        without: Sequence[str] = (),
    ) -> list[tf.Tensor | None]:
        attrs, no_gates = call.attrs(op), [None] * len(gates_at)
        return util.gradient_of_call(
            op,
            cotangents,
            lambda given: gradients(as_given(given), attrs, no_gates),
            without={"recurrent_dropout", *without},
        )

    @util.register_gradient(backward)
    def second(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        return of_grad_op(op, cotangents)

    if not recompute:
        return

    @util.register_gradient(again.name)
    def second_of_recomputed(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        names = set(again.backward.attrs) & set(call.forward.attrs) - {"recompute"}
        attrs = {name: op.get_attr(name) for name in names} | {"is_training": True}

        def with_gates(given: NamedTuple) -> NamedTuple:
            """The inputs of the other Grad op, which depend on those of the forward op alone."""
            of_forward = call.forward.inputs(
                *(getattr(given, name) for name in call.forward.inputs._fields)
            )
            saved = signatures.call(forward, of_forward, attrs)
            none = tensors.none(given.x.dtype)
            return signatures.collect(call.backward.inputs, given, saved, cs_grad=none)

        return of_grad_op(op, cotangents, with_gates, without=("h", "span_states"))
