"""The oracle of check_sequences.py: whole sequences in NumPy float64, one row and step at a time.

Written from the argument structs of cc/core/sequence_args.h and the equations of the op contracts.
Arrays of a sequence are [T, B, …] in the order of time; weights have a column for each gate and
unit. What the layouts of memory make of them is sequences.py's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np


def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


@dataclasses.dataclass(frozen=True)
class Options:
    """What a call is but for its numbers."""

    gates: tuple[str, ...]  # in the order of the weights
    backwards: bool = False
    lengths: tuple[int, ...] | None = None
    skip_input: bool = False
    projected_input: bool = False
    forget_bias: float = 0.0
    cell_clip: float = 0.0
    relu: bool = False
    identity: bool = False  # forward alone: activations that do nothing
    stored: Callable = lambda h: h  # how a simple RNN's state is rounded
    multiplied: Callable = lambda h: h  # how the state is rounded for a step's product alone


class _Row:
    """One row of the batch: views of the arguments, and what all cells share."""

    def __init__(self, values, options: Options, b: int):
        self.values, self.options, self.b = values, options, b
        steps = len(values["x"])
        length = steps if options.lengths is None else options.lengths[b]
        self.times = list(range(length))[:: -1 if options.backwards else 1]
        self.units = values["w_h"].shape[1] // len(options.gates)

    def part(self, name: str, gate: str):
        """The columns of a gate."""
        at = self.options.gates.index(gate) * self.units
        return self.values[name][..., at : at + self.units]

    def skipped(self, t: int) -> bool:
        mask = self.values.get("mask")
        return mask is not None and not mask[t, self.b]

    def factors(self, gate: str):
        dropout = self.values.get("recurrent_dropout")
        return 1.0 if dropout is None else dropout[self.options.gates.index(gate), self.b]

    def from_x(self, t: int, gate: str):
        x = self.values["x"][t, self.b]
        if self.options.skip_input:
            return x
        if self.options.projected_input:
            at = self.options.gates.index(gate) * self.units
            return x[at : at + self.units]
        return x @ self.part("w_x", gate)

    def bias(self, name: str, gate: str):
        return self.part(name, gate) if name in self.values else 0.0

    def from_h(self, h, gate: str):
        return self.options.multiplied(h * self.factors(gate)) @ self.part("w_h", gate)

    def gate(self, bar):
        return bar if self.options.identity else _sigmoid(bar)

    def candidate(self, bar):
        return bar if self.options.identity else np.tanh(bar)

    def to_x(self, grads, t, dz):
        for gate, d in dz.items():
            at = self.options.gates.index(gate) * self.units
            columns = slice(at, at + self.units)
            if self.options.skip_input:
                grads["x"][t, self.b] += d
            elif self.options.projected_input:
                grads["x"][t, self.b, columns] += d
            else:
                grads["x"][t, self.b] += self.values["w_x"][:, columns] @ d
                grads["w_x"][:, columns] += np.outer(self.values["x"][t, self.b], d)

    def to_h(self, grads, h, dz):
        """What reaches h through the recurrent weights of some gates."""
        d_h = np.zeros_like(h)
        for gate, d in dz.items():
            at = self.options.gates.index(gate) * self.units
            columns = slice(at, at + self.units)
            d_h += self.factors(gate) * (self.values["w_h"][:, columns] @ d)
            grads["w_h"][:, columns] += np.outer(h * self.factors(gate), d)
        return d_h

    def to_bias(self, grads, name, dz):
        for gate, d in dz.items():
            at = self.options.gates.index(gate) * self.units
            grads[name][at : at + self.units] += d


class _LstmRow(_Row):
    saved = ("i", "cs", "f", "o", "ci", "co")
    states = ("h", "cs")

    def peephole(self, name):
        return self.values.get(name, 0.0)

    def step(self, t, h, cs):
        bar = {
            gate: self.from_x(t, gate)
            + self.bias("b", gate)
            + self.bias("b_h", gate)
            + self.from_h(h, gate)
            for gate in self.options.gates
        }
        i, f = bar["i"], bar["f"] + self.options.forget_bias
        if "wci" in self.values:
            i, f = i + cs * self.values["wci"], f + cs * self.values["wcf"]
        i, f, ci = self.gate(i), self.gate(f), self.candidate(bar["ci"])
        new = i * ci + f * cs
        if self.options.cell_clip > 0:
            new = np.clip(new, -self.options.cell_clip, self.options.cell_clip)
        o = bar["o"] + new * self.values["wco"] if "wco" in self.values else bar["o"]
        o, co = self.gate(o), self.candidate(new)
        m = o * co
        h = self.values["w_p"] @ self.options.multiplied(m) if "w_p" in self.values else m
        return (h, new), {"i": i, "cs": new, "f": f, "o": o, "ci": ci, "co": co}

    def skip(self, h, cs):
        zero = np.zeros(self.units)
        return {name: cs if name == "cs" else zero for name in self.saved}

    def back(self, grads, t, before, saved, d_h, d_cs):
        h, cs_before = before
        d_m = d_h
        if "w_p" in self.values:
            d_m = d_h @ self.values["w_p"]
            grads["w_p"] += np.outer(d_h, saved["o"] * saved["co"])
        i, cs, f, o, ci, co = (saved[name] for name in self.saved)
        d_o = d_m * co * o * (1 - o)
        d_cs = d_cs + d_m * o * (1 - co**2) + d_o * self.peephole("wco")
        dz = {
            "i": d_cs * ci * i * (1 - i),
            "ci": d_cs * i * (1 - ci**2),
            "f": d_cs * cs_before * f * (1 - f),
            "o": d_o,
        }
        if "wci" in self.values:
            grads["wci"] += dz["i"] * cs_before
            grads["wcf"] += dz["f"] * cs_before
            grads["wco"] += d_o * cs
        d_cs = d_cs * f + dz["i"] * self.peephole("wci") + dz["f"] * self.peephole("wcf")
        self.to_x(grads, t, dz)
        self.to_bias(grads, "b", dz)
        return self.to_h(grads, h, dz), d_cs


class _GruRow(_Row):
    states = ("h",)

    def skip(self, h):
        return {name: np.zeros(self.units) for name in self.saved}

    def bars(self, t, h, gates):
        return [
            self.from_x(t, gate)
            + self.bias("b_x", gate)
            + self.bias("b_h", gate)
            + self.from_h(h, gate)
            for gate in gates
        ]


class _GruAfterRow(_GruRow):
    saved = ("r", "u", "c", "hc")

    def step(self, t, h):
        r, u = (self.gate(v) for v in self.bars(t, h, "ru"))
        hc = self.from_h(h, "c") + self.bias("b_h", "c")
        c = self.candidate(self.from_x(t, "c") + self.bias("b_x", "c") + r * hc)
        return ((1 - u) * c + u * h,), {"r": r, "u": u, "c": c, "hc": hc}

    def back(self, grads, t, before, saved, d_h):
        (h,) = before
        r, u, c, hc = (saved[name] for name in self.saved)
        d_c = d_h * (1 - u) * (1 - c**2)
        dz = {"r": d_c * hc * r * (1 - r), "u": d_h * (h - c) * u * (1 - u), "c": d_c}
        self.to_x(grads, t, dz)
        self.to_bias(grads, "b_x", dz)
        dz["c"] = d_c * r
        self.to_bias(grads, "b_h", dz)
        return (self.to_h(grads, h, dz) + d_h * u,)


class _GruBeforeRow(_GruRow):
    saved = ("r", "u", "c")

    def step(self, t, h):
        r, u = (self.gate(v) for v in self.bars(t, h, "ru"))
        c = self.candidate(self.from_x(t, "c") + self.bias("b_x", "c") + self.from_h(r * h, "c"))
        return ((1 - u) * c + u * h,), {"r": r, "u": u, "c": c}

    def back(self, grads, t, before, saved, d_h):
        (h,) = before
        r, u, c = (saved[name] for name in self.saved)
        d_c = d_h * (1 - u) * (1 - c**2)
        d_hr = self.to_h(grads, r * h, {"c": d_c})
        dz = {"r": d_hr * h * r * (1 - r), "u": d_h * (h - c) * u * (1 - u)}
        d_before = self.to_h(grads, h, dz) + d_hr * r + d_h * u
        dz["c"] = d_c
        self.to_x(grads, t, dz)
        self.to_bias(grads, "b_x", dz)
        return (d_before,)


class _RnnRow(_Row):
    saved = ()
    states = ("h",)

    def step(self, t, h):
        bar = self.from_x(t, "h") + self.bias("b", "h") + self.bias("b_h", "h")
        bar = bar + self.from_h(h, "h")
        act = np.maximum(bar, 0) if self.options.relu else self.candidate(bar)
        return (self.options.stored(act),), {}

    def skip(self, h):
        return {}

    def back(self, grads, t, before, saved, d_h):
        h = self.values["h"][t, self.b]
        dz = {"h": np.where(h > 0, d_h, 0.0) if self.options.relu else d_h * (1 - h**2)}
        self.to_x(grads, t, dz)
        self.to_bias(grads, "b", dz)
        return (self.to_h(grads, before[0], dz),)


CELLS = {"rnn": _RnnRow, "lstm": _LstmRow, "gru": _GruBeforeRow, "gru_after": _GruAfterRow}
_INITIAL = {"h": "h_prev", "cs": "cs_prev"}


def saved_names(cell: str) -> tuple[str, ...]:
    return CELLS[cell].saved


def state_names(cell: str) -> tuple[str, ...]:
    return CELLS[cell].states


def forward(cell: str, values, options: Options) -> dict[str, np.ndarray]:
    """h, what is saved, and the last states, by name."""
    kind = CELLS[cell]
    steps, batch = values["x"].shape[:2]
    width, units = values["w_h"].shape[0], values["w_h"].shape[1] // len(options.gates)
    out = {name: np.zeros((steps, batch, units)) for name in kind.saved}
    out["h"] = np.zeros((steps, batch, width))
    for name in kind.states:
        out[name + "_last"] = values[_INITIAL[name]].copy()
    for b in range(batch):
        row = kind(values, options, b)
        state = tuple(values[_INITIAL[name]][b] for name in kind.states)
        for t in row.times:
            if row.skipped(t):
                saved = row.skip(*state)
            else:
                state, saved = row.step(t, *state)
            out["h"][t, b] = state[0]
            for name, value in saved.items():
                out[name][t, b] = value
        for name, value in zip(kind.states, state, strict=True):
            out[name + "_last"][b] = value
    return out


def backward(cell: str, values, options: Options) -> dict[str, np.ndarray]:
    """Gradients by the names of the inputs. `values` has the forward's outputs, and the gradients
    of h, cs, h_last and cs_last under those names with _grad; what is missing counts as zeros."""
    kind = CELLS[cell]
    inputs = ("x", "w_x", "w_h", "w_p", "b", "b_x", "b_h", "wci", "wcf", "wco", "h_prev", "cs_prev")
    grads = {name: np.zeros_like(values[name]) for name in inputs if name in values}
    if cell in ("rnn", "lstm"):
        grads.pop("b_h", None)  # the same as that of b
    for b in range(values["x"].shape[1]):
        row = kind(values, options, b)

        def given(name, where, like):
            array = values.get(name)
            return np.zeros_like(like) if array is None else array[where]

        first = tuple(values[_INITIAL[name]][b] for name in kind.states)
        carried = [
            given(f"{name}_last_grad", b, like)
            for name, like in zip(kind.states, first, strict=True)
        ]
        for n in reversed(range(len(row.times))):
            t = row.times[n]
            for k, name in enumerate(kind.states):
                carried[k] = carried[k] + given(f"{name}_grad", (t, b), first[k])
            if row.skipped(t):
                continue
            before = first
            if n > 0:
                before = tuple(values[name][row.times[n - 1], b] for name in kind.states)
            saved = {name: values[name][t, b] for name in kind.saved}
            carried = list(row.back(grads, t, before, saved, *carried))
        for name, value in zip(kind.states, carried, strict=True):
            grads[_INITIAL[name]][b] = value
    return grads
