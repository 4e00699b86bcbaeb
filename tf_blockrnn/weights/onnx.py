"""ONNX's LSTM, GRU and RNN nodes, https://onnx.ai/onnx/operators/.

A node stores its weights transposed (rows are units) and concatenated, D directions first:

    W [D, G·H, I]    R [D, G·H, H]    B [D, 2·G·H], biases of W, then of R    P [D, 3·H]

    LSTM  gates i, o, f, c; peepholes P in the order i, o, f
    GRU   gates z, r, h, here u, r, c (z multiplies the old state); linear_before_reset is 1
          if the reset gate acts after the GEMM
    RNN   one gate, tanh or relu

`layout` is the layout of a node's sequences and states (1: batch first), and "reverse" is the
order of its steps. Neither affects the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_blockrnn.weights._onnx_checks import ORDER, cell_of, refuse_learned_states, sizes_of
from tf_blockrnn.weights.layer import (
    GATES,
    DirectionWeights,
    LayerWeights,
    RecurrentWeights,
    UnsupportedError,
    reorder,
)

if TYPE_CHECKING:
    import onnx

_OP_TYPES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}

_PEEPHOLES = ("wci", "wco", "wcf")

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

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights.onnx import OnnxLayer
      >>> layer = OnnxLayer("RNN", {"W": np.ones([1, 4, 3]), "R": np.ones([1, 4, 4])},
      ...                   {"direction": "reverse"})
      >>> layer.op_type, layer.direction
      ('RNN', 'reverse')
    """

    op_type: str
    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    states: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)

    @property
    def direction(self) -> str:
        """ "forward", "reverse" or "bidirectional"."""
        return self.attributes.get("direction", "forward")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    from onnx import helper

    def text(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [text(v) for v in value]
        return value.decode() if isinstance(value, bytes) else value

    return {a.name: text(helper.get_attribute_value(a)) for a in node.attribute}


def _to_array(value: np.ndarray | onnx.TensorProto) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    from onnx import numpy_helper

    try:
        return numpy_helper.to_array(value)
    except KeyError:
        raise ValueError(
            f"the tensor {value.name!r} has an unknown data_type, {value.data_type}"
        ) from None


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """The values that are constants in the graph: initializers and outputs of Constant nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            tensors = [a.t for a in node.attribute if a.name == "value"]
            found |= dict(zip(node.output, tensors, strict=False))
    return found


def _nodes(
    graph: onnx.GraphProto, outer: Mapping[str, Any]
) -> Iterator[tuple[onnx.NodeProto, Mapping[str, Any]]]:
    """The recurrent nodes, also in bodies of If, Loop and Scan, each with its visible constants."""
    visible = {**outer, **_constants(graph)}
    for node in graph.node:
        if node.op_type in ORDER and node.domain in ("", "ai.onnx"):
            yield node, visible
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from _nodes(body, visible)


def _read_node(node: onnx.NodeProto, initializers: Mapping[str, Any]) -> OnnxLayer:
    name = node.name or node.op_type

    def values(places: dict[str, int]) -> dict[str, str]:
        """The names of the values at these positions, if there are any."""
        inputs = dict(enumerate(node.input))
        return {what: inputs[place] for what, place in places.items() if inputs.get(place)}

    arrays = {}
    for what, value in values(INPUTS).items():
        if value not in initializers:
            raise UnsupportedError(
                f"{name}: {what}, the value {value!r}, is neither an initializer nor a constant: "
                "values that the graph computes or takes as inputs cannot be converted"
            )
        arrays[what] = _to_array(initializers[value])
    states = {
        what: _to_array(initializers[value]) if value in initializers else None
        for what, value in values(_STATES).items()
    }
    return OnnxLayer(node.op_type, arrays, _attributes(node), states)


def onnx_layers(model: onnx.ModelProto) -> dict[str, OnnxLayer]:
    """Reads all recurrent nodes of a model without conversion.

    Args:
      model: an onnx.ModelProto.

    Returns:
      The LSTM, GRU and RNN nodes by name, in the order of the graph. A node without a name is
      called "lstm_0" and so on, by its position among them.

    Raises:
      UnsupportedError: the weights of a node are computed by the graph.
      ValueError: they have a type that the package onnx does not support.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights.onnx import onnx_layers
      >>> from tf_blockrnn.weights.onnx_model import to_onnx_model
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
      >>> layers = onnx_layers(to_onnx_model(lstm))
      >>> {name: layer.arrays["W"].shape for name, layer in layers.items()}
      {'lstm_0': (1, 12, 5)}
    """
    layers = {}
    for number, (node, visible) in enumerate(_nodes(model.graph, {})):
        name = node.name or f"{node.op_type.lower()}_{number}"
        if name in layers:  # bodies of control flow may repeat one
            name = f"{name}_{number}"
        layers[name] = _read_node(node, visible)
    return layers


def from_layer(layer: OnnxLayer, name: str, reverse: bool) -> RecurrentWeights:
    """The result of from_onnx for an OnnxLayer; error messages begin with the name."""
    cell = cell_of(layer, name)
    refuse_learned_states(layer, name)
    if layer.direction == "reverse" and not reverse:
        raise UnsupportedError(
            f"{name} goes from the last step to the first, which its weights do not record: "
            "reverse=True reads only the weights"
        )
    directions, units = sizes_of(layer, name)
    order = ORDER[layer.op_type]

    def gates(array: np.ndarray) -> np.ndarray:
        return reorder(array.reshape(len(order), units, *array.shape[1:]), order, GATES[cell])

    def direction(number: int) -> DirectionWeights:
        parts = {what: array[number] for what, array in layer.arrays.items()}
        b_x, b_h = np.split(parts["B"], 2) if "B" in parts else (None, None)
        peepholes = np.split(parts["P"], 3) if "P" in parts else [None] * 3
        return DirectionWeights(
            w_x=gates(parts["W"]).transpose(0, 2, 1),
            w_h=gates(parts["R"]).transpose(0, 2, 1),
            b_x=None if b_x is None else gates(b_x),
            b_h=None if b_h is None else gates(b_h),
            **dict(zip(_PEEPHOLES, peepholes, strict=True)),
        )

    reset_after = bool(layer.attributes.get("linear_before_reset", 0)) if cell == "gru" else None
    both = LayerWeights(*(direction(number) for number in range(directions)))
    return RecurrentWeights(cell, [both], reset_after=reset_after)


def from_onnx(
    source: onnx.ModelProto | onnx.NodeProto | OnnxLayer,
    initializers: Mapping[str, np.ndarray | onnx.TensorProto]
    | Iterable[onnx.TensorProto]
    | None = None,
    *,
    reverse: bool = False,
) -> RecurrentWeights | dict[str, RecurrentWeights]:
    """Reads the weights of ONNX's recurrent nodes.

    Args:
      source: a model, of which all recurrent nodes are read; or one node (LSTM, GRU, RNN); or an
        OnnxLayer.
      initializers: only with a node: the values of its inputs by name, arrays or TensorProtos; or
        TensorProtos, which have names.
      reverse: whether to read nodes of the direction "reverse" too. They are layers of one
        direction, to be run with go_backwards; their weights do not record this.

    Returns:
      For a model, a dict from the name of each node to its weights; for a node, its weights.
      A node is one layer.

    Raises:
      UnsupportedError: activations other than those of the cells here, clip, input_forget, weights
        that the graph computes, an initial state that is not zero (one that the graph computes or
        takes as an input is not read), or the direction "reverse" without `reverse`.
      ValueError: a shape does not match, or the package onnx does not support a type.
      TypeError: source has another type, or initializers are given with a model.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights.onnx import OnnxLayer
      >>> node = OnnxLayer("GRU", {"W": np.ones([1, 9, 5]), "R": np.ones([1, 9, 3])},
      ...                  {"linear_before_reset": 1})
      >>> gru = weights.from_onnx(node)
      >>> gru.cell, gru.reset_after, gru.input_size
      ('gru', True, 5)
    """
    if isinstance(source, OnnxLayer):
        return from_layer(source, source.op_type, reverse)
    kind = getattr(getattr(source, "DESCRIPTOR", None), "name", type(source).__name__)
    if kind == "ModelProto":
        if initializers is not None:
            raise TypeError(
                "from_onnx: initializers must not be given with a model, which has its own"
            )
        layers = onnx_layers(source)
        return {name: from_layer(layer, name, reverse) for name, layer in layers.items()}
    if kind != "NodeProto":
        raise TypeError(f"from_onnx: expected a ModelProto, NodeProto or OnnxLayer, got {kind}")
    if source.op_type not in ORDER:
        raise UnsupportedError(f"from_onnx: expected LSTM, GRU or RNN, got {source.op_type}")
    if not isinstance(initializers, Mapping):
        initializers = {tensor.name: tensor for tensor in initializers or ()}
    layer = _read_node(source, initializers)
    return from_layer(layer, source.name or source.op_type, reverse)


def _refuse(weights: RecurrentWeights, reverse: bool, layout: int) -> None:
    if layout not in (0, 1):
        raise ValueError(f"to_onnx: layout must be 0 or 1, got {layout!r}")
    if weights.cell_clip:
        raise UnsupportedError(
            f"to_onnx: cell_clip = {weights.cell_clip:g}: ONNX's clip bounds the pre-activations, "
            "not the cell state"
        )
    for number, name, direction in weights.named_directions():
        if direction.w_p is not None:
            raise UnsupportedError(
                f"to_onnx: layer {number}, {name}: ONNX's LSTM has no projection"
            )
    if reverse and weights.directions != 1:
        raise ValueError("to_onnx: reverse is for layers of one direction")


def _gates_to_rows(array: np.ndarray, cell: str) -> np.ndarray:
    """[G, I, H] as [G·H, I], or [G, H] as [G·H], with the gates in ONNX's order."""
    ordered = reorder(array, GATES[cell], ORDER[_OP_TYPES[cell]])
    if ordered.ndim == 2:
        return ordered.reshape(-1)
    return ordered.transpose(0, 2, 1).reshape(-1, array.shape[1])


def _biases(layer: LayerWeights, cell: str) -> np.ndarray | None:
    if all(d.b_x is None and d.b_h is None for d in layer):
        return None
    zeros = np.zeros([layer.forward.gates, layer.forward.units], layer.forward.dtype)
    pairs = [[zeros if b is None else b for b in (d.b_x, d.b_h)] for d in layer]
    return np.stack([np.concatenate([_gates_to_rows(b, cell) for b in pair]) for pair in pairs])


def _peepholes(layer: LayerWeights) -> np.ndarray | None:
    if all(d.peepholes is None for d in layer):
        return None
    zeros = np.zeros(layer.forward.units, layer.forward.dtype)
    rows = [[getattr(d, name) for name in _PEEPHOLES] for d in layer]
    return np.stack([np.concatenate([zeros if v is None else v for v in row]) for row in rows])


def _to_layer(
    layer: LayerWeights, weights: RecurrentWeights, reverse: bool, layout: int
) -> OnnxLayer:
    cell = weights.cell
    arrays = {
        "W": np.stack([_gates_to_rows(d.w_x, cell) for d in layer]),
        "R": np.stack([_gates_to_rows(d.w_h, cell) for d in layer]),
        "B": _biases(layer, cell),
        "P": _peepholes(layer),
    }
    single_direction = "reverse" if reverse else "forward"
    attributes = {
        "hidden_size": layer.forward.units,
        "direction": "bidirectional" if layer.directions == 2 else single_direction,
        "layout": layout,
    }
    if cell == "gru":
        attributes["linear_before_reset"] = int(weights.reset_after)
    if cell == "rnn_relu":
        attributes["activations"] = ["Relu"] * layer.directions
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return OnnxLayer(_OP_TYPES[cell], arrays, attributes)


def to_onnx(
    weights: RecurrentWeights, *, reverse: bool = False, layout: int = 0
) -> tuple[OnnxLayer, ...]:
    """Returns the arrays and attributes of ONNX nodes for these layers, without the package onnx.

    ONNX has both biases. If only one exists, the other becomes zeros, and likewise the peepholes
    if only one direction has them.

    Args:
      weights: the layers.
      reverse: whether the layers, each of one direction, go from the last step to the first.
      layout: 0 for nodes that take [T, B, I], 1 for [B, T, I].

    Returns:
      One OnnxLayer for each layer: its op_type, its arrays "W" [D, G·H, I], "R" [D, G·H, H], and,
      if needed, "B" [D, 2·G·H] and "P" [D, 3·H]; and its attributes.

    Raises:
      UnsupportedError: the weights have a projection or a cell_clip.
      ValueError: reverse with a layer of two directions, or another layout.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
      >>> (node,) = weights.to_onnx(lstm)
      >>> node.op_type, node.arrays["W"].shape, node.attributes["hidden_size"]
      ('LSTM', (1, 12, 5), 3)
    """
    _refuse(weights, reverse, layout)
    return tuple(_to_layer(layer, weights, reverse, layout) for layer in weights.layers)
