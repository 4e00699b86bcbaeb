"""The malformed calls of the cuDNN RNN ops; what is changed in a shape is as for the cells.

Deterministic, so that a child process and its parent mean the same call by the same number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from helpers import cudnn_ops, perturbation
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

# No two lengths agree; all do; batch-major, both directions and I + H = 4H; projected; skipped.
BASES = (
    Call(Network("lstm", 2, 1, 5, 4), 3, 7, (3, 0, 2, 1, 3, 1, 2)),
    Call(Network("rnn_tanh", 1, 1, 1, 1), 1, 1, (1,)),
    Call(Network("gru", 1, 2, 6, 2), 2, 4, (2, 1, 0, 2), time_major=False),
    Call(Network("lstm", 2, 2, 2, 5, 3), 4, 3, (4, 4, 1)),
    Call(Network("rnn_relu", 3, 1, 3, 3, skip=True), 2, 5, (2,) * 5),
)
# For the versions without lengths, projection and batch-major layout.
OLD_BASES = tuple(
    dataclasses.replace(base, lengths=None, time_major=True) for base in (BASES[0], BASES[2])
)
# What the dims of an argument tell of: an error may name any argument that has one in common.
_SYMBOLS = {
    "input": "TBI",
    "input_h": "LBH",
    "input_c": "LBH",
    "params": "LIH",
    "sequence_lengths": "TB",
    "output": "TBH",
    "output_h": "LBH",
    "output_c": "LBH",
    "output_backprop": "TBH",
    "output_h_backprop": "LBH",
    "output_c_backprop": "LBH",
    "reserve_space": "TBLIH",
    "host_reserved": "",
}
_TYPES = {"sequence_lengths": "int32", "host_reserved": "int8"}
_WRONG_ATTRS = {
    "rnn_mode": ("cell", "", 1, None),
    "direction": ("both", 2),
    "input_mode": ("skip", True),
    "dropout": ("x", [0.1]),
    "seed": ("x", [1]),
    "time_major": ("yes", 1.5),
    "num_proj": ("x", 1.5),
}
RANDOM_CALLS = 40


@dataclasses.dataclass(frozen=True, repr=False)
class Made:
    """One call: what was changed in which base, and all that it is made with."""

    op: str
    base: Call
    changed: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    lengths: tuple[int, ...] = ()
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    attrs: Mapping[str, object] = dataclasses.field(default_factory=dict)
    is_framework_error: bool = False

    def __repr__(self) -> str:
        parts = {
            **{k: self.shapes[k] for k in self.changed if k in self.shapes},
            **({"lengths": self.lengths} if "sequence_lengths" in self.changed else {}),
            **self.types,
            **self.attrs,
        }
        return f"{self.op} {parts} in {self.base}"

    @property
    def backward(self) -> bool:
        return "Backprop" in self.op

    def all_attrs(self) -> dict[str, object]:
        return {**self.base.attrs(), **self.attrs}

    def type_of(self, name: str) -> str:
        return self.types.get(name, _TYPES.get(name, "float"))

    def related(self) -> set[str]:
        """Arguments and attrs that an error may rightly name."""
        symbols = {s for name in self.changed for s in _SYMBOLS.get(name, "TBLIH")}
        related = {k for k in self.shapes if symbols & set(_SYMBOLS[k])}
        return related | {*self.changed, "num_proj", "rnn_mode", "input_mode"}

    def is_legal_but_for_values(self) -> bool:
        """Whether all is right that a graph of known shapes can know."""
        if not self.backward:
            lengths = (0,) * len(self.lengths)
            return meant(dataclasses.replace(self, lengths=lengths)) is not None
        shapes = {**self.shapes, "reserve_space": (-1,)}
        lengths = self.base.lengths or ()
        return meant(dataclasses.replace(self, shapes=shapes, lengths=lengths)) is not None


def base_shapes(op: str, base: Call) -> dict[str, tuple[int, ...]]:
    """Legal shapes of all arguments in their order; that of reserve_space is known to calls."""
    shapes = {k: laid_out(base, v) for k, v in base.shapes().items()}
    if base.version == 3:
        shapes["sequence_lengths"] = (base.batch,)
    if "Backprop" in op:
        values = [laid_out(base, np.shape(c)) for c in base.cotangents("float")]
        shapes |= dict(zip(cudnn_ops.OUTPUTS, values, strict=True))
        shapes |= {f"{k}_backprop": v for k, v in zip(cudnn_ops.OUTPUTS, values, strict=True)}
        shapes["reserve_space"] = (-1,)
        if base.version > 1:
            shapes["host_reserved"] = (0,)
    return shapes


def laid_out(base: Call, shape):
    return shape if base.time_major or len(shape) < 3 else (shape[1], shape[0], *shape[2:])


def meant(made: Made) -> Call | None:
    """The call that these arguments make, where they do make one. From the op contracts."""
    if made.is_framework_error:
        return None
    shapes, attrs = made.shapes, made.all_attrs()
    x, h = shapes["input"], shapes["input_h"]
    if len(x) != 3 or len(h) != 3 or not 0 <= attrs["dropout"] < 1:
        return None
    time_major = attrs.get("time_major", True)
    first, second = (0, 1) if time_major else (1, 0)
    directions = 2 if attrs["direction"] == "bidirectional" else 1
    steps, batch, stack = x[first], x[second], h[first]
    if h[second] != batch or stack == 0 or stack % directions:
        return None
    mode, num_proj = attrs["rnn_mode"], attrs.get("num_proj", 0)
    if mode == "lstm":
        c = shapes["input_c"]
        if len(c) != 3 or c[:2] != h[:2] or not 0 <= num_proj <= c[2]:
            return None
        units = c[2]
        if h[2] != (num_proj or units):
            return None
    else:
        if num_proj != 0:
            return None
        units = h[2]
    if attrs["input_mode"] == "skip_input" and x[2] != units:
        return None
    skip = attrs["input_mode"] != "linear_input" and x[2] == units
    net = Network(mode, stack // directions, directions, x[2], units, num_proj, skip)
    if shapes["params"] != (net.params_size(),):
        return None
    lengths = None
    if "sequence_lengths" in shapes:
        if shapes["sequence_lengths"] != (batch,):
            return None
        lengths = made.lengths if len(made.lengths) == batch else (1,) * batch
        if not all(0 <= length <= steps for length in lengths):
            return None
    version = made.base.version
    call = Call(net, steps, batch, lengths, time_major, version, attrs["dropout"])
    return call if not made.backward or _fits_backward(made, call) else None


def _fits_backward(made: Made, call: Call) -> bool:
    # A reserve space is that of the base, so everything else must be, too.
    base = dataclasses.replace(made.base, lengths=call.lengths)
    if call != base or (made.lengths and made.lengths != made.base.lengths):
        return False
    free = ("input_c", "output_c", "output_c_backprop") if call.net.mode != "lstm" else ()
    legal = base_shapes(made.op, made.base)
    return all(made.shapes[k] == v for k, v in legal.items() if k not in free)


def wrong_lengths(base: Call) -> Iterator[tuple[int, ...]]:
    for value in (-1, base.steps + 1, 2**31 - 1, -(2**31)):
        for row in (0, base.batch - 1):
            yield tuple(value if b == row else n for b, n in enumerate(base.lengths))


def other_shapes(name: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    if name == "reserve_space":
        # Its real size is known when it is made: (-1,) is that, less and more are offsets.
        return [(), (0,), (1,), (2,), (27,), (1, 1), (100000,)]
    # All of params in each of three dims would fill the memory.
    return [s for s in perturbation.other_shapes(shape) if np.prod(s) <= 10**5]


def calls(op: str) -> Iterator[Made]:
    """All malformed calls of `op`, and some legal ones between them."""
    version = {1: "", 2: "V2", 3: "V3"}
    version = next(v for v in (3, 2, 1) if op.endswith(version[v]))
    for base in BASES if version == 3 else OLD_BASES:
        yield from _calls_of_base(op, dataclasses.replace(base, version=version))


def _calls_of_base(op: str, base: Call) -> Iterator[Made]:
    legal, lengths = base_shapes(op, base), base.lengths or ()

    def made(*changed, shapes=legal, **more):
        return Made(op, base, changed, shapes, **{"lengths": lengths, **more})

    yield made()
    for name, shape in legal.items():
        for other in other_shapes(name, shape):
            yield made(name, shapes={**legal, name: other})
    if base.version == 3:
        for values in wrong_lengths(base):
            yield made("sequence_lengths", lengths=values)
    for shape in ((), (1,), (0,), (1, 1), (2, 2), (1, 1, 1), (0, 0, 0), (2, 2, 2)):
        yield made(*legal, shapes={name: shape for name in legal})
    # Two or three at once: errors must not cancel each other.
    rng = np.random.default_rng(base.steps)
    for _ in range(RANDOM_CALLS):
        names = tuple(rng.choice(list(legal), int(rng.integers(2, 4)), replace=False))
        shapes = dict(legal)
        for name in names:
            others = other_shapes(name, legal[name])
            shapes[name] = others[int(rng.integers(len(others)))]
        yield made(*names, shapes=shapes)
    yield from _calls_with_attrs(made, base, legal)


def _calls_with_attrs(made, base: Call, legal) -> Iterator[Made]:
    attrs = base.attrs()
    values = {
        "dropout": (-0.5, 1.0, 2.0, float("nan"), float("inf"), -1e-30, 3e38),
        "num_proj": (-1, 1, base.net.units, base.net.units + 1, 2**40, -(2**63), 2**63 - 1),
        "input_mode": ("linear_input", "skip_input", "auto_select"),
        "direction": ("unidirectional", "bidirectional"),
        "rnn_mode": cudnn_ops.MODES,
        "time_major": (True, False),
    }
    for attr in attrs:
        for value in values.get(attr, ()):
            if value != attrs[attr]:
                yield made(attr, attrs={attr: value})
    if base.net.inputs != 5:
        return  # what TensorFlow itself refuses, once
    for attr, wrong in _WRONG_ATTRS.items():
        for value in wrong if attr in attrs else ():
            if value is not None:  # None is the default
                yield made(attr, attrs={attr: value}, is_framework_error=True)
    for name in legal:
        for wrong in ("double", "int64", "bool", "string", "complex64", "half"):
            yield made(name, types={name: wrong}, is_framework_error=True)
    for wrong in ("int32", "complex64", "bool", "string"):
        yield made(*legal, types={name: wrong for name in legal}, is_framework_error=True)


def modes_and_names(calls, has_static) -> Iterator[tuple]:
    """(call, mode, name) of every call that is made.

    Both names have one implementation, and the graphs of unknown shapes call the kernel just as an
    eager call does: they alternate there. A graph of known shapes is built anew for every call,
    which is slow: for the calls that has_static picks, and every tenth of the others; and for
    TensorFlow's names, whose shape functions are not ours, every fifth. XLA compiles every eighth.
    """
    for number, made in enumerate(calls):
        yield made, "eager", "ours"
        yield made, "eager", "stock"
        yield made, "unknown", ("ours", "stock")[number % 2]
        if has_static(made) or number % 10 == 0:
            yield made, "static", "ours"
        if number % 5 == 0:
            yield made, "static", "stock"
        if number % perturbation.COMPILED == 0:
            yield made, "jit", ("ours", "stock")[number // perturbation.COMPILED % 2]


def has_static(made: Made) -> bool:
    return made.base.net == BASES[0].net and made.base.version == 3


def _cve_2021_41221() -> Made:
    shapes = {"input": (2,), "input_h": (1,), "input_c": (3,), "params": (2,)}
    base = Call(Network("lstm", 1, 1, 1, 1), lengths=())
    return Made(
        "CudnnRNNV3",
        base,
        tuple(shapes),
        {**shapes, "sequence_lengths": (3,)},
        lengths=(-1, 0, 1),
    )


REPRODUCERS = {"CVE-2021-41221": _cve_2021_41221()}
