"""`python -m tf_blockrnn convert`, on tiny files of every kind."""

from __future__ import annotations

import dataclasses
import re
import sys

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers import children, tf1_graphs, tolerances, weight_stacks
from helpers.compare import assert_close, bits
from helpers.convert_command import converted, make, refused
from helpers.weight_stacks import Stack

from tf_blockrnn import weights
from tf_blockrnn.weights import _files, npz

LSTM = Stack("lstm", layers=2, directions=2, dtype="float32")
GRU = Stack("gru", dtype="float32")


def assert_keras_computes(model, described, stack: Stack) -> None:
    x = weight_stacks.inputs(stack).astype(stack.dtype)
    got = keras.ops.convert_to_numpy(model(x.swapaxes(0, 1))).swapaxes(0, 1)
    bound = tolerances.stack_bound(stack.dtype, stack.reduction_length, stack.layers)
    assert_close(got, weight_stacks.run(described, x).output, bound, "the model's output")


# ---- what each kind of file gives


@pytest.mark.parametrize("end, to", [("pt", "torch"), ("onnx", "onnx"), ("npz", "npz")])
def test_there_and_back(convert, end, to):
    """A file with both biases gives back every bit; the table shows where each array went."""
    described = make(LSTM)
    output = converted(convert, f"in.npz there.{end} --to {to}")
    options = " --layer lstm_0,lstm_1" if to == "onnx" else ""
    converted(convert, f"there.{end} back.npz --to npz{options}")
    assert npz.from_npz("back.npz") == described

    rows = re.findall(r"^layer (\d) (\w+) (\w+) +\[([\d, ]+)\] +(\S.*)$", output, re.MULTILINE)
    want = [
        (str(number), way, name, ", ".join(map(str, getattr(one, name).shape)))
        for number, way, one in described.named_directions()
        for name in ("w_x", "w_h", "b_x", "b_h")
    ]
    assert [row[:4] for row in rows] == want
    places = [row[4] for row in rows]
    assert len(set(places)) == len(places)
    if to == "torch":
        assert sorted(places) == sorted(torch.load("there.pt", weights_only=True))
    if to == "npz":
        assert set(places) <= set(np.load("there.npz"))


def test_places_in_onnx_are_right(convert):
    described = make(Stack("lstm", directions=2, peepholes=True, dtype="float32"))
    output = converted(convert, "in.npz there.onnx --to onnx")
    arrays = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load("there.onnx").graph.initializer
    }
    found = re.findall(r"^layer 0 (\w+) (\w+) .*  lstm_0\.(.*)$", output, re.MULTILINE)
    assert len(found) == 2 * 5
    for way, name, place in found:
        what, _, index = place.partition("[")
        there = eval(f"array[{index}", {"array": arrays[f"lstm_0.{what}"]})
        array = getattr(getattr(described.layers[0], way), name)
        assert sorted(there.ravel()) == sorted(array.ravel()), place


@pytest.mark.parametrize("stack", [LSTM, GRU], ids=lambda stack: stack.cell)
def test_keras_model_computes_the_same(convert, stack):
    described = make(stack)
    output = converted(convert, "in.npz model.keras --to keras")
    model = keras.models.load_model("model.keras")
    assert_keras_computes(model, described, stack)
    for layer in model.layers:
        assert f"  {layer.name}/" in output
    assert (", summed" in output) == (stack is not GRU)

    names = ",".join(layer.name for layer in model.layers)
    converted(convert, f"model.keras back.npz --to npz --layer {names}")
    back = npz.from_npz("back.npz")
    for got, want in zip(back.named_directions(), described.named_directions(), strict=True):
        assert bits(got[2].w_x) == bits(want[2].w_x)
        assert bits(got[2].b_x) == bits(want[2].b_x if stack is GRU else want[2].bias)


def test_our_layers_hold_what_kerass_do_not(convert):
    stack = Stack("lstm", proj=2, peepholes=True, cell_clip=0.5, dtype="float32")
    described = make(stack)
    refused(convert, "in.npz out.keras --to keras", 1, "in.npz: .*Keras")
    output = converted(convert, "in.npz out.keras --to keras --package tf_blockrnn")
    assert "I = 3, H = 4, P = 2, clip 0.5, float32" in output
    assert_keras_computes(keras.models.load_model("out.keras"), described, stack)
    converted(convert, "out.keras back.npz --to npz")
    back = npz.from_npz("back.npz")
    assert back.cell_clip == 0.5
    assert bits(back.layers[0].forward.w_p) == bits(described.layers[0].forward.w_p)


def test_cudnn_params_and_geometry(convert):
    described = make(Stack("lstm", layers=2, directions=2, proj=2, dtype="float32"))
    output = converted(convert, "in.npz params.npy --to cudnn")
    params = np.load("params.npy")
    assert bits(params) == bits(weights.to_cudnn(described))
    (geometry,) = re.findall(r"^geometry: (.*)$", output, re.MULTILINE)
    back = weights.from_cudnn(params, **eval(f"dict({geometry})"))
    assert back == described
    rows = re.findall(r"^layer (\d) (\w+) (\w+) .*  params\[(\d+):(\d+)\]$", output, re.MULTILINE)
    assert len(rows) == 4 * 5
    for number, way, name, begin, end in rows:
        array = getattr(getattr(described.layers[int(number)], way), name)
        there = params[int(begin) : int(end)]
        assert sorted(there) == sorted(array.ravel()), (number, way, name)


def test_places_in_cudnn_leave_room_for_biases_that_are_missing(convert):
    make(dataclasses.replace(GRU, biases=("b_h",)))
    output = converted(convert, "in.npz params.npy --to cudnn")
    params = np.load("params.npy")
    begin, end = map(int, re.search(r"b_h .*  params\[(\d+):(\d+)\]", output).groups())
    described = npz.from_npz("in.npz")
    assert bits(params[begin:end]) == bits(described.layers[0].forward.b_h.ravel())


# ---- layers that go backwards alone


def test_reverse_in_onnx_is_go_backwards_in_keras(convert):
    stack = Stack("gru", dtype="float32")
    layer = keras.layers.GRU(stack.units, go_backwards=True, return_sequences=True, name="way")
    model = keras.Sequential([keras.Input((None, stack.inputs)), layer])
    model.save("in.keras")
    converted(convert, "in.keras there.onnx --to onnx")
    x = weight_stacks.inputs(stack).astype("f4")
    want = keras.ops.convert_to_numpy(model(x.swapaxes(0, 1))).swapaxes(0, 1)
    session = onnxruntime.InferenceSession("there.onnx", providers=["CPUExecutionProvider"])
    (y,) = session.run(["Y"], {"X": x})
    bound = tolerances.parity_bound("float", stack.reduction_length)
    assert_close(y, want[::-1], bound, "Y")  # Keras' outputs are in the order last step first

    assert "last step first" in converted(convert, "there.onnx back.keras --to keras")
    back = keras.models.load_model("back.keras").layers[-1]
    assert back.go_backwards
    assert [bits(w) for w in back.get_weights()] == [bits(w) for w in layer.get_weights()]
    for end, to in (("pt", "torch"), ("npy", "cudnn"), ("npz", "npz")):
        words = "does not record that layers of one direction go from the last step to the first"
        refused(convert, f"there.onnx out.{end} --to {to}", 1, words)


def test_backwards_layers_are_no_stack(convert):
    described = make(Stack("gru", layers=2, dtype="float32"))
    model = weights.to_onnx_model(described, reverse=True)
    onnx.save(model, "reverse.onnx")
    line = "reverse.onnx out.keras --to keras --layer gru_0,gru_1"
    refused(convert, line, 1, "Keras cannot stack layers")
    (way,) = [a for a in model.graph.node[0].attribute if a.name == "direction"]
    way.s = b"forward"
    onnx.save(model, "mixed.onnx")
    line = "mixed.onnx out.onnx --to onnx --layer gru_0,gru_1"
    refused(convert, line, 1, "must all be reverse or all forward")
    way = {"return_sequences": True, "go_backwards": True}
    layers = [keras.layers.GRU(4, name="one", **way), keras.layers.GRU(4, name="two")]
    keras.Sequential([keras.Input((None, 3)), *layers]).save("in.keras")
    refused(convert, "in.keras out.pt --to torch --layer one,two", 1, "go_backwards cannot be part")


# ---- finding layers


def test_layers_of_nested_keras_models(convert):
    inner = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4, name="deep")])
    both = keras.layers.Bidirectional(keras.layers.LSTM(2, name="one"), "sum", name="both")
    x = keras.Input((5, 6, 3))
    hidden = keras.layers.TimeDistributed(inner, name="each")(x)
    hidden = keras.layers.Dense(4)(both(hidden))
    keras.Model(x, hidden).save("in.keras")
    refused(convert, "in.keras out.pt --to torch", 2, r"several recurrent layers: each/\S*deep, ")
    name = re.search(r"layers: (\S+deep)", convert("in.keras out.pt --to torch")[2])[1]
    converted(convert, f"in.keras out.npz --to npz --layer {name}")
    deep = npz.from_npz("out.npz").layers[0].forward
    assert bits(np.concatenate(list(deep.w_x), -1)) == bits(inner.layers[-1].get_weights()[0])
    output = converted(convert, "in.keras out.npz --to npz --layer both")
    assert "both: merge_mode 'sum' is not a weight and is not converted" in output
    assert npz.from_npz("out.npz").directions == 2
    line = f"in.keras out.npz --to npz --layer {name},{name}"
    refused(convert, line, 2, "--layer has '.*deep' more than once")


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.encoder = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, 2, bidirectional=True)})
        self.cell = torch.nn.LSTMCell(8, 4)
        self.head = torch.nn.Linear(4, 2)


def test_layers_of_a_pytorch_model(convert):
    tagger = Tagger()
    torch.save({"epoch": 3, "state_dict": tagger.state_dict()}, "in.pth")
    refused(convert, "in.pth out.npz --to npz", 2, "several recurrent layers: encoder.rnn, cell")
    converted(convert, "in.pth out.npz --to npz --layer encoder.rnn")
    rnn = weights.from_torch(tagger.encoder["rnn"])
    assert npz.from_npz("out.npz") == rnn
    converted(convert, "in.pth out.npz --to npz --layer encoder.rnn,cell")
    layers = [*rnn.layers, *weights.from_torch(tagger.cell).layers]
    assert npz.from_npz("out.npz") == dataclasses.replace(rnn, layers=layers)
    line = "in.pth out.npz --to npz --layer cell,encoder.rnn"
    refused(convert, line, 1, "layer 1: I must be the width of layer 0's output, 4, got 3")
    torch.save(torch.nn.RNN(3, 4).state_dict(), "rnn.pt")
    refused(convert, "rnn.pt out.npz --to npz", 2, "specify its cell with --cell")


class NormedCell(torch.nn.LSTMCell):
    """An LSTM with a norm: its recurrent weights alone do not say what it computes."""

    def __init__(self):
        super().__init__(3, 4)
        self.norm = torch.nn.LayerNorm(16)


def test_a_pytorch_cell_that_is_no_plain_one(convert):
    """Is refused; at the top, where the rest may be the model's other parts, it is reported."""
    model = torch.nn.ModuleDict({"cell": NormedCell(), "head": torch.nn.Linear(4, 2)})
    torch.save(model.state_dict(), "in.pt")
    words = "keys that are no recurrent weights: cell.norm.weight, cell.norm.bias$"
    for line in ("in.pt out.npz --to npz", "in.pt out.npz --to npz --layer cell"):
        refused(convert, line, 1, words)
    state = model["cell"].state_dict()
    torch.save(state, "top.pt")
    output = converted(convert, "top.pt out.npz --to npz")
    assert "not converted from the state dict: norm.weight, norm.bias\n" in output
    plain = {key: value for key, value in state.items() if not key.startswith("norm.")}
    assert npz.from_npz("out.npz") == weights.from_torch(plain)


def test_initial_states_of_onnx(convert):
    """One that the graph computes stays behind; a learned one comes along."""
    make(Stack("lstm", layers=2, dtype="float32"))
    converted(convert, "in.npz plain.onnx --to onnx")
    model = onnx.load("plain.onnx")
    first, second = (node for node in model.graph.node if node.op_type == "LSTM")
    for name, value in (("zeros", np.zeros), ("learned", np.ones)):
        state = value([1, 3, 4], "f4")
        model.graph.initializer.append(onnx.numpy_helper.from_array(state, name))
    model.graph.node.insert(0, onnx.helper.make_node("Exp", ["zeros"], ["computed"]))
    first.input.extend(["", "computed", "zeros"])
    second.input.extend(["", "learned", "zeros"])
    onnx.save(model, "in.onnx")
    output = converted(convert, "in.onnx out.npz --to npz --layer lstm_0")
    assert (
        "lstm_0: initial_h is computed by the graph or is its input, and is not converted" in output
    )
    assert "initial_c" not in output
    converted(convert, "in.onnx out.npz --to npz --layer lstm_1")
    (one,) = npz.from_npz("out.npz").layers[0]
    assert np.array_equal(one.h0, np.ones(4)) and one.c0 is None
    refused(convert, "in.onnx out.pt --to torch --layer lstm_1", 1, "PyTorch has no h0 and c0")
    converted(convert, "out.npz again.onnx --to onnx")


def test_tensorflow_1_checkpoint(convert):
    network = tf1_graphs.NETWORKS["LSTMBlockCell, all"]
    tf1_graphs.run(network, "model.ckpt-7")
    line = "model.ckpt-7 out.npz --to npz"
    words = r"specify with --cell .* it holds rnn/lstm_cell: LSTMCell or LSTMBlockCell"
    refused(convert, line, 2, words)
    refused(convert, f"{line} --cell GRUCell", 1, "there is no GRUCell in this checkpoint")
    refused(convert, f"{line} --cell LSTMCell --layer 0", 2, "use --scope, not --layer")
    options = "--cell LSTMBlockCell --scope rnn --forget-bias 0.5 --cell-clip 0.3"
    for source in ("model.ckpt-7", "model.ckpt-7.index"):
        converted(convert, f"{source} out.npz --to npz {options}")
        want = weights.from_tf1(
            "model.ckpt-7", cell="LSTMBlockCell", forget_bias=0.5, cell_clip=0.3
        )
        assert npz.from_npz("out.npz") == want


# ---- the command itself


def _without_options(kind: str) -> str:
    """A file for which an option is needed."""
    if kind == "a checkpoint":
        tf1_graphs.run(tf1_graphs.NETWORKS["LSTMBlockCell, all"], "model.ckpt-7")
        return "model.ckpt-7"
    if kind == "a module of one gate":
        torch.save(torch.nn.RNN(3, 4).state_dict(), "in.pt")
        return "in.pt"
    if kind == "several layers":
        torch.save(Tagger().state_dict(), "in.pt")
        return "in.pt"
    layer = {
        "a layer of one gate": keras.layers.SimpleRNN(4),
        "a gru without biases": keras.layers.GRU(4, use_bias=False),
    }[kind]
    keras.Sequential([keras.Input((None, 3)), layer]).save_weights("in.weights.h5")
    return "in.weights.h5"


@pytest.mark.parametrize(
    "kind, option, values",
    [
        ("a checkpoint", "--cell", "LSTMCell, LSTMBlockCell"),
        ("a module of one gate", "--cell", "rnn_tanh, rnn_relu"),
        ("several layers", "--layer", "encoder.rnn, cell"),
        ("a layer of one gate", "--cell", "rnn_tanh, rnn_relu"),
        ("a gru without biases", "--reset", "before, after"),
    ],
)
def test_hints_can_be_followed(convert, kind, option, values):
    """The error names the option and its values, each of which makes the command work."""
    line = f"{_without_options(kind)} out.npz"
    refused(convert, line, 2, option)
    _, _, errors = convert(line)
    assert not re.search(r": *:|^convert: *$", errors)
    for value in values.split(", "):
        assert re.search(rf"\b{value}\b", errors), errors
        converted(convert, f"{line} {option} {value}")
    name = option.removeprefix("--")
    with pytest.raises(ValueError, match=f"{name}=") as error:
        weights.read(line.split()[0])
    for value in values.split(", "):
        # What comes from the file is listed.
        assert f'{name}="{value}"' in str(error.value) or f"--{name} {value}" not in errors
        weights.read(line.split()[0], **{name: value})


@pytest.mark.parametrize("ending", [e for t in _files.TARGETS.values() for e in t.endings])
def test_the_ending_says_what_to_write(convert, ending):
    make(GRU)
    (to,) = (name for name, target in _files.TARGETS.items() if ending in target.endings)
    output = converted(convert, f"in.npz out{ending}").splitlines()
    explicit = converted(convert, f"in.npz out{ending} --to {to}").splitlines()
    assert (output[0], len(output)) == (explicit[0], len(explicit))
    assert output[-1].startswith(f"out{ending}: ")


def test_a_module_itself_has_no_name(convert):
    torch.save(torch.nn.LSTM(3, 4).state_dict(), "net.pt")
    assert converted(convert, "net.pt out.npz").startswith("net.pt: lstm, 1 layer, ")


def test_what_is_done_is_said_on_a_terminal(convert, monkeypatch):
    make(GRU)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    status, output, errors = convert("in.npz out.npz --to npz")
    assert status == 0
    assert errors == "reading in.npz\nwriting out.npz\n"
    assert "reading" not in output


def test_the_verb(tmp_path):
    make(GRU, tmp_path / "in.npz")
    arguments = [str(tmp_path / "in.npz"), str(tmp_path / "out.pt"), "--to", "torch"]
    result = children.run_python(["-m", "tf_blockrnn", "convert", *arguments])
    output = children.assert_ok(result, "convert")
    assert "gru (reset after), 1 layer, one direction, I = 3, H = 4, float32" in output
    assert sorted(torch.load(tmp_path / "out.pt", weights_only=True)) == [
        "bias_hh_l0",
        "bias_ih_l0",
        "weight_hh_l0",
        "weight_ih_l0",
    ]
