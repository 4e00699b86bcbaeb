"""tf_blockrnn.lstm and gru as the tests see them: weights, oracle and masks of every pattern.

Written from the functions' documentation. Sequences are [T, B, …] here, whatever a call is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from helpers import sequence_reference

# Columns of the GRU's weights in Keras' order: u, r, c.
_URC = (1, 0, 2)


def _thirds(array, order):
    parts = np.split(array, 3, axis=-1)
    return np.concatenate([parts[k] for k in order], axis=-1)


@dataclasses.dataclass(frozen=True)
class Function:
    """One way to call lstm or gru: the shape of each weight, the options, the oracle's cell.

    `cell` makes a sequence_reference.Cell of the weights; `gradients` takes the gradients of its
    weights to those of the function's.
    """

    name: str
    weights: Mapping[str, tuple[str, ...]]
    options: Mapping[str, object]
    states: int
    cell: Callable
    gradients: Callable


def _lstm_cell(w_x, w_h, b, wci=None, wcf=None, wco=None):
    peepholes = (wci, wcf, wco) if wci is not None else (np.zeros(0),) * 3
    return sequence_reference.lstm_cell(
        np.concatenate([w_x, w_h]),
        *peepholes,
        b,
        order="ifco",
        forget_bias=0.5,
        cell_clip=1.25,
        use_peephole=wci is not None,
    )


def _lstm_gradients(weights, w, wci, wcf, wco, b):
    w_x, w_h = np.split(w, [len(weights["w_x"])])
    return {"w_x": w_x, "w_h": w_h, "b": b, "wci": wci, "wcf": wcf, "wco": wco}


def _before_cell(w_x, w_h, b_x, b_h):
    w, units = np.concatenate([w_x, w_h]), w_h.shape[0]
    b = b_x + b_h
    return sequence_reference.gru_cell(
        w[:, : 2 * units], w[:, 2 * units :], b[: 2 * units], b[2 * units :]
    )


def _before_gradients(weights, w_ru, w_c, b_ru, b_c):
    w_x, w_h = np.split(np.concatenate([w_ru, w_c], axis=1), [len(weights["w_x"])])
    b = np.concatenate([b_ru, b_c])
    return {"w_x": w_x, "w_h": w_h, "b_x": b, "b_h": b}


def _after_gradients(weights, w_x, w_h, b_x, b_h):
    del weights
    return {"w_x": w_x, "w_h": w_h, "b_x": b_x, "b_h": b_h}


def _in_urc(cell, gradients):
    return (
        lambda **weights: cell(**{k: _thirds(v, _URC) for k, v in weights.items()}),
        lambda *args: {k: _thirds(v, _URC) for k, v in gradients(*args).items()},
    )


_LSTM = {"w_x": ("I", "4H"), "w_h": ("H", "4H"), "b": ("4H",)}
_PEEPHOLES = {"wci": ("H",), "wcf": ("H",), "wco": ("H",)}
_GRU = {"w_x": ("I", "3H"), "w_h": ("H", "3H"), "b_x": ("3H",), "b_h": ("3H",)}
_CLIP = {"forget_bias": 0.5, "cell_clip": 1.25}
FUNCTIONS = {
    "lstm": Function("lstm", _LSTM, _CLIP, 2, _lstm_cell, _lstm_gradients),
    "lstm-peephole": Function(
        "lstm", {**_LSTM, **_PEEPHOLES}, _CLIP, 2, _lstm_cell, _lstm_gradients
    ),
    "gru-after": Function("gru", _GRU, {}, 1, sequence_reference.gru_after_cell, _after_gradients),
    "gru-after-urc": Function(
        "gru",
        _GRU,
        {"gate_order": "urc"},
        1,
        *_in_urc(sequence_reference.gru_after_cell, _after_gradients),
    ),
    "gru-before": Function("gru", _GRU, {"reset_after": False}, 1, _before_cell, _before_gradients),
    "gru-before-urc": Function(
        "gru",
        _GRU,
        {"reset_after": False, "gate_order": "urc"},
        1,
        *_in_urc(_before_cell, _before_gradients),
    ),
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
        inputs[name] = value.astype(dtype)
    return inputs


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
    options = {**function.options, **options}
    outputs, state = getattr(module, function.name)(x, **values, **options)
    return (outputs, *state) if function.states == 2 else (outputs, state)


def _keep(dims, mask, lengths):
    """[T, B] of both; True where a step counts."""
    keep = np.ones(dims[:2], bool) if mask is None else np.asarray(mask, bool)
    return keep if lengths is None else keep & _within(dims, lengths)


def _within(dims, lengths):
    return np.arange(dims[0])[:, None] < np.asarray(lengths)[None, :]


class Oracle:
    """What a call with these arguments must give; arrays [T, B, …], float64."""

    def __init__(self, function, inputs, mask=None, lengths=None, go_backwards=False):
        values = {k: v.astype(np.float64) for k, v in inputs.items()}
        self._function, self._x = function, values.pop("x")
        h, cs = values.pop("h"), values.pop("cs", None)
        # The reference has cs first.
        self._state = (h,) if cs is None else (cs, h)
        self._weights = values
        self._cell = function.cell(**values)
        self._dims, self._lengths = self._x.shape, lengths
        self._mask, self._backwards = _keep(self._dims, mask, lengths), go_backwards

    def outputs(self):
        """(outputs, last h[, last cs])."""
        outputs, last, _ = sequence_reference.forward(
            self._cell, self._x, self._state, self._mask, self._backwards
        )
        h = outputs[-1]
        if self._lengths is not None:
            h = np.where(_within(self._dims, self._lengths)[..., None], h, 0.0)
        return (h, *last[::-1])

    def gradients(self, cotangents) -> dict[str, np.ndarray]:
        """By the names of the inputs; cotangents of what outputs() gives, None for zeros."""
        d_h, *d_last = (None if c is None else c.astype(np.float64) for c in cotangents)
        if d_h is not None and self._lengths is not None:
            d_h = np.where(_within(self._dims, self._lengths)[..., None], d_h, 0.0)
        inner = [None] * (self._cell.outputs - 1) + [d_h]
        d_x, *grads = sequence_reference.backward(
            self._cell, self._x, self._state, inner, d_last[::-1], self._mask, self._backwards
        )
        states, weights = grads[: len(self._state)], grads[len(self._state) :]
        found = {"x": d_x, **dict(zip(("h", "cs"), states[::-1], strict=False))}
        return found | self._function.gradients(self._weights, *weights)


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
