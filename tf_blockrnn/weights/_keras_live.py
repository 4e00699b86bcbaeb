"""Layers of Keras, tf_keras and this package that exist as objects.

Neither framework is imported: what a class is, its module and its bases tell.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, check_overrides, is_a
from tf_blockrnn.weights._formats import KERAS_HARD_SIGMOID
from tf_blockrnn.weights._keras_arrays import NAMES, NORMS, norms_of
from tf_blockrnn.weights._keras_layers import (
    CUDNN,
    FRAMEWORKS,
    KNOWN,
    Call,
    KerasLayer,
    Tensor,
    recurrent_layers,
    without_masks,
)

# TensorFlow 1's cells, whose names are those of Keras' and whose weights are not.
_OTHER_CELLS = "legacy_cells"


def _root(one: Any) -> str:
    """The framework that a class or function is of."""
    return (getattr(one, "__module__", None) or "").partition(".")[0]


def is_layer(source: Any) -> bool:
    """Whether it is a layer, of Keras or tf_keras; False if neither is imported."""
    return any(is_a(source, name, "layers.Layer") for name in ("keras", "tf_keras"))


def _flat_layers(source: Any) -> list[Any]:
    """A layer and all that it has, at any depth; nothing of an operation, which is no layer."""
    return list(source._flatten_layers()) if hasattr(source, "_flatten_layers") else []


def _flat(value: Any) -> Iterator[Any]:
    """The tensors in arguments."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _flat(one)
    elif hasattr(value, "_keras_history"):
        yield value


def _tensor(tensor: Any) -> Tensor:
    layer, call, output = tensor._keras_history
    return Tensor(None if layer is None else LiveLayer(layer), call, output)


def _tensors(value: Any) -> tuple[Tensor, ...]:
    return tuple(map(_tensor, _flat(value)))


class LiveLayer(KerasLayer):
    """A layer, cell, model or operation that is an object; `source` is it."""

    def __init__(self, source: Any):
        self.source = source
        self.name = getattr(source, "name", type(source).__name__)
        self.class_name = type(source).__name__
        base = next((one for one in type(source).__mro__ if _root(one) in FRAMEWORKS), None)
        known = base is not None and _OTHER_CELLS not in base.__module__
        self._base = base if known else type(source)
        self.kind = base.__name__ if known else ""
        self.is_own = known and type(source) is base

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LiveLayer) and self.source is other.source

    def __hash__(self) -> int:
        return id(self.source)

    @functools.cached_property
    def has_cells(self) -> bool:
        if self.is_own or self.kind in KNOWN:
            return False
        found = [one.source for _, one in recurrent_layers(self)]
        read = {id(part) for one in found for part in _flat_layers(one)}
        parts = [part for part in _flat_layers(self.source) if id(part) not in read]
        return any(LiveLayer(part).kind in KNOWN for part in parts)

    @property
    def has_layers(self) -> bool:
        """Whether it is a model or a wrapper, and not a recurrent layer or cell."""
        inner = hasattr(self.source, "layers") or hasattr(self.source, "layer")
        return inner and self.kind not in KNOWN

    def get(self, attribute: str, default: Any = None) -> Any:
        return getattr(self.source, attribute, default)

    def inner(self, attribute: str) -> LiveLayer | None:
        if attribute == "cell" and self.kind in CUDNN:
            return self
        found = getattr(self.source, attribute, None)
        return None if found is None or found is self.source else LiveLayer(found)

    def all_inner(self, attribute: str) -> list[LiveLayer]:
        found = getattr(self.source, attribute, None)
        return [LiveLayer(one) for one in found] if isinstance(found, (list, tuple)) else []

    def activation(self, argument: str) -> str:
        found = getattr(self.source, argument)
        name = getattr(found, "__name__", None) or type(found).__name__
        known = _root(found) in (*FRAMEWORKS, "tensorflow")
        return name if known else f"{name} of another program"

    @property
    def hard_sigmoid(self) -> float:
        of_keras_2 = _root(getattr(self.source, "recurrent_activation", None)) == "tf_keras"
        return 0.2 if of_keras_2 else KERAS_HARD_SIGMOID

    def arrays(self, cell: str) -> list[np.ndarray]:
        source = self.source
        if not source.built:
            raise ValueError(f"{self.name} has no weights yet: build it, or call it once")
        names = ("kernel", "recurrent_kernel", "bias", *NAMES["peepholes"], *NAMES["w_p"])
        variables = {name: getattr(source, name, None) for name in names}
        for norm in norms_of(cell):
            sublayer = getattr(source, NORMS[norm])
            variables |= {f"{norm}.gamma": sublayer.gamma, f"{norm}.beta": sublayer.beta}
        variables = {name: one for name, one in variables.items() if one is not None}
        weights = {id(one) for one in source.weights}
        for name, variable in variables.items():
            if id(variable) not in weights:
                raise UnsupportedError(f"{self.name}: {name} is computed, it is not a variable")
        return [np.asarray(one.numpy()) for one in variables.values()]

    def check_computes_as_known(self) -> None:
        if self.kind in KNOWN:
            check_overrides(self.source, self._base, self.name)

    # ---- the graph

    @functools.cached_property
    def calls(self) -> list[Call]:
        return [self._call(node) for node in getattr(self.source, "_inbound_nodes", ())]

    def _call(self, node: Any) -> Call:
        if hasattr(node, "arguments"):
            given, named = node.arguments.args, node.arguments.kwargs
        else:  # of tf_keras
            given, named = node.call_args or (), node.call_kwargs or {}
        first = given[:1] or [named[name] for name in ("sequences", "inputs") if name in named]
        training = named.get("training") or any(one is True for one in given[1:2])
        resets = _tensors(named.get("resets"))
        given, named, masks = without_masks(given, named)
        inputs = (*_tensors(given), *_tensors(named))
        return Call(self, _tensors(first), inputs, _tensors(masks), bool(training), resets)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self._ends("inputs")

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self._ends("outputs")

    def _ends(self, attribute: str) -> tuple[Tensor, ...]:
        if not hasattr(self.source, "layers"):
            return ()
        return _tensors(getattr(self.source, attribute, None))
