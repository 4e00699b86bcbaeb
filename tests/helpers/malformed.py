"""The malformed calls of every op: each argument, changed in every way that a caller gets wrong.

All of it follows from the op table: what may be changed, which calls are legal after all, and which
arguments an error may name. Deterministic, so that a child process and its parent mean the same
call by the same number.
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
}
_NUMBERS = {
    "int32": (-1, 0, 1, 2, 3, 2**16, 2**31 - 1, -(2**31)),
    "int64": (-1, 2**31, -(2**31), 2**32, 2**32 + 1, 2**63 - 1, -(2**63)),
}
SIZES_OF_NETWORKS = ("num_layers", "num_units", "input_size")
_LENGTHS = ("seq_len_max", "sequence_lengths")


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
    if argument.name in _LENGTHS:
        return {"T", "B"}
    if argument.alternatives == (("?",),):
        return set("TBLIH")
    dims = "".join(d for dims in argument.alternatives for d in dims or ())
    return {symbol for symbol in dims.replace("P", "H") if symbol in "TBLIH"}


def _is_host_number(argument: op_table.Argument) -> bool:
    return argument.on_host and argument.type != "int8"


# ------------------------------------------------------------------ legal calls


def bases(op: op_table.Op) -> list[Base]:
    if op.name in OF_PARAMS:
        return list(_bases_of_params(op))
    if op.name.startswith("Cudnn"):
        return [_base_of_cudnn(op, call) for call in _cudnn_calls(op)]
    # In the last I + H = 4H, or I is such that the weights of the input may be left out.
    widths = [a.left_out_if[1] for a in op.inputs.values() if (a.left_out_if or "K")[0] == "I"]
    sizes = (*_SIZES, (2, 4, op_table.evaluate((widths or ["3H"])[0], {"H": 2}), 2))
    layouts = ({op.alternative_attr: value} for value in (True, False))
    layouts = list(layouts) if op.alternative_attr else [{}]
    # The first sizes with each layout, the others in turn with one.
    chosen = [(attrs, sizes[0]) for attrs in layouts]
    chosen += [(layouts[k % len(layouts)], more) for k, more in enumerate(sizes[1:])]
    found = []
    for attrs, (t, b, i, h) in chosen:
        # Without recompute, of which test_recompute.py has the malformed calls.
        numbers = {"seq_len_max": (1,), "sequence_lengths": (1,) * b}
        numbers = {k: v for k, v in numbers.items() if k in op.inputs}
        found.append(Base(op, op_table.sizes_of(t, b, i, h), attrs, numbers=numbers))
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


def _base_of_cudnn(op: op_table.Op, call: cudnn_ops.Call) -> Base:
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
        if name in _LENGTHS:
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
        kind = next(k for k in _WRONG_VALUES if specification.startswith(k))
        wrong_values = _WRONG_VALUES[kind] + (
            (-2, 0)[: 1 + (">= 1" in specification)] * (">=" in specification)
        )
        for value in wrong_values:
            yield call(name, attrs={name: value}, wrong_attr=True)


def made(op: op_table.Op) -> Iterator[tuple[Call, str, str]]:
    """(call, mode, "ours" or "stock") of every call of an op, in their order.

    The kernel is called eagerly with all, by both names where TensorFlow has the op. In graphs the
    kinds take turns, as do the names there, and XLA gets a few; all get those of which nothing or
    everything is changed.
    """
    names = ("ours", "stock") if op.serves_tensorflow else ("ours",)
    for place, base in enumerate(bases(op)):
        for number, call in enumerate(calls(base, place == 0)):
            turn = number + place
            yield from ((call, "eager", name) for name in names)
            if not 0 < len(call.changed) < len(call.shapes):
                graphs = GRAPHS
            else:
                graphs = (GRAPHS[turn % 2], *GRAPHS[2:][: turn % COMPILED == 0])
            for mode in graphs:
                yield call, mode, names[turn // 2 % len(names)]


# -------------------------------------------------- what is legal, and what it means


def meaning(call: Call, for_graph: bool = False) -> dict | None:
    """The sizes of a legal call, and its network where it has one; None of a malformed call.

    for_graph: as far as a graph of known shapes can tell. It knows no numbers, but for those of the
    ops on parameters, which are constants, and not of which call a reserve space is.
    """
    if call.refused_by_tensorflow():
        return None
    op, attrs = call.op, call.attrs
    sizes = {"K": 1, "N": 0}
    if "direction" in op.attrs:
        sizes["D"] = 2 if attrs["direction"] == "bidirectional" else 1
    if not _fits(call, sizes):
        return None
    for name in () if for_graph else _LENGTHS:
        numbers = call.numbers.get(name, ())
        if call.shapes.get(name) != (0,) and not all(0 <= n <= sizes["T"] for n in numbers):
            return None
    if op.name in OF_PARAMS:
        return _network_of_params(call, for_graph)
    if op.name.startswith("Cudnn"):
        return _network_of_call(call, sizes, for_graph)
    weights = {call.shapes[name] == (0,) for name in ("w_ru_x", "w_c_x") if name in op.inputs}
    projects_to_nothing = call.shapes.get("w_p", (0,)) != (0,) and sizes["P"] == 0
    return None if len(weights) > 1 or projects_to_nothing else sizes


def _fits(call: Call, sizes: dict[str, int]) -> bool:
    """Whether all shapes are those of the op table, for sizes that are found on the way."""
    op, attrs = call.op, call.attrs
    num_proj, left_out = attrs.get("num_proj", 0), []
    if num_proj and attrs["rnn_mode"] != "lstm":
        return False
    for name, argument in op.inputs.items():
        given, dims = call.shapes[name], op.dims(argument, attrs)
        if argument.optional and given == (0,):
            left_out.append(argument)
            continue
        if dims is None or (argument.cell_state and attrs["rnn_mode"] != "lstm"):
            continue
        if len(given) != len(dims):
            return False
        for dim, size in zip(dims, given, strict=True):
            if "rnn_mode" in op.attrs and not num_proj:
                dim = dim.replace("P", "H")
            if dim != "?" and not op_table.bind(dim, size, sizes):
                return False
    conditions = (argument.left_out_if for argument in left_out if argument.left_out_if)
    return all(op_table.evaluate(a, sizes) == op_table.evaluate(b, sizes) for a, b in conditions)


def _network(attrs: Mapping, layers: int, directions: int, inputs: int, units: int):
    """The network of these sizes and attrs, or None."""
    num_proj = attrs.get("num_proj", 0)
    if not (layers > 0 and 0 <= attrs["dropout"] < 1 and 0 <= num_proj <= units):
        return None
    if attrs["input_mode"] == "skip_input" and inputs != units:
        return None
    skip = attrs["input_mode"] != "linear_input" and inputs == units
    return Network(attrs["rnn_mode"], layers, directions, inputs, units, num_proj, skip)


def _network_of_call(call: Call, sizes: dict, for_graph: bool) -> dict | None:
    attrs, shapes, base = call.attrs, call.shapes, call.base.cudnn
    num_proj = attrs.get("num_proj", 0)
    if num_proj and sizes["P"] != num_proj:
        return None
    net = _network(attrs, sizes["L"], sizes["D"], sizes["I"], sizes["H"])
    if net is None or shapes["params"] != (net.params_size(),):
        return None
    cudnn = cudnn_ops.Call(
        net, sizes["T"], sizes["B"], call.numbers.get("sequence_lengths"),
        attrs.get("time_major", True), base.version, attrs["dropout"],
    )  # fmt: skip
    if for_graph:
        return {**sizes, "cudnn": cudnn} if len(shapes.get("reserve_space", UNKNOWN)) == 1 else None
    if cudnn.lengths is not None and len(cudnn.lengths) != sizes["B"]:
        cudnn = dataclasses.replace(cudnn, lengths=(1,) * sizes["B"])
        if sizes["B"] and sizes["T"] < 1:
            return None
    # A reserve space is that of the base, so everything else must be, too.
    if call.backward and (cudnn != base or shapes["reserve_space"] != UNKNOWN):
        return None
    return {**sizes, "cudnn": cudnn}


def _network_of_params(call: Call, for_graph: bool) -> dict | None:
    attrs, shapes = call.attrs, call.shapes
    layers, units, inputs = (call.numbers[name][0] for name in SIZES_OF_NETWORKS)
    if units < 0 or inputs < 0:
        return None
    directions = 2 if attrs["direction"] == "bidirectional" else 1
    net = _network(attrs, layers, directions, inputs, units)
    if net is None:
        return None
    found = {"network": net, "size": params_size(net)}
    if "S" in attrs:
        bits = 31 if attrs["S"] == "int32" and not for_graph else 63
        return found if found["size"] < 2**bits else None
    if layers > 100 or found["size"] >= 2**63:
        return None  # no call here has that many
    weights, biases = net.canonical_shapes()
    if "weights" in shapes:
        given = (list(shapes["weights"]), list(shapes["biases"]))
        return found if given == (weights, biases) else None
    count = attrs.get("num_params")
    counts = (attrs.get("num_params_weights", count), attrs.get("num_params_biases", count))
    right = counts == (len(weights), len(biases)) and shapes["params"] == (found["size"],)
    return found if right else None


def params_size(net: Network) -> int:
    """Without a list as long as the network is deep."""
    first, second = (dataclasses.replace(net, layers=n).params_size() for n in (1, 2))
    return first + (net.layers - 1) * (second - first)


# --------------------------------------------------------------------- reproducers


def _published(op: str, sizes: str, attrs: Mapping = _NONE, length=1, dtype="float", **changed):
    """A call with the shapes of these sizes of T, B, I and H, but for those that are given."""
    numbers = {"seq_len_max": (length,)} if "seq_len_max" in OPS[op].inputs else {}
    base = Base(OPS[op], op_table.sizes_of(*map(int, sizes.split())), attrs, numbers=numbers)
    shapes = {**OPS[op].shapes(base.sizes, attrs), **changed}
    return Call(base, tuple(changed) or ("seq_len_max",), shapes, numbers, attrs, dtype=dtype)


def _all(op: str, shape: Shape, longest: int | None = None, **others) -> dict[str, Shape]:
    """One shape for all arguments that have dims, of at most their rank with `longest`."""
    dims = {k: len(v.dims) for k, v in OPS[op].inputs.items() if v.dims}
    ranks = {k: len(shape) if longest is None else min(n, longest) for k, n in dims.items()}
    return {k: shape[:rank] for k, rank in ranks.items()} | others


_PLAIN, _PEEPHOLE = {"use_peephole": False}, {"use_peephole": True}
_OPTIONS = {"forget_bias": 112.66590343649887, "cell_clip": 67.12389445926587}
# Public reports of crashes in TensorFlow's ops, reduced to shapes; those of whole sequences also as
# one step.
REPRODUCERS = {
    "CVE-2021-41221": Call(
        _base_of_cudnn(
            OPS["CudnnRNNV3"], cudnn_ops.Call(Network("lstm", 1, 1, 1, 1), lengths=(1, 1, 1))
        ),
        ("input", "input_h", "input_c", "params"),
        {"input": (2,), "input_h": (1,), "input_c": (3,), "params": (2,), "sequence_lengths": (3,)},
        {"sequence_lengths": (-1, 0, 1)},
        cudnn_ops.Call(Network("lstm", 1, 1, 1, 1)).attrs(),
    ),
    "CVE-2022-29200": _published("LSTMBlockCell", "1 28 29 17", _OPTIONS, wci=(), wco=(28, 17)),
    "CVE-2022-29200, all of shape [1]": _published(
        "LSTMBlockCell", "1 1 1 1", **_all("LSTMBlockCell", (1,))
    ),
    "CVE-2022-35964": _published(
        "BlockLSTMGradV2", "1 1 1 1", _PLAIN, **_all("BlockLSTMGradV2", (1, 1, 1))
    ),
    "CVE-2022-35964, one step": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (1, 1, 1))
    ),
    "CVE-2023-25658": _published("GRUBlockCellGrad", "1 2 2 1", b_c=()),
    "tensorflow#58175": _published(
        "BlockLSTM",
        "1 3 15 0",
        {"forget_bias": -121.22699269620765, "cell_clip": -106.82307555235684},
        seq_len_max=(13, 11, 0),
    ),
    "tensorflow#58261": _published(
        "GRUBlockCell", "1 1 0 1",
        x=(1, 0, 1), h_prev=(1, 1, 1), w_ru=(1, 2, 1, 1, 1, 1), w_c=(1, 1, 1),
    ),
    # No units at all, which is legal here; the peepholes are not, once they are used.
    "tensorflow#58270": _published(
        "LSTMBlockCell", "1 2 16 0", _OPTIONS | _PEEPHOLE, dtype="half",
        wci=(5,), wcf=(16,), wco=(13,),
    ),
    "tensorflow#66763": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (28, 29), x=(17,))
    ),
    "tensorflow#72362": _published("BlockLSTMV2", "2 1 2 2", _PEEPHOLE, 5, "half"),
    # Reported with no units at all, and steps of 2 among those of 10.
    "tensorflow#90915": _published(
        "BlockLSTMGrad", "10 2 16 0", _PLAIN, 10, "half", i=(2, 2, 0), h_grad=(2, 2, 0)
    ),
    "tensorflow#104847": _published(
        "BlockLSTMGrad", "1 1 1 1", _PLAIN, **_all("BlockLSTMGrad", (1, 1, 1), 2, x=(1, 1, 1))
    ),
    "tensorflow#104847, one step": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (1, 1), 2)
    ),
    "tensorflow#106407": _published("BlockLSTMGradV2", "2 2 4 5", _PLAIN, 3),
    "tensorflow#112746": _published("BlockLSTMGrad", "3 2 4 5", _PEEPHOLE, 3, x=(3, 0, 4)),
    "tensorflow#112746, one step": _published("LSTMBlockCellGrad", "1 2 4 5", _PEEPHOLE, x=(0,)),
    "tensorflow#113069": _published(
        "LSTMBlockCell", "1 1 2 2", dtype="half", x=(2,), w=(4, 2), b=(4,)
    ),
    "tensorflow#124974": _published("BlockLSTMGrad", "2 2 16 0", _PLAIN, 10, "half"),
    # The report's other end: the time loop does not run, and what follows it cuts from there.
    "tensorflow#124974, negative": _published("BlockLSTMGrad", "2 2 16 4", _PLAIN, -1),
}  # fmt: skip


def made_reproducers() -> Iterator[tuple[Call, str, str]]:
    for call, mode in itertools.product(REPRODUCERS.values(), MODES):
        for name in ("ours", "stock") if call.op.serves_tensorflow else ("ours",):
            yield call, mode, name
