"""ONNX's LSTM, GRU and RNN nodes, https://onnx.ai/onnx/operators/.

A node stores its weights transposed (rows are units) and concatenated, D directions first:

    W [D, G·H, I]    R [D, G·H, H]    B [D, 2·G·H], biases of W, then of R    P [D, 3·H]

    LSTM  gates i, o, f, c; peepholes P in the order i, o, f
    GRU   gates z, r, h, here u, r, c (z multiplies the old state); linear_before_reset is 1
          if the reset gate acts after the GEMM
    RNN   one gate, tanh or relu

The gates of LSTM and GRU may have HardSigmoid, with alpha as its slope and beta 0.5, and Relu in
place of Tanh.

`layout` is the layout of a node's sequences and states (1: batch first), and "reverse" is the
order of its steps. Neither affects the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, wrong_source
from tf_blockrnn.weights._formats import ONNX, reorder
from tf_blockrnn.weights._onnx_model import NamedNode, named_nodes, no_recurrent_node
from tf_blockrnn.weights._onnx_nodes import (
    INPUTS,
    STATES,
    OnnxLayer,
    cell_of,
    initial_states,
    read_node,
    sizes_of,
)
from tf_blockrnn.weights._onnx_values import Scope, check_node, constants_of
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

if TYPE_CHECKING:
    import onnx

_OP_TYPES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}

# `layout` came with version 14 of the ops, bfloat16 with 22.
_OPSET = 14
_OPSET_BFLOAT16 = 22

# The gates of the peepholes, in ONNX's order and in that of RecurrentWeights.
_PEEPHOLES, _ROWS = "iof", "ifo"
# The initial states in DirectionWeights.
_FIELDS = {"initial_h": "h0", "initial_c": "c0"}


def onnx_layers(model: onnx.ModelProto) -> dict[str, OnnxLayer]:
    """Reads all recurrent nodes of a model without conversion.

    Args:
      model: an onnx.ModelProto.

    Returns:
      The nodes by name, in the order of the graph. One without a name is called "lstm_0" and so on,
      by its position among them.

    Weights that nodes such as Slice, Cast or DequantizeLinear compute from constants are folded,
    and functions of the model are replaced by their nodes. A DynamicQuantizeLSTM of ONNX Runtime is
    an "LSTM" with dequantised weights.

    Raises:
      UnsupportedError: the weights of a node are computed from inputs of the graph or by nodes that
        are not folded, or the model has a recurrent op of another name, such as AttnLSTM.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
      >>> layers = weights.onnx_layers(weights.to_onnx_model(lstm))
      >>> {name: layer.arrays["W"].shape for name, layer in layers.items()}
      {'lstm_0': (1, 12, 5)}
    """
    if type(model).__name__ != "ModelProto":
        raise wrong_source("onnx_layers", "a ModelProto", model)
    return {name: read_node(found) for name, found in named_nodes(model).items()}


def _from_layer(layer: OnnxLayer, reverse: bool) -> RecurrentWeights:
    """The result of from_onnx for an OnnxLayer; error messages begin with its name."""
    name = layer.name or layer.op_type
    cell, options = cell_of(layer, name)
    states = initial_states(layer, name)
    if layer.direction == "reverse" and not reverse:
        raise UnsupportedError(
            f"{name} goes from the last step to the first, which its weights do not record: "
            "reverse=True reads only the weights"
        )
    directions, _ = sizes_of(layer, name)

    def direction(number: int) -> DirectionWeights:
        parts = {what: array[number] for what, array in layer.arrays.items()}
        biases = np.split(parts["B"], 2) if "B" in parts else ()
        peepholes = np.split(parts["P"], 3) if "P" in parts else None
        return DirectionWeights(
            ONNX.split(cell, parts["W"]),
            ONNX.split(cell, parts["R"]),
            *(ONNX.split(cell, bias) for bias in biases),
            peepholes=None if peepholes is None else reorder(peepholes, _PEEPHOLES, _ROWS),
            **{_FIELDS[what]: rows[number] for what, rows in states.items() if rows[number].any()},
        )

    reset_after = bool(layer.attributes.get("linear_before_reset", 0)) if cell == "gru" else None
    both = LayerWeights(*(direction(number) for number in range(directions)))
    return RecurrentWeights(cell, [both], reset_after=reset_after, **options)


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
      source: a model, of which all recurrent nodes are read; or one node; or an OnnxLayer.
      initializers: only with a node: the values of its inputs by name, arrays or TensorProtos; or
        TensorProtos, which have names.
      reverse: whether to read nodes of the direction "reverse" too. They are layers of one
        direction, to be run with go_backwards; their weights do not record this.

    Returns:
      For a model, a dict from the name of each node to its weights; for a node, its weights.
      A node is one layer. A state that is the same in all rows of the batch is h0 or c0.

    Raises:
      UnsupportedError: other activations, clip, input_forget, weights that the graph computes from
        its inputs, a recurrent op of another name, a constant initial state that differs between
        the rows of the batch, or the direction "reverse" without `reverse`.
      ValueError: the model has no recurrent node.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> arrays = {"W": np.ones([1, 9, 5]), "R": np.ones([1, 9, 3])}
      >>> node = weights.OnnxLayer("GRU", arrays, {"linear_before_reset": 1})
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
        found = {name: _from_layer(one, reverse) for name, one in onnx_layers(source).items()}
        if not found:
            raise ValueError(f"from_onnx: the model has {no_recurrent_node(source)}")
        return found
    if kind != "NodeProto":
        raise wrong_source("from_onnx", "a ModelProto, NodeProto or OnnxLayer", source)
    if not isinstance(initializers, Mapping):
        initializers = constants_of(initializers or ())
    check_node(source)
    found = NamedNode(source.name or source.op_type, source, None, Scope(initializers))
    return _from_layer(read_node(found), reverse)


def _to_layer(
    layer: LayerWeights, weights: RecurrentWeights, reverse: bool, layout: int
) -> OnnxLayer:
    cell = weights.cell
    arrays = {
        "W": np.stack([ONNX.join(cell, d.w_x) for d in layer]),
        "R": np.stack([ONNX.join(cell, d.w_h) for d in layer]),
    }
    if any(d.has_bias for d in layer):
        both = [[ONNX.join(cell, bias) for bias in d.biases] for d in layer]
        arrays["B"] = np.stack([np.concatenate(biases) for biases in both])
    if any(d.peepholes is not None for d in layer):
        zeros = np.zeros([3, layer.forward.units], layer.forward.dtype)
        rows = [zeros if d.peepholes is None else d.peepholes for d in layer]
        arrays["P"] = np.stack([reorder(one, _ROWS, _PEEPHOLES).reshape(-1) for one in rows])
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
    elif weights.activation != "tanh" or weights.hard_sigmoid:
        gates = "HardSigmoid" if weights.hard_sigmoid else "Sigmoid"
        functions = [gates] + [weights.activation.title()] * (2 if cell == "lstm" else 1)
        attributes["activations"] = functions * layer.directions
    if weights.hard_sigmoid:
        attributes["activation_alpha"] = [weights.hard_sigmoid] * layer.directions
        attributes["activation_beta"] = [0.5] * layer.directions
    states = {}
    for what, field in _FIELDS.items():
        if any(getattr(d, field) is not None for d in layer):
            zeros = np.zeros([layer.forward.units], layer.forward.dtype)
            rows = [zeros if (row := getattr(d, field)) is None else row for d in layer]
            states[what] = np.expand_dims(np.stack(rows), 0 if layout else 1)
    return OnnxLayer(_OP_TYPES[cell], arrays, attributes, states)


def to_onnx(
    weights: RecurrentWeights, *, reverse: bool = False, layout: int = 0
) -> tuple[OnnxLayer, ...]:
    """Returns the arrays and attributes of ONNX nodes for these layers, without the package onnx.

    ONNX has both biases. If only one exists, the other becomes zeros, and likewise the peepholes
    and initial states if only one direction has them. The states have B = 1, to be expanded to the
    batch.

    Args:
      weights: the layers.
      reverse: whether the layers, each of one direction, go from the last step to the first.
      layout: 0 for nodes that take [T, B, I], 1 for [B, T, I].

    Returns:
      One OnnxLayer for each layer.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
      >>> (node,) = weights.to_onnx(lstm)
      >>> node.op_type, node.arrays["W"].shape, node.attributes["hidden_size"]
      ('LSTM', (1, 12, 5), 3)
    """
    if layout not in (0, 1):
        raise ValueError(f"to_onnx: layout must be 0 or 1, got {layout!r}")
    ONNX.require(weights)
    if reverse and weights.directions != 1:
        raise ValueError("to_onnx: reverse is for layers of one direction")
    return tuple(_to_layer(layer, weights, reverse, layout) for layer in weights.layers)


def _parts(
    cell: str, layers: tuple[OnnxLayer, ...], layout: int
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, list[int | str]]]:
    """The nodes, layer after layer, their arrays, and the states' shapes."""
    from onnx.helper import make_node

    nodes, arrays, states, value = [], {}, {}, "X"
    if any(layer.states for layer in layers):
        arrays |= {"batch.place": np.array([0 if layout else 1]), "batch.one": np.array([1])}
        nodes = [
            make_node("Shape", ["X"], ["batch.X"]),
            make_node("Gather", ["batch.X", "batch.place"], ["batch.size"]),
        ]
        parts = ["batch.one", "batch.size", "batch.one"]
        # Expand broadcasts both ways, so that only the batch is needed.
        nodes.append(make_node("Concat", parts[layout:] + parts[:layout], ["batch.shape"], axis=0))
    for number, layer in enumerate(layers):
        name = f"{cell}_{number}"
        directions, width = layer.arrays["W"].shape[0], layer.attributes["hidden_size"]
        last = [f"Y_h_{number}"] + [f"Y_c_{number}"] * (layer.op_type == "LSTM")
        shape = ["B", directions, width] if layout else [directions, "B", width]
        states |= dict.fromkeys(last, shape)
        places = {what: {**INPUTS, **STATES}[what] for what in (*layer.arrays, *layer.states)}
        inputs = [value, *[""] * max(places.values())]
        for what, place in places.items():
            inputs[place] = f"{name}.{what}"
        arrays |= {f"{name}.{what}": array for what, array in layer.arrays.items()}
        for what, row in layer.states.items():
            arrays[f"{name}.{what}.row"] = row
            parts = [f"{name}.{what}.row", "batch.shape"]
            nodes.append(make_node("Expand", parts, [f"{name}.{what}"]))
        raw, value = f"{name}.Y", "Y" if layer is layers[-1] else f"{name}.outputs"
        nodes.append(make_node(layer.op_type, inputs, [raw, *last], name, **layer.attributes))
        if not layout:  # [T, D, B, H]; with layout 1 it is [B, T, D, H] already
            nodes.append(make_node("Transpose", [raw], [f"{name}.Y_batch"], perm=[0, 2, 1, 3]))
            raw = f"{name}.Y_batch"
        # Reshape keeps a dim where the shape has a 0.
        arrays[f"{name}.shape"] = np.array([0, 0, directions * width], np.int64)
        nodes.append(make_node("Reshape", [raw, f"{name}.shape"], [value]))
    return nodes, arrays, states


def to_onnx_model(
    weights: RecurrentWeights, *, reverse: bool = False, layout: int = 0, opset: int | None = None
) -> onnx.ModelProto:
    """Returns an ONNX model of these layers, one node each, checked by ONNX's checker.

    Its input is "X", [T, B, I], or [B, T, I] with layout 1. Its outputs are "Y", all steps of the
    last layer, [T, B, D·H] or [B, T, D·H], and for each layer n the last states "Y_h_n" and, for an
    LSTM, "Y_c_n", [D, B, H] or [B, D, H]. The initial states are h0 and c0, expanded to the batch,
    or zero.

    Args:
      weights, reverse, layout: as for `to_onnx`. ONNX Runtime's CPU kernels support only layout 0.
      opset: version of ONNX's operators; when None 14, or 22 for bfloat16.

    Returns:
      An onnx.ModelProto. Its nodes are named like "lstm_0", its weights like "lstm_0.W".

    Raises:
      ImportError: the package onnx is missing.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> [node.op_type for node in weights.to_onnx_model(gru).graph.node]
      ['GRU', 'Transpose', 'Reshape']
    """
    import onnx
    from onnx import helper, numpy_helper

    layers = to_onnx(weights, reverse=reverse, layout=layout)
    nodes, arrays, states = _parts(weights.cell, layers, layout)
    element = helper.np_dtype_to_tensor_dtype(weights.dtype)
    steps = ["B", "T"] if layout else ["T", "B"]
    graph = helper.make_graph(
        nodes,
        "tf_blockrnn",
        inputs=[helper.make_tensor_value_info("X", element, [*steps, weights.input_size])],
        outputs=[
            helper.make_tensor_value_info("Y", element, [*steps, weights.layers[-1].output_size]),
            *(
                helper.make_tensor_value_info(name, element, shape)
                for name, shape in states.items()
            ),
        ],
        initializer=[numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )
    if opset is None:
        opset = _OPSET_BFLOAT16 if weights.dtype.name == "bfloat16" else _OPSET
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        graph,
        producer_name="tf_blockrnn",
        opset_imports=imports,
        # The oldest version of the format with this opset, which most programs can read.
        ir_version=helper.find_min_ir_version_for(imports),
    )
    onnx.checker.check_model(model, full_check=True)
    return model
