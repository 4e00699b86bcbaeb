"""Whole sequences on the CUDA engine: what a call is, and the layout of its arrays.

The numbers of a call are those of sequence_oracle.py, [T, B, …] and a column for each gate and
unit. Here they are converted to the layout of the call's shape, and back.
"""

from __future__ import annotations

import dataclasses

import device_engine
import numpy as np
from helpers.reference import sequence as sequence_oracle

# Cells whose steps may be one persistent kernel, and whose forward has an identity for activations.
PLAIN = ("rnn", "lstm", "gru", "gru_after")
NORMALIZED = ("layer_norm_lstm", "layer_norm_gru")
CELLS = (*PLAIN, *NORMALIZED)
# Those that save more than h, which backward may compute again.
RECOMPUTED = tuple(cell for cell in CELLS if sequence_oracle.saved_names(cell))
GATES = {
    "rnn": (("h",),),
    "lstm": (("i", "ci", "f", "o"), ("i", "f", "ci", "o")),
    "gru": (("r", "u", "c"), ("u", "r", "c")),
    "gru_after": (("r", "u", "c"), ("u", "r", "c")),
    "layer_norm_lstm": (("i", "ci", "f", "o"), ("i", "f", "ci", "o")),
    "layer_norm_gru": (("r", "u", "c"), ("u", "r", "c")),
}
_BYTES = ("mask", "resets", "zoneout_h", "zoneout_c")

_STRUCTS = {
    "rnn": "SimpleRnn",
    "lstm": "LstmSequence",
    "gru": "GruSequence",
    "gru_after": "GruAfterSequence",
    "layer_norm_lstm": "LayerNormLstm",
    "layer_norm_gru": "LayerNormGru",
}
# Members of the argument structs that have other names here.
_MEMBERS = {"zoneout_h": "zoneout_h.kept", "zoneout_c": "zoneout_c.kept"}
# Those of a gru whose candidate has arrays of its own.
_GRU_MEMBERS = {"w_x": ("w_x", "w_c_x"), "w_h": ("w_h", "w_c_h"), "b_x": ("b", "b_c")}
# Numbers of a call by the names of the members, for all cells and for some.
_SHAPE = (
    *("time_major", "backwards", "skip_input", "projected_input"),
    *("state_stride", "weights_by_unit", "saved_in_steps"),
)
_HOST = ("persistent", "allow_tf32", "blas_step_work", "scratch_calls", "span_steps")
_OPTIONS = ("forget_bias", "cell_clip", "use_peephole")
_OF_CELL = {
    "rnn": ("relu",),
    "lstm": ("layout", "proj"),
    "gru": ("layout",),
    "gru_after": ("layout",),
    "layer_norm_lstm": ("layout", "epsilon", "norm_output_only"),
    "layer_norm_gru": ("layout", "epsilon"),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call but for its numbers."""

    cell: str
    dims: tuple[int, int, int, int]  # T, B, I, H
    dtype: str = "float"
    proj: int = 0
    layout: int = 0
    candidate_apart: bool = False  # of a gru: its columns in arrays of their own
    time_major: bool = True
    backwards: bool = False
    lengths: tuple[int, ...] | None = None
    mask: bool = False
    resets: bool = False
    dropout: bool = False
    skip_input: bool = False
    projected_input: bool = False
    state_stride: int = 1
    h_extra: int = 0  # elements of a row of h that are not this sequence's
    weights_by_unit: bool = False
    saved_in_steps: bool = False
    relu: bool = False
    identity: bool = False  # forward alone: activations that do nothing
    use_peephole: bool = False
    forget_bias: float = 0.0
    cell_clip: float = 0.0
    zoneout: str = ""  # "draws", or "mean"; of an lstm without co in the backward
    epsilon: float = 1e-3
    norm_output_only: bool = False
    state_bias: bool = True  # whether b_h is given
    keeps: bool = True  # whether what is for the backward alone is wanted
    without: tuple[str, ...] = ()  # outputs that are not computed, gradients that are not given
    with_blas: bool = False
    persistent: bool = False
    allow_tf32: bool = False
    block_bytes: int = 0
    blas_step_work: int = 1 << 40  # multiply-adds from which on a BLAS runs a step
    scratch_calls: int = 1 << 40
    span_steps: int = 0  # backward alone: not 0, where it runs the forward pass again

    @property
    def gates(self) -> tuple[str, ...]:
        return GATES[self.cell][self.layout]

    @property
    def precision(self) -> str:
        """The type whose tolerances hold: TF32 has as many bits of mantissa as half."""
        return "half" if self.allow_tf32 and self.dtype == "float" else self.dtype

    @property
    def width(self) -> int:
        """Of h: P."""
        return self.proj or self.dims[3]

    @property
    def zoneout_rates(self) -> tuple[float, float]:
        """Of h and of the cell state."""
        if self.zoneout != "mean":
            return 0.0, 0.0
        return 0.25, 0.125 if self.cell == "lstm" else 0.0

    @property
    def has_b_h_grad(self) -> bool:
        """Whether the state's bias has a gradient of its own."""
        return self.cell in ("gru_after", "layer_norm_gru")

    @property
    def has_cs(self) -> bool:
        return self.cell in ("lstm", "layer_norm_lstm")

    def oracle_options(self) -> sequence_oracle.Options:
        return sequence_oracle.Options(
            gates=self.gates,
            backwards=self.backwards,
            lengths=self.lengths,
            skip_input=self.skip_input,
            projected_input=self.projected_input,
            forget_bias=self.forget_bias,
            cell_clip=self.cell_clip,
            zoneout_rates=self.zoneout_rates,
            epsilon=self.epsilon,
            norm_output_only=self.norm_output_only,
            relu=self.relu,
            identity=self.identity,
            stored=lambda h: stored(h, self.dtype),
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all arguments by name; of those that the call does not have, none."""
        t, b, i, h = self.dims
        columns, p = len(self.gates) * h, self.width
        shapes = {"x": (t, b, i), "h_prev": (b, p)}
        if self.has_cs:
            shapes["cs_prev"] = (b, h)
        if self.dropout:
            shapes["recurrent_dropout"] = (len(self.gates), b, p)
        if not self.skip_input and not self.projected_input:
            shapes["w_x"] = (i, columns)
        shapes["w_h"] = (p, columns)
        if self.proj:
            shapes["w_p"] = (p, h)
        if self.use_peephole:
            shapes |= dict.fromkeys(("wci", "wcf", "wco"), (h,))
        shapes["b_x" if "gru" in self.cell else "b"] = (columns,)
        if self.has_b_h_grad or (self.state_bias and self.cell in ("rnn", "lstm")):
            shapes["b_h"] = (columns,)
        if self.cell in NORMALIZED:
            shapes |= dict.fromkeys(("gamma_x", "beta_x", "gamma_h", "beta_h"), (columns,))
        if self.cell == "layer_norm_lstm":
            shapes |= dict.fromkeys(("gamma_c", "beta_c"), (h,))
        return shapes


def stored(values, dtype: str) -> np.ndarray:
    """What is read again where `values` are stored in the type."""
    return device_engine.decode(device_engine.encode(np.asarray(values), dtype), dtype)


def random_values(call: Call, seed: int = 0) -> dict[str, np.ndarray]:
    """Arguments as they are stored in the call's type, float64."""
    values = {}
    for position, (name, shape) in enumerate(call.shapes().items()):
        rng = np.random.default_rng([seed, position, *call.dims])
        value = rng.normal(size=shape)
        if name in ("w_x", "w_h", "w_p"):
            value /= np.sqrt(max(shape[1] if name == "w_p" else shape[0], 1))
        if name.startswith("gamma"):
            value = 1.0 + value / 4.0
        if name == "recurrent_dropout":
            value = np.where(rng.random(shape) < 0.4, 0.0, 1.0 / 0.6)
        values[name] = stored(value, call.dtype)
    if call.mask:
        rng = np.random.default_rng([seed, 99, *call.dims])
        values["mask"] = rng.random(call.dims[:2]) < 0.6
    if call.resets:
        rng = np.random.default_rng([seed, 97, *call.dims])
        values["resets"] = rng.random(call.dims[:2]) < 0.3
    if call.zoneout == "draws":
        rng = np.random.default_rng([seed, 98, *call.dims])
        values["zoneout_h"] = rng.random((*call.dims[:2], call.width)) < 0.4
        if call.cell == "lstm":
            values["zoneout_c"] = rng.random((*call.dims[:2], call.dims[3])) < 0.3
    return values


def valid(call: Call) -> np.ndarray:
    """[T, B], true where a row has that time."""
    t, b = call.dims[:2]
    lengths = np.full(b, t) if call.lengths is None else np.asarray(call.lengths)
    return np.arange(t)[:, None] < lengths[None, :]


class _Memory:
    """The layouts of one call."""

    def __init__(self, call: Call):
        self.call = call
        t, b = call.dims[:2]
        lengths = np.full(b, t) if call.lengths is None else np.asarray(call.lengths)
        self._order = np.argsort(-lengths, kind="stable")
        self._lengths = lengths
        self._columns = len(call.gates) * call.dims[3]

    def kind(self, name: str) -> str:
        """Of an array by the name of its field, without what follows a dot."""
        if name in ("h", "h_grad"):
            return "h"
        if name in sequence_oracle.saved_names(self.call.cell):
            return "saved"
        if name in ("x", *_BYTES, "cs_grad"):
            return "sequence"
        if name.split("_")[0] in ("h", "cs") and ("prev" in name or "last" in name):
            return "state"
        return "weights" if name in ("w_x", "w_h") else "plain"

    def shape(self, name: str, like) -> tuple[int, ...]:
        """In memory layout; `like` the shape in the oracle."""
        t, b = self.call.dims[:2]
        kind = self.kind(name)
        if kind in ("h", "sequence") or (kind == "saved" and not self.call.saved_in_steps):
            rest = tuple(like[2:])
            if kind == "h" and self.call.h_extra:
                rest = (rest[0] + self.call.h_extra,)
            return ((t, b) if self.call.time_major else (b, t)) + rest
        if kind == "saved":
            return (int(self._lengths.sum()), like[2])
        if kind == "state":
            return (like[0] * self.call.state_stride, like[1])
        if kind == "weights" and self.call.weights_by_unit:
            return (like[1], like[0])
        return tuple(like)

    def view(self, name: str, memory: np.ndarray) -> np.ndarray:
        """The oracle's array within the memory, for everything that is not saved in steps."""
        kind = self.kind(name)
        if kind in ("h", "sequence", "saved") and not self.call.time_major:
            memory = np.swapaxes(memory, 0, 1)
        if kind == "h":
            return memory[..., : self.call.width]
        if kind == "state":
            return memory[:: self.call.state_stride]
        if kind == "weights" and self.call.weights_by_unit:
            return memory.T
        return memory

    def _steps(self):
        """(row of what is saved in steps, t, b) for all of them."""
        row = 0
        for step in range(self.call.dims[0]):
            for b in self._order:
                if step < self._lengths[b]:
                    yield row, (self._lengths[b] - 1 - step if self.call.backwards else step), b
                    row += 1

    def put(self, name: str, value: np.ndarray, memory: np.ndarray) -> None:
        if self.kind(name) == "saved" and self.call.saved_in_steps:
            for row, t, b in self._steps():
                memory[row] = value[t, b]
        else:
            self.view(name, memory)[...] = value

    def take(self, name: str, memory: np.ndarray, like) -> np.ndarray:
        """[T, B, …] again; zeros past the lengths of what is saved in steps."""
        if self.kind(name) == "saved" and self.call.saved_in_steps:
            value = np.zeros(like, memory.dtype)
            for row, t, b in self._steps():
                value[t, b] = memory[row]
            return value
        return np.array(self.view(name, memory))

    def untouched(self, name: str, memory: np.ndarray) -> bool:
        """Whether everything that does not belong to this sequence is unchanged."""
        rest = memory.copy()
        if self.kind(name) in ("h", "state"):
            self.view(name, rest).view(np.uint8)[...] = device_engine.UNWRITTEN
            return bool((rest.view(np.uint8) == device_engine.UNWRITTEN).all())
        return True


class Sequences:
    """The engine's whole sequences on the one device that the library finds."""

    def __init__(self, engine: device_engine.Engine):
        self.engine = engine

    def forward(self, call: Call, values) -> dict[str, np.ndarray]:
        """h, what is saved and the last states by name, as they lie in memory but [T, B, …]."""
        t, b, _, h = call.dims
        shapes = sequence_oracle.saved_shapes(call.cell, (t, b, h))
        if not call.keeps:
            shapes = {}
        shapes |= {"h": (t, b, call.width), "h_last": (b, call.width)}
        if call.has_cs:
            shapes["cs_last"] = (b, h)
        return self._call(call, "Forward", values, shapes)

    def backward(self, call: Call, values) -> dict[str, np.ndarray]:
        """Gradients by the names of the inputs; `values` as sequence_oracle.backward has them."""
        shapes = call.shapes()
        for name in ("recurrent_dropout", *(() if call.has_b_h_grad else ("b_h",))):
            shapes.pop(name, None)
        if not call.span_steps and call.cell not in NORMALIZED:  # no forward pass that reads them
            values = {name: v for name, v in values.items() if name not in ("b", "b_x", "b_h")}
        return self._call(call, "Backward", values, shapes)

    def _call(self, call: Call, direction: str, values, shapes):
        """shapes: of the outputs, as the oracle has them."""
        memory, suffix = _Memory(call), "_grad" if direction == "Backward" else ""
        inputs, outputs = {}, {}
        for name, value in values.items():
            for member, columns in _members(call, name):
                part = np.asarray(value)[..., columns]
                inputs[member] = _encoded(call, memory, name, part)
        wanted = {name: shape for name, shape in shapes.items() if name not in call.without}
        parts = [
            (name, member + suffix, np.empty(shape)[..., columns].shape)
            for name, shape in wanted.items()
            for member, columns in _members(call, name)
        ]
        for name, member, like in parts:
            outputs[member] = device_engine.unwritten(memory.shape(name, like), call.dtype)
        resets = inputs.pop("resets", None)
        found = self.engine.call(
            f"{_STRUCTS[call.cell]}{direction}Args", call.dtype,
            self._numbers(call, direction), inputs, outputs, call.lengths, resets,
        )  # fmt: skip
        taken = {name: [] for name in wanted}
        for name, member, like in parts:
            array = found[member]
            assert memory.untouched(name, array), f"{call}: {member} is written past its part"
            taken[name].append(memory.take(name, array, like))
        return {name: np.concatenate(arrays, axis=-1) for name, arrays in taken.items()}

    def _numbers(self, call: Call, direction: str) -> dict[str, float]:
        numbers = {
            f"shape.{name}": size
            for name, size in zip(("steps", "batch", "input", "units"), call.dims, strict=True)
        }
        numbers |= {f"shape.{name}": getattr(call, name) for name in _SHAPE}
        numbers["shape.h_width"] = call.width + call.h_extra if call.h_extra else 0
        numbers |= {name: getattr(call, name) for name in (*_HOST, *_OF_CELL[call.cell])}
        if call.cell == "lstm":
            numbers |= {f"options.{name}": getattr(call, name) for name in _OPTIONS}
            numbers["zoneout_c.rate"] = call.zoneout_rates[1]
        numbers["zoneout_h.rate"] = call.zoneout_rates[0]
        numbers["identity"] = call.identity and direction == "Forward"
        numbers["with_blas"] = call.with_blas and self.engine.may_use_blas
        if call.block_bytes:
            numbers["block_bytes"] = call.block_bytes
        return numbers


def _members(call: Call, name: str):
    """The members of the struct that have an array, and which columns of it each has."""
    if call.candidate_apart and name in _GRU_MEMBERS:
        h = call.dims[3]
        return tuple(zip(_GRU_MEMBERS[name], (slice(2 * h), slice(2 * h, None)), strict=True))
    if call.cell == "gru" and name == "b_x":
        name = "b"
    return ((_MEMBERS.get(name, name), slice(None)),)


def _encoded(call: Call, memory: _Memory, name: str, value: np.ndarray) -> np.ndarray:
    """An input in memory, with NaN wherever nothing is to be read."""
    shape = memory.shape(name, value.shape)
    array = np.zeros(shape, np.uint8) if name in _BYTES else np.full(shape, np.nan)
    memory.put(name, value, array)
    return array if name in _BYTES else device_engine.encode(array, call.dtype)
