"""The recurrent nodes of an ONNX model, with their weights and attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._onnx_checks import ORDER
from tf_blockrnn.weights.layer import UnsupportedError

if TYPE_CHECKING:
    import onnx

# The positions of the weights among a node's inputs.
INPUTS = {"W": 1, "R": 2, "B": 3, "P": 7}
_STATES = {"initial_h": 5, "initial_c": 6}


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxLayer:
    """The weights and attributes of one recurrent ONNX node, which is one layer.

    Args:
      op_type: "LSTM", "GRU" or "RNN".
      arrays: "W", "R" and, if the node has them, "B" and "P".
      attributes: those of the node, by name; strings as str.
      states: "initial_h" and "initial_c", if the node has them; None for a state that the graph
        computes or takes as an input.
      name: of the node, for error messages.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights import OnnxLayer
      >>> layer = OnnxLayer("RNN", {"W": np.ones([1, 4, 3]), "R": np.ones([1, 4, 4])},
      ...                   {"direction": "reverse"})
      >>> layer.op_type, layer.direction
      ('RNN', 'reverse')
    """

    op_type: str
    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    states: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)
    name: str = ""

    @property
    def direction(self) -> str:
        """ "forward", "reverse" or "bidirectional"."""
        return self.attributes.get("direction", "forward")


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    def text(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [text(v) for v in value]
        return value.decode() if isinstance(value, bytes) else value

    return {a.name: text(helper.get_attribute_value(a)) for a in node.attribute}


def to_array(value: np.ndarray | onnx.TensorProto) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    from onnx import numpy_helper

    try:
        return numpy_helper.to_array(value)
    except KeyError:
        raise ValueError(
            f"the tensor {value.name!r} has an unknown data_type, {value.data_type}"
        ) from None


class NamedNode(NamedTuple):
    """A recurrent node, the graph that has it and the constants that are visible there."""

    name: str
    node: onnx.NodeProto
    graph: onnx.GraphProto | None
    constants: Mapping[str, Any]


def constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The values that are constants in the graph: initializers and outputs of Constant nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            tensors = [a.t for a in node.attribute if a.name == "value"]
            found |= dict(zip(node.output, tensors, strict=False))
    return found


def _nodes(graph: onnx.GraphProto, outer: Mapping[str, Any]) -> Iterator[NamedNode]:
    """The recurrent nodes, also in bodies of If, Loop and Scan."""
    visible = {**outer, **constants(graph)}
    for node in graph.node:
        if node.op_type in ORDER and node.domain in ("", "ai.onnx"):
            yield NamedNode(node.name, node, graph, visible)
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(body, visible)


def named_nodes(model: onnx.ModelProto) -> dict[str, NamedNode]:
    """All recurrent nodes by names as described in `onnx_layers`."""
    found: dict[str, NamedNode] = {}
    for number, one in enumerate(_nodes(model.graph, {})):
        name = one.name or f"{one.node.op_type.lower()}_{number}"
        if name in found:  # bodies of control flow may repeat one
            name = f"{name}_{number}"
        found[name] = one._replace(name=name)
    return found


def read_node(found: NamedNode) -> OnnxLayer:
    """The weights and attributes of a node; refuses weights that are not constants."""
    node, initializers = found.node, found.constants

    def values(places: dict[str, int]) -> dict[str, str]:
        """The names of the values at these positions, if there are any."""
        inputs = dict(enumerate(node.input))
        return {what: inputs[place] for what, place in places.items() if inputs.get(place)}

    arrays = {}
    for what, value in values(INPUTS).items():
        if value not in initializers:
            raise UnsupportedError(
                f"{found.name}: {what}, the value {value!r}, is neither an initializer nor a "
                "constant: values that the graph computes or takes as inputs cannot be converted"
            )
        arrays[what] = to_array(initializers[value])
    states = {
        what: to_array(initializers[value]) if value in initializers else None
        for what, value in values(_STATES).items()
    }
    return OnnxLayer(node.op_type, arrays, attributes_of(node), states, found.name)
