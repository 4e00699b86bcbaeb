"""Weights and initial states that nodes of an ONNX model compute from constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from helpers import onnx_export, weight_stacks
from helpers.weight_stacks import Stack
from onnx import TensorProto, helper, numpy_helper

from tf_blockrnn import weights
from tf_blockrnn.weights import _onnx_model
from tf_blockrnn.weights._onnx_nodes import read_node

PLAIN = weights.to_onnx_model(weight_stacks.random_weights(Stack("gru", dtype="float32")))
WANT = weights.from_onnx(PLAIN)
W = numpy_helper.to_array(PLAIN.graph.initializer[0])  # [1, 12, 3]


def make(op_type: str, inputs: str, output: str = "W", **attributes):
    """A node; "-" is an input that is left out."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op_type, names, output.split(), f"node_{output}", **attributes)


def model_of(nodes, arrays, value="W", place=1, opset=14) -> onnx.ModelProto:
    """PLAIN with an input of its GRU, by default W, that nodes compute from arrays."""
    model = onnx.ModelProto()
    model.CopyFrom(PLAIN)
    model.opset_import[0].version = opset
    (gru,) = (node for node in model.graph.node if node.op_type == "GRU")
    gru.input.extend([""] * (1 + place - len(gru.input)))
    gru.input[place] = value
    rest = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *rest])
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    model.graph.initializer.extend(tensors)
    return model


FLAT, SHAPE, DOUBLE = W.reshape(-1), np.array(W.shape), np.concatenate([W, W])
PADDED = np.pad(W, ((0, 0), (1, 1), (0, 0)))
HALF = {"a": W.astype("f2")}
Q = np.arange(36, dtype=np.int8).reshape(W.shape)
CHANNELS = {"q": Q, "s": np.linspace(0.1, 0.5, 12, dtype="f4"), "z": np.arange(12, dtype=np.int8)}
FROM_CHANNELS = (Q - CHANNELS["z"][:, None]) * CHANNELS["s"][:, None]
CONSTANT = make("Constant", "", "a", value=numpy_helper.from_array(W))
FOLDED = {
    "Slice": ([make("Slice", "a l h x")], {"a": PADDED, "l": [1], "h": [-1], "x": [1]}, W),
    "Concat": ([make("Concat", "a b", axis=1)], {"a": W[:, :5], "b": W[:, 5:]}, W),
    "Unsqueeze": ([make("Unsqueeze", "a x")], {"a": W[0], "x": [0]}, W),
    "Squeeze": ([make("Squeeze", "a x")], {"a": W[None], "x": [0]}, W),
    "Transpose": ([make("Transpose", "a", perm=[2, 1, 0])], {"a": W.T}, W),
    "Reshape": ([make("Reshape", "a s")], {"a": FLAT, "s": SHAPE}, W),
    "Shape": ([make("Shape", "b", "s"), make("Reshape", "a s")], {"a": FLAT, "b": W + 1}, W),
    "Gather": ([make("Gather", "a n")], {"a": DOUBLE, "n": [1]}, W),
    "Split": ([make("Split", "a", "rest W", axis=0)], {"a": DOUBLE}, W),
    "Constant": ([CONSTANT, make("Identity", "a")], {}, W),
    "ConstantOfShape": (
        [make("ConstantOfShape", "s", "z"), make("Sub", "a z")],
        {"a": W, "s": SHAPE},
        W,
    ),
    "Mul": ([make("Mul", "a b")], {"a": W * 2, "b": np.float32(0.5)}, W),
    "Div": ([make("Div", "a b")], {"a": W * 4, "b": np.float32(4)}, W),
    "Add": ([make("Neg", "b", "c"), make("Add", "a c")], {"a": W + 0, "b": W * 0}, W),
    "Expand": ([make("Expand", "b s")], {"b": np.ones(1, "f4"), "s": SHAPE}, W * 0 + 1),
    "Cast": ([make("Cast", "a", to=TensorProto.FLOAT)], HALF, HALF["a"]),
    "DequantizeLinear": ([make("DequantizeLinear", "q s z", axis=1)], CHANNELS, FROM_CHANNELS),
    "one_scale": ([make("DequantizeLinear", "q s")], {"q": Q, "s": np.float32(0.5)}, Q * 0.5),
    "long": ([make("Identity", f"v{n}", f"v{n + 1}") for n in range(3000)], {"v0": W}, W),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_are_folded(name):
    nodes, arrays, want = FOLDED[name]
    model = model_of(nodes, arrays, "v3000" if name == "long" else "W")
    plain = model_of([], {"W": want.astype("f4")})
    assert weights.from_onnx(model) == weights.from_onnx(plain)
    x = [np.ones([5, 2, 3], "f4")]
    for got, expected in zip(*(onnx_export.run(each, x) for each in (model, plain)), strict=True):
        np.testing.assert_array_equal(got, expected)


HUGE = {"h": np.array([1 << 20, 1 << 20])}
ROW, COLUMN = np.ones([1, 1 << 14], "f4"), np.ones([1 << 14, 1], "f4")
DOUBLED = [make("Concat", f"d{n} d{n}", f"d{n + 1}", axis=1) for n in range(40)]
REFUSED = {
    "input": ([make("Mul", "a X")], "computes, is no constant: it depends on 'X', an input"),
    "op": ([make("Exp", "a")], r", which the node node_W \(Exp\) computes, is no"),
    "op_below": ([make("ReduceMax", "X", "m"), make("Mul", "a m")], r"on the node node_m \(Reduce"),
    "domain": ([make("Identity", "a", domain="own")], r"on the node node_W \(Identity\)"),
    "cycle": ([make("Add", "a b"), make("Identity", "W", "b")], "depends on itself"),
    "missing": ([make("Add", "a gone")], "nothing in the model computes 'gone'"),
    "failing": ([make("Reshape", "a h")], r"the node node_W \(Reshape\) fails: "),
    "training": ([make("Dropout", "a - yes")], "it is in training mode"),
    "outputs": ([make("Split", "a", num_outputs=1 << 40)], "fewer outputs than num_outputs"),
    "expand": ([make("Expand", "d0 h")], "fails: "),
    "constant": ([make("ConstantOfShape", "h")], "1099511627776 elements, too many for this file"),
    "tile": ([make("Tile", "row h")], "too many"),
    "broadcast": ([make("Add", "row column")], "too many"),
    "gather": ([make("Gather", "row many")], "too many"),
    "doubling": ([*DOUBLED, make("Identity", "d40")], "too many"),
}
ARRAYS = {
    **HUGE,
    **{"a": W, "d0": W, "row": ROW, "column": COLUMN, "many": np.zeros([1 << 15], "i8")},
    "yes": np.array(True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_folded_is_refused(name):
    nodes, words = REFUSED[name]
    with pytest.raises(weights.UnsupportedError, match=f"gru_0: W, the value 'W'.*{words}"):
        weights.from_onnx(model_of(nodes, ARRAYS, opset=18 if name == "outputs" else 14))


# ---- bodies of control flow, and functions


def test_constants_outside_of_a_body():
    (gru,) = (node for node in PLAIN.graph.node if node.op_type == "GRU")
    inner = onnx.NodeProto()
    inner.CopyFrom(gru)
    inner.input[1], inner.output[:] = "T", ["Z"]
    inner.name = "inner"
    nodes = [make("Identity", "U", "T"), inner]
    body = helper.make_graph(nodes, "body", [], [helper.make_tensor_value_info("Z", 1, None)])
    choice = helper.make_node("If", ["C"], ["Z"], then_branch=body, else_branch=body)
    model = model_of([make("Transpose", "a", "U", perm=[2, 1, 0]), choice], {"a": W.T}, "U")
    assert weights.from_onnx(model) == dict.fromkeys(("inner", "inner_1", "gru_0"), WANT["gru_0"])
    with pytest.raises(ValueError, match="With equal weights: inner and inner_1 and gru_0"):
        weights.read(model)


def with_functions(*functions) -> onnx.ModelProto:
    """W is what the function f0 computes from a."""
    model = model_of([make("f0", "a", domain="own")], {"a": W.T})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions)
    return model


def function_of(name: str, *nodes, version: int = 14, inputs=("x",)):
    imports = [helper.make_opsetid("", version), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs, ["y"], nodes, imports)


def test_functions_of_the_model():
    inside = function_of("f1", make("Transpose", "x", "y", perm=[2, 1, 0]))
    model = with_functions(function_of("f0", make("f1", "x", "y", domain="own")), inside)
    assert weights.from_onnx(model) == WANT
    assert len(model.functions) == 2  # the model is not changed


def test_functions_that_cannot_be_replaced():
    itself = with_functions(function_of("f0", make("f0", "x", "y", domain="own")))
    with pytest.raises(ValueError, match="the function own::f0 of the model calls itself"):
        weights.from_onnx(itself)
    calls = with_functions(function_of("f0", make("Identity", "x", "y"), inputs=()))
    with pytest.raises(
        ValueError, match="functions of the model cannot be replaced by their nodes: "
    ):
        weights.from_onnx(calls)
    calls = [
        function_of(
            f"f{n}",
            *(make(f"f{n + 1}", "x", f"y{k}", domain="own") for k in range(9)),
            make("Identity", "y0", "y"),
        )
        for n in range(30)
    ]
    bomb = with_functions(*calls, function_of("f30", make("Identity", "x", "y")))
    with pytest.raises(weights.UnsupportedError, match="the functions of the model make .* bytes"):
        weights.from_onnx(bomb)
    node = make("GRU", "x w w", "y", hidden_size=4)
    older = with_functions(function_of("f0", node, version=13, inputs=("x", "w")))
    with pytest.raises(weights.UnsupportedError, match="own::f0 with a recurrent node has .* 13"):
        weights.from_onnx(older)


# ---- initial states

H0 = np.linspace(-1, 1, 4, dtype="f4")
BATCH = [
    make("Shape", "X", "s"),
    make("Gather", "s one", "b"),
    make("Concat", "one b four", "n", axis=0),
]
SIZES = {"one": [1], "four": [4]}
STATES = {
    "of_one_batch": ([], {"S": np.tile(H0, [1, 2, 1])}, H0),
    "expanded": ([*BATCH, make("Expand", "h n", "S")], {"h": H0, **SIZES}, H0),
    "zeros": ([*BATCH, make("ConstantOfShape", "n", "S")], SIZES, None),
    "any_size": (
        # The shape of the op's output is not known.
        [make("Own", "X", "e", domain="own"), make("Shape", "e", "s"), *BATCH[1:]]
        + [make("Expand", "h n", "S")],
        {"h": np.float32(0.5), **SIZES},
        np.full(4, 0.5, "f4"),
    ),
    "input": ([make("ReduceMax", "X", "S")], {}, None),
    "of_the_sizes": (
        [*BATCH, make("Cast", "n", "c", to=1), make("Expand", "c n", "S")],
        SIZES,
        None,
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_initial_states(name):
    nodes, arrays, want = STATES[name]
    model = model_of(nodes, arrays, "S", place=5)
    one = weights.from_onnx(model)["gru_0"].layers[0].forward
    assert (one.h0 is None) if want is None else np.array_equal(one.h0, want)
    (layer,) = weights.onnx_layers(model).values()
    unread = name in ("input", "of_the_sizes")
    assert len(layer.notes) == unread and (layer.states["initial_h"] is None) == unread


def test_states_of_rows_that_differ():
    S = np.stack([H0, H0 + 1])[None]
    for nodes, arrays in (
        ([], {"S": S}),
        ([make("Tile", "t one3", "S")], {"t": S, "one3": [1] * 3}),
    ):
        with pytest.raises(
            weights.UnsupportedError, match="gru_0: initial_h differs between the r"
        ):
            weights.from_onnx(model_of(nodes, arrays, "S", place=5))
    with pytest.raises(
        ValueError, match=r"initial_h must have the shape \[D, B, H\] = \[1, B, 4\]"
    ):
        weights.from_onnx(model_of([], {"S": S[0]}, "S", place=5))


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("cell, directions", [("lstm", 2), ("gru", 1), ("rnn_tanh", 2)])
def test_written_states_are_read(cell, directions, layout):
    stack = Stack(cell, layers=2, directions=directions, dtype="float32")
    rng = np.random.default_rng(7)

    def with_states(one):
        states = ("h0", "c0") if cell == "lstm" else ("h0",)
        drawn = {name: rng.normal(size=one.units).astype("f4") for name in states}
        return weights.DirectionWeights(**one.arrays, **drawn)

    plain = weight_stacks.random_weights(stack)
    layers = [weights.LayerWeights(*map(with_states, layer)) for layer in plain.layers]
    described = weights.RecurrentWeights(cell, layers, reset_after=plain.reset_after)
    model = weights.to_onnx_model(described, layout=layout)
    assert weights.read(model, layer=[f"{cell}_0", f"{cell}_1"]) == described
    if layout:  # ONNX Runtime has no kernels for it
        return
    from tf_blockrnn.inference import Session

    for batch in (1, 3):
        x = rng.normal(size=(4, batch, 3)).astype("f4")
        y = onnx_export.run(model, [x])[0].swapaxes(0, 1)
        got = Session(described).run(np.ascontiguousarray(x.swapaxes(0, 1)))[0]
        np.testing.assert_allclose(got, y, rtol=0, atol=1e-6)


def test_lengths_are_no_weights():
    with pytest.warns(
        weights.AssumptionWarning, match="gru_0: sequence_lens, the value 'L', is not"
    ):
        assert (
            weights.read(model_of([], {"L": np.array([5, 3], "i4")}, "L", place=4)) == WANT["gru_0"]
        )


# ---- nodes of other names


def test_recurrent_ops_that_are_not_read_are_named():
    (gru,) = (node for node in PLAIN.graph.node if node.op_type == "GRU")
    other = helper.make_node("AttnLSTM", ["X"], ["A"], "attention", domain="com.microsoft")
    words = "attention: the op AttnLSTM of the domain 'com.microsoft' is not read; LSTM, GRU, RNN"
    for model in (model_of([other], {"W": W}), model_of([], {})):
        if other not in model.graph.node:  # none that is read
            model.graph.node.insert(0, other)
            model.graph.node.remove(next(n for n in model.graph.node if n.op_type == "GRU"))
        with pytest.raises(weights.UnsupportedError, match=words):
            weights.from_onnx(model)
        with pytest.raises(weights.UnsupportedError, match=words):
            weights.read(model, layer="attention")
    assert weights.read(model_of([other], {"W": W}), layer="gru_0") == WANT["gru_0"]


def test_models_without_recurrent_nodes_list_their_ops():
    model = model_of([], {})
    del model.graph.node[:]
    model.graph.node.extend([make("Relu", "X"), make("Relu", "W", "V"), make("Loop", "n c V", "Y")])
    words = r"no recurrent node .* its ops are Loop, Relu \(what Loop or Scan computes step by step"
    for read in (weights.from_onnx, weights.read):
        with pytest.raises(ValueError, match=words):
            read(model)


# ---- DynamicQuantizeLSTM

LSTM = weight_stacks.random_weights(Stack("lstm", directions=2, dtype="float32"))


def quantized(tmp_path, **options) -> onnx.ModelProto:
    from onnxruntime import quantization

    paths = [str(tmp_path / f"{n}.onnx") for n in range(2)]
    onnx.save(weights.to_onnx_model(LSTM), paths[0])
    quantization.quantize_dynamic(*paths, **options)
    return onnx.load(paths[1])


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantized_weights_are_those_within_half_a_step(tmp_path, per_channel):
    with pytest.warns(weights.AssumptionWarning, match="weights were dequantised"):
        found = weights.read(quantized(tmp_path, per_channel=per_channel))
    for (_, _, mine), (_, _, its) in zip(
        found.named_directions(), LSTM.named_directions(), strict=True
    ):
        assert mine.arrays.keys() == its.arrays.keys()
        for name, array in its.arrays.items():
            step = np.abs(array).max() / 127 if name in ("w_x", "w_h") else 0
            np.testing.assert_allclose(mine.arrays[name], array, rtol=0, atol=0.51 * step)


def test_quantized_arrays_that_do_not_fit(tmp_path):
    model = quantized(tmp_path)
    (found,) = _onnx_model.named_nodes(model).values()
    scale = next(t for t in model.graph.initializer if t.name == found.node.input[8])
    scale.CopyFrom(numpy_helper.from_array(np.ones(3, "f4"), scale.name))
    (found,) = _onnx_model.named_nodes(model).values()
    with pytest.raises(ValueError, match=r"W_scale must have the shape \[D\] or \[D, 4H\] = \[2\]"):
        read_node(found)
    found.node.input[8] = ""
    with pytest.raises(ValueError, match="W must be of integers with a scale"):
        read_node(found)
