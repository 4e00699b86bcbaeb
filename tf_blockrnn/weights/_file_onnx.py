"""ONNX models as files: nodes that feed one another, as the layers of a stack do.

Exporters move the outputs [T, D, B, H] of a node to the inputs [T, B, D·H] of the next one by
Transpose, Reshape, Squeeze and the like. Whether such nodes in between change anything is tested
with distinct numbers in place of the outputs: all that arrives must be these numbers, each in its
place.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._file_format import (
    FileContents,
    Job,
    ReadOptions,
    Written,
    select,
    stacked,
)
from tf_blockrnn.weights._onnx_nodes import (
    NamedNode,
    attributes_of,
    named_nodes,
    read_node,
    sizes_of,
    to_array,
)
from tf_blockrnn.weights.layer import DirectionWeights
from tf_blockrnn.weights.onnx import from_onnx, to_onnx_model

if TYPE_CHECKING:
    import onnx

# The ops that only move the elements of their first input (of all inputs: Concat).
_MOVES = {
    *("Concat", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split"),
    *("Squeeze", "Transpose", "Unsqueeze"),
}
_STEPS, _BATCH = 3, 2  # where the graph does not fix them


class _Unknown(Exception):
    """The value cannot be computed; the message reports which and why."""


class _Path:
    """The nodes between the outputs of one recurrent node and the inputs of another."""

    def __init__(self, model: onnx.ModelProto, below: NamedNode, dims: Sequence[int]):
        self._model, self._below, self._dims = model, below, dims
        self._producers = {name: node for node in below.graph.node for name in node.output if name}
        self._values: dict[str, np.ndarray] = {}
        self._values[below.node.output[0]] = np.arange(1.0, 1 + np.prod(dims)).reshape(dims)

    def value(self, name: str, is_data: bool = True) -> np.ndarray:
        """A value in the graph; data must arrive unchanged, a shape may be computed."""
        if name in self._values:
            return self._values[name]
        if name in self._below.constants:
            return to_array(self._below.constants[name])
        node = self._producers.get(name)
        if node is None:
            raise _Unknown(f"the value {name!r}, an input of the graph, arrives instead")
        if node is self._below.node:
            raise _Unknown(f"its last state {name!r} arrives, not its outputs of all steps")
        self._values.update(zip(node.output, self._run(node, is_data), strict=False))
        return self._values[name]

    def _run(self, node: onnx.NodeProto, is_data: bool) -> list[np.ndarray]:
        if node.op_type == "Shape" and not is_data:
            return self._evaluate(node, [self.value(node.input[0])])
        if node.op_type in ("Dropout", "Cast"):
            return [self._unchanged(node)]
        if is_data and node.op_type not in _MOVES:
            raise _Unknown(f"the node {_name(node)} is between them")
        data = len(node.input) if node.op_type == "Concat" else 1
        inputs = [
            self.value(name, is_data and number < data) if name else None
            for number, name in enumerate(node.input)
        ]
        return self._evaluate(node, inputs)

    def _unchanged(self, node: onnx.NodeProto) -> np.ndarray:
        """The input of a Dropout or Cast, after checking that it returns it unchanged."""
        attributes, value = attributes_of(node), self.value(node.input[0])
        if node.op_type == "Cast":
            weights = read_node(self._below).arrays["W"].dtype
            from onnx import helper

            if helper.tensor_dtype_to_np_dtype(attributes["to"]) != weights:
                raise _Unknown(f"the node {_name(node)} is between them and changes the type")
            return value
        training = node.input[2] if len(node.input) > 2 else ""
        constant = self._below.constants.get(training)
        if training and (constant is None or np.any(to_array(constant))):
            raise _Unknown(f"the node {_name(node)} is between them and may be in training mode")
        return value

    def _evaluate(self, node: onnx.NodeProto, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        given = {name: v for name, v in zip(node.input, inputs, strict=True) if v is not None}
        infos = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(v).dtype), None
            )
            for name, v in given.items()
        ]
        outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.output if name]
        graph = helper.make_graph([node], "one", infos, outputs)
        one = helper.make_model(graph, opset_imports=self._model.opset_import)
        try:
            return ReferenceEvaluator(one).run(None, given)
        except Exception as error:  # NumPy's for shapes that do not fit, and the evaluator's own
            raise _Unknown(f"the node {_name(node)} is between them and fails: {error}") from None


def _name(node: onnx.NodeProto) -> str:
    return f"{node.name} ({node.op_type})" if node.name else f"{node.op_type} of {node.output[0]!r}"


def _inferred_dims(model: onnx.ModelProto) -> Mapping[str, list[int | None]]:
    """The dims of the values as far as ONNX infers them; None for a dim that is not fixed."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # of a graph that it cannot process, which is no error of the weights
        graph = model.graph
    return {
        info.name: [
            dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None
            for dim in info.type.tensor_type.shape.dim
        ]
        for info in (*graph.value_info, *graph.input, *graph.output)
        if info.type.tensor_type.HasField("shape")
    }


def _layout(node: onnx.NodeProto) -> int:
    return attributes_of(node).get("layout", 0)


def _check_pair(
    model: Any, inferred: Mapping[str, Any], below: NamedNode, above: NamedNode
) -> None:
    what = f"{above.name} does not take the outputs of {below.name} unchanged: "
    if below.graph is not above.graph:
        raise UnsupportedError(f"{what}they are in different graphs of the model")
    layer = read_node(below)
    directions, units = sizes_of(layer, below.name)
    batch_first = _layout(below.node)
    known = inferred.get(below.node.input[0]) or []
    steps, batch = (known + [None, None])[:2][:: -1 if batch_first else 1]
    if len(known) != 3:
        steps = batch = None
    steps, batch = steps or _STEPS, batch or _BATCH
    dims = [batch, steps, directions, units] if batch_first else [steps, directions, batch, units]
    if not below.node.output or not below.node.output[0]:
        raise UnsupportedError(f"{what}{below.name} has no outputs of all steps, only a last state")
    path = _Path(model, below, dims)
    try:
        found = path.value(above.node.input[0])
    except _Unknown as error:
        raise UnsupportedError(what + str(error)) from None
    sent = path.value(below.node.output[0])
    sent = sent if batch_first else sent.transpose(2, 0, 1, 3)
    expected = sent.reshape(batch, steps, directions * units)
    if not _layout(above.node):
        expected = expected.swapaxes(0, 1)
    if found.shape != expected.shape or not np.array_equal(found, expected):
        raise UnsupportedError(f"{what}nodes between them reorder or repeat the outputs")


def check_stack(model: onnx.ModelProto, nodes: Sequence[NamedNode]) -> None:
    """Refuses nodes that are not a stack, from the input up, and reports what is between them."""
    inferred = _inferred_dims(model) if len(nodes) > 1 else {}
    for below, above in itertools.pairwise(nodes):
        _check_pair(model, inferred, below, above)


# ---- files


def is_onnx(path: str) -> bool:
    """Whether a file is a model by its content; false where the package onnx is missing."""
    try:
        import onnx
    except ModuleNotFoundError:
        return False
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(path, format="protobuf", load_external_data=False).HasField("graph")
    except DecodeError:
        return False


def read_onnx(path: str, options: ReadOptions) -> FileContents:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, format="protobuf")
    except DecodeError as error:
        raise ValueError(f"the file is not an ONNX model: {error}") from None
    return read_model(model, options)


def read_model(model: onnx.ModelProto, options: ReadOptions) -> FileContents:
    chosen = select(named_nodes(model), options.layers, "node", "the model")
    check_stack(model, list(chosen.values()))
    nodes = {name: read_node(found) for name, found in chosen.items()}
    reverse = {node.direction == "reverse" for node in nodes.values()}
    if len(reverse) > 1:
        raise UnsupportedError("the nodes of a stack must all be reverse or all forward")
    parts = [from_onnx(node, reverse=True) for node in nodes.values()]
    notes = [
        f"{name}: {state} is computed by the graph or is its input, and is not converted"
        for name, node in nodes.items()
        for state, value in node.states.items()
        if value is None
    ]
    return FileContents(stacked(parts), tuple(nodes), reverse.pop(), tuple(notes))


def write_onnx(job: Job) -> Written:
    """Writes a model with one node for each layer, for inputs [T, B, I]."""
    import onnx

    onnx.save(to_onnx_model(job.weights, reverse=job.reverse), job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        half = one.gates * one.units
        node, direction = f"{job.weights.cell}_{number}", int(direction_name == "backward")
        within = {
            "w_x": f"W[{direction}]",
            "w_h": f"R[{direction}]",
            "b_x": f"B[{direction}, :{half}]",
            "b_h": f"B[{direction}, {half}:]",
            "peepholes": f"P[{direction}]",
        }
        return f"{node}.{within[array]}"

    return Written(place)
