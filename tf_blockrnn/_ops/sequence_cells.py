"""The cells of the Grad ops over whole sequences in TensorFlow's ops, all steps at once.

What `second_derivatives.py` differentiates. The equations are those of the Grad ops; d_ is the
gradient of what follows, a bar marks a pre-activation, and the bound of an LSTM's cell state is
passed through, as if it were not there.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import sequence_walk as walks
from tf_blockrnn._ops.sequence_zoneout import kept_of

Attrs = Mapping[str, Any]  # of an op
Sequences = Sequence[tf.Tensor]  # [T, B, …] or [B, T, …], in the order in which steps are done
Gates = Sequence[tf.Tensor | None]  # cotangents of saved gates; None for zeros


class Cell(abc.ABC):
    """A call of a Grad op, in the type that it is computed in, all steps at once.

    STATES: the states, which have gradients; h is the name of a cotangent without `_grad`.
    GATES: the number of factors of recurrent dropout.
    """

    STATES: tuple[str, ...] = ("h",)
    GATES: int

    def __init__(self, given: Any, attrs: Attrs) -> None:
        """From the inputs and the attrs of the Grad op."""
        self.given = given
        order = walks.Order(*(attrs[name] for name in walks.Order._fields))
        self.walk = walks.Walk(order, given.h, given.mask, given.sequence_lengths, given.resets)
        self._h_before = self.walk.before(given.h_prev, given.h)

    def _weights_of(self, w_h: tf.Tensor) -> walks.Weights:
        return walks.weights_of(w_h, self.given.recurrent_dropout, self.walk.axis)

    def _cotangents(self, state: str) -> tuple[tf.Tensor, tf.Tensor]:
        """Those of a state after each step as output, and of the last one."""
        given = self.given
        first = getattr(given, f"{state}_prev")
        return (
            self.walk.cotangent(getattr(given, f"{state}_grad"), getattr(given, state)),
            walks.optional(getattr(given, f"{state}_last_grad"), lambda: tf.zeros_like(first)),
        )

    @abc.abstractmethod
    def bars(self, states: Sequences, gates: Gates) -> Any:
        """B: gradients of the pre-activations, from those of the states after each step."""

    @abc.abstractmethod
    def before(self, states: Sequences, bars: Any) -> Sequences:
        """S: those of the states before each step."""

    @abc.abstractmethod
    def solve(self, bar: tf.Tensor) -> Sequences:
        """Those of the states after each step, from those of the GEMMs' results, G·H wide."""

    @abc.abstractmethod
    def gradients(self, states: Sequences, bars: Any) -> dict[str, tf.Tensor]:
        """The op's outputs by name, but for those of the first states."""

    @abc.abstractmethod
    def coefficients(self) -> Sequences:
        """What `push` takes of each step."""

    @abc.abstractmethod
    def push(self, before: Sequences, coefficients: Sequences) -> Sequences:
        """The transpose of S ∘ B of one step: tangents of the states after it."""


class _LSTMBars(NamedTuple):
    """Gradients of the pre-activations in the order of the weights, and of the cell state."""

    i: tf.Tensor
    f: tf.Tensor
    ci: tf.Tensor
    o: tf.Tensor
    cs: tf.Tensor


class LSTM(Cell):
    """LSTMSequenceGrad; the gates are i, cs, f, o and ci, of which cs is also a state.

    d_ō = (d_m ∘ co + d_o) ∘ o(1−o), and so on; m is o ∘ co, and h is m, or m · w_pᵀ.
    """

    STATES = ("h", "cs")
    GATES = 4

    def __init__(self, given: Any, attrs: Attrs) -> None:
        super().__init__(given, attrs)
        self._weights = self._weights_of(given.w_h)
        self._w_p = None if given.w_p.shape.rank == 1 else given.w_p
        self._has_peepholes = given.peepholes.shape.rank != 1
        self._peepholes = tf.unstack(given.peepholes, 3) if self._has_peepholes else [0.0] * 3
        self._cs_before = self.walk.before(given.cs_prev, given.cs)
        self._i, self._cs, self._f, self._o, self._ci = (
            self.walk.read(t) for t in (given.i, given.cs, given.f, given.o, given.ci)
        )
        self._kept_h = kept_of(self.walk, given.zoneout_h, attrs["zoneout_rate_h"], given.h)
        self._kept_cs = kept_of(self.walk, given.zoneout_c, attrs["zoneout_rate_c"], given.cs)
        if self._kept_cs.share is not None:
            self._cs = self._before_zoneout(attrs["cell_clip"])
        self._co = tf.tanh(self._cs)

    def _before_zoneout(self, bound: float) -> tf.Tensor:
        """The new cell state again, of which the op has saved what zoneout left of it."""
        cs = self._ci * self._i + self._f * self._cs_before
        return cs + tf.stop_gradient(tf.clip_by_value(cs, -bound, bound) - cs) if bound > 0 else cs

    def _onto_m(self, d_h: tf.Tensor) -> tf.Tensor:
        return d_h if self._w_p is None else walks.times(d_h, self._w_p)

    def _direct(self, d_m: tf.Tensor, o_bar: tf.Tensor) -> tf.Tensor:
        """The part of the cell state's gradient that does not come from the next step."""
        direct = d_m * self._o * (1 - self._co * self._co)
        return direct + o_bar * self._peepholes[2] if self._has_peepholes else direct

    def bars(self, states: Sequences, gates: Gates) -> _LSTMBars:
        i, f, o, ci = self._i, self._f, self._o, self._ci
        d_h, d_cs = states
        d_i, d_f, d_o, d_ci = gates
        d_m = self._onto_m(self._kept_h.of_new(d_h))
        o_bar = util.plus(d_m * self._co, d_o) * o * (1 - o)
        d_cs = self._kept_cs.of_new(d_cs) + self._direct(d_m, o_bar)
        return _LSTMBars(
            i=util.plus(d_cs * ci, d_i) * i * (1 - i),
            f=util.plus(d_cs * self._cs_before, d_f) * f * (1 - f),
            ci=util.plus(d_cs * i, d_ci) * (1 - ci * ci),
            o=o_bar,
            cs=d_cs,
        )

    def before(self, states: Sequences, bars: _LSTMBars) -> Sequences:
        d_h, d_cs = states
        return (
            self._kept_h.plus(self._weights.onto_state(bars[:4]), d_h),
            self._kept_cs.plus(self._cs_grad_before(bars, bars.cs), d_cs),
        )

    def _cs_grad_before(self, bars: _LSTMBars, d_cs: tf.Tensor) -> tf.Tensor:
        wci, wcf, _ = self._peepholes
        onto = d_cs * self._f
        return onto + bars.i * wci + bars.f * wcf if self._has_peepholes else onto

    def solve(self, bar: tf.Tensor) -> Sequences:
        bars = _LSTMBars(*tf.split(bar, 4, axis=2), cs=bar)
        (own_h, last_h), (own_cs, last_cs) = (self._cotangents(name) for name in self.STATES)
        onto_h = self._weights.onto_state(bars[:4])
        d_h = walks.solve_back(self.walk, self._kept_h.factor(None), onto_h, own_h, last_h)
        d_m = self._onto_m(self._kept_h.of_new(d_h))
        rest = self._cs_grad_before(bars, self._direct(d_m, bars.o))
        of_cs = self._kept_cs.factor(self._f)
        return d_h, walks.solve_back(self.walk, of_cs, rest, own_cs, last_cs)

    def gradients(self, states: Sequences, bars: _LSTMBars) -> dict[str, tf.Tensor]:
        given = self.given
        bar = tf.concat(bars[:4], axis=2)
        x_grad, w_x_grad = walks.input_gradients(self.walk, given.x, given.w_x, bar)
        found = {
            "x_grad": x_grad,
            "w_x_grad": w_x_grad,
            "w_h_grad": self._weights.gradient(self._h_before, bars[:4]),
            "b_grad": walks.summed(bar),
            "peepholes_grad": tf.zeros_like(given.peepholes),
            "w_p_grad": tf.zeros_like(given.w_p),
        }
        if self._has_peepholes:
            through = (bars.i * self._cs_before, bars.f * self._cs_before, bars.o * self._cs)
            found["peepholes_grad"] = tf.stack([walks.summed(weight) for weight in through])
        if self._w_p is not None:
            d_h = self._kept_h.of_new(self.walk.done(states[0]))
            found["w_p_grad"] = util.sum_of_products(d_h, self._o * self._co)
        return found

    def coefficients(self) -> Sequences:
        """Of the bars in the weights' order, of d_cs before and after the step, and of d_m.

        Then the shares of the previous states by zoneout, if any.
        """
        i, f, o, ci = self._i, self._f, self._o, self._ci
        of_i, of_f = ci * i * (1 - i), self._cs_before * f * (1 - f)
        of_ci, of_o = i * (1 - ci * ci), self._co * o * (1 - o)
        of_cs, of_m = f, o * (1 - self._co * self._co)
        if self._has_peepholes:
            wci, wcf, wco = self._peepholes
            of_cs, of_m = of_cs + of_i * wci + of_f * wcf, of_m + of_o * wco
        kept = (*self._kept_h.coefficients(), *self._kept_cs.coefficients())
        return tf.concat([of_i, of_f, of_ci, of_o], axis=2), of_cs, of_m, *kept

    def push(self, before: Sequences, coefficients: Sequences) -> Sequences:
        h, cs = before
        of_bars, of_cs, of_m, *kept = coefficients
        i, f, ci, o = tf.split(of_bars * self._weights.of_state(h, 4), 4, axis=1)
        new_cs = tf.add_n([cs * of_cs, i, f, ci])
        m = o + new_cs * of_m
        new_h = m if self._w_p is None else walks.times(m, self._w_p, transpose=True)
        of_h = len(self._kept_h.coefficients())
        return (
            self._kept_h.pushed(kept[:of_h], h, new_h),
            self._kept_cs.pushed(kept[of_h:], cs, new_cs),
        )


class _GRUBars(NamedTuple):
    r: tf.Tensor
    u: tf.Tensor
    c: tf.Tensor
    state: tf.Tensor  # the gradient of r ∘ h', or of hc


class _GRUCell(Cell):
    """What both forms of the GRU share; of the saved gates r, u and c."""

    GATES = 3

    def __init__(self, given: Any, attrs: Attrs) -> None:
        super().__init__(given, attrs)
        self._reset_first = tf.compat.as_str(attrs["gate_order"]) == "ruc"  # some ops give bytes
        self._weights = self._weights_of(given.w_h)
        self._r, self._u, self._c = (self.walk.read(gate) for gate in (given.r, given.u, given.c))
        self._kept_h = kept_of(self.walk, given.zoneout_h, attrs["zoneout_rate_h"], given.h)

    def _in_order(self, r: tf.Tensor, u: tf.Tensor, *candidate: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """From r, u to the order of the weights, or back; the candidate is the last in both."""
        return (r, u, *candidate) if self._reset_first else (u, r, *candidate)

    @abc.abstractmethod
    def _onto_state(self, c_bar: tf.Tensor) -> tf.Tensor:
        """The gradient `state` of _GRUBars, from that of c̄."""

    @abc.abstractmethod
    def _rest(self, bars: _GRUBars) -> tf.Tensor:
        """The gradient of the state before each step, but for what passes through u."""

    def before(self, states: Sequences, bars: _GRUBars) -> Sequences:
        (d_h,) = states
        return (self._kept_h.plus(self._rest(bars) + self._kept_h.of_new(d_h) * self._u, d_h),)

    def solve(self, bar: tf.Tensor) -> Sequences:
        r, u, c = self._in_order(*tf.split(bar, 3, axis=2))
        rest = self._rest(_GRUBars(r, u, c, self._onto_state(c)))
        of_h = self._kept_h.factor(self._u)
        return (walks.solve_back(self.walk, of_h, rest, *self._cotangents("h")),)


class GRU(_GRUCell):
    """GRUSequenceGrad, whose reset gate acts before the GEMM.

    d_rh = (d_c̄ · w_hᵀ, columns of c), d_r̄ = (d_rh ∘ h' + d_r) ∘ r(1−r)
    """

    def __init__(self, given: Any, attrs: Attrs) -> None:
        super().__init__(given, attrs)
        weights, units = self._weights, util.columns(given.h_prev)
        w_ru, w_c = tf.split(weights.w_h, [2 * units, units], axis=1, num=2)
        of_ru, of_c = weights._replace(w_h=w_ru), weights._replace(w_h=w_c)
        if weights.dropout is not None:
            of_ru = of_ru._replace(dropout=weights.dropout[:2])
            of_c = of_c._replace(dropout=weights.dropout[2:])
        self._of_ru, self._of_c = of_ru, of_c

    def bars(self, states: Sequences, gates: Gates) -> _GRUBars:
        r, u, c = self._r, self._u, self._c
        (d_h,), (d_r, d_u, d_c) = states, gates
        d_h = self._kept_h.of_new(d_h)
        c_bar = util.plus(d_h * (1 - u), d_c) * (1 - c * c)
        d_rh = self._onto_state(c_bar)
        return _GRUBars(
            r=util.plus(d_rh * self._h_before, d_r) * r * (1 - r),
            u=util.plus(d_h * (self._h_before - c), d_u) * u * (1 - u),
            c=c_bar,
            state=d_rh,
        )

    def _onto_state(self, c_bar: tf.Tensor) -> tf.Tensor:
        return self._of_c.onto_state([c_bar])

    def _rest(self, bars: _GRUBars) -> tf.Tensor:
        return self._of_ru.onto_state(self._in_order(bars.r, bars.u)) + bars.state * self._r

    def gradients(self, states: Sequences, bars: _GRUBars) -> dict[str, tf.Tensor]:
        del states
        bar = tf.concat(self._in_order(*bars[:3]), axis=2)
        x_grad, w_x_grad = walks.input_gradients(self.walk, self.given.x, self.given.w_x, bar)
        of_ru = self._of_ru.gradient(self._h_before, self._in_order(bars.r, bars.u))
        of_c = self._of_c.gradient(self._h_before * self._r, [bars.c])
        return {
            "x_grad": x_grad,
            "w_x_grad": w_x_grad,
            "w_h_grad": tf.concat([of_ru, of_c], axis=1),
            "b_grad": walks.summed(bar),
        }

    def coefficients(self) -> Sequences:
        """Factors for r̄ and ū in that order, c̄, the paths around r and u, and zoneout."""
        r, u, c = self._r, self._u, self._c
        of_r, of_u = self._h_before * r * (1 - r), (self._h_before - c) * u * (1 - u)
        return of_r, of_u, (1 - u) * (1 - c * c), r, u, *self._kept_h.coefficients()

    def push(self, before: Sequences, coefficients: Sequences) -> Sequences:
        (h,), (of_r, of_u, of_c, r, u, *kept) = before, coefficients
        r_bar, u_bar = self._in_order(*tf.split(self._of_ru.of_state(h, 2), 2, axis=1))
        c_bar = self._of_c.of_state(h * r + r_bar * of_r, 1)
        return (self._kept_h.pushed(kept, h, tf.add_n([h * u, u_bar * of_u, c_bar * of_c])),)


class GRUAfter(_GRUCell):
    """GRUAfterSequenceGrad, whose reset gate acts after the GEMM; saved is also hc.

    d_hc = d_c̄ ∘ r + own, d_r̄ = (d_c̄ ∘ hc + d_r) ∘ r(1−r)
    """

    def __init__(self, given: Any, attrs: Attrs) -> None:
        super().__init__(given, attrs)
        self._hc = self.walk.read(given.hc)

    def bars(self, states: Sequences, gates: Gates) -> _GRUBars:
        r, u, c = self._r, self._u, self._c
        (d_h,), (d_r, d_u, d_c, d_hc) = states, gates
        d_h = self._kept_h.of_new(d_h)
        c_bar = util.plus(d_h * (1 - u), d_c) * (1 - c * c)
        return _GRUBars(
            r=util.plus(c_bar * self._hc, d_r) * r * (1 - r),
            u=util.plus(d_h * (self._h_before - c), d_u) * u * (1 - u),
            c=c_bar,
            state=util.plus(self._onto_state(c_bar), d_hc),
        )

    def _onto_state(self, c_bar: tf.Tensor) -> tf.Tensor:
        return c_bar * self._r

    def _rest(self, bars: _GRUBars) -> tf.Tensor:
        return self._weights.onto_state(self._in_order(bars.r, bars.u, bars.state))

    def gradients(self, states: Sequences, bars: _GRUBars) -> dict[str, tf.Tensor]:
        del states
        of_x = tf.concat(self._in_order(*bars[:3]), axis=2)
        of_h = self._in_order(bars.r, bars.u, bars.state)
        x_grad, w_x_grad = walks.input_gradients(self.walk, self.given.x, self.given.w_x, of_x)
        return {
            "x_grad": x_grad,
            "w_x_grad": w_x_grad,
            "w_h_grad": self._weights.gradient(self._h_before, of_h),
            "b_x_grad": walks.summed(of_x),
            "b_h_grad": walks.summed(tf.concat(of_h, axis=2)),
        }

    def coefficients(self) -> Sequences:
        """Factors for the bars in the weights' order, the path around u, and zoneout."""
        r, u, c = self._r, self._u, self._c
        of_c = (1 - u) * (1 - c * c)
        of_r, of_u = of_c * self._hc * r * (1 - r), (self._h_before - c) * u * (1 - u)
        of_bars = tf.concat(self._in_order(of_r, of_u, of_c * r), axis=2)
        return of_bars, u, *self._kept_h.coefficients()

    def push(self, before: Sequences, coefficients: Sequences) -> Sequences:
        (h,), (of_bars, u, *kept) = before, coefficients
        bars = tf.split(of_bars * self._weights.of_state(h, 3), 3, axis=1)
        return (self._kept_h.pushed(kept, h, tf.add_n([h * u, *bars])),)


class _RNNBars(NamedTuple):
    h: tf.Tensor


class RNN(Cell):
    """RNNSequenceGrad: d_h̄ = d_h ∘ (1 − h∘h), or d_h where h > 0; no gates."""

    GATES = 1

    def __init__(self, given: Any, attrs: Attrs) -> None:
        super().__init__(given, attrs)
        self._weights = self._weights_of(given.w_h)
        h = self.walk.read(given.h)
        relu = tf.compat.as_str(attrs["activation"]) == "relu"
        self._slope = tf.cast(h > 0, h.dtype) if relu else 1 - h * h

    def bars(self, states: Sequences, gates: Gates) -> _RNNBars:
        del gates
        return _RNNBars(states[0] * self._slope)

    def before(self, states: Sequences, bars: _RNNBars) -> Sequences:
        del states
        return (self._weights.onto_state(bars),)

    def solve(self, bar: tf.Tensor) -> Sequences:
        rest = self._weights.onto_state([bar])
        return (walks.solve_back(self.walk, None, rest, *self._cotangents("h")),)

    def gradients(self, states: Sequences, bars: _RNNBars) -> dict[str, tf.Tensor]:
        del states
        x_grad, w_x_grad = walks.input_gradients(self.walk, self.given.x, self.given.w_x, bars.h)
        return {
            "x_grad": x_grad,
            "w_x_grad": w_x_grad,
            "w_h_grad": self._weights.gradient(self._h_before, bars),
            "b_grad": walks.summed(bars.h),
        }

    def coefficients(self) -> Sequences:
        return (self._slope,)

    def push(self, before: Sequences, coefficients: Sequences) -> Sequences:
        return (self._weights.of_state(before[0], 1) * coefficients[0],)
