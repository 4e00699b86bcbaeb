"""Descriptions of weights for tests, and what they compute, in NumPy float64.

By the equations of the reference and not by any converter: what a converter gives must make its
framework compute what `run` does. `step` is one step of a layer direction with any GEMM.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from helpers import tolerances
from helpers.reference import gru, layer_norm, lstm, numbers, simple_rnn

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
CELLS = tuple(GATES)
NORM_GATES = {"layer_norm_lstm": 4, "layer_norm_gru": 3}
NORM_CELLS = tuple(NORM_GATES)
WITH_CELL_STATE = ("lstm", "layer_norm_lstm")
STEPS, BATCH = 4, 3
Gemm = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Stack:
    """What weights to make: sizes as in stack.Network, and which biases there are."""

    cell: str
    layers: int = 1
    directions: int = 1
    inputs: int = 3
    units: int = 4
    proj: int = 0
    biases: tuple[str, ...] = ("b_x", "b_h")
    reset_after: bool = True
    peepholes: bool = False
    cell_clip: float = 0.0
    zoneout_h: float = 0.0
    zoneout_c: float = 0.0
    dtype: Any = "float64"
    epsilon: float = 0.125  # of the cells with layer normalisation: large enough to be seen
    norm_output_only: bool = False  # of the LSTM with layer normalisation
    activation: str = "tanh"
    hard_sigmoid: float = 0.0

    @property
    def reduction_length(self) -> int:
        """Terms that feed into one another, for the bounds."""
        width = self.directions * max(self.inputs, self.units, self.proj) + self.units + 2
        return STEPS * self.layers * width


def random_weights(stack: Stack, seed: int = 0):
    """Weights in a range where no activation saturates."""
    from tf_blockrnn import weights

    rng, gates = np.random.default_rng(seed), (GATES | NORM_GATES)[stack.cell]
    norms = ("norm_x", "norm_h") if stack.cell in NORM_CELLS else ()
    width = stack.proj or stack.units

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(-0.7, 0.7, shape).astype(stack.dtype)

    def direction(inputs: int):
        arrays = {"w_x": (gates, inputs, stack.units), "w_h": (gates, width, stack.units)}
        arrays |= {name: (gates, stack.units) for name in stack.biases}
        if stack.peepholes:
            arrays["peepholes"] = (3, stack.units)
        if stack.proj:
            arrays["w_p"] = (stack.proj, stack.units)
        arrays |= {name: (2, gates, stack.units) for name in norms}
        if stack.cell == "layer_norm_lstm":
            arrays["norm_c"] = (2, stack.units)
        return weights.DirectionWeights(**{k: array(*shape) for k, shape in arrays.items()})

    layers = [
        weights.LayerWeights(
            *(
                direction(stack.directions * width if number else stack.inputs)
                for _ in range(stack.directions)
            )
        )
        for number in range(stack.layers)
    ]
    return weights.RecurrentWeights(
        stack.cell,
        layers,
        reset_after=stack.reset_after if stack.cell == "gru" else None,
        cell_clip=stack.cell_clip,
        zoneout_h=stack.zoneout_h,
        zoneout_c=stack.zoneout_c,
        epsilon=stack.epsilon if norms else None,
        norm_output_only=stack.norm_output_only if stack.cell == "layer_norm_lstm" else None,
        activation=stack.activation,
        hard_sigmoid=stack.hard_sigmoid,
    )


def inputs(stack: Stack, seed: int = 7) -> np.ndarray:
    """x, [T, B, I]."""
    return np.random.default_rng(seed).normal(size=(STEPS, BATCH, stack.inputs))


def bound(stack: Stack) -> float:
    """Between a framework's float64 and `run`."""
    return tolerances.stack_bound("double", stack.reduction_length, stack.layers)


class Result(NamedTuple):
    """What a stack computes from zero states."""

    output: np.ndarray  # [T, B, D · P]
    h: np.ndarray  # [L · D, B, P], each direction's after its last step
    c: np.ndarray  # [L · D, B, H], zeros where the cell has no cell state


def step(weights, one, x: np.ndarray, h: np.ndarray, c: np.ndarray, gemm: Gemm = np.matmul):
    """(h, c) after a step of x, [B, I], from h, [B, P], and c, [B, H]."""
    new_h, new_c = _new_states(weights, one, x, h, c, gemm)
    of_h, of_c = weights.zoneout_h, weights.zoneout_c
    return of_h * h + (1 - of_h) * new_h, of_c * c + (1 - of_c) * new_c


def _new_states(weights, one, x, h, c, gemm: Gemm):
    """The states before their zoneout, by the equations of the reference."""
    kind = weights.cell.removeprefix("layer_norm_")
    names = {"lstm": ("i", "f", "ci", "o"), "gru": ("r", "u", "c")}.get(kind, ("h",))
    zeros = np.zeros((one.gates, one.units))
    biases = [zeros if b is None else b for b in (one.b_x, one.b_h)]
    sums = [[gemm(a, w) for w in ws] for a, ws in ((x, one.w_x), (h, one.w_h))]
    if weights.cell in NORM_CELLS:
        return _with_norms(weights, one, names, sums, biases, h, c)
    of_x, of_h = (
        {name: gate + b for name, gate, b in zip(names, gates, bias, strict=True)}
        for gates, bias in zip(sums, biases, strict=True)
    )
    bars = {name: of_x[name] + of_h[name] for name in names}
    functions = _functions(weights)
    if kind == "lstm":
        options = {"cell_clip": weights.cell_clip, "functions": functions}
        gates = lstm.forward(bars, c, peepholes=one.peepholes, **options)
        m = gates["o"] * gates["co"]
        return (m if one.w_p is None else gemm(m, one.w_p.T)), gates["cs"]
    if kind == "gru" and weights.reset_after:
        return gru.forward_after(of_x, of_h, h, functions=functions)["h"], c
    if kind == "gru":
        of_x["c"] = of_x["c"] + biases[1][2]

        def c_bar_of(hr):
            return of_x["c"] + gemm(hr, one.w_h[2])

        return gru.forward_before(bars, c_bar_of, h, functions=functions)["h"], c
    return simple_rnn.forward(bars["h"], relu=kind == "rnn_relu"), c


def _functions(weights):
    """Of gates, and of candidates."""
    slope = weights.hard_sigmoid
    return (
        (lambda x: numbers.hard_sigmoid(x, slope)) if slope else numbers.sigmoid,
        numbers.relu if weights.activation == "relu" else np.tanh,
    )


def _with_norms(weights, one, names, sums, biases, h, c):
    norms = [layer_norm.normalized(np.concatenate(gates, -1), weights.epsilon) for gates in sums]
    columns = {name: slice(n * one.units, (n + 1) * one.units) for n, name in enumerate(names)}
    values = dict(zip(("b_x", "b_h"), (b.ravel() for b in biases), strict=True))
    values["b"] = values["b_x"] + values["b_h"]
    for of, norm in (("x", one.norm_x), ("h", one.norm_h), ("c", one.norm_c)):
        if norm is not None:
            values[f"gamma_{of}"], values[f"beta_{of}"] = (row.ravel() for row in norm)
    if weights.cell == "layer_norm_gru":
        return layer_norm.gru_forward(*norms, h, values, columns)[0], c
    form = weights.epsilon, weights.norm_output_only
    return layer_norm.lstm_forward(*norms, c, values, columns, *form)[:2]


def run(weights, x: np.ndarray) -> Result:
    """The whole stack over x, [T, B, I]."""
    weights, states = weights.astype(np.float64), []
    for layer in weights.layers:
        outputs = []
        for number, one in enumerate(layer):
            h, c = np.zeros([x.shape[1], one.output_size]), np.zeros([x.shape[1], one.units])
            steps = np.zeros([len(x), *h.shape])
            for t in range(len(x))[:: -1 if number else 1]:
                h, c = step(weights, one, x[t], h, c)
                steps[t] = h
            outputs.append(steps)
            states.append((h, c))
        x = np.concatenate(outputs, axis=-1)
    return Result(x, np.array([h for h, _ in states]), np.array([c for _, c in states]))
