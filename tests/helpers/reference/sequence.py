"""Whole sequences: a cell over the steps of a batch, forward and backward.

Arrays of a sequence are [T, B, …] in the order of time; weights have a column for each gate and
unit. What the layouts of memory make of them is the caller's. Only steps that count are computed,
and nothing is read of the others: those past a row's length give zeros, a masked one carries the
state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from . import gru, layer_norm, lstm, simple_rnn

_NORMS = ("gamma_x", "beta_x", "gamma_h", "beta_h", "gamma_c", "beta_c")
_INPUTS = (
    *("x", "w_x", "w_h", "w_p", "b", "b_x", "b_h", "wci", "wcf", "wco", "h_prev", "cs_prev"),
    *_NORMS,
)
_PEEPHOLES = ("wci", "wcf", "wco")
_INITIAL = {"h": "h_prev", "cs": "cs_prev"}
_DRAWS = {"h": "zoneout_h", "cs": "zoneout_c"}  # [T, B, …], where a state stays as it was
_BOOLS = ("mask", "resets", *_DRAWS.values())


@dataclasses.dataclass(frozen=True)
class Options:
    """A call without its numbers."""

    gates: tuple[str, ...]  # in the order of the weights
    backwards: bool = False
    lengths: tuple[int, ...] | None = None
    skip_input: bool = False  # x is added to every gate
    projected_input: bool = False  # x has a column for each gate and unit
    forget_bias: float = 0.0
    cell_clip: float = 0.0
    epsilon: float = 1e-3
    norm_output_only: bool = False
    zoneout_rates: tuple[float, ...] = (0.0, 0.0)  # of the means of h and cs, without draws
    relu: bool = False
    identity: bool = False  # forward alone: activations that do nothing
    stored: Callable = lambda h: h  # how a simple RNN's state is rounded
    multiplied: Callable = lambda h: h  # how the state is rounded for a step's GEMM alone


class _Cell:
    """What all cells share: the GEMMs of a step, and their gradients.

    `rows` are the rows of the batch that a step computes; arrays of a step have those rows only.
    """

    saved: tuple[str, ...] = ()
    unrounded: tuple[str, ...] = ()  # further outputs of the reference, which no op has
    states: tuple[str, ...] = ("h",)
    input_bias: str | None = "b"
    state_bias: str | None = "b_h"

    @staticmethod
    def saved_width(name: str, units: int) -> int:
        """The width of what is saved under a name."""
        return units

    def __init__(self, values: Mapping, options: Options, grads: Mapping | None = None):
        self.values, self.options, self.grads = values, options, grads
        self.units = values["w_h"].shape[1] // len(options.gates)
        self.columns = {
            gate: slice(n * self.units, (n + 1) * self.units)
            for n, gate in enumerate(options.gates)
        }
        self._from_x = values["x"]
        if grads is None and "w_x" in values:
            with np.errstate(invalid="ignore", over="ignore"):  # in what no step reads
                self._from_x = values["x"] @ values["w_x"]
        self._whole_x = options.skip_input

    def from_x(self, t, rows) -> dict:
        """What the input and the input's bias give to each gate."""
        x = self._from_x[t, rows]
        bias = self.values.get(self.input_bias, np.zeros(len(self.columns) * self.units))
        return {
            gate: (x if self._whole_x else x[:, columns]) + bias[columns]
            for gate, columns in self.columns.items()
        }

    def from_h(self, h, rows, gates=None) -> dict:
        """What the state and the state's bias give to some gates, by default to all."""
        bias = self.values.get(self.state_bias, np.zeros(len(self.columns) * self.units))
        found, multiplied = {}, self.options.multiplied
        for gate in gates or self.columns:
            columns = self.columns[gate]
            operand = multiplied(multiplied(h) * self._dropout(gate, rows))
            found[gate] = operand @ self.values["w_h"][:, columns] + bias[columns]
        return found

    def _dropout(self, gate, rows):
        factors = self.values.get("recurrent_dropout")
        return 1.0 if factors is None else factors[self.options.gates.index(gate), rows]

    def to_x(self, t, rows, d_bars) -> None:
        """Adds to the gradients of x and w_x."""
        for gate, d in d_bars.items():
            columns = self.columns[gate]
            if self.options.skip_input:
                self.grads["x"][t, rows] += d
            elif self.options.projected_input:
                self.grads["x"][t, rows, columns] += d
            else:
                self.grads["x"][t, rows] += d @ self.values["w_x"][:, columns].T
                self.grads["w_x"][:, columns] += self.values["x"][t, rows].T @ d

    def to_h(self, h, rows, d_bars) -> np.ndarray:
        """Adds to the gradient of w_h; what reaches h through the recurrent weights."""
        d_h = np.zeros_like(h)
        for gate, d in d_bars.items():
            columns, factors = self.columns[gate], self._dropout(gate, rows)
            d_h += factors * (d @ self.values["w_h"][:, columns].T)
            self.grads["w_h"][:, columns] += (h * factors).T @ d
        return d_h

    def kept(self, state, t, rows):
        """The share of a state that zoneout leaves as it was before step t."""
        draws = self.values.get(_DRAWS[state])
        rate = self.options.zoneout_rates[list(_DRAWS).index(state)]
        return rate if draws is None else draws[t, rows].astype(np.float64)

    def to_bias(self, name, d_bars) -> None:
        for gate, d in d_bars.items() if name in self.grads else ():
            self.grads[name][self.columns[gate]] += d.sum(axis=0)


class _Lstm(_Cell):
    saved = lstm.SAVED
    states = ("h", "cs")

    def _peepholes(self):
        return tuple(self.values[n] for n in _PEEPHOLES) if "wci" in self.values else None

    def step(self, t, rows, h, cs):
        from_x, from_h = self.from_x(t, rows), self.from_h(h, rows)
        options = self.options
        saved = lstm.forward(
            {gate: from_x[gate] + from_h[gate] for gate in self.columns},
            cs,
            peepholes=self._peepholes(),
            forget_bias=options.forget_bias,
            cell_clip=options.cell_clip,
            identity=options.identity,
        )
        m = saved["o"] * saved["co"]
        h = options.multiplied(m) @ self.values["w_p"].T if "w_p" in self.values else m
        return (h, saved["cs"]), saved

    def step_backward(self, t, rows, before, saved, grads):
        h, cs = before
        if np.any(self.kept("cs", t, rows)):
            # What is saved is the cell state after zoneout.
            new = saved["ci"] * saved["i"] + cs * saved["f"]
            bound = self.options.cell_clip
            new = np.clip(new, -bound, bound) if bound > 0 else new
            saved |= {"cs": new, "co": np.tanh(new)}
        d_h = grads.pop("h")
        grads["m"] = d_h
        if "w_p" in self.values:
            grads["m"] = d_h @ self.values["w_p"]
            self.grads["w_p"] += d_h.T @ (saved["o"] * saved["co"])
        d_bars, d_cs, d_peepholes = lstm.backward(saved, cs, grads, peepholes=self._peepholes())
        for name, d in zip(_PEEPHOLES, d_peepholes, strict=False):
            self.grads[name] += d
        self.to_x(t, rows, d_bars)
        self.to_bias("b", d_bars)
        return self.to_h(h, rows, d_bars), d_cs


class _GruAfter(_Cell):
    saved = gru.SAVED_AFTER
    input_bias = "b_x"

    def step(self, t, rows, h):
        saved = gru.forward_after(
            self.from_x(t, rows), self.from_h(h, rows), h, identity=self.options.identity
        )
        return (saved.pop("h"),), saved

    def step_backward(self, t, rows, before, saved, grads):
        (h,) = before
        d_from_x, d_from_h, d_h = gru.backward_after(saved, h, grads)
        self.to_x(t, rows, d_from_x)
        self.to_bias("b_x", d_from_x)
        self.to_bias("b_h", d_from_h)
        return (self.to_h(h, rows, d_from_h) + d_h,)


class _GruBefore(_Cell):
    saved = gru.SAVED_BEFORE
    input_bias = "b_x"

    def step(self, t, rows, h):
        from_x, from_h = self.from_x(t, rows), self.from_h(h, rows, "ru")
        saved = gru.forward_before(
            {gate: from_x[gate] + from_h[gate] for gate in "ru"},
            lambda hr: from_x["c"] + self.from_h(hr, rows, "c")["c"],
            h,
            identity=self.options.identity,
        )
        return (saved.pop("h"),), saved

    def step_backward(self, t, rows, before, saved, grads):
        (h,) = before
        d_bars, d_h = gru.backward_before(
            saved, h, grads, lambda d: self.to_h(saved["r"] * h, rows, {"c": d})
        )
        self.to_x(t, rows, d_bars)
        self.to_bias("b_x", d_bars)
        return (self.to_h(h, rows, {gate: d_bars[gate] for gate in "ru"}) + d_h,)


class _SimpleRnn(_Cell):
    # The state before it was rounded, of which the activation's derivative is taken where it is
    # given: near 1, what tanh lacks of 1 is far smaller than what rounding changes.
    unrounded = ("h_unrounded",)

    def step(self, t, rows, h):
        h_bar = self.from_x(t, rows)["h"] + self.from_h(h, rows)["h"]
        options = self.options
        h = simple_rnn.forward(h_bar, relu=options.relu, identity=options.identity)
        return (options.stored(h),), {"h_unrounded": h}

    def step_backward(self, t, rows, before, saved, grads):
        h = self.values.get("h_unrounded", self.values["h"])[t, rows]
        d_bars = {"h": simple_rnn.backward(h, grads["h"], relu=self.options.relu)}
        self.to_x(t, rows, d_bars)
        self.to_bias("b", d_bars)
        return (self.to_h(before[0], rows, d_bars),)


class _LayerNorm(_Cell):
    """What the cells with norms of x · w_x and of h · w_h share; backward uses the saved norms."""

    input_bias = state_bias = None  # behind the norms

    def _norms(self, t, rows, h):
        """Both normalised rows, and their reciprocal deviations."""
        of_x, of_h = self.from_x(t, rows), self.from_h(h, rows)
        return tuple(
            layer_norm.normalized(np.concatenate(list(of.values()), axis=-1), self.options.epsilon)
            for of in (of_x, of_h)
        )

    @staticmethod
    def _to_save(norms) -> dict:
        (x_hat, x_rstd), (h_hat, h_rstd) = norms
        return {"x_hat": x_hat, "h_hat": h_hat, "rstd": np.concatenate([x_rstd, h_rstd], axis=-1)}

    @staticmethod
    def _saved_norms(saved):
        rstd = saved["rstd"]
        return (saved["x_hat"], rstd[:, :1]), (saved["h_hat"], rstd[:, 1:])

    def _by_gate(self, row):
        return {gate: row[:, where] for gate, where in self.columns.items()}

    def _add(self, found):
        for name, value in found.items():
            self.grads[name] += value


class _LayerNormLstm(_LayerNorm):
    saved = ("x_hat", "h_hat", "rstd", "cs")
    states = ("h", "cs")

    @staticmethod
    def saved_width(name: str, units: int) -> int:
        return {"x_hat": 4 * units, "h_hat": 4 * units, "rstd": 2}.get(name, units)

    def _forward(self, norms, cs):
        options = self.options
        return layer_norm.lstm_forward(
            *(*norms, cs, self.values, self.columns),
            *(options.epsilon, options.norm_output_only),
        )

    def step(self, t, rows, h, cs):
        norms = self._norms(t, rows, h)
        h, cs, _ = self._forward(norms, cs)
        return (h, cs), self._to_save(norms) | {"cs": cs}

    def step_backward(self, t, rows, before, saved, grads):
        forward = self._forward(self._saved_norms(saved), before[1])[-1]
        d_x, d_h, d_cs, found = layer_norm.lstm_backward(
            forward,
            *(grads["h"], grads["cs"], self.values, self.columns),
            self.options.norm_output_only,
        )
        self._add(found)
        self.to_x(t, rows, self._by_gate(d_x))
        return self.to_h(before[0], rows, self._by_gate(d_h)), d_cs


class _LayerNormGru(_LayerNorm):
    saved = ("x_hat", "h_hat", "rstd")

    @staticmethod
    def saved_width(name: str, units: int) -> int:
        return 2 if name == "rstd" else 3 * units

    def step(self, t, rows, h):
        norms = self._norms(t, rows, h)
        h, _ = layer_norm.gru_forward(*norms, h, self.values, self.columns)
        return (h,), self._to_save(norms)

    def step_backward(self, t, rows, before, saved, grads):
        (h,) = before
        norms = self._saved_norms(saved)
        forward = layer_norm.gru_forward(*norms, h, self.values, self.columns)[-1]
        d_x, d_h, d_h_prev, found = layer_norm.gru_backward(
            forward, grads["h"], self.values, self.columns
        )
        self._add(found)
        self.to_x(t, rows, self._by_gate(d_x))
        return (self.to_h(h, rows, self._by_gate(d_h)) + d_h_prev,)


CELLS = {
    "rnn": _SimpleRnn,
    "lstm": _Lstm,
    "gru": _GruBefore,
    "gru_after": _GruAfter,
    "layer_norm_gru": _LayerNormGru,
    "layer_norm_lstm": _LayerNormLstm,
}


def saved_names(cell: str) -> tuple[str, ...]:
    return CELLS[cell].saved


def saved_shapes(cell: str, dims: tuple[int, int, int]) -> dict[str, tuple[int, int, int]]:
    """Of what is saved for backward, by name; dims are T, B and H."""
    steps, batch, units = dims
    kind = CELLS[cell]
    return {name: (steps, batch, kind.saved_width(name, units)) for name in kind.saved}


def _f64(values: Mapping) -> dict:
    return {k: np.asarray(v).astype(bool if k in _BOOLS else np.float64) for k, v in values.items()}


class _Steps:
    """The steps of a batch in their order: which rows are valid at each, which are masked."""

    def __init__(self, values: Mapping, options: Options):
        steps, batch = values["x"].shape[:2]
        lengths = np.full(batch, steps) if options.lengths is None else np.array(options.lengths)
        self._lengths, self._step = lengths.astype(int), -1 if options.backwards else 1
        self._mask = values.get("mask", np.ones((steps, batch), bool))
        self._resets = values.get("resets", np.zeros((steps, batch), bool))
        self.times = list(range(steps))[:: self._step]

    def valid(self, t: int) -> np.ndarray:
        return np.flatnonzero(t < self._lengths)

    def computed(self, t: int) -> np.ndarray:
        return np.flatnonzero((t < self._lengths) & self._mask[t])

    def beginning(self, t: int) -> np.ndarray:
        """The valid rows in which a reset lies between step t and the step done before it."""
        rows = self.valid(t)
        if self._step > 0:
            return rows[self._resets[t, rows]]
        rows = rows[t + 1 < self._lengths[rows]]
        return rows[self._resets[t + 1, rows]] if rows.size else rows

    def before(self, t: int, rows, sequence, initial) -> np.ndarray:
        """A state as it is when step t begins; `sequence` has it after each step."""
        last = t - self._step  # the step before, of rows that have it
        has = (last >= 0) & (last < self._lengths[rows])
        found = initial[rows].copy()
        found[has] = sequence[last, rows[has]] if has.any() else 0.0
        found[np.isin(rows, self.beginning(t))] = 0.0
        return found


def states_before(values: Mapping, options: Options) -> np.ndarray:
    """[T, B, P]: h as each step reads it, of `values` that have h; zeros where there is no step."""
    values = _f64(values)
    order, found = _Steps(values, options), np.zeros_like(values["h"])
    for t in order.times:
        rows = order.computed(t)
        found[t, rows] = order.before(t, rows, values["h"], values["h_prev"])
    return found


def _part(share, values):
    """share · values, nothing of what is infinite where the share is 0."""
    return np.where(share == 0, 0.0, share * values)


def forward(cell: str, values: Mapping, options: Options) -> dict[str, np.ndarray]:
    """h, what is saved for backward, and the last states, by name; of a simple RNN h_unrounded."""
    kind, values = CELLS[cell], _f64(values)
    steps, batch = values["x"].shape[:2]
    width, units = values["w_h"].shape[0], values["w_h"].shape[1] // len(options.gates)
    out = {name: np.zeros(s) for name, s in saved_shapes(cell, (steps, batch, units)).items()}
    out |= {name: np.zeros((steps, batch, units)) for name in kind.unrounded}
    out["h"] = np.zeros((steps, batch, width))
    state = {name: values[_INITIAL[name]].copy() for name in kind.states}
    running, order = kind(values, options), _Steps(values, options)
    for t in order.times:
        for name in kind.states:
            state[name][order.beginning(t)] = 0.0
        rows = order.computed(t)
        new, saved = running.step(t, rows, *(state[name][rows] for name in kind.states))
        for name, value in zip(kind.states, new, strict=True):
            kept = running.kept(name, t, rows)
            state[name][rows] = _part(kept, state[name][rows]) + _part(1 - kept, value)
        for name, value in saved.items():
            out[name][t, rows] = value
        valid = order.valid(t)
        for name in kind.states:
            out[name][t, valid] = state[name][valid]
    return out | {f"{name}_last": value for name, value in state.items()}


def backward(cell: str, values: Mapping, options: Options) -> dict[str, np.ndarray]:
    """Gradients by the names of the inputs.

    `values` has the forward's inputs and outputs, and the gradients of outputs under their names
    with _grad: of h, of what is saved, of h_last and cs_last. A missing one counts as zeros.
    """
    kind, values = CELLS[cell], _f64(values)
    grads = {name: np.zeros_like(values[name]) for name in _INPUTS if name in values}
    if cell not in ("gru_after", "layer_norm_gru"):
        grads.pop("b_h", None)  # the same as that of the input's bias
    running, order = kind(values, options, grads), _Steps(values, options)
    given = [name for name in {*kind.saved, "h"} if f"{name}_grad" in values]
    carried = {}
    for name in kind.states:
        initial = values[_INITIAL[name]]
        carried[name] = values.get(f"{name}_last_grad", np.zeros_like(initial)).copy()
    for t in reversed(order.times):
        valid, rows = order.valid(t), order.computed(t)
        # A masked step hands on what reaches its state, and nothing else.
        for name in kind.states:
            if name in given:
                carried[name][valid] += values[f"{name}_grad"][t, valid]
        of_step = {n: values[f"{n}_grad"][t, rows] for n in given if n not in kind.states}
        kept = {name: running.kept(name, t, rows) for name in kind.states}
        of_step |= {name: _part(1 - kept[name], carried[name][rows]) for name in kind.states}
        before = tuple(
            order.before(t, rows, values[name], values[_INITIAL[name]]) for name in kind.states
        )
        saved = {name: values[name][t, rows] for name in kind.saved}
        for name, value in zip(
            kind.states, running.step_backward(t, rows, before, saved, of_step), strict=True
        ):
            carried[name][rows] = value + _part(kept[name], carried[name][rows])
        for name in kind.states:
            carried[name][order.beginning(t)] = 0.0
    for name, value in carried.items():
        grads[_INITIAL[name]][...] = value
    return grads
