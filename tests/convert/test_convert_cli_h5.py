"""`python -m tf_blockrnn convert`, on Keras' HDF5 files: which arrays make which layer."""

from __future__ import annotations

import dataclasses

import h5py
import keras
import numpy as np
import pytest
from helpers.convert_command import converted, read, refused

from tf_blockrnn import weights
from tf_blockrnn.weights import npz


def test_h5_of_keras_3(convert):
    layers = [
        keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True), name="both"),
        keras.layers.GRU(3, return_sequences=True, name="grus"),
        keras.layers.SimpleRNN(3, name="plain"),
        keras.layers.Dense(2),
    ]
    model = keras.Sequential([keras.Input((None, 3)), *layers])
    model.save_weights("model.weights.h5")
    model.save("whole.h5")
    for index, name in enumerate(("both", "grus", "plain")):
        want = weights.from_keras(layers[index])
        assert read(convert, f"whole.h5 out.npz --to npz --layer {name}") == want
    # A file of weights has the names that Keras gives by class.
    names = {"bidirectional": (0, ""), "gru": (1, ""), "simple_rnn": (2, " --cell rnn_tanh")}
    for name, (index, cell) in names.items():
        output = converted(convert, f"model.weights.h5 out.npz --to npz --layer {name}{cell}")
        assert "the file has only weights: activations, go_backwards and" in output
        assert npz.from_npz("out.npz") == weights.from_keras(layers[index])
    line = "model.weights.h5 out.npz --to npz --layer simple_rnn"
    refused(convert, line, 2, r"has 1 gate\(s\): specify its cell with --cell")
    line = "model.weights.h5 out.npz --to npz --layer bidirectional,gru"
    refused(convert, line, 1, "must be of one kind, got lstm and gru, reset_after=True")


def test_both_directions_given_as_layers(convert):
    both = keras.layers.Bidirectional(
        keras.layers.LSTM(3), backward_layer=keras.layers.LSTM(3, go_backwards=True)
    )
    keras.Sequential([keras.Input((None, 3)), both]).save_weights("both.weights.h5")
    assert read(convert, "both.weights.h5 out.npz") == weights.from_keras(both)


def test_a_layer_whose_name_has_a_comma(convert):
    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(2, name="a,b")])
    model.save("comma.keras")
    want = weights.from_keras(model.layers[0])
    assert read(convert, "comma.keras out.npz --layer a,b") == want
    refused(convert, "comma.keras out.npz --layer a,c", 2, "no recurrent layer 'a'; it has a,b")


@pytest.mark.parametrize("bias", [True, False])
def test_h5_weights_of_our_lstm(tfb, convert, bias):
    layer = tfb.layers.LSTM(4, use_peephole=True, projection=2, use_bias=bias)
    model = keras.Sequential([keras.Input((None, 3)), layer])
    model.save_weights("ours.weights.h5")
    assert read(convert, "ours.weights.h5 out.npz --to npz") == weights.from_keras(layer)


def test_what_h5_weights_do_not_say(tfb, convert):
    """The clip, and how a gru without biases resets, are options."""
    clipped = tfb.layers.LSTM(4, cell_clip=0.25)
    keras.Sequential([keras.Input((None, 3)), clipped]).save_weights("clip.weights.h5")
    line = "clip.weights.h5 out.npz --to npz"
    assert "an lstm's clip (--cell-clip) are not in it" in converted(convert, line)
    assert read(convert, f"{line} --cell-clip 0.25") == weights.from_keras(clipped)
    refused(convert, f"{line} --reset after", 2, "--reset is for a gru, lstm is of the cell lstm")

    for reset in ("before", "after"):
        gru = keras.layers.GRU(4, use_bias=False, reset_after=reset == "after")
        keras.Sequential([keras.Input((None, 3)), gru]).save_weights("gru.weights.h5")
        line = "gru.weights.h5 out.npz --to npz"
        refused(
            convert, line, 2, "gru: specify whether the gru resets before or after the GEMM, with"
        )
        assert read(convert, f"{line} --reset {reset}") == weights.from_keras(gru)
    refused(convert, f"{line} --reset after --cell-clip 1", 1, "cell_clip is for lstm")

    keras.Sequential([keras.Input((None, 3)), clipped]).save("whole.h5")
    line = "whole.h5 out.npz --to npz"
    refused(convert, f"{line} --cell-clip 1", 2, "--cell-clip does not apply to a Keras model")
    refused(convert, f"{line} --reset after", 2, "--reset does not apply to a Keras model")


def test_h5_weights_of_keras_2(convert):
    layer = keras.layers.Bidirectional(keras.layers.GRU(2, reset_after=False))
    layer.build((None, None, 3))
    arrays = layer.get_weights()
    names = ("kernel:0", "recurrent_kernel:0", "bias:0")
    with h5py.File("old.h5", "w") as file:
        for number, way in enumerate(("forward", "backward")):
            group = f"bidirectional/bidirectional/{way}_gru/gru_cell_{number + 1}"
            for name, array in zip(names, arrays[3 * number :][:3], strict=True):
                file[f"{group}/{name}"] = array
        file["dense/dense/kernel:0"] = np.ones([4, 4])
        file["dense/dense/bias:0"] = np.ones([4])
    line = "old.h5 out.npz --to npz"
    words = "bidirectional: the file is of Keras {}, and before 2.3 the default recurrent_activatio"
    refused(convert, line, 2, words.format("of an unknown version"))
    assert read(convert, f"{line} --recurrent-activation sigmoid") == weights.from_keras(layer)
    hard = read(convert, f"{line} --recurrent-activation hard_sigmoid")
    assert hard == dataclasses.replace(weights.from_keras(layer), hard_sigmoid=0.2)
    for version, refuses in (("2.2.4", True), ("2.2.4-tf", True), ("2.3.0-tf", False)):
        with h5py.File("old.h5", "r+") as file:
            file.attrs["keras_version"] = version.encode()
        if refuses:
            also = r" \(but tf.keras in Tens" if "tf" in version else ", which"
            words = f"of Keras {version}, and before 2.3 the .* hard_sigmoid{also}"
            refused(convert, line, 2, words)
        else:
            assert "assumed: recurrent_activation sigmoid" in converted(convert, line)


def test_the_recurrent_activation_is_of_cells_that_have_one(convert):
    rnn = keras.layers.SimpleRNN(4)
    keras.Sequential([keras.Input((None, 3)), rnn]).save_weights("in.weights.h5")
    line = "in.weights.h5 out.npz --to npz --cell rnn_tanh --recurrent-activation sigmoid"
    refused(convert, line, 2, "is for an LSTM or GRU, simple_rnn is of the cell rnn_tanh")


def saved(model: keras.Model, path: str = "in.weights.h5") -> keras.Model:
    """The model, called once and saved, with weights that are nowhere the same."""
    model(np.ones([2, 5, 4], "f4"))
    rng = np.random.default_rng(3)
    model.set_weights([rng.uniform(-1, 1, w.shape) for w in model.get_weights()])
    model.save_weights(path)
    return model


@pytest.mark.parametrize("cells", [2, 11])  # 11: not in the order of the alphabet
def test_cells_of_one_layer_are_a_stack_in_order(convert, cells):
    units = [4 + n % 2 for n in range(cells)]
    stack = [keras.layers.LSTMCell(n, dropout=0.1) for n in units]
    model = saved(keras.Sequential([keras.layers.RNN(stack, return_sequences=True)]))
    output = converted(convert, "in.weights.h5 out.npz --to npz")
    assert f"rnn: lstm, {cells} layers, one direction" in output
    assert npz.from_npz("out.npz") == weights.from_keras(model.layers[0])


class Named(keras.Model):
    """A chain of layers that are attributes of these names, which the file's groups have then."""

    def __init__(self, **layers):
        super().__init__()
        self.order = list(layers)
        for name, layer in layers.items():
            setattr(self, name, layer)

    def call(self, x):
        for name in self.order:
            x = getattr(self, name)(x)
        return x


@pytest.mark.parametrize(
    "names",
    [
        ("forward_one", "forward_two"),
        ("forward_one", "backward_one"),
        ("forward_layer", "backward_layer"),
    ],
)
def test_layers_with_misleading_names_stay_apart(convert, names):
    layers = {name: keras.layers.LSTM(4, return_sequences=True) for name in names}
    inner = Named(**layers)
    saved(Named(inner=inner))
    above = "inner/"
    line = "in.weights.h5 out.npz --to npz"
    found = ", ".join(sorted(above + name for name in names))
    refused(convert, line, 2, f"several recurrent layers: {found}[.]")
    assert read(
        convert, f"{line} --layer {above}{names[0]},{above}{names[1]}"
    ) == weights.from_keras(list(layers.values()))


def test_layers_of_one_short_name_are_told_apart_by_their_paths(convert):
    model = saved(keras.Sequential([keras.layers.LSTM(4)]))
    with h5py.File("in.weights.h5", "a") as file:
        file.copy("layers/lstm", "lstm")
        file["lstm/cell/vars/2"][...] = 7
    line = "in.weights.h5 out.npz --to npz"
    refused(convert, line, 2, "several recurrent layers: layers/lstm, lstm[.]")
    assert read(convert, f"{line} --layer layers/lstm") == weights.from_keras(model.layers[0])


class Pair(keras.layers.Layer):
    """Two matrices with as many columns, but no cell."""

    def build(self, shape):
        self.one = self.add_weight(shape=(shape[-1], 8), name="one")
        self.two = self.add_weight(shape=(2, 8), name="two")

    def call(self, x):
        return x @ self.one


def test_two_matrices_are_no_cell(convert):
    saved(keras.Sequential([Pair()]))
    refused(convert, "in.weights.h5 out.npz --to npz", 2, "the file has no recurrent layer")


class Identity(keras.layers.Layer):
    state_size = output_size = 4

    def call(self, x, states):
        return x, states


class Around(keras.layers.Layer):
    """A cell that adds its input to another's output."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.state_size, self.output_size = cell, cell.state_size, cell.output_size

    def build(self, shape):
        self.cell.build(shape)

    def call(self, x, states):
        output, states = self.cell(x, states)
        return x + output, states


class Normed(keras.layers.LSTMCell):
    def build(self, shape):
        super().build(shape)
        self.norm = keras.layers.LayerNormalization()
        self.norm.build((None, self.units))


@pytest.mark.parametrize(
    "cell, words",
    [
        (lambda: [keras.layers.LSTMCell(4), Identity()], "the cell identity has no arrays"),
        (
            lambda: Around(keras.layers.LSTMCell(4)),
            "also has a cell around it, which is not an lstm",
        ),
        (lambda: Normed(4), "also has norm/vars/0, norm/vars/1, which is not an lstm"),
        (
            lambda: [type("Mine", (keras.layers.LSTMCell,), {})(4), keras.layers.LSTMCell(4)],
            "several cells, lstm_cell, mine, whose order the file does not record",
        ),
    ],
    ids=["one cell unknown", "around", "norm", "order"],
)
def test_cells_that_are_unknown_are_refused(convert, cell, words):
    saved(keras.Sequential([keras.layers.RNN(cell())]))
    refused(convert, "in.weights.h5 out.npz --to npz", 1, words)


def test_directions_that_are_stacks_are_refused(convert):
    inner = keras.layers.RNN([keras.layers.LSTMCell(4), keras.layers.LSTMCell(4)])
    saved(keras.Sequential([keras.layers.Bidirectional(inner)]))
    line = "in.weights.h5 out.npz --to npz"
    refused(convert, line, 1, "bidirectional: each direction is a stack of its own")


def write_keras_2(layer: keras.layers.Layer, *groups: str) -> None:
    names = ("kernel:0", "recurrent_kernel:0", "bias:0")
    with h5py.File("old.h5", "a") as file:
        for group in groups:
            for name, array in zip(names, layer.get_weights(), strict=True):
                file[f"{group}/{name}"] = array


@pytest.mark.parametrize(
    "groups, status, words",
    [
        # Cells below one layer: the order of their names need not be that of the stack.
        (["rnn/rnn/lstm_cell", "rnn/rnn/lstm_cell_1"], 1, "several cells, lstm_cell, lstm_cell_1,"),
        # Layers of a model that is a layer of the file's.
        (["m/forward_a/lstm_cell", "m/backward_a/lstm_cell"], 2, "layers: m/backward_a, m/forwa"),
        # No two of a Bidirectional.
        (["m/m/forward_a/lstm_cell", "m/m/forward_b/lstm_cell"], 2, "layers: m/forward_a, m/forw"),
        (["m/m/forward_a/lstm_cell", "m/m/backward_b/lstm_cell"], 2, "layers: m/backward_b, m/fo"),
    ],
)
def test_h5_of_keras_2_keeps_layers_apart(convert, groups, status, words):
    layer = keras.layers.LSTM(4)
    layer.build((None, None, 4))
    write_keras_2(layer, *groups)
    refused(convert, "old.h5 out.npz --to npz", status, words)


def test_an_array_of_keras_2_that_is_unknown_is_refused(convert):
    """The peepholes of TensorFlow Addons' cell, say."""
    layer = keras.layers.LSTM(4)
    layer.build((None, None, 4))
    write_keras_2(layer, "rnn/rnn/lstm_cell")
    with h5py.File("old.h5", "a") as file:
        file["rnn/rnn/lstm_cell/input_gate_peephole_weights:0"] = np.ones([4])
    refused(convert, "old.h5 out.npz --to npz", 1, "also has input_gate_peephole_weights")
