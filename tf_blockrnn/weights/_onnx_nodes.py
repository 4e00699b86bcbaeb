"""The recurrent nodes of an ONNX model: their weights and attributes, and what they compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, check_shape, one_of

if TYPE_CHECKING:
    import onnx

# The number of gates of each op.
GATES_OF = {"LSTM": 4, "GRU": 3, "RNN": 1}
# The positions of the weights among a node's inputs.
INPUTS = {"W": 1, "R": 2, "B": 3, "P": 7}
_STATES = {"initial_h": 5, "initial_c": 6}

# The activations of our cells, those of the gates first.
_ACTIVATIONS = {
    ("LSTM", ("sigmoid", "tanh", "tanh")): "lstm",
    ("GRU", ("sigmoid", "tanh")): "gru",
    ("RNN", ("tanh",)): "rnn_tanh",
    ("RNN", ("relu",)): "rnn_relu",
}
_DEFAULT_ACTIVATIONS = {op_type: names for op_type, names in reversed(_ACTIVATIONS)}

# Sigmoid, tanh and relu have no alpha and beta. output_sequence is of the first version of the ops:
# which outputs to return.
_KNOWN_ATTRIBUTES = {
    *("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size"),
    *("input_forget", "layout", "linear_before_reset", "output_sequence"),
}


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
        if node.op_type in GATES_OF and node.domain in ("", "ai.onnx"):
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
    inputs = dict(enumerate(node.input))  # a missing one may be "", too
    arrays = {}
    for what, place in INPUTS.items():
        if not (value := inputs.get(place)):
            continue
        if value not in initializers:
            raise UnsupportedError(
                f"{found.name}: {what}, the value {value!r}, is neither an initializer nor a "
                "constant: values that the graph computes or takes as inputs cannot be converted"
            )
        arrays[what] = to_array(initializers[value])
    states = {
        what: to_array(initializers[value]) if value in initializers else None
        for what, place in _STATES.items()
        if (value := inputs.get(place))
    }
    return OnnxLayer(node.op_type, arrays, attributes_of(node), states, found.name)


# ---- what a node computes


def cell_of(layer: OnnxLayer, name: str) -> str:
    """The cell that a node computes; refuses nodes that none of our cells computes."""
    one_of(f"{name}: op_type", layer.op_type, GATES_OF)
    attributes = layer.attributes
    unknown = sorted(set(attributes) - _KNOWN_ATTRIBUTES)
    if unknown:
        raise UnsupportedError(f"{name}: unknown attributes {', '.join(unknown)}")
    if attributes.get("clip"):
        raise UnsupportedError(
            f"{name}: clip = {attributes['clip']:g} bounds the pre-activations; the "
            "cells here have no such bound (cell_clip bounds the cell state)"
        )
    if attributes.get("input_forget"):
        raise UnsupportedError(f"{name}: input_forget couples two gates, which no cell here does")
    default = _DEFAULT_ACTIVATIONS[layer.op_type]
    given = [str(a).lower() for a in attributes.get("activations", [])] or list(default)
    cells = {
        _ACTIVATIONS.get((layer.op_type, tuple(given[n : n + len(default)])))
        for n in range(0, len(given), len(default))
    }
    if len(cells) != 1 or None in cells:
        possible = " or ".join(
            ", ".join(names).title() for op_type, names in _ACTIVATIONS if op_type == layer.op_type
        )
        raise UnsupportedError(
            f"{name}: activations must be {possible} in each direction, got "
            f"{', '.join(map(str, attributes['activations']))}"
        )
    return cells.pop()


def refuse_learned_states(layer: OnnxLayer, name: str) -> None:
    """Refuses initial states that are parameters; exporters write zeros if there are none."""
    for what, value in layer.states.items():
        if value is not None and np.any(value):
            raise UnsupportedError(
                f"{name}: {what} is not zero: RecurrentWeights cannot represent a learned initial "
                "state"
            )


def sizes_of(layer: OnnxLayer, name: str) -> tuple[int, int]:
    """(D, H) of a node, after checking that the shapes of its arrays are consistent."""
    for what, symbols in (("W", "[D, G·H, I]"), ("R", "[D, G·H, H]")):
        if what not in layer.arrays:
            raise ValueError(f"{name}: {what} is missing")
        check_shape(f"{name}: {what}", layer.arrays[what], symbols, (None, None, None))
    one_of(f"{name}: direction", layer.direction, ("forward", "reverse", "bidirectional"))
    directions = 2 if layer.direction == "bidirectional" else 1
    gates = GATES_OF[layer.op_type]
    inputs, units = layer.arrays["W"].shape[2], layer.arrays["R"].shape[2]
    if layer.attributes.get("hidden_size", units) != units:
        raise ValueError(
            f"{name}: R must have hidden_size = {layer.attributes['hidden_size']} columns, "
            f"got {units}"
        )
    expected = {
        "W": ("[D, G·H, I]", (directions, gates * units, inputs)),
        "R": ("[D, G·H, H]", (directions, gates * units, units)),
        "B": ("[D, 2·G·H]", (directions, 2 * gates * units)),
        "P": ("[D, 3·H]", (directions, 3 * units)),
    }
    for what, array in layer.arrays.items():
        one_of(f"{name}: the name of an array", what, expected)
        check_shape(f"{name}: {what}", array, *expected[what])
    return directions, units
