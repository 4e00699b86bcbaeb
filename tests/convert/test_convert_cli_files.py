"""`python -m tf_blockrnn convert`: kinds of files by content, Keras 2, and what is no stack."""

from __future__ import annotations

import json
import shutil

import h5py
import keras
import numpy as np
import pytest
import torch
from helpers import covering, tf1_graphs
from helpers.compare import bits
from helpers.convert_command import converted, make, read, refused
from helpers.weight_stacks import Stack

from tf_blockrnn import weights
from tf_blockrnn.weights import npz

UNITS = 4


def test_kinds_are_recognized_by_content(convert):
    make(Stack("gru", dtype="float32"), "first.npz")
    converted(convert, "first.npz first.keras --to keras")
    converted(convert, "first.npz first.pt --to torch")
    converted(convert, "first.npz first.onnx --to onnx")
    model = keras.models.load_model("first.keras")
    model.save("model.h5")
    model.save_weights("only.weights.h5")
    state = torch.load("first.pt", weights_only=True)
    torch.save(state, "old.pt", _use_new_zipfile_serialization=False)
    want = npz.from_npz("first.npz")
    endings = (".hdf5", ".bin", ".npz", ".keras", "", ".pt", ".onnx")
    sources = ("first.npz", "first.keras", "first.pt", "first.onnx", "model.h5", "old.pt")
    for name, ending in zip((*sources, "only.weights.h5"), endings, strict=True):
        shutil.copyfile(name, f"copy{ending}")
        assert read(convert, f"copy{ending} out.npz --to npz") == want, name


def cudnn_arrays(cell: str, inputs: int, seed: int) -> dict[str, np.ndarray]:
    rng, columns = np.random.default_rng(seed), (4 if cell == "LSTM" else 3) * UNITS
    shapes = {"kernel:0": [inputs, columns], "recurrent_kernel:0": [UNITS, columns]}
    shapes["bias:0"] = [2 * columns]
    return {name: rng.uniform(-1, 1, shape).astype("f4") for name, shape in shapes.items()}


def write_group(file, layer: str, arrays: dict[str, np.ndarray]) -> None:
    group = file.create_group(layer)
    group.attrs["weight_names"] = [name.encode() for name in arrays]
    for name, array in arrays.items():
        group[name] = array


def layer_config(cell: str, name: str, **options) -> dict:
    own = {"name": name, "trainable": True, "dtype": "float32", "return_sequences": True}
    own |= {"return_state": False, "go_backwards": False, "stateful": False, "units": UNITS}
    own |= {"time_major": False, "kernel_initializer": "zeros", **options}
    return {"class_name": f"CuDNN{cell}", "config": own}


@pytest.mark.parametrize(
    ("cell", "complete", "module"), covering.pairwise(["LSTM", "GRU"], [False, True], [False, True])
)
def test_keras_2_cudnn_layers(convert, cell, complete, module):
    """A layer, and a Bidirectional of one, as Keras 2 saves them: until 2.12, and after it."""
    one = cudnn_arrays(cell, 3, 0)
    forward, backward = cudnn_arrays(cell, UNITS, 1), cudnn_arrays(cell, UNITS, 2)
    extra = {"module": "keras.layers", "registered_name": None} if module else {}
    inner = layer_config(cell, "own") | extra
    both = {"class_name": "Bidirectional", "config": {"name": "both", "merge_mode": "concat"}}
    both["config"]["layer"] = inner
    first = layer_config(cell, "one") | extra
    first["config"]["batch_input_shape"] = [None, 5, 3]
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [first, both]}}
    with h5py.File("old.hdf5", "w") as file:
        group = file.create_group("model_weights") if complete else file
        if complete:
            file.attrs["model_config"] = json.dumps(config)
        group.attrs["layer_names"] = [b"one", b"both"]
        group.attrs["keras_version"] = b"2.11.0"
        group.attrs["backend"] = b"tensorflow"
        write_group(group, "one", {f"one/{name}": array for name, array in one.items()})
        names = [f"both/{way}_own/{name}" for way in ("forward", "backward") for name in forward]
        values = [*forward.values(), *backward.values()]
        write_group(group, "both", dict(zip(names, values, strict=True)))
    converted(convert, "old.hdf5 out.npz --to npz --layer one")
    want = weights.from_keras(list(one.values()), cell=cell.lower())
    assert npz.from_npz("out.npz") == want
    layer = want.layers[0].forward
    gate = want.gates.index("o" if cell == "LSTM" else "c")
    block = one["kernel:0"][:, -UNITS:]
    assert bits(layer.w_x[gate]) == bits(block.ravel().reshape(UNITS, 3).T.copy())
    output = converted(convert, "old.hdf5 out.npz --to npz --layer one,both")
    assert ("assumed: one, both feed one another" in output) == (not complete)
    top = weights.from_keras(values, cell=cell.lower(), bidirectional=True)
    assert npz.from_npz("out.npz").layers == (*want.layers, *top.layers)
    if complete:
        refused(convert, "old.hdf5 out.npz --to npz --layer both,one", 1, "one does not take the")


def test_keras_2_cudnn_layers_with_time_first_are_refused(convert):
    config = layer_config("LSTM", "one", time_major=True, batch_input_shape=[5, None, 3])
    model = {"class_name": "Sequential", "config": {"name": "m", "layers": [config]}}
    with h5py.File("old.h5", "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        file.create_group("model_weights").attrs["layer_names"] = [b"one"]
    refused(convert, "old.h5 out.npz --to npz", 1, "time_major=True are not supported")


def test_a_gru_of_releases_without_reset_after(convert):
    """It resets before the GEMM; without biases no shape would tell."""
    gru = keras.layers.GRU(4, reset_after=False, use_bias=False, name="gru")
    keras.Sequential([keras.Input((5, 3)), gru]).save("in.h5")
    with h5py.File("in.h5", "r+") as file:
        config = json.loads(file.attrs["model_config"])
        for layer in config["config"]["layers"]:
            layer["config"].pop("reset_after", None)
        file.attrs["model_config"] = json.dumps(config)
    assert read(convert, "in.h5 out.npz --to npz").reset_after is False


def test_a_sequential_whose_config_is_a_list(convert):
    one = cudnn_arrays("GRU", 3, 0)
    layers = [layer_config("GRU", "one", batch_input_shape=[None, 5, 3])]
    with h5py.File("old.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": layers})
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = [b"one"]
        write_group(group, "one", {f"one/{name}": array for name, array in one.items()})
    assert read(convert, "old.h5 out.npz --to npz").layers[0].forward.units == UNITS


@pytest.mark.parametrize("path", ["in.keras", "in.h5"])
def test_keras_layers_that_are_no_stack(convert, path):
    """Also where a layer is within a model of the model."""
    x = keras.Input((5, 4))
    below = keras.layers.GRU(4, return_sequences=True, name="below")
    deep = keras.layers.GRU(4, return_sequences=True, name="deep")
    inner = keras.Sequential([keras.Input((5, 4)), deep], name="inner")
    last = keras.layers.GRU(4, return_sequences=True, name="last")
    y = inner(keras.layers.Dropout(0.1)(below(x)))
    keras.Model(x, last(keras.layers.Dense(4, name="dense")(y))).save(path)
    line = f"{path} out.npz --to npz --layer "
    assert read(convert, line + "below,inner/deep").num_layers == 2
    refused(convert, line + "inner/deep,below", 1, "below does not take the outputs of deep")
    words = r"last does not take the outputs of deep: it takes those of dense \(Dense\)"
    refused(convert, line + "inner/deep,last", 1, words)


def test_onnx_nodes_that_are_no_stack(convert):
    make(Stack("lstm", layers=3, dtype="float32"))
    converted(convert, "in.npz in.onnx --to onnx")
    line = "in.onnx out.npz --to npz --layer "
    refused(convert, line + "lstm_0,lstm_2", 1, r"lstm_2 does not .* the node lstm_1 \(LSTM\) is")
    converted(convert, line + "lstm_1,lstm_2")


def test_an_initial_state_in_keras_is_reported(convert):
    x, state = keras.Input((5, 4)), keras.Input((4,))
    keras.Model([x, state], keras.layers.GRU(4, name="g")(x, initial_state=[state])).save(
        "in.keras"
    )
    output = converted(convert, "in.keras out.npz --to npz")
    assert "g: its initial state is computed by the model or is its input, and is not" in output


def test_assumptions_about_tensorflow_1_are_printed(convert):
    tf1_graphs.run(tf1_graphs.NETWORKS["LSTMCell, all"], "model")
    line = "model out.npz --to npz --cell LSTMCell"
    output = converted(convert, line)
    assert "assumed: forget_bias=1, TensorFlow's default (--forget-bias)" in output
    assert "assumed: no cell_clip (--cell-clip)" in output
    assert "assumed: no proj_clip" in output
    assert "assumed: the default activation, tanh; no wrapper" in output
    output = converted(convert, f"{line} --forget-bias 0.5 --cell-clip 2")
    assert "forget_bias" not in output and "clip 2" in output


def test_assumptions_about_a_state_dict_are_printed(convert):
    torch.save(torch.nn.ModuleDict({n: torch.nn.GRU(4, 4) for n in "ab"}).state_dict(), "in.pt")
    output = converted(convert, "in.pt out.npz --to npz --layer a,b")
    assert "assumed: modules of PyTorch's own classes" in output
    assert "assumed: a, b feed one another in this order" in output
