"""The signatures of ops, from TensorFlow's registry, so that gradients find tensors by name."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader, _tf_private
from tf_blockrnn._ops import number_attrs, tensors


class Signature(NamedTuple):
    """The names of an op: namedtuple types of its inputs and outputs, and the attrs but types."""

    inputs: Any
    outputs: Any
    attrs: tuple[str, ...]


@functools.cache
def of(op: str) -> Signature:
    """The signature of an op by its full name."""
    found = _tf_private.op_def(op)
    inputs, outputs = (
        collections.namedtuple(kind, [argument.name for argument in arguments])
        for kind, arguments in (("Inputs", found.input_arg), ("Outputs", found.output_arg))
    )
    return Signature(inputs, outputs, tuple(a.name for a in found.attr if a.type != "type"))


def inputs_of(op: tf.Operation) -> Any:
    """The inputs of an operation as a namedtuple."""
    return of(op.type).inputs._make(op.inputs)


def outputs_of(op: tf.Operation, values: Sequence[Any] | None = None) -> Any:
    """The outputs of an operation, or what belongs to each of them, as a namedtuple."""
    return of(op.type).outputs._make(op.outputs if values is None else values)


def inputs_for(op: str, **given: tf.Tensor | None) -> Any:
    """The inputs of a call of an op by its full name; those that are not given are left out."""
    arguments = _tf_private.op_def(op).input_arg
    given = {name: tensor for name, tensor in given.items() if tensor is not None}
    types = {a.type_attr: given[a.name].dtype for a in arguments if a.name in given}

    def left_out(argument: Any) -> tf.Tensor:
        dtype = types[argument.type_attr] if argument.type_attr else tf.as_dtype(argument.type)
        return tensors.none(dtype)

    return of(op).inputs._make(
        given[argument.name] if argument.name in given else left_out(argument)
        for argument in arguments
    )


def call(op: str, inputs: Any, attrs: Mapping[str, Any]) -> Any:
    """Calls an op by its full name; its inputs and outputs are namedtuples."""
    function = getattr(_loader.load(), op.replace(">", "_"))
    attrs = {**attrs, **number_attrs.texts(op, attrs)}
    return of(op).outputs._make(function(**inputs._asdict(), **attrs))


def attrs_of(op: tf.Operation, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The attrs of an operation, as `call` takes them; without names all but types."""
    names = of(op.type).attrs if names is None else names
    return {name: number_attrs.read(op, name) for name in names}


def collect(fields: Any, *sources: Any, **others: Any) -> Any:
    """A namedtuple of the type `fields`, from those given by name and then from namedtuples."""
    found = {}
    for source in sources:
        found.update(zip(source._fields, source, strict=True))
    found.update(others)
    return fields._make([found[name] for name in fields._fields])


def gradients(op: tf.Operation, by_name: Mapping[str, Any]) -> list[Any]:
    """Gradients of inputs in the op's order; None for those that are not given."""
    return [by_name.get(name) for name in of(op.type).inputs._fields]


class Backward:
    """How a gradient op is called for a forward op, and what its outputs are the gradients of.

    Its inputs are inputs and outputs of the forward op, of the same names, and cotangents, named
    like the output with a suffix; its outputs are gradients of inputs, named with that suffix.
    """

    def __init__(self, forward: str, backward: str, suffix: str) -> None:
        """The two ops' full names; the suffix of gradients."""
        self.op, self.name = forward, backward
        self.forward, self.backward = of(forward), of(backward)
        cotangents = [name + suffix for name in self.forward.outputs._fields]
        names = (self.forward.inputs._fields, self.forward.outputs._fields, cotangents)
        self._places = [
            next((k, fields.index(name)) for k, fields in enumerate(names) if name in fields)
            for name in self.backward.inputs._fields
        ]
        used = {index for source, index in self._places if source == 2}
        # The outputs whose cotangents the gradient op does not take.
        self.untaken = [k for k in range(len(cotangents)) if k not in used]
        made = self.backward.outputs._fields
        self._grads = [
            made.index(name + suffix) if name + suffix in made else None for name in names[0]
        ]

    def inputs(self, op: tf.Operation, cotangents: Sequence[Any]) -> Any:
        """What the gradient op takes for a call of the forward op, as a namedtuple."""
        sources = (op.inputs, op.outputs, cotangents)
        return self.backward.inputs._make([sources[k][index] for k, index in self._places])

    def attrs(self, op: tf.Operation) -> dict[str, Any]:
        """The attrs of the gradient op, those of the operation."""
        return attrs_of(op, self.backward.attrs)

    def gradients(self, made: Sequence[Any]) -> list[Any]:
        """Gradients of the forward op's inputs, from the outputs of the gradient op."""
        return [None if index is None else made[index] for index in self._grads]
