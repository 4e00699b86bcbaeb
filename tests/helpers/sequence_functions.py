"""tf_blockrnn.lstm and gru as the tests see them: weights, oracle and masks of every pattern.

Written from the functions' documentation. Sequences are [T, B, …] here, whatever a call is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from helpers.reference import sequence


@dataclasses.dataclass(frozen=True)
class Function:
    """One way to call lstm or gru: the shape of each weight, the options, the reference's cell."""

    name: str
    weights: Mapping[str, tuple[str, ...]]
    options: Mapping[str, object]
    states: int
    cell: str
    gates: tuple[str, ...]


_LSTM = {"w_x": ("I", "4H"), "w_h": ("H", "4H"), "b": ("4H",)}
_PEEPHOLES = {"wci": ("H",), "wcf": ("H",), "wco": ("H",)}
_GRU = {"w_x": ("I", "3H"), "w_h": ("H", "3H"), "b_x": ("3H",), "b_h": ("3H",)}
_CLIP = {"forget_bias": 0.5, "cell_clip": 1.25}
_BEFORE = {"reset_after": False}
_LAYER_NORM = {
    **_LSTM,
    **{f"{kind}_{of}": ("4H",) for of in "xh" for kind in ("gamma", "beta")},
    **{"gamma_c": ("H",), "beta_c": ("H",)},
}
_LAYER_NORM_GRU = {
    **_GRU,
    **{f"{kind}_{of}": ("3H",) for of in "xh" for kind in ("gamma", "beta")},
}
_EPSILON = {"epsilon": 0.125}
_OUTPUT_ONLY = {**_EPSILON, "norm_output_only": True}
_IFCO, _RUC, _URC = ("i", "f", "ci", "o"), ("r", "u", "c"), ("u", "r", "c")
FUNCTIONS = {
    "lstm": Function("lstm", _LSTM, _CLIP, 2, "lstm", _IFCO),
    "lstm-peephole": Function("lstm", {**_LSTM, **_PEEPHOLES}, _CLIP, 2, "lstm", _IFCO),
    "layer-norm-lstm": Function(
        "layer_norm_lstm", _LAYER_NORM, _EPSILON, 2, "layer_norm_lstm", _IFCO
    ),
    "layer-norm-lstm-output": Function(
        "layer_norm_lstm", _LAYER_NORM, _OUTPUT_ONLY, 2, "layer_norm_lstm", _IFCO
    ),
    "layer-norm-gru": Function(
        "layer_norm_gru", _LAYER_NORM_GRU, _EPSILON, 1, "layer_norm_gru", _RUC
    ),
    "layer-norm-gru-urc": Function(
        *("layer_norm_gru", _LAYER_NORM_GRU, {**_EPSILON, "gate_order": "urc"}),
        *(1, "layer_norm_gru", _URC),
    ),
    "gru-after": Function("gru", _GRU, {}, 1, "gru_after", _RUC),
    "gru-after-urc": Function("gru", _GRU, {"gate_order": "urc"}, 1, "gru_after", _URC),
    "gru-before": Function("gru", _GRU, _BEFORE, 1, "gru", _RUC),
    "gru-before-urc": Function("gru", _GRU, {**_BEFORE, "gate_order": "urc"}, 1, "gru", _URC),
}


def random_inputs(function: Function, dims, dtype, seed: int = 0) -> dict[str, np.ndarray]:
    """x [T, B, I], h and (for an LSTM) cs [B, H], and the weights; dims = (T, B, I, H)."""
    t, b, i, h = dims
    values = {"I": i, "H": h, "3H": 3 * h, "4H": 4 * h}
    shapes = {"x": (t, b, i), "h": (b, h)}
    if function.states == 2:
        shapes["cs"] = (b, h)
    shapes |= {k: tuple(values[e] for e in v) for k, v in function.weights.items()}
    inputs = {}
    for position, (name, shape) in enumerate(shapes.items()):
        rng = np.random.default_rng([seed, position, *dims])
        value = rng.normal(size=shape)
        if name in ("w_x", "w_h"):
            value /= np.sqrt(max(shape[0], 1))
        elif name.startswith("gamma"):
            value = 1 + value / 4
        inputs[name] = value.astype(dtype)
    return inputs


def norms_of(values: dict) -> dict:
    """The norms as the functions take them, of gammas and betas that are taken out of `values`."""
    names = {"kernel_norm": "x", "recurrent_norm": "h", "state_norm": "c"}
    return {
        name: (values.pop(f"gamma_{of}"), values.pop(f"beta_{of}"))
        for name, of in names.items()
        if f"gamma_{of}" in values
    }


def call(module, function: Function, inputs: Mapping, *, with_state=True, **options):
    """(outputs, last h[, last cs]) of the public function; `inputs` are tensors or arrays.

    x, mask and outputs are in the layout that options say.
    """
    values = dict(inputs)
    x, h, cs = values.pop("x"), values.pop("h"), values.pop("cs", None)
    if "wci" in values:
        options["peepholes"] = tuple(values.pop(k) for k in ("wci", "wcf", "wco"))
    if with_state:
        options["initial_state"] = h if cs is None else (h, cs)
    options = {**function.options, **norms_of(values), **options}
    outputs, state = getattr(module, function.name)(x, **values, **options)
    return (outputs, *state) if function.states == 2 else (outputs, state)


class Oracle:
    """What a call with these arguments must give; arrays [T, B, …], float64."""

    def __init__(self, function, inputs, mask=None, lengths=None, go_backwards=False):
        names = {"h": "h_prev", "cs": "cs_prev"}
        self._function = function
        self._values = {names.get(k, k): v for k, v in inputs.items()}
        if mask is not None:
            self._values["mask"] = mask
        numbers = {k: v for k, v in function.options.items() if k in {*_CLIP, *_OUTPUT_ONLY}}
        self._options = sequence.Options(
            function.gates,
            backwards=go_backwards,
            lengths=None if lengths is None else tuple(lengths),
            **numbers,
        )
        self._outputs = sequence.forward(function.cell, self._values, self._options)

    def _names(self):
        return ("h", "h_last", "cs_last")[: 1 + self._function.states]

    def outputs(self):
        """(outputs, last h[, last cs])."""
        return tuple(self._outputs[name] for name in self._names())

    def gradients(self, cotangents) -> dict[str, np.ndarray]:
        """By the names of the inputs; cotangents of what outputs() gives, None for zeros."""
        given = zip(self._names(), cotangents, strict=True)
        values = self._values | self._outputs
        values |= {f"{name}_grad": c for name, c in given if c is not None}
        found = sequence.backward(self._function.cell, values, self._options)
        if self._function.cell == "gru":
            found["b_h"] = found["b_x"]
        names = {"h_prev": "h", "cs_prev": "cs"}
        return {names.get(k, k): v for k, v in found.items()}


def patterns(dims, seed: int = 0) -> dict[str, tuple]:
    """name: (mask [T, B] or None, lengths [B] or None), of every kind that a caller may have."""
    t, b = dims[:2]
    rng = np.random.default_rng([seed, t, b])
    steps, rows = np.arange(t)[:, None], np.arange(b)[None, :]
    lengths = rng.integers(0, t + 1, b)
    holes = rng.random((t, b)) < 0.6
    one_row = np.ones((t, b), bool)
    one_row[:, : max(b // 2, 1)] = False
    return {
        "none": (None, None),
        "all": (np.ones((t, b), bool), None),
        "nothing": (np.zeros((t, b), bool), None),
        "rows without a step": (one_row, None),
        "right padding": (steps < lengths, None),
        "left padding": (steps >= lengths, None),
        "holes": (holes, None),
        "every other step": ((steps + rows) % 2 == 0, None),
        "first step only": (np.broadcast_to(steps == 0, (t, b)), None),
        "last step only": (np.broadcast_to(steps == t - 1, (t, b)), None),
        "one step for all": (np.broadcast_to(steps != t // 2, (t, b)), None),
        "lengths": (None, lengths),
        "lengths of 0 and T": (None, np.where(np.arange(b) % 2, t, 0)),
        "all lengths 0": (None, np.zeros(b, np.int64)),
        "all lengths T": (None, np.full(b, t)),
        "lengths and holes": (holes, lengths),
    }
