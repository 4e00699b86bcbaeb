"""The ops under tf_blockrnn.lstm, gru and simple_rnn, for tests of malformed calls.

Each is listed twice, time-major and batch-major, as that decides which shapes are legal. Their
numbers are tested through the functions (test_sequences.py, test_sequence_options.py). P is H here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from helpers import sequence_ops

_BH = ("B", "H")
_SKIPS = {"mask": ("T", "B"), "sequence_lengths": ("B",)}
_LSTM_WEIGHTS = {"w_x": ("I", "4H"), "w_h": ("H", "4H")}
_BEFORE_WEIGHTS = {
    "w_ru_x": ("I", "2H"),
    "w_ru_h": ("H", "2H"),
    "w_c_x": ("I", "H"),
    "w_c_h": ("H", "H"),
}
_AFTER_WEIGHTS = {"w_x": ("I", "3H"), "w_h": ("H", "3H")}
_LAYER_NORM_INPUTS = {
    "h_prev": _BH,
    "cs_prev": _BH,
    **_LSTM_WEIGHTS,
    "b": ("4H",),
    **{f"{kind}_{of}": ("4H",) for of in "xh" for kind in ("gamma", "beta")},
    **{"gamma_c": ("H",), "beta_c": ("H",)},
}
_LAYER_NORM_GRU_INPUTS = {
    "h_prev": _BH,
    **_AFTER_WEIGHTS,
    **{"b_x": ("3H",), "b_h": ("3H",)},
    **{f"{kind}_{of}": ("3H",) for of in "xh" for kind in ("gamma", "beta")},
}
_RNN_WEIGHTS = {"w_x": ("I", "H"), "w_h": ("H", "H")}
_PEEPHOLES = {"peepholes": ("3", "H")}
_PROJECTION = {"w_p": ("H", "H")}
# How many gates x · w_x has columns for, where w_x is left out.
_GATES = {"LSTM": 4, "GRU": 3, "LayerNormLSTM": 4, "LayerNormGRU": 3, "RNN": 1}
_INPUT_WEIGHTS = ("w_x", "w_ru_x", "w_c_x")


def _steps(*names: str) -> dict:
    return {name: ("T", "B", "H") for name in names}


def _dropout(gates: str) -> dict:
    return {"recurrent_dropout": (gates, "B", "H")}


# Without recompute, of which test_recompute.py has the malformed calls.
_NO_SPANS = {"span_states": ("0",)}
_ZONEOUT = {"LSTM": _steps("zoneout_h", "zoneout_c"), "GRU": _steps("zoneout_h")}


# name: (arguments, outputs), time-major.
_OPS = {
    "LSTMSequence": (
        {
            "h_prev": _BH,
            "cs_prev": _BH,
            **_LSTM_WEIGHTS,
            "b": ("4H",),
            **_PEEPHOLES,
            **_SKIPS,
            **_PROJECTION,
            **_dropout("4"),
            **_ZONEOUT["LSTM"],
        },
        {**_steps("h"), "h_last": _BH, "cs_last": _BH, **_steps("i", "cs", "f", "o", "ci")},
    ),
    "LSTMSequenceGrad": (
        {
            "h_prev": _BH,
            "cs_prev": _BH,
            **_LSTM_WEIGHTS,
            "b": ("4H",),
            **_PEEPHOLES,
            **_SKIPS,
            **_steps("h", "i", "cs", "f", "o", "ci"),
            **_NO_SPANS,
            **_steps("h_grad"),
            "h_last_grad": _BH,
            "cs_last_grad": _BH,
            **_steps("cs_grad"),
            **_PROJECTION,
            **_dropout("4"),
            **_ZONEOUT["LSTM"],
        },
        {
            "x_grad": ("T", "B", "I"),
            "h_prev_grad": _BH,
            "cs_prev_grad": _BH,
            "w_x_grad": ("I", "4H"),
            "w_h_grad": ("H", "4H"),
            "b_grad": ("4H",),
            "w_p_grad": ("H", "H"),
        },
    ),
    "GRUSequence": (
        {
            "h_prev": _BH,
            **_BEFORE_WEIGHTS,
            "b_ru": ("2H",),
            "b_c": ("H",),
            **_SKIPS,
            **_dropout("3"),
            **_ZONEOUT["GRU"],
        },
        {**_steps("h"), "h_last": _BH, **_steps("r", "u", "c")},
    ),
    "GRUSequenceGrad": (
        {
            "h_prev": _BH,
            **_BEFORE_WEIGHTS,
            "b_ru": ("2H",),
            "b_c": ("H",),
            **_SKIPS,
            **_steps("h", "r", "u", "c"),
            **_NO_SPANS,
            **_steps("h_grad"),
            "h_last_grad": _BH,
            **_dropout("3"),
            **_ZONEOUT["GRU"],
        },
        {
            "x_grad": ("T", "B", "I"),
            "h_prev_grad": _BH,
            **{f"{k}_grad": v for k, v in _BEFORE_WEIGHTS.items()},
            "b_ru_grad": ("2H",),
            "b_c_grad": ("H",),
        },
    ),
    "GRUAfterSequence": (
        {
            "h_prev": _BH,
            **_AFTER_WEIGHTS,
            "b_x": ("3H",),
            "b_h": ("3H",),
            **_SKIPS,
            **_dropout("3"),
            **_ZONEOUT["GRU"],
        },
        {**_steps("h"), "h_last": _BH, **_steps("r", "u", "c", "hc")},
    ),
    "GRUAfterSequenceGrad": (
        {
            "h_prev": _BH,
            **_AFTER_WEIGHTS,
            "b_x": ("3H",),
            "b_h": ("3H",),
            **_SKIPS,
            **_steps("h", "r", "u", "c", "hc"),
            **_NO_SPANS,
            **_steps("h_grad"),
            "h_last_grad": _BH,
            **_dropout("3"),
            **_ZONEOUT["GRU"],
        },
        {
            "x_grad": ("T", "B", "I"),
            "h_prev_grad": _BH,
            **{f"{k}_grad": v for k, v in _AFTER_WEIGHTS.items()},
            "b_x_grad": ("3H",),
            "b_h_grad": ("3H",),
        },
    ),
    "LayerNormLSTMSequence": (
        {**_LAYER_NORM_INPUTS, **_SKIPS, **_dropout("4")},
        {
            **_steps("h"),
            "h_last": _BH,
            "cs_last": _BH,
            **{f"{of}_hat": ("T", "B", "4H") for of in "xh"},
            "rstd": ("T", "B", "2"),
            **_steps("cs"),
        },
    ),
    "LayerNormLSTMSequenceGrad": (
        {
            **_LAYER_NORM_INPUTS,
            **_SKIPS,
            **_steps("h"),
            **{f"{of}_hat": ("T", "B", "4H") for of in "xh"},
            "rstd": ("T", "B", "2"),
            **_steps("cs"),
            **_NO_SPANS,
            **_steps("h_grad"),
            "h_last_grad": _BH,
            "cs_last_grad": _BH,
            **_steps("cs_grad"),
            **_dropout("4"),
        },
        {
            "x_grad": ("T", "B", "I"),
            **{f"{name}_grad": dims for name, dims in _LAYER_NORM_INPUTS.items()},
        },
    ),
    "LayerNormGRUSequence": (
        {**_LAYER_NORM_GRU_INPUTS, **_SKIPS, **_dropout("3")},
        {
            **_steps("h"),
            "h_last": _BH,
            **{f"{of}_hat": ("T", "B", "3H") for of in "xh"},
            "rstd": ("T", "B", "2"),
        },
    ),
    "LayerNormGRUSequenceGrad": (
        {
            **_LAYER_NORM_GRU_INPUTS,
            **_SKIPS,
            **_steps("h"),
            **{f"{of}_hat": ("T", "B", "3H") for of in "xh"},
            "rstd": ("T", "B", "2"),
            **_NO_SPANS,
            **_steps("h_grad"),
            "h_last_grad": _BH,
            **_dropout("3"),
        },
        {
            "x_grad": ("T", "B", "I"),
            **{f"{name}_grad": dims for name, dims in _LAYER_NORM_GRU_INPUTS.items()},
        },
    ),
    "RNNSequence": (
        {"h_prev": _BH, **_RNN_WEIGHTS, "b": ("H",), **_SKIPS, **_dropout("1")},
        {**_steps("h"), "h_last": _BH},
    ),
    "RNNSequenceGrad": (
        {
            "h_prev": _BH,
            **_RNN_WEIGHTS,
            **_SKIPS,
            **_steps("h", "h_grad"),
            "h_last_grad": _BH,
            **_dropout("1"),
        },
        {
            "x_grad": ("T", "B", "I"),
            "h_prev_grad": _BH,
            **{f"{k}_grad": v for k, v in _RNN_WEIGHTS.items()},
            "b_grad": ("H",),
        },
    ),
}
# What a call leaves out by giving a tensor of shape [0].
OPTIONAL = {
    "peepholes",
    *_SKIPS,
    *_PROJECTION,
    "recurrent_dropout",
    "zoneout_h",
    "zoneout_c",
    "h_grad",
    "h_last_grad",
    "cs_last_grad",
    "cs_grad",
}
# What only recompute reads.
UNREAD = {
    "LSTMSequenceGrad": {"b"},
    "GRUSequenceGrad": {"b_ru", "b_c"},
    "GRUAfterSequenceGrad": {"b_x", "b_h"},
}


def optional(op: Op) -> set[str]:
    """The inputs of an op that a call may leave out."""
    return {name for name in op.inputs if name in OPTIONAL | UNREAD.get(op.name, set())}


@dataclasses.dataclass(frozen=True)
class Op:
    """As sequence_ops.Op, without an oracle; `attrs` say the layout."""

    name: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    attrs: Mapping[str, object]

    @property
    def attr_cases(self) -> tuple[Mapping[str, object], ...]:
        return (self.attrs,)

    def shapes(self, dims) -> dict:
        return {name: _evaluate(expr, dims) for name, expr in self.inputs.items()}

    def output_shapes(self, dims) -> dict:
        return {name: _evaluate(expr, dims) for name, expr in self.outputs.items()}

    def dims_of(self, shapes):
        """(T, B, I, H) as x and h_prev have them, or None."""
        x, h_prev = shapes["x"], shapes["h_prev"]
        if len(x) != 3 or len(h_prev) != 2:
            return None
        steps, batch = x[:2] if self.attrs["time_major"] else x[1::-1]
        return steps, batch, x[2], h_prev[1]


@functools.cache
def _evaluate(expressions, dims):
    numbers = {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "3H": 3 * dims[3]}
    return tuple(
        numbers[e] if e in numbers else sequence_ops.evaluate((e,), dims)[0] for e in expressions
    )


def _layout(dims: tuple[str, ...], time_major: bool) -> tuple[str, ...]:
    return dims if time_major or dims[:2] != ("T", "B") else ("B", "T", *dims[2:])


def _make(name: str, time_major: bool) -> Op:
    inputs, outputs = _OPS[name]
    inputs = {"x": ("T", "B", "I"), **inputs}
    return Op(
        name,
        {k: _layout(v, time_major) for k, v in inputs.items()},
        {k: _layout(v, time_major) for k, v in outputs.items()},
        {"time_major": time_major},
    )


OPS = {f"{name} {layout}": _make(name, layout == "TB") for name in _OPS for layout in ("TB", "BT")}


def is_legal(op: Op, shapes: Mapping, valid: int) -> bool:
    """Whether the contract accepts these shapes, with all of sequence_lengths being `valid`."""
    dims = op.dims_of(shapes)
    if dims is None:
        return False
    input_weights = [name for name in _INPUT_WEIGHTS if name in op.inputs]
    projected = dims[2] == _GATES[op.name.split("Sequence")[0].removesuffix("After")] * dims[3]
    may_lack = optional(op)
    if projected and all(tuple(shapes[name]) == (0,) for name in input_weights):
        may_lack.update(input_weights)
    for name, expressions in op.inputs.items():
        left_out = name in may_lack and tuple(shapes[name]) == (0,)
        if not left_out and tuple(shapes[name]) != _evaluate(expressions, dims):
            return False
    return tuple(shapes["sequence_lengths"]) == (0,) or 0 <= valid <= dims[0]
