"""An ONNX model of a stack of recurrent layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tf_blockrnn.weights._onnx_nodes import INPUTS, OnnxLayer
from tf_blockrnn.weights.layer import RecurrentWeights
from tf_blockrnn.weights.onnx import to_onnx

if TYPE_CHECKING:
    import onnx

# `layout` came with version 14 of the ops, bfloat16 with 22.
_OPSET = 14
_OPSET_BFLOAT16 = 22


class _Graph:
    """The nodes of the layers, each of which takes the output of the previous one."""

    def __init__(self, cell: str, layers: tuple[OnnxLayer, ...], layout: int):
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.states: dict[str, list[int | str]] = {}
        self._layout = layout
        value = "X"
        for number, layer in enumerate(layers):
            top = number + 1 == len(layers)
            value = self._add(f"{cell}_{number}", number, layer, value, top)

    def _add(self, name: str, number: int, layer: OnnxLayer, value: str, top: bool) -> str:
        """Adds a layer with the input `value`; returns the name of its outputs."""
        directions, width = layer.arrays["W"].shape[0], layer.attributes["hidden_size"]
        states = [f"Y_h_{number}"] + [f"Y_c_{number}"] * (layer.op_type == "LSTM")
        shape = ["B", directions, width] if self._layout else [directions, "B", width]
        self.states |= {state: shape for state in states}
        self.arrays |= {f"{name}.{what}": array for what, array in layer.arrays.items()}
        inputs = [value, *[""] * max(INPUTS[what] for what in layer.arrays)]
        for what in layer.arrays:
            inputs[INPUTS[what]] = f"{name}.{what}"
        raw, result = f"{name}.Y", "Y" if top else f"{name}.outputs"
        self._node(layer.op_type, inputs, [raw, *states], name=name, **layer.attributes)
        if not self._layout:  # [T, D, B, H]; with layout 1 it is [B, T, D, H] already
            self._node("Transpose", [raw], [f"{name}.Y_batch"], perm=[0, 2, 1, 3])
            raw = f"{name}.Y_batch"
        # Reshape keeps a dim where the shape says 0.
        self.arrays[f"{name}.shape"] = np.array([0, 0, directions * width], np.int64)
        self._node("Reshape", [raw, f"{name}.shape"], [result])
        return result

    def _node(self, op_type: str, inputs: list[str], outputs: list[str], **attributes) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node(op_type, inputs, outputs, **attributes))


def to_onnx_model(
    weights: RecurrentWeights, *, reverse: bool = False, layout: int = 0, opset: int | None = None
) -> onnx.ModelProto:
    """Returns an ONNX model of these layers, one node each, checked by ONNX's checker.

    Its input is "X", [T, B, I], or [B, T, I] with layout 1. Its outputs are "Y", all steps of the
    last layer, [T, B, D·H] or [B, T, D·H], and for each layer n the last states "Y_h_n" and, for an
    LSTM, "Y_c_n", [D, B, H] or [B, D, H]. The initial states are zero.

    Args:
      weights: the layers.
      reverse: whether the layers, each of one direction, go from the last step to the first.
      layout: 0 or 1. ONNX Runtime's CPU kernels support only 0.
      opset: version of ONNX's operators; when None 14, or 22 for bfloat16.

    Returns:
      An onnx.ModelProto. Its nodes are named like "lstm_0", its weights like "lstm_0.W".

    Raises:
      UnsupportedError: the weights have a projection, a cell_clip or layer normalisation.
      ValueError: reverse with a layer of two directions, or another layout.
      ImportError: the package onnx is missing.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights.onnx_model import to_onnx_model
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> [node.op_type for node in to_onnx_model(gru).graph.node]
      ['GRU', 'Transpose', 'Reshape']
    """
    import onnx
    from onnx import helper, numpy_helper

    layers = to_onnx(weights, reverse=reverse, layout=layout)
    parts = _Graph(weights.cell, layers, layout)
    element = helper.np_dtype_to_tensor_dtype(weights.dtype)
    steps = ["B", "T"] if layout else ["T", "B"]
    graph = helper.make_graph(
        parts.nodes,
        "tf_blockrnn",
        inputs=[helper.make_tensor_value_info("X", element, [*steps, weights.input_size])],
        outputs=[
            helper.make_tensor_value_info("Y", element, [*steps, weights.layers[-1].output_size]),
            *(
                helper.make_tensor_value_info(name, element, shape)
                for name, shape in parts.states.items()
            ),
        ],
        initializer=[numpy_helper.from_array(a, name) for name, a in parts.arrays.items()],
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
