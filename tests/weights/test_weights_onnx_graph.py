"""Nodes of an ONNX model that are a stack, and nodes that are not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from helpers import weight_stacks
from helpers.weight_stacks import Stack
from onnx import helper, numpy_helper

from tf_blockrnn import weights
from tf_blockrnn.weights._file_onnx import check_stack
from tf_blockrnn.weights._onnx_model import named_nodes


def check(model: onnx.ModelProto, *names: str) -> None:
    """Checks the named nodes, in that order."""
    nodes = named_nodes(model)
    check_stack([nodes[name] for name in names])


def model_of(layout=0, layers=2, **options) -> onnx.ModelProto:
    stack = Stack("lstm", layers=layers, dtype="float32", **options)
    return weights.to_onnx_model(weight_stacks.random_weights(stack), layout=layout)


def between(model: onnx.ModelProto, *nodes, **arrays) -> onnx.ModelProto:
    """The model with nodes from "before" to "after" in front of its second layer."""
    upper = [node for node in model.graph.node if node.op_type == "LSTM"][1]
    source = upper.input[0]
    for node in nodes:
        node.input[:] = [source if name == "before" else name for name in node.input]
    upper.input[0] = "after"
    position = list(model.graph.node).index(upper)
    for node in reversed(nodes):
        model.graph.node.insert(position, node)
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def make(op_type: str, *inputs: str, **attributes):
    return helper.make_node(op_type, inputs or ["before"], ["after"], "middle", **attributes)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("directions", [1, 2])
def test_our_own_models_are_stacks(layout, directions):
    model = model_of(layout, layers=3, directions=directions)
    check(model, "lstm_0", "lstm_1", "lstm_2")
    for names, words in (
        (("lstm_0", "lstm_2"), r"lstm_0 unchanged: the node lstm_1 \(LSTM\) is betw"),
        (("lstm_1", "lstm_0"), "the value 'X', an input of the graph, arri"),
    ):
        with pytest.raises(weights.UnsupportedError, match=words):
            check(model, *names)


def test_moves_that_return_to_the_layout_may_be_between():
    ends = [
        helper.make_node("Transpose", ["before"], ["a"], perm=[1, 0, 2]),
        helper.make_node("Dropout", ["a"], ["b"]),
        helper.make_node("Identity", ["b"], ["c"]),
        helper.make_node("Cast", ["c"], ["d"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["d", "axis"], ["e"]),
        helper.make_node("Squeeze", ["e", "axis"], ["f"]),
        helper.make_node("Shape", ["f"], ["shape"]),
        helper.make_node("Reshape", ["f", "shape"], ["g"]),
        helper.make_node("Split", ["g"], ["g0", "g1"], axis=2),
        helper.make_node("Concat", ["g0", "g1"], ["h"], axis=2),
        helper.make_node("Transpose", ["h"], ["after"], perm=[1, 0, 2]),
    ]
    check(between(model_of(), *ends, axis=np.array([3])), "lstm_0", "lstm_1")


@pytest.mark.parametrize(
    "node, arrays, words",
    [
        (make("Relu"), {}, r"the node middle \(Relu\) is between them"),
        (make("MatMul", "before", "w"), {"w": np.eye(4, dtype="f4")}, r"middle \(MatMul\) is"),
        (make("Add", "before", "before"), {}, r"middle \(Add\) is between"),
        (make("Transpose", perm=[1, 0, 2]), {}, "nodes between them reorder or repeat"),
        (
            make("Gather", "before", "order", axis=2),
            {"order": np.array([1, 0, 2, 3])},
            "nodes between them reorder or repeat",
        ),
        (
            make("Slice", "before", "low", "high", "axis", "step"),
            {
                "low": np.array([-1]),
                "high": np.array([-100]),
                "axis": np.array([0]),
                "step": np.array([-1]),
            },
            "nodes between them reorder or repeat",
        ),
        (
            make("Dropout", "before", "", "yes"),
            {"yes": np.array(True)},
            r"middle \(Dropout\) is between them and may be in training mode",
        ),
        (make("Cast", to=onnx.TensorProto.FLOAT16), {}, r"middle \(Cast\) .* changes the type"),
    ],
)
def test_nodes_that_change_something_between(node, arrays, words):
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    model = between(model_of(), copy, **arrays)
    with pytest.raises(weights.UnsupportedError, match=f"lstm_1 does not take .* lstm_0 .*{words}"):
        check(model, "lstm_0", "lstm_1")


def test_parallel_nodes():
    model = model_of(inputs=4)
    upper = [node for node in model.graph.node if node.op_type == "LSTM"][1]
    upper.input[0] = "X"
    for names in (("lstm_0", "lstm_1"), ("lstm_1", "lstm_0")):
        with pytest.raises(weights.UnsupportedError, match="'X', an input of the graph, arrives"):
            check(model, *names)


def test_the_last_state_is_not_the_outputs():
    node = make("Identity", "Y_h_0")
    with pytest.raises(weights.UnsupportedError, match="its last state 'Y_h_0' arrives"):
        check(between(model_of(), node), "lstm_0", "lstm_1")


def test_sizes_that_the_graph_fixes():
    model = model_of()
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, (7, 5, 3), strict=True):
        dim.dim_value = size
    shape = np.array([7, 5, 4])
    check(between(model, make("Reshape", "before", "s"), s=shape), "lstm_0", "lstm_1")
