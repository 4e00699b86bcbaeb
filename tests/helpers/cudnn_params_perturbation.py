"""The malformed calls of the ops that count, split and join the parameters of the cuDNN RNNs.

Deterministic, so that a child process and its parent mean the same call by the same number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from helpers import cudnn_perturbation, perturbation
from helpers.cudnn_ops import Call
from helpers.reference.stack import GATES, Network

NETWORKS = (
    Network("lstm", 2, 1, 5, 4),
    Network("gru", 1, 2, 2, 3),
    Network("lstm", 1, 1, 4, 6, 2),
    Network("rnn_tanh", 2, 2, 3, 3, skip=True),
)
OPS = (
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
)
SIZES = ("num_layers", "num_units", "input_size")
RANDOM_CALLS = 20
_MANY = 2**31 - 1


@dataclasses.dataclass(frozen=True, repr=False)
class Made:
    """One call: what was changed for which network, and all that it is made with."""

    op: str
    net: Network
    changed: tuple[str, ...]
    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]  # of sizes and params
    lists: Mapping[str, tuple[tuple[int, ...], ...]]  # shapes of weights and biases
    attrs: Mapping[str, object]
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_framework_error: bool = False

    def __repr__(self) -> str:
        everything = {**self.attrs, **self.sizes, **self.lists}
        parts = {k: everything[k] for k in self.changed if k in everything}
        shapes = {k: self.shapes[k] for k in self.changed if k in self.shapes}
        return f"{self.op} {parts} {shapes} {dict(self.types)} for {self.net}"

    def attrs_are_changed(self) -> bool:
        return not {*SIZES, *self.shapes, *self.lists}.issuperset(self.changed)

    def related(self) -> set[str]:
        """Every argument depends on the sizes, and they on the attrs, also those that count."""
        counts = {"num_params", "num_params_weights", "num_params_biases"}
        return {*self.changed, *SIZES, *self.shapes, *self.lists, *self.attrs, *counts}


def _counts(op: str, weights: int, biases: int) -> dict[str, int]:
    """The attrs that say how many weights and biases an op gives; of inputs they are counted."""
    if not op.startswith("CudnnRNNParamsToCanonical"):
        return {}
    if op.endswith("V2"):
        return {"num_params_weights": weights, "num_params_biases": biases}
    return {"num_params": weights}


def _attrs(op: str, net: Network) -> dict[str, object]:
    attrs = Call(net).attrs()
    del attrs["time_major"]
    if not op.endswith(("V2", "Size")):
        del attrs["num_proj"]
    weights, biases = net.canonical_shapes()
    return attrs | _counts(op, len(weights), len(biases))


def meant(made: Made) -> Network | None:
    """The network that these arguments describe, where they do. From the op contracts."""
    if made.is_framework_error or any(made.shapes[name] != () for name in SIZES):
        return None
    layers, units, inputs = (made.sizes[name] for name in SIZES)
    attrs, num_proj = made.attrs, made.attrs.get("num_proj", 0)
    if layers < 1 or units < 0 or inputs < 0 or not 0 <= attrs["dropout"] < 1:
        return None
    if not 0 <= num_proj <= units or (num_proj and attrs["rnn_mode"] != "lstm"):
        return None
    if attrs["input_mode"] == "skip_input" and inputs != units:
        return None
    skip = attrs["input_mode"] != "linear_input" and inputs == units
    directions = 2 if attrs["direction"] == "bidirectional" else 1
    net = Network(attrs["rnn_mode"], layers, directions, inputs, units, num_proj, skip)
    if size_of(net) >= 2**63 or ("S" in attrs and size_of(net) > _MANY and attrs["S"] == "int32"):
        return None
    if "S" in attrs:
        return net
    if layers > 100:
        return None  # no call here has that many
    weights, biases = net.canonical_shapes()
    if made.lists:
        given = (list(made.lists["weights"]), list(made.lists["biases"]))
        return net if given == (weights, biases) else None
    if made.shapes["params"] != (net.params_size(),):
        return None
    counts = _counts(made.op, len(weights), len(biases))
    return (
        net
        if all(attrs[k] == v for k, v in counts.items())
        and ("num_params" not in attrs or len(weights) == len(biases))
        else None
    )


def size_of(net: Network) -> int:
    """params_size without a list as long as the network is deep."""
    first = dataclasses.replace(net, layers=1).params_size()
    second = dataclasses.replace(net, layers=2).params_size()
    return first + (net.layers - 1) * (second - first)


def calls(op: str) -> Iterator[Made]:
    """All malformed calls of `op`, and some legal ones between them."""
    nets = NETWORKS[2:] if op.endswith("V2") else NETWORKS[:2]
    for net in NETWORKS if op.endswith("Size") else nets:
        yield from _calls_of(op, net)


def has_static(made: Made) -> bool:
    return made.net in NETWORKS[::2] and not made.is_framework_error


def _calls_of(op: str, net: Network) -> Iterator[Made]:
    sizes = dict(zip(SIZES, (net.layers, net.units, net.inputs), strict=True))
    shapes = dict.fromkeys(SIZES, ())
    weights, biases = net.canonical_shapes()
    lists = {}
    if "ToCanonical" in op:
        shapes["params"] = (net.params_size(),)
    if "CanonicalTo" in op:
        lists = {"weights": tuple(weights), "biases": tuple(biases)}
    attrs = _attrs(op, net)
    kinds = [{"S": "int64"}, {"S": "int32"}] if op.endswith("Size") else [{}]
    for kind in kinds if net == NETWORKS[0] else kinds[:1]:
        everything = {**attrs, **kind}

        def made(*changed, attrs=everything, **more):
            return Made(
                op, net, changed, attrs=attrs,
                **{"sizes": sizes, "shapes": shapes, "lists": lists, **more},
            )  # fmt: skip

        yield made()
        yield from _wrong_sizes(made, sizes)
        yield from _wrong_shapes(made, shapes, lists)
        yield from _wrong_attrs(made, net, everything)
        yield from _wrong_types(made, shapes, lists)


def _wrong_sizes(made, sizes) -> Iterator[Made]:
    values = (-1, 0, 1, 2, 3, 2**16, _MANY, -(2**31))
    for name, right in sizes.items():
        for value in {*values, right + 1, right - 1, 2 * right} - {right}:
            yield made(name, sizes={**sizes, name: value})
    rng = np.random.default_rng(2)
    for _ in range(RANDOM_CALLS):
        yield made(*sizes, sizes={k: int(rng.choice(values)) for k in sizes})


def _wrong_shapes(made, shapes, lists) -> Iterator[Made]:
    for name, shape in shapes.items():
        for other in cudnn_perturbation.other_shapes(name, shape):
            yield made(name, shapes={**shapes, name: other})
    for name, right in lists.items():
        for k, shape in enumerate(right):
            # Each one a little, the first and the last in every way.
            others = perturbation.other_shapes(shape)
            for other in others if k in (0, len(right) - 1) else others[4:5]:
                yield made(name, lists={**lists, name: (*right[:k], other, *right[k + 1 :])})
        for other in (right[:-1], (*right, right[-1]), right[:1], right[::-1], (*right, *right)):
            if other != right:
                # The first version has one number for both lists, which TensorFlow sees to.
                unequal = len(other) != len(right) and not made().op.endswith("V2")
                changed = {**lists, name: other}
                yield made(name, lists=changed, is_framework_error=unequal)
    if lists:
        # One more and one less of both: as the first version has it, they agree with each other.
        yield made(*lists, lists={k: v[:-1] for k, v in lists.items()})
        yield made(*lists, lists={k: (*v, v[0]) for k, v in lists.items()})
        swapped = {"weights": lists["biases"], "biases": lists["weights"]}
        yield made(*lists, lists=swapped)


def _wrong_attrs(made, net, attrs) -> Iterator[Made]:
    values = {
        "dropout": (-0.5, 1.0, float("nan")),
        "num_proj": (-1, 1, net.units, net.units + 1, 2**40, -(2**63), 2**63 - 1),
        "input_mode": ("linear_input", "skip_input", "auto_select"),
        "direction": ("unidirectional", "bidirectional"),
        "rnn_mode": tuple(GATES),
    }
    for name in attrs:
        for value in values.get(name, ()):
            if value != attrs[name]:
                yield made(name, attrs={**attrs, name: value})
        if name.startswith("num_params"):
            for value in (1, attrs[name] - 1, attrs[name] + 1, 2 * attrs[name]):
                yield made(name, attrs={**attrs, name: value})
            for value in (0, -1):
                yield made(name, attrs={**attrs, name: value}, is_framework_error=True)


def _wrong_types(made, shapes, lists) -> Iterator[Made]:
    for name in (*shapes, *lists):
        for wrong in ("int64", "bool", "string", "complex64", "int8"):
            yield made(name, types={name: wrong}, is_framework_error=True)
