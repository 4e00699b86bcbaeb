"""The values of an ONNX graph that are constants, or that nodes compute from constants alone.

Exporters store weights behind nodes such as Slice, Concat, Cast and DequantizeLinear, which
runtimes fold when they load a model. A Scope folds them likewise, by ONNX's reference evaluator. A
file must not make it allocate more than in proportion to the file's size, loop or recurse, so the
elements of all values are counted before they are computed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_blockrnn.weights._bounds import product
from tf_blockrnn.weights._checks import first_line

if TYPE_CHECKING:
    import onnx

# The ops that only move the elements of their first input (of all inputs: Concat).
MOVES = {
    *("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split"),
    *("Squeeze", "Transpose", "Unsqueeze"),
}
_ELEMENTWISE = {"Add", "Div", "Equal", "Mul", "Neg", "Sub", "Where"}
_OTHERS = {
    *("Cast", "Constant", "ConstantOfShape", "DequantizeLinear", "Dropout", "Expand"),
    *("QuantizeLinear", "Shape", "Tile"),
}
# The names of ONNX's own domain.
DOMAINS = ("", "ai.onnx")
FOLDED = MOVES | _ELEMENTWISE | _OTHERS
# The first version that the evaluator has, where older ones compute the same.
_LEAST_VERSIONS = {"DequantizeLinear": 19}

# The elements that may be computed: some for any file, and some for each byte in it.
_ELEMENTS, _ELEMENTS_PER_BYTE = 1 << 24, 8


class NotConstant(Exception):
    """The value is not computed from constants alone; the message reports why."""


def named(node: onnx.NodeProto) -> str:
    """A node for messages: "scale (Mul)", or "Mul of 'y'" if it has no name."""
    if node.name:
        return f"{node.name} ({node.op_type})"
    return f"{node.op_type} of {next(iter(node.output), '')!r}"


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    def text(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [text(v) for v in value]
        return value.decode() if isinstance(value, bytes) else value

    return {a.name: text(helper.get_attribute_value(a)) for a in node.attribute}


def check_node(node: onnx.NodeProto) -> None:
    """Refuses two attributes of one name, and tensors that check_tensor refuses."""
    if len({a.name for a in node.attribute}) < len(node.attribute):
        raise ValueError(f"the node {named(node)} has two attributes of one name")
    for attribute in node.attribute:
        for tensor in (attribute.t, *attribute.tensors):
            check_tensor(tensor)


_DATA = ("float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data")


def check_tensor(tensor: onnx.TensorProto) -> None:
    """Refuses dims that are none, and two sets of elements, of which one would be read."""
    held = [name for name in _DATA if getattr(tensor, name)]
    held += ["raw_data"] * tensor.HasField("raw_data")
    if tensor.data_location == tensor.EXTERNAL:
        held.append("external_data")
    if len(held) > 1:
        raise ValueError(f"the tensor {tensor.name!r} has both {held[0]} and {held[1]}")
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"the tensor {tensor.name!r} has a negative dim, {list(tensor.dims)}")


def constants_of(tensors: Iterable[onnx.TensorProto]) -> dict[str, onnx.TensorProto]:
    """Initializers by name; refuses two of one name."""
    found: dict[str, onnx.TensorProto] = {}
    for tensor in tensors:
        if tensor.name in found:
            raise ValueError(f"there are two initializers {tensor.name!r}")
        found[tensor.name] = tensor
    return found


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes: those of If, Loop and Scan."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def tensors_of(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a model, in graphs, functions and attributes."""
    yield from model.graph.initializer
    nodes = [model.graph.node, *(one.node for one in model.functions)]
    graphs = []
    while nodes:
        for node in nodes.pop():
            for attribute in node.attribute:
                yield from (attribute.t, *attribute.tensors)
            graphs += bodies_of(node)
        while graphs:
            body = graphs.pop()
            yield from body.initializer
            nodes.append(body.node)


def to_array(value: np.ndarray | onnx.TensorProto) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    from onnx import numpy_helper

    check_tensor(value)
    try:
        return numpy_helper.to_array(value)
    except KeyError:
        raise ValueError(
            f"the tensor {value.name!r} has an unknown data_type, {value.data_type}"
        ) from None


class Shared:
    """What the scopes of one model share: its operators' versions, and how much may be computed."""

    def __init__(self, model: onnx.ModelProto | None, elements: int = _ELEMENTS):
        self.model = model
        self.left = elements
        opsets = [] if model is None else model.opset_import
        self.version = max((one.version for one in opsets if one.domain in DOMAINS), default=1)

    def take(self, elements: int) -> None:
        if elements > self.left:
            raise NotConstant(f"it would have {elements} elements, too many for this file")
        self.left -= elements

    @functools.cached_property
    def trials(self) -> tuple[Mapping[str, Sequence[int]], ...]:
        return () if self.model is None else trial_dims(self.model)


class Scope:
    """The constants that the nodes of a graph see: its own, and those of the graphs around it.

    Args:
      constants: by name, arrays or TensorProtos.
      graph: the one whose nodes compute further values, if there is one.
      outer: the scope of the graph around it.
      model: the one of the graph, if there is no outer scope.
    """

    def __init__(
        self,
        constants: Mapping[str, Any],
        graph: onnx.GraphProto | None = None,
        outer: Scope | None = None,
        model: onnx.ModelProto | None = None,
    ):
        self._constants, self._outer = constants, outer
        self._known: dict[str, np.ndarray] = {}
        self._dims: Mapping[str, Sequence[int]] = {}
        self._inputs: set[str] = set()
        self._producers: dict[str, onnx.NodeProto] = {}
        self._shared = Shared(model) if outer is None else outer._shared
        if graph is not None:
            self._inputs = {info.name for info in graph.input}
            self._producers = {name: node for node in graph.node for name in node.output if name}
            for part in (*graph.initializer, *graph.node):
                self._shared.left += _ELEMENTS_PER_BYTE * part.ByteSize()

    def at(self, dims: Mapping[str, Sequence[int]]) -> Scope:
        """The same scope, where Shape of these values, which need not be constants, is known."""
        new = type(self).__new__(Scope)
        vars(new).update(vars(self), _dims=dims, _known=dict(self._known))
        new._outer = self._outer and self._outer.at(dims)
        return new

    def trials(self) -> Iterator[Scope]:
        """The same scope with two sets of sizes for the dims that the model does not fix."""
        return (self.at(dims) for dims in self._shared.trials)

    def trial_dims(self) -> Mapping[str, Sequence[int]]:
        """The dims of values in the first of `trials`."""
        return next(iter(self._shared.trials), {})

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that computes a value, if one does."""
        owner = self._owner(name)
        return owner and owner._producers.get(name)

    def value(self, name: str) -> np.ndarray:
        """A value by name.

        Raises:
          NotConstant: it depends on an input of the graph, or on a node that is not folded.
        """
        pending, begun = [(self, name)], set()
        while pending:  # not recursive: a chain of nodes may be long
            scope, wanted = pending[-1]
            owner = scope._owner(wanted)
            if owner is None:
                raise NotConstant(f"nothing in the model computes {wanted!r}")
            if not owner._find(wanted):
                node = owner._producers[wanted]
                needed = [each for each in owner._needs(node) if each]
                missing = [(owner, each) for each in needed if not owner._has(each)]
                if missing:
                    if id(node) in begun:
                        raise NotConstant(f"{wanted!r} depends on itself")
                    begun.add(id(node))
                    pending += missing
                    continue
                outputs = owner._run(node)
                owner._known.update(zip(node.output, outputs, strict=False))
            pending.pop()
        return self._owner(name)._known[name]

    def uniform(self, name: str) -> Any:
        """The number that all elements of a value are, whatever its shape; None if not known."""
        seen: set[str] = set()
        while name not in seen and (node := self.producer(name)) is not None:
            seen.add(name)
            if node.op_type == "ConstantOfShape":
                value = attributes_of(node).get("value")
                return 0.0 if value is None else to_array(value).reshape(-1)[0]
            if node.op_type == "Concat" and len(set(node.input)) > 1:
                return None
            if node.op_type not in MOVES | {"Cast", "Expand", "Tile"} or not node.input:
                return None
            name = node.input[0]
        try:
            elements = np.unique(self.value(name))
        except NotConstant:
            return None
        return elements[0] if len(elements) == 1 else None

    def _owner(self, name: str) -> Scope | None:
        """The innermost scope that defines a name."""
        scope = self
        while scope is not None and not (
            name in scope._known
            or name in scope._constants
            or name in scope._inputs
            or name in scope._producers
        ):
            scope = scope._outer
        return scope

    def _find(self, name: str) -> bool:
        """Whether the value of an own name is known by now; inputs never will be."""
        if name not in self._known and name in self._constants:
            self._known[name] = to_array(self._constants[name])
        if name not in self._known and name in self._inputs:
            raise NotConstant(f"it depends on {name!r}, an input of the graph")
        return name in self._known

    def _has(self, name: str) -> bool:
        owner = self._owner(name)
        return owner is not None and owner._find(name)

    def _needs(self, node: onnx.NodeProto) -> Sequence[str]:
        """The inputs of a node that are needed to run it; refuses those that are not folded."""
        if node.op_type not in FOLDED or node.domain not in DOMAINS:
            raise NotConstant(f"it depends on the node {named(node)}, which is not folded")
        if node.op_type == "Shape" and node.input[0] in self._dims:
            return ()
        return node.input

    def _run(self, node: onnx.NodeProto) -> Sequence[np.ndarray]:
        if node.op_type == "Shape" and node.input[0] in self._dims:
            dims = np.asarray(self._dims[node.input[0]], np.int64)
            attributes = attributes_of(node)
            return [dims[attributes.get("start", 0) : attributes.get("end")]]
        return self._evaluate(node, self._given(node))

    def _given(self, node: onnx.NodeProto) -> list[np.ndarray | None]:
        return [self._owner(name)._known[name] if name else None for name in node.input]

    def _evaluate(
        self, node: onnx.NodeProto, inputs: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """The outputs of a node."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        given = {name: v for name, v in zip(node.input, inputs, strict=True) if v is not None}
        version = max(self._shared.version, _LEAST_VERSIONS.get(node.op_type, 0))
        try:
            self._shared.take(_most_elements(node, inputs))
            infos = [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype), None
                )
                for name, v in given.items()
            ]
            outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.output]
            graph = helper.make_graph([node], "one", infos, outputs)
            one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
            found = ReferenceEvaluator(one).run(None, given)
        # NumPy's for shapes that do not fit, the evaluator's own, and NotConstant.
        except Exception as error:
            raise NotConstant(f"the node {named(node)} fails: {first_line(error)}") from None
        if not all(isinstance(each, (np.ndarray, np.generic)) for each in found):
            raise NotConstant(f"the node {named(node)} does not return tensors")
        return [np.asarray(each) for each in found]


def _sum_of_sizes(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> int:
    return sum(each.size for each in inputs)


def _broadcast(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> int:
    return math.prod(np.broadcast_shapes(*(each.shape for each in inputs)))


def _expanded(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> int:
    return math.prod(np.broadcast_shapes(inputs[0].shape, tuple(map(int, inputs[1]))))


def _gathered(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> int:
    kept = inputs[0].size // max(1, inputs[0].shape[attributes_of(node).get("axis", 0)])
    return inputs[1].size * kept


def _split(node: onnx.NodeProto, inputs: Sequence[np.ndarray]) -> int:
    if attributes_of(node).get("num_outputs", 0) > len(node.output):
        raise NotConstant("it has fewer outputs than num_outputs")
    return inputs[0].size


def _dropout(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None]) -> int:
    if len(inputs) > 2 and inputs[2] is not None and np.any(inputs[2]):
        raise NotConstant("it is in training mode")
    return 2 * inputs[0].size


# The number of elements of the outputs; by default at most that of the largest input.
_COUNTS: dict[str, Callable[[onnx.NodeProto, Sequence[np.ndarray]], int]] = {
    **dict.fromkeys(_ELEMENTWISE, _broadcast),
    "Concat": _sum_of_sizes,
    "Constant": lambda node, inputs: node.ByteSize(),
    "ConstantOfShape": lambda node, inputs: product(inputs[0]),
    "Dropout": _dropout,
    "Expand": _expanded,
    "Gather": _gathered,
    "Split": _split,
    "Tile": lambda node, inputs: inputs[0].size * product(inputs[1]),
}


def _most_elements(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None]) -> int:
    if count := _COUNTS.get(node.op_type):
        return count(node, inputs)
    return max((each.size for each in inputs if each is not None), default=0)


# ---- sizes that the model does not fix


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without large constants, and with a symbol for each dim of an input without one."""
    import onnx
    from onnx import helper

    slim = onnx.ModelProto(ir_version=model.ir_version)
    slim.opset_import.extend(model.opset_import)
    graph, source = slim.graph, model.graph
    graph.name = source.name
    for field in ("node", "input", "output", "value_info"):
        getattr(graph, field).extend(getattr(source, field))
    for info in graph.input:
        for number, dim in enumerate(info.type.tensor_type.shape.dim):
            if not (dim.dim_param or dim.HasField("dim_value")):
                dim.dim_param = f"{info.name}:{number}"
    inputs = {info.name for info in graph.input}
    for tensor in source.initializer:
        if product(tensor.dims) <= 1 << 10:
            graph.initializer.append(tensor)
        elif tensor.name not in inputs:
            info = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            graph.input.append(info)
    return slim


def _infos(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info)
    for node in graph.node:
        for body in bodies_of(node):
            yield from _infos(body)


def trial_dims(model: onnx.ModelProto) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The dims of the values, as far as ONNX infers them, with two sets of numbers for symbols."""
    import onnx

    slim = _skeleton(model)
    try:
        graph = onnx.shape_inference.infer_shapes(slim).graph
    except Exception:  # of a graph that it cannot process, which is no error of the weights
        graph = slim.graph
    symbols: dict[str, int] = {}
    cycle = itertools.cycle((3, 2, 5, 4, 7, 6))
    found: dict[str, list[int | str]] = {}
    for info in _infos(graph):
        kind = info.type.tensor_type
        dims = [d.dim_param or (d.dim_value if d.dim_value > 0 else None) for d in kind.shape.dim]
        # Bodies may have values of one name.
        if not kind.HasField("shape") or None in dims or found.get(info.name, dims) != dims:
            found[info.name] = []
            continue
        found[info.name] = dims
        for dim in dims:
            if isinstance(dim, str) and dim not in symbols:
                symbols[dim] = next(cycle)
    return tuple(
        {
            name: [symbols[dim] + more if isinstance(dim, str) else dim for dim in dims]
            for name, dims in found.items()
            if dims
        }
        for more in (0, 1)
    )
