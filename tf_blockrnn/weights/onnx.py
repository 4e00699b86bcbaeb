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

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tf_blockrnn.weights._onnx_checks import ORDER, cell_of, refuse_learned_states, sizes_of
from tf_blockrnn.weights._onnx_nodes import NamedNode, OnnxLayer, named_nodes, read_node
from tf_blockrnn.weights._stack import refuse_norms
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

# The gates of the peepholes, in ONNX's order and in that of RecurrentWeights.
_PEEPHOLES, _ROWS = "iof", "ifo"


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
    return {name: read_node(found) for name, found in named_nodes(model).items()}


def _from_layer(layer: OnnxLayer, reverse: bool) -> RecurrentWeights:
    """The result of from_onnx for an OnnxLayer; error messages begin with its name."""
    name = layer.name or layer.op_type
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
        peepholes = np.split(parts["P"], 3) if "P" in parts else None
        return DirectionWeights(
            w_x=gates(parts["W"]).transpose(0, 2, 1),
            w_h=gates(parts["R"]).transpose(0, 2, 1),
            b_x=None if b_x is None else gates(b_x),
            b_h=None if b_h is None else gates(b_h),
            peepholes=None if peepholes is None else reorder(peepholes, _PEEPHOLES, _ROWS),
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
      >>> from tf_blockrnn.weights import OnnxLayer
      >>> node = OnnxLayer("GRU", {"W": np.ones([1, 9, 5]), "R": np.ones([1, 9, 3])},
      ...                  {"linear_before_reset": 1})
      >>> gru = weights.from_onnx(node)
      >>> gru.cell, gru.reset_after, gru.input_size
      ('gru', True, 5)
    """
    if isinstance(source, OnnxLayer):
        return _from_layer(source, reverse)
    kind = getattr(getattr(source, "DESCRIPTOR", None), "name", type(source).__name__)
    if kind == "ModelProto":
        if initializers is not None:
            raise TypeError(
                "from_onnx: initializers must not be given with a model, which has its own"
            )
        return {name: _from_layer(one, reverse) for name, one in onnx_layers(source).items()}
    if kind != "NodeProto":
        raise TypeError(f"from_onnx: expected a ModelProto, NodeProto or OnnxLayer, got {kind}")
    if source.op_type not in ORDER:
        raise UnsupportedError(f"from_onnx: expected LSTM, GRU or RNN, got {source.op_type}")
    if not isinstance(initializers, Mapping):
        initializers = {tensor.name: tensor for tensor in initializers or ()}
    found = NamedNode(source.name or source.op_type, source, None, initializers)
    return _from_layer(read_node(found), reverse)


def _refuse(weights: RecurrentWeights, reverse: bool, layout: int) -> None:
    if layout not in (0, 1):
        raise ValueError(f"to_onnx: layout must be 0 or 1, got {layout!r}")
    refuse_norms(weights, "ONNX")
    if weights.cell_clip:
        raise UnsupportedError(
            f"to_onnx: cell_clip = {weights.cell_clip:g}: ONNX's clip bounds the pre-activations, "
            "not the cell state"
        )
    weights.require_no_zoneout("to_onnx: ONNX")
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
    zeros = np.zeros([3, layer.forward.units], layer.forward.dtype)
    rows = [zeros if d.peepholes is None else d.peepholes for d in layer]
    return np.stack([reorder(one, _ROWS, _PEEPHOLES).reshape(-1) for one in rows])


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
      UnsupportedError: the weights have a projection, a cell_clip or layer normalisation.
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
