"""Weights from and to ONNX nodes, against ONNX Runtime."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import onnx
import pytest
from helpers import onnx_export, tolerances, weight_stacks
from helpers.compare import assert_close
from helpers.weight_formats import assert_computes, run_onnx
from helpers.weight_stacks import Stack
from onnx import helper, numpy_helper

from tf_blockrnn import weights
from tf_blockrnn.weights import onnx as formats


@pytest.mark.parametrize("cell", weight_stacks.CELLS)
def test_reverse_model_computes_the_same_backwards(cell):
    stack = Stack(cell, layers=2, dtype="float32")
    described = weight_stacks.random_weights(stack)
    x = weight_stacks.inputs(stack).astype(np.float32)
    got = run_onnx(weights.to_onnx_model(described, reverse=True), x, stack)
    want = weight_stacks.run(described, x[::-1])
    assert_computes(got, want._replace(output=want.output[::-1]), stack)


def in_layout_0(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with each node of layout 1 as ONNX's text says what that is: of layout 0 with
    transposed inputs and outputs. ONNX Runtime has no kernels for layout 1.
    """
    to_steps_first = {0: [1, 0, 2]}  # X: [B, T, I]
    to_batch_first = {0: [2, 0, 1, 3], 1: [1, 0, 2], 2: [1, 0, 2]}  # Y: [T, D, B, H]; Y_h, Y_c
    nodes = []
    for node in model.graph.node:
        (layout,) = [a for a in node.attribute if a.name == "layout"] or [None]
        if layout is None:
            nodes.append(node)
            continue
        assert layout.i == 1
        layout.i = 0
        before, after = [], []
        for n, order in to_steps_first.items():
            inside = f"{node.input[n]}, steps first"
            before.append(helper.make_node("Transpose", [node.input[n]], [inside], perm=order))
            node.input[n] = inside
        for n, outside in enumerate(list(node.output)):
            inside = f"{outside}, layout 0"
            after.append(helper.make_node("Transpose", [inside], [outside], perm=to_batch_first[n]))
            node.output[n] = inside
        nodes += [*before, node, *after]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh"])
@pytest.mark.parametrize("directions", [1, 2])
def test_layout_1_computes_the_same_batch_first(cell, directions):
    stack = Stack(cell, layers=2, directions=directions, dtype="float32")
    described = weight_stacks.random_weights(stack)
    x = weight_stacks.inputs(stack).astype(np.float32)
    model = in_layout_0(weights.to_onnx_model(described, layout=1))
    got = run_onnx(model, x, stack, batch_first=True)
    assert_computes(got, weight_stacks.run(described, x), stack)


def random_node(op_type: str, directions: int, biases: bool = True, **attributes):
    """A node of random weights, made by ONNX's own means, and its weights by name."""
    rng, gates = np.random.default_rng(5), {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type]
    shapes = {"W": (gates * 4, 3), "R": (gates * 4, 4)}
    if biases:
        shapes["B"] = (2 * gates * 4,)
    if op_type == "LSTM":
        shapes["P"] = (12,)
    arrays = {
        name: rng.uniform(-0.7, 0.7, (directions, *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    inputs = ["X", "W", "R", "B" if biases else "", "", "", "", "P"]
    node = helper.make_node(
        op_type,
        inputs if op_type == "LSTM" else inputs[:4],
        ["Y"],
        "node",
        hidden_size=4,
        direction="bidirectional" if directions == 2 else "forward",
        **attributes,
    )
    return node, arrays


def model_of(node: onnx.NodeProto, arrays: dict[str, np.ndarray], **graph) -> onnx.ModelProto:
    steps = helper.make_tensor_value_info("X", 1, ["T", "B", 3])
    outputs = helper.make_tensor_value_info("Y", 1, ["T", "D", "B", 4])
    graph = {
        "nodes": [node],
        "initializer": [numpy_helper.from_array(a, name) for name, a in arrays.items()],
        **graph,
    }
    graph = helper.make_graph(name="graph", inputs=[steps], outputs=[outputs], **graph)
    imports = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize(
    "op_type, attributes",
    [
        ("LSTM", {}),
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh"], "input_forget": 0}),
        ("GRU", {"linear_before_reset": 0}),
        ("GRU", {"linear_before_reset": 1, "activations": ["Sigmoid", "Tanh"]}),
        ("LSTM", {"activations": ["HardSigmoid", "Relu", "Relu"], "activation_alpha": [0.3, 0.3]}),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}),
        ("RNN", {"activations": ["Tanh"]}),
        ("RNN", {"activations": ["Relu"]}),
        ("RNN", {}),
    ],
)
def test_from_node_computes_the_same(op_type, attributes, directions):
    if "activations" in attributes:
        attributes = {**attributes, "activations": attributes["activations"] * directions}
    node, arrays = random_node(op_type, directions, **attributes)
    described = weights.from_onnx(node, arrays)
    stack = Stack(described.cell, directions=directions)
    x = weight_stacks.inputs(stack).astype(np.float32)
    (y,) = onnx_export.run(model_of(node, arrays), [x])  # [T, D, B, H]
    got = y.swapaxes(1, 2).reshape(*y.shape[:1], y.shape[2], -1)
    want = weight_stacks.run(described, x).output
    assert_close(got, want, tolerances.stack_bound("float", stack.reduction_length, 1), "Y")


UNSUPPORTED = {
    "activations": ("LSTM", {"activations": ["Sigmoid", "Tanh", "Relu"]}, "activations must be"),
    "hard": ("GRU", {"activations": ["Sigmoid", "HardSigmoid"]}, "HardSigmoid"),
    "hard_rnn": ("RNN", {"activations": ["HardSigmoid"]}, "must be Tanh or Relu and the same"),
    "beta": (
        "GRU",
        {"activations": ["HardSigmoid", "Tanh"], "activation_beta": [0.25]},
        "the beta of HardSigmoid must be 0.5",
    ),
    "alpha": (
        "GRU",
        {"activations": ["HardSigmoid", "Tanh"], "activation_alpha": [0.0]},
        "the alpha of HardSigmoid must be above 0",
    ),
    "few": ("LSTM", {"activations": ["Sigmoid"]}, "Sigmoid, Tanh, Tanh"),
    "clip": ("LSTM", {"clip": 3.0}, "clip = 3"),
    "clip to zeros": ("RNN", {"clip": 0.0}, "clip = 0"),
    "input_forget": ("LSTM", {"input_forget": 1}, "input_forget"),
    "unknown": ("RNN", {"new_attribute": 1}, "new_attribute"),
    "one_way": ("RNN", {"direction": "reverse"}, "reverse=True"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_cannot_be_read_is_refused(name):
    op_type, attributes, words = UNSUPPORTED[name]
    node, arrays = random_node(op_type, 1)
    for key in attributes:
        for old in [a for a in node.attribute if a.name == key]:
            node.attribute.remove(old)
    node.attribute.extend(helper.make_attribute(*item) for item in attributes.items())
    with pytest.raises(weights.UnsupportedError, match=words) as raised:
        weights.from_onnx(node, arrays)
    assert "node" in str(raised.value)


def test_activations_must_be_those_of_both_directions():
    node, arrays = random_node("RNN", 2, activations=["Tanh", "Relu"])
    with pytest.raises(weights.UnsupportedError, match="same in each direction, got Tanh, Relu"):
        weights.from_onnx(node, arrays)


@pytest.mark.parametrize(
    "what, array, words",
    [
        ("W", np.zeros([1, 15, 3], "f4"), r"W must have the shape .* = \[1, 16, 3\], got"),
        ("W", np.zeros([16, 3], "f4"), r"W must have the shape \[D, G·H, I\], got \[16, 3\]"),
        ("R", np.zeros([1, 20, 5], "f4"), "R must have hidden_size = 4 columns, got 5"),
        ("R", np.zeros([2, 16, 4], "f4"), r"R must have the shape .* = \[1, 16, 4\]"),
        ("B", np.zeros([1, 16], "f4"), r"B must have the shape .* = \[1, 32\]"),
        ("P", np.zeros([1, 16], "f4"), r"P must have the shape .* = \[1, 12\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(what, array, words):
    node, arrays = random_node("LSTM", 1)
    with pytest.raises(ValueError, match=words):
        weights.from_onnx(node, {**arrays, what: array})


def test_arrays_of_several_types_are_refused():
    node, arrays = random_node("LSTM", 1)
    with pytest.raises(TypeError, match="peepholes must be of w_x's type float32, got float64"):
        weights.from_onnx(node, {**arrays, "P": np.zeros([1, 12], "f8")})


def test_other_sources_are_refused():
    node, arrays = random_node("GRU", 1)
    with pytest.raises(TypeError, match="ModelProto, NodeProto or OnnxLayer, got dict"):
        weights.from_onnx(arrays)
    with pytest.raises(TypeError, match="initializers must not be given with a model"):
        weights.from_onnx(model_of(node, arrays), arrays)
    with pytest.raises(weights.UnsupportedError, match="Relu: the op Relu .* is not read; LSTM,"):
        weights.from_onnx(helper.make_node("Relu", ["X"], ["Y"]))
    with pytest.raises(ValueError, match="GRU: R is missing"):
        weights.from_onnx(formats.OnnxLayer("GRU", {"W": arrays["W"]}, {}))
    sideways = formats.OnnxLayer("GRU", arrays, {"direction": "sideways"})
    with pytest.raises(ValueError, match="direction must be .* got 'sideways'"):
        weights.from_onnx(sideways)
    for flag in ("layout", "linear_before_reset"):
        with pytest.raises(ValueError, match=f"{flag} must be 0 or 1, got 7"):
            weights.from_onnx(formats.OnnxLayer("GRU", arrays, {flag: 7}))


def test_initializers_may_be_tensors():
    node, arrays = random_node("GRU", 1)
    tensors = [numpy_helper.from_array(a, name) for name, a in arrays.items()]
    want = weights.from_onnx(node, arrays)
    assert weights.from_onnx(node, tensors) == want
    assert weights.from_onnx(node, {tensor.name: tensor for tensor in tensors}) == want
    with pytest.raises(ValueError, match="two initializers 'W'"):
        weights.from_onnx(node, [*tensors, tensors[0]])
    tensors[0].dims[1] *= -1
    with pytest.raises(ValueError, match="'W' has a negative dim"):
        weights.from_onnx(node, {tensor.name: tensor for tensor in tensors})
    node.attribute.append(helper.make_attribute("direction", "reverse"))
    with pytest.raises(ValueError, match="two attributes of one name"):
        weights.from_onnx(node, arrays)


def test_weights_may_be_constants_but_not_computed():
    node, arrays = random_node("GRU", 1)
    want = weights.from_onnx(node, arrays)
    tensors = {name: numpy_helper.from_array(a, name) for name, a in arrays.items()}
    constants = [
        helper.make_node("Constant", [], [name], value=value) for name, value in tensors.items()
    ]
    model = model_of(node, {}, nodes=[*constants, node])
    assert weights.from_onnx(model) == {"node": want}
    computed = helper.make_node("Mul", ["R_", "X"], ["R"], "scaled")
    rest = {"W": arrays["W"], "B": arrays["B"], "R_": arrays["R"]}
    words = (
        r"node: R, .* the node scaled \(Mul\) computes, is no constant: it depends on 'X', an in"
    )
    with pytest.raises(weights.UnsupportedError, match=words):
        weights.from_onnx(model_of(node, rest, nodes=[computed, node]))
    node.input[2] = "X"
    with pytest.raises(weights.UnsupportedError, match="node: R, the value 'X', is no constant"):
        weights.from_onnx(model_of(node, arrays))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("place, what", [(5, "initial_h"), (6, "initial_c")])
def test_initial_states_that_are_arrays(tf, place, what, dtype):
    node, arrays = random_node("LSTM", 1)
    kind = tf.as_dtype(dtype).as_numpy_dtype
    arrays = {name: array.astype(kind) for name, array in arrays.items()}
    want = weights.from_onnx(node, arrays)
    node.input[place] = "S"
    zeros = {**arrays, "S": np.zeros([1, 2, 4], kind)}
    assert weights.from_onnx(node, zeros) == want
    assert weights.from_onnx(model_of(node, zeros)) == {"node": want}
    learned = {**arrays, "S": np.zeros([1, 2, 4], kind)}
    learned["S"][0, :, 2] = 0.5
    (one,) = weights.from_onnx(node, learned).layers[0]
    assert np.array_equal(getattr(one, what[-1] + "0"), learned["S"][0, 0])
    learned["S"][0, 1, 2] = 0.25
    for source in ((node, learned), (model_of(node, learned),)):
        with pytest.raises(
            weights.UnsupportedError, match=f"node: {what} differs between the rows"
        ):
            weights.from_onnx(*source)
    # One that the graph is given is no parameter.
    assert weights.from_onnx(node, arrays) == want
    assert formats.onnx_layers(model_of(node, arrays))["node"].states == {what: None}


def test_nodes_are_found_in_control_flow_and_without_names():
    node, arrays = random_node("GRU", 1)
    node.name = ""
    bodies = [
        helper.make_graph([node], f"body{n}", [], [helper.make_tensor_value_info("Y", 1, None)])
        for n in range(2)
    ]
    choice = helper.make_node("If", ["C"], ["Z"], then_branch=bodies[0], else_branch=bodies[1])
    found = weights.from_onnx(model_of(node, arrays, nodes=[choice, node]))
    want = weights.from_onnx(node, arrays)
    assert found == {"gru_0": want, "gru_1": want, "gru_2": want}


def test_names_that_repeat_are_told_apart():
    node, arrays = random_node("GRU", 1)
    nodes = []
    for name in ("node_2", "node", "node"):
        nodes.append(onnx.NodeProto())
        nodes[-1].CopyFrom(node)
        nodes[-1].name, nodes[-1].output[:] = name, [f"Y{len(nodes)}"]
    found = weights.from_onnx(model_of(node, arrays, nodes=nodes))
    assert list(found) == ["node_2", "node", "node_2_2"]


def test_the_opset_has_the_type(tf):
    for dtype, opset in (("float32", 14), ("bfloat16", 22)):
        described = weight_stacks.random_weights(
            Stack("gru", dtype=tf.as_dtype(dtype).as_numpy_dtype)
        )
        assert weights.to_onnx_model(described).opset_import[0].version == opset


def test_wrong_arguments_are_refused():
    both = weight_stacks.random_weights(Stack("gru", directions=2))
    with pytest.raises(ValueError, match="reverse is for layers of one direction"):
        weights.to_onnx(both, reverse=True)
    with pytest.raises(ValueError, match="layout must be 0 or 1, got 2"):
        weights.to_onnx(both, layout=2)


def test_a_bias_or_peephole_that_is_missing_becomes_zeros():
    one = weight_stacks.random_weights(Stack("lstm", biases=("b_x",), peepholes=True))
    forward = one.layers[0].forward
    plain = dataclasses.replace(forward, peepholes=None)
    mixed = weights.RecurrentWeights("lstm", [weights.LayerWeights(forward, plain)])
    (node,) = weights.to_onnx(mixed)
    back = weights.from_onnx(node).layers[0]
    assert not back.forward.b_h.any() and not back.backward.peepholes.any()
    assert dataclasses.replace(back.forward, b_h=None) == forward
    assert np.array_equal(back.backward.b_x, plain.b_x)


def test_arrays_need_no_onnx(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    described = weight_stacks.random_weights(Stack("gru"))
    (node,) = weights.to_onnx(described)
    assert weights.from_onnx(node) == described
