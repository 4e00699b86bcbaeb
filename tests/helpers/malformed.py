"""The malformed calls of every op: each argument, changed in every way that a caller gets wrong.

All of it follows from the op table: what may be changed, and which arguments an error may name;
legal_calls.py decides which calls are legal after all. Deterministic, so that a child process and
its parent mean the same call by the same number.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from helpers import cudnn_ops, op_table
from helpers.op_table import OPS, Shape
from helpers.reference.stack import GATES, Network

# Each mode refuses at another place: the op's kernel called directly; the shape function; the
# kernel again, behind a graph that knows nothing; the lowering, as XLA compiles such a graph.
EAGER, GRAPHS = ("eager",), ("static", "unknown", "jit")
MODES = EAGER + GRAPHS
# XLA compiles a program for every call: it gets one call of so many.
COMPILED = 16
RANDOM_CALLS = 40

_NONE: Mapping = MappingProxyType({})
_empty = functools.partial(dataclasses.field, default_factory=dict)
# No two lengths agree; all do.
_SIZES = ((3, 2, 5, 4), (1, 1, 1, 1))
_SAME_SHAPES = ((), (1,), (0,), (1, 1), (0, 0), (2, 2), (1, 1, 1), (0, 0, 0), (2, 2, 2))
_WRONG_TYPES = ("double", "int32", "int64", "bool", "string", "complex64", "half", "int8")
_WRONG_TYPES_OF_ALL = ("int32", "int64", "complex64", "bool", "string")
# By what an attr's specification begins with. None is not wrong: a wrapper of TensorFlow takes it
# for the default.
_WRONG_VALUES = {
    "float": ("x", [1.0, 2.0], {}),
    "bool": ("yes", [True, False], 1.5),
    "int": ("x", [1]),
    "string": (1, [True]),
    "{'": ("other", "", 1, True),
}
# Attrs that ops check themselves, or that decide which shapes are legal; and integers in host
# memory, with those that a cast to 32 bits would bring inside.
_NUM_PROJ = (-1, 1, 2, 3, 4, 5, 2**40, -(2**63), 2**63 - 1)
_VALUES = {
    "dropout": (-0.5, 1.0, 2.0, float("nan"), float("inf"), -1e-30, 3e38),
    "num_proj": _NUM_PROJ,
    "input_mode": ("linear_input", "skip_input", "auto_select"),
    "direction": ("unidirectional", "bidirectional"),
    "rnn_mode": tuple(GATES),
    "time_major": (True, False),
    "go_backwards": (True,),
    "recompute": (0, 7),
}
_NUMBERS = {
    "int32": (-1, 0, 1, 2, 3, 2**16, 2**31 - 1, -(2**31)),
    "int64": (-1, 2**31, -(2**31), 2**32, 2**32 + 1, 2**63 - 1, -(2**63)),
}
SIZES_OF_NETWORKS = ("num_layers", "num_units", "input_size")
LENGTHS = ("seq_len_max", "sequence_lengths")


@dataclasses.dataclass(frozen=True)
class Base:
    """A legal call, of which malformed ones are made.

    shapes: of arguments that the op table says nothing about; of lists of them for a list.
    numbers: of integers in host memory.
    """

    op: op_table.Op
    sizes: Mapping[str, int]
    attrs: Mapping[str, object] = _empty()
    shapes: Mapping[str, tuple] = _empty()
    numbers: Mapping[str, tuple[int, ...]] = _empty()
    cudnn: cudnn_ops.Call | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Call:
    """One call: what was changed, and all that it is made with."""

    base: Base
    changed: tuple[str, ...]
    shapes: Mapping[str, tuple]
    numbers: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, object]
    types: Mapping[str, str] = _empty()  # those that are wrong
    wrong_attr: bool = False  # for TensorFlow
    dtype: str = "float"  # of all arguments of type T

    def __repr__(self) -> str:
        parts = {k: v for k in self.changed for v in [self.shapes.get(k)] if v is not None}
        parts |= {f"{k} =": v for k, v in self.numbers.items() if k in self.changed}
        return f"{self.op.name} {parts} {dict(self.types)} {dict(self.attrs)} {self.base.sizes}"

    @property
    def op(self) -> op_table.Op:
        return self.base.op

    @property
    def backward(self) -> bool:
        return "Backprop" in self.op.name

    def refused_by_tensorflow(self) -> bool:
        """Before any code of ours sees it. One attr may count two lists."""
        counts = {
            (a.type, len(self.shapes[name])) for name, a in self.op.inputs.items() if a.is_list
        }
        return bool(self.types) or self.wrong_attr or len(counts) > len({k for k, _ in counts})

    def changed_attrs(self) -> set[str]:
        return {k for k in self.changed if k in self.op.attrs}

    def may_be_named(self) -> set[str]:
        """Arguments and attrs that an error may rightly name: those changed, and all that one of
        their sizes is in."""
        inputs = self.op.inputs
        if self.op.name in OF_PARAMS or self.changed_attrs():
            return {*inputs, *self.op.attrs}
        sizes = {name: _symbols(argument) for name, argument in inputs.items()}
        shared = set().union(*(sizes[name] for name in self.changed))
        named = {name for name in inputs if sizes[name] & shared}
        return {*named, *self.changed, *({"num_proj", "rnn_mode", "input_mode"} & {*self.op.attrs})}


def _symbols(argument: op_table.Argument) -> set[str]:
    """The sizes that an argument's shape or numbers depend on; P is H without a projection."""
    if argument.name in LENGTHS:
        return {"T", "B"}
    if argument.alternatives == (("?",),):
        return set("TBLIH")
    dims = "".join(d for dims in argument.alternatives for d in dims or ())
    return {symbol for symbol in dims.replace("P", "H").replace("N", "TBH") if symbol in "TBLIH"}


def _is_host_number(argument: op_table.Argument) -> bool:
    return argument.on_host and argument.type != "int8"


# ------------------------------------------------------------------ legal calls


def bases(op: op_table.Op) -> list[Base]:
    if op.name in OF_PARAMS:
        return list(_bases_of_params(op))
    if op.name.startswith("Cudnn"):
        return [base_of_cudnn(op, call) for call in _cudnn_calls(op)]
    # In the last, which has recompute, I + H = 4H, or the weights of the input may be left out.
    widths = [a.left_out_if[1] for a in op.inputs.values() if (a.left_out_if or "K")[0] == "I"]
    sizes = (*_SIZES, (2, 4, op_table.evaluate((widths or ["3H"])[0], {"H": 2}), 2))
    layouts = ({op.alternative_attr: value} for value in (True, False))
    layouts = list(layouts) if op.alternative_attr else [{}]
    # The first sizes with each layout, the others with one, alternately.
    chosen = [(attrs, sizes[0]) for attrs in layouts]
    chosen += [(layouts[k % len(layouts)], more) for k, more in enumerate(sizes[1:])]
    found = []
    for number, (attrs, dims) in enumerate(chosen, 1):
        numbers = {"seq_len_max": (1,), "sequence_lengths": (1,) * dims[1]}
        numbers = {k: v for k, v in numbers.items() if k in op.inputs}
        known = op_table.sizes_of(*dims)
        if number == len(chosen) and "recompute" in op.attrs:
            attrs = {**attrs, "recompute": 1}
            known |= {"K": 0, "N": op_table.size_of_span_states(op, known, 1)}
        found.append(Base(op, known, attrs, numbers=numbers))
    return found


# No two lengths agree; all do; batch-major, both directions and I + H = 4H; projected; skipped.
_CUDNN_CALLS = (
    cudnn_ops.Call(Network("lstm", 2, 1, 5, 4), 3, 7, (3, 0, 2, 1, 3, 1, 2)),
    cudnn_ops.Call(Network("rnn_tanh", 1, 1, 1, 1), 1, 1, (1,)),
    cudnn_ops.Call(Network("gru", 1, 2, 6, 2), 2, 4, (2, 1, 0, 2), time_major=False),
    cudnn_ops.Call(Network("lstm", 2, 2, 2, 5, 3), 4, 3, (4, 4, 1)),
    cudnn_ops.Call(Network("rnn_relu", 3, 1, 3, 3, skip=True), 2, 5, (2,) * 5),
)
# Of this shape in the op table, and known when its forward call has been made.
UNKNOWN: Shape = (-1,)


def _cudnn_calls(op: op_table.Op) -> Iterator[cudnn_ops.Call]:
    version = 3 if op.name.endswith("V3") else 2 if op.name.endswith("V2") else 1
    for call in _CUDNN_CALLS if version == 3 else _CUDNN_CALLS[:3:2]:
        old = {} if version == 3 else {"lengths": None, "time_major": True}
        yield dataclasses.replace(call, version=version, **old)


def base_of_cudnn(op: op_table.Op, call: cudnn_ops.Call) -> Base:
    net = call.net
    sizes = {"T": call.steps, "B": call.batch, "I": net.inputs, "H": net.units, "P": net.width}
    sizes |= {"L": net.layers, "D": net.directions}
    shapes = {"params": (net.params_size(),), "reserve_space": UNKNOWN}
    if net.mode != "lstm":
        shapes |= {"output_c": (), "output_c_backprop": ()}
    numbers = {"sequence_lengths": call.lengths} if call.version == 3 else {}
    return Base(op, sizes, call.attrs(), shapes, numbers, call)


OF_PARAMS = {name for name in OPS if "Params" in name}
_NETWORKS = (
    Network("lstm", 2, 1, 5, 4),
    Network("gru", 1, 2, 2, 3),
    Network("lstm", 1, 1, 4, 6, 2),
    Network("rnn_tanh", 2, 2, 3, 3, skip=True),
)


def _bases_of_params(op: op_table.Op) -> Iterator[Base]:
    nets = _NETWORKS[2:] if op.name.endswith("V2") else _NETWORKS[:2]
    for number, net in enumerate(_NETWORKS if op.name.endswith("Size") else nets):
        numbers = zip(SIZES_OF_NETWORKS, ((net.layers,), (net.units,), (net.inputs,)), strict=True)
        weights, biases = net.canonical_shapes()
        counts = {"S": ("int64", "int32")[number % 2], "num_params": len(weights)}
        counts |= {"num_params_weights": len(weights), "num_params_biases": len(biases)}
        attrs = {**cudnn_ops.Call(net).attrs(), **counts}
        shapes = {"params": (net.params_size(),), "weights": (*weights,), "biases": (*biases,)}
        attrs = {k: v for k, v in attrs.items() if k in op.attrs and k not in op.counted()}
        yield Base(op, {}, attrs, shapes, dict(numbers))


# -------------------------------------------------------------- malformed calls


def other_shapes(shape: Shape) -> list[Shape]:
    """Shapes that a caller may give instead, each once."""
    if shape == UNKNOWN:
        return [(), (0,), (1,), (2,), (27,), (1, 1), (100000,)]
    rank = len(shape)
    # Rank 0, one less, one more, many more.
    candidates = [(), shape[1:], shape[:-1], (1, *shape), (*shape, 1), (*shape, 2), (0, *shape)]
    candidates += [(1,) * 9, shape * 3, shape[::-1], (0,) * rank, (1,) * rank]
    for axis, size in enumerate(shape):
        for dim in (size + 1, size - 1, 0, 1, 2 * size, 1000):
            candidates.append((*shape[:axis], max(dim, 0), *shape[axis + 1 :]))
    small = (one for one in candidates if one != shape and math.prod(one) <= 10**5)
    return list(dict.fromkeys(small))


def _other_lists(shapes: tuple[Shape, ...]) -> Iterator[tuple[Shape, ...]]:
    """Each shape changed a little, the first and the last in every way; and other numbers."""
    for k, shape in enumerate(shapes):
        others = other_shapes(shape)
        for other in others if k in (0, len(shapes) - 1) else others[4:5]:
            yield (*shapes[:k], other, *shapes[k + 1 :])
    yield from (shapes[:-1], (*shapes, shapes[-1]), shapes[:1], shapes[::-1], shapes * 2)


def calls(base: Base, first: bool = False) -> Iterator[Call]:
    """All malformed calls of a base, and some legal ones between them.

    first: with those that TensorFlow refuses by itself.
    """
    op, legal = base.op, base.op.shapes(base.sizes, base.attrs, base.shapes)

    def call(*changed, shapes=_NONE, numbers=_NONE, attrs=_NONE, **more):
        return Call(
            base, changed, {**legal, **shapes}, {**base.numbers, **numbers},
            {**base.attrs, **attrs}, **more,
        )  # fmt: skip

    is_list = {name: argument.is_list for name, argument in op.inputs.items()}
    others = {
        name: list(_other_lists(shape) if is_list[name] else other_shapes(shape))
        for name, shape in legal.items()
    }
    yield call()
    left_out = [name for name in legal if op.inputs[name].optional]
    for names in (*([name] for name in left_out), left_out, sorted(op.optional())):
        yield call(*names, shapes=dict.fromkeys(names, (0,)))
    for name in legal:
        for other in others[name]:
            yield call(name, shapes={name: other})
    yield from _with_other_numbers(base, call)
    for shape in _SAME_SHAPES:
        same = {k: (shape,) * len(v) if is_list[k] else shape for k, v in legal.items()}
        yield call(*legal, shapes=same)
        scalars = {k: () for k in base.numbers}
        yield call(*legal, shapes={**same, **scalars})
    # Two or three at once: errors must not cancel each other.
    rng = np.random.default_rng([len(op.name), *base.sizes.values()])
    for _ in range(RANDOM_CALLS):
        count = min(int(rng.integers(2, 4)), len(legal))
        names = tuple(rng.choice(list(legal), count, replace=False))
        yield call(*names, shapes={k: others[k][int(rng.integers(len(others[k])))] for k in names})
    for name, value in base.attrs.items():
        values = _VALUES.get(name, ())
        if name.startswith("num_params"):
            values = (1, value - 1, value + 1, 2 * value)
        for other in values:
            if other != value:
                yield call(name, attrs={name: other})
    if first:
        yield from _refused_by_tensorflow(op, call)


def _with_other_numbers(base: Base, call) -> Iterator[Call]:
    for name, right in base.numbers.items():
        values = _NUMBERS[base.op.inputs[name].type.replace("Tlen", "int32")]
        if name in LENGTHS:
            steps = base.sizes["T"]
            values = (*range(steps + 2), 2**16 + steps, *values)
        else:
            values = (*values, right[0] - 1, right[0] + 1, 2 * right[0])
        for value, place in itertools.product(values, sorted({0, len(right) - 1})):
            others = (*right[:place], value, *right[place + 1 :])
            if others != right:
                yield call(name, numbers={name: others})
    if base.op.name in OF_PARAMS:
        rng = np.random.default_rng(2)
        for _ in range(RANDOM_CALLS // 2):
            numbers = {k: (int(rng.choice(_NUMBERS["int32"])),) for k in base.numbers}
            yield call(*numbers, numbers=numbers)


def _refused_by_tensorflow(op: op_table.Op, call) -> Iterator[Call]:
    of_type = [argument.type for argument in op.inputs.values()]
    right = {k: {k} for k in of_type} | {"Tlen": {"int32", "int64"}}
    if sum(kind.endswith("T") for kind in of_type) == 1 and "T" in of_type:
        right["T"] = {"half", "double"}  # of a single tensor
    for name, argument in op.inputs.items():
        for wrong in [one for one in _WRONG_TYPES if one not in right[argument.type]]:
            yield call(name, types={name: wrong})
    for wrong in _WRONG_TYPES_OF_ALL:
        wrong_for = [k for k, v in op.inputs.items() if wrong not in right[v.type]]
        yield call(*wrong_for, types=dict.fromkeys(wrong_for, wrong))
    for name, specification in op.attrs.items():
        if name in ("T", "Tlen", "S") or name in op.counted():
            continue
        kind = "float" if op_table.is_number(specification) else specification
        kind = next(k for k in _WRONG_VALUES if kind.startswith(k))
        wrong_values = _WRONG_VALUES[kind] + (
            (-2, 0)[: 1 + (">= 1" in specification)] * (">=" in specification)
        )
        for value in wrong_values:
            yield call(name, attrs={name: value}, wrong_attr=True)


def made(op: op_table.Op) -> Iterator[tuple[Call, str, str]]:
    """(call, mode, "ours" or "stock") of every call of an op, in their order.

    The kernel is called eagerly with all, by both names where TensorFlow has the op. Kinds of
    graphs alternate from call to call, and so do the names in them; XLA gets one call in COMPILED.
    A call of which nothing or everything is changed runs in all of them.
    """
    names = ("ours", "stock") if op.serves_tensorflow else ("ours",)
    for place, base in enumerate(bases(op)):
        for number, call in enumerate(calls(base, place == 0)):
            index = number + place
            yield from ((call, "eager", name) for name in names)
            if not 0 < len(call.changed) < len(call.shapes):
                graphs = GRAPHS
            else:
                graphs = (GRAPHS[index % 2], *GRAPHS[2:][: index % COMPILED == 0])
            for mode in graphs:
                yield call, mode, names[index // 2 % len(names)]
