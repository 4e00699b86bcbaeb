"""Complete Keras models, as objects and as files: what is read, and what is refused by name."""

from __future__ import annotations

import json
import re
import warnings
import zipfile

import h5py
import keras
import numpy as np
import pytest
from helpers import weight_stacks
from helpers.compare import assert_close

from tf_blockrnn import weights
from tf_blockrnn.inference import Session

K = keras.layers
X = np.random.default_rng(3).normal(size=(2, 5, 3)).astype("f4")
STEPS = {"return_sequences": True}


def filled(model):
    """The model with weights that are nowhere the same."""
    rng = np.random.default_rng(4)
    model.set_weights([rng.uniform(-0.7, 0.7, w.shape) for w in model.get_weights()])
    return model


def model_of(*layers):
    return filled(keras.Sequential([keras.Input((5, 3)), *layers]))


def forms(model, folder):
    """The model, and its two files."""
    paths = [folder / f"model{ending}" for ending in (".keras", ".h5")]
    for path in paths:
        model.save(path)
    return [model, *paths]


def edit_config(path, edit):
    """Writes an HDF5 model's config anew, edited as an object."""
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        edit(config)
        file.attrs["model_config"] = json.dumps(config)


@pytest.mark.parametrize("mode", ["sum", "ave", "mul", None])
def test_merge_modes_are_refused_with_the_way_to_merge(mode, tmp_path):
    both = K.Bidirectional(K.LSTM(4, **STEPS), merge_mode=mode, name="both")
    model = model_of(both)
    sources = [both, [both], *(forms(model, tmp_path) if mode else [])]
    for source in sources:
        named = re.escape(f"merge_mode='concat', got {mode!r} of both")
        with pytest.raises(weights.UnsupportedError, match=named) as refused:
            Session(source)
        with pytest.warns(weights.AssumptionWarning, match="both: merge_mode .* is not a weight"):
            session = Session(weights.read(source))
        forward, backward = np.split(session.run(X)[0], 2, axis=-1)
        what = re.search("then (.*)", str(refused.value))
        got = eval(what[1]) if what else [forward, backward]
        np.testing.assert_allclose(got, both(X), rtol=0, atol=1e-6)


def test_a_model_whose_recurrent_layers_are_a_stack(tmp_path):
    inner = keras.Sequential([keras.Input((5, 4)), K.LSTM(2, name="deep", **STEPS)], name="inner")
    low = K.Bidirectional(K.LSTM(2, **STEPS), name="low")
    model = model_of(low, K.Dropout(0.5), inner, K.Dense(2))
    top = inner.layers[0]
    layers = [layer for one in (low, top) for layer in weights.from_keras(one).layers]
    stack = weights.RecurrentWeights("lstm", layers)
    for source in forms(model, tmp_path):
        assert weights.read(source) == stack
        assert weights.read(source, layer="low,inner/deep") == stack
        assert weights.read(source, layer=["inner/deep"]) == weights.from_keras(top)
        with pytest.raises(weights.UnsupportedError, match="low does not take the outputs of deep"):
            Session(source, layer="inner/deep,low")


@pytest.mark.parametrize("between", [K.Dense(3), K.GRU(3, **STEPS)], ids=["dense", "gru"])
def test_layers_have_to_be_selected_where_they_are_no_stack(between, tmp_path):
    model = model_of(K.LSTM(4, name="a", **STEPS), between, K.LSTM(4, name="b", **STEPS))
    for source in forms(model, tmp_path):
        with pytest.raises(ValueError, match="several recurrent layers: a, .*b. Select with layer"):
            Session(source)
        assert weights.read(source, layer="a") == weights.from_keras(model.layers[0])


class Gone(K.Layer):
    """A class that no file's reader has, as it is not registered; with a layer of its own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.own = K.Dense(3)

    def call(self, x):
        return self.own(x) + 1


class GoneLSTM(K.LSTM):
    pass


class GoneCell(K.GRUCell):
    pass


class OwnCell(K.Layer):
    state_size = output_size = 3

    def call(self, inputs, states, training=False):
        return inputs, states


class Negative(K.LSTM):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return -super().call(sequences, initial_state, mask, training)


def test_classes_of_other_programs_are_no_obstacle(tmp_path):
    lstm = K.LSTM(4, name="lstm", **STEPS)
    for path in forms(model_of(Gone(), lstm, K.Lambda(lambda x: x), Gone()), tmp_path):
        assert weights.read(path) == weights.from_keras(lstm)
    model, *paths = forms(model_of(GoneLSTM(4)), tmp_path)
    assert weights.read(model).cell == "lstm"
    for backwards in (False, True):
        with pytest.raises(weights.UnsupportedError, match="Negative overrides call"):
            weights.read(model_of(Negative(4, go_backwards=backwards)))
    for path in paths:
        with pytest.raises(ValueError, match="layer of a known class, but GoneLSTM. If one"):
            Session(path)
    with pytest.raises(ValueError, match=r"pass the recurrent layer itself, such as model.layers"):
        Session(model_of(Gone()))
    own = model_of(K.LSTM(3, **STEPS), K.RNN(OwnCell(), name="rnn"))
    for source in (own, *forms(model_of(K.RNN([K.LSTMCell(3), OwnCell()], name="rnn")), tmp_path)):
        with pytest.raises(weights.UnsupportedError, match="rnn: its cell is of the class OwnCell"):
            Session(source, layer="rnn")
    model, *paths = forms(model_of(K.RNN(GoneCell(4, name="mine"))), tmp_path)
    assert weights.read(model).cell == "gru"
    for path in paths:
        with pytest.raises(weights.UnsupportedError, match="its cell is of the class GoneCell"):
            Session(path)


class Around(K.Layer):
    """It has a recurrent layer, and its config has no name, as those that Keras makes up."""

    def __init__(self, **options):
        super().__init__(**options)
        self.own = K.LSTM(4, **STEPS)

    def call(self, x):
        return self.own(x)


class AroundCell(Around):
    def __init__(self, **options):
        super().__init__(**options)
        self.own = K.GRUCell(4)

    def call(self, x):
        return x + self.own(x[:, 0], keras.ops.zeros([1, 4]))[0][:, None, :3]


class AroundTwo(Around):
    """It also has a layer by the name under which wrappers have theirs."""

    def __init__(self, **options):
        super().__init__(**options)
        self.layer = K.Dense(3)


class AroundGiven(Around):
    """Its config has its name; the given layer was built before, in another model."""

    def __init__(self, own=None, **options):
        super().__init__(**options)
        self.own = own or model_of(K.LSTM(4, **STEPS)).layers[0]

    def get_config(self):
        return {"name": self.name}


class GoneBidirectional(K.Bidirectional):
    def call(self, sequences, initial_state=None, mask=None, training=None):
        return -super().call(sequences, initial_state, mask, training)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Negative(4, name="mine", **STEPS),
        lambda: GoneBidirectional(K.LSTM(2, **STEPS), name="mine"),
        Around,
        AroundCell,
        AroundTwo,
        lambda: keras.Sequential([Around(), K.Dense(3)]),
        lambda: keras.Sequential([AroundGiven(name="around")]),
    ],
    ids=["subclass", "both directions", "layer", "cell", "two", "model", "built before"],
)
def test_recurrent_layers_of_other_programs_are_not_skipped(make, tmp_path):
    model = model_of(make(), K.LSTM(4, name="l", **STEPS))
    for source in forms(model, tmp_path):
        with pytest.raises(ValueError, match="several recurrent layers: .*, l. Select") as said:
            Session(source)
        name = str(said.value).partition("layers: ")[2].partition(",")[0]
        with pytest.raises(weights.UnsupportedError, match="its class|overrides call"):
            weights.read(source, layer=name)
        assert weights.read(source, layer="l") == weights.from_keras(model.layers[-1])
    model = model_of(K.LSTM(3, name="l", **STEPS), make())
    for source in forms(model, tmp_path):
        with pytest.raises(ValueError, match="several recurrent layers: l, .*. Select with"):
            Session(source)


class TwoMatrices(K.Layer):
    """Its attribute `cell` is no cell, nor are its layers a list."""

    def __init__(self, **options):
        super().__init__(**options)
        self.cell, self.layers = Matrices(), 2

    def call(self, x):
        return self.cell(x)

    def get_config(self):
        return {**super().get_config(), "layers": 2, "cells": "none"}


class Matrices(K.Layer):
    def build(self, shape):
        self.one = self.add_weight(shape=(shape[-1], 10), name="one")
        self.two = self.add_weight(shape=(4, 10), name="two")
        super().build(shape)

    def call(self, x):
        return x + (x @ self.one @ keras.ops.transpose(self.two))[..., :3]


def test_layers_that_look_recurrent(tmp_path):
    model = model_of(TwoMatrices(), K.LSTM(4, name="l", **STEPS))
    for source in forms(model, tmp_path):
        assert weights.read(source) == weights.from_keras(model.layers[-1])


def test_a_class_named_as_one_of_keras(tmp_path):
    named = type("LSTM", (Negative,), {})(4, name="mine", **STEPS)
    _, path, _ = forms(model_of(named, K.LSTM(4, name="l")), tmp_path)
    with pytest.raises(ValueError, match="several recurrent layers: mine, l. Select with"):
        Session(path)


def tanh(x):
    return -keras.ops.tanh(x)


def mine(x):
    return keras.ops.tanh(x)


def test_functions_of_other_programs(tmp_path):
    """Also one of a known name, which a file does not tell from Keras' own."""
    for source in forms(model_of(K.GRU(4, activation=mine, name="gru")), tmp_path):
        with pytest.raises(weights.UnsupportedError, match="must be tanh or relu, got mine of ano"):
            Session(source)
    with pytest.raises(weights.UnsupportedError, match="must be tanh or relu, got tanh of another"):
        Session(model_of(K.GRU(4, activation=tanh)))


def test_what_is_not_a_weight_is_reported(tmp_path):
    x, state = keras.Input((5, 3), batch_size=2), keras.Input((4,), batch_size=2)
    gru = K.GRU(4, stateful=True, name="gru", **STEPS)
    for source in forms(keras.Model([x, state], gru(x, initial_state=[state])), tmp_path):
        with pytest.warns(weights.AssumptionWarning) as caught:
            weights.read(source)
        initial, stateful = (str(one.message) for one in caught)
        assert "gru: its initial state is computed by the model" in initial
        assert "gru: stateful=True is not a weight" in stateful


def masked_by_argument():
    x, mask = keras.Input((5, 3)), keras.Input((5,), dtype="bool")
    low = K.LSTM(3, **STEPS)(x, mask=mask)
    return keras.Model([x, mask], K.LSTM(4, name="l")(low))


def masked_in_a_model():
    x = keras.Input((5, 3))
    inner = keras.Model(x, K.LSTM(4, name="l")(x), name="inner")
    return model_of(K.Masking(), inner)


def masked_below_the_last_step():
    return model_of(K.Masking(), K.LSTM(3), K.RepeatVector(5), K.LSTM(4, name="l"))


def embedded(**options):
    layers = [K.Embedding(5, 3, **options), K.Dropout(0.5), K.Bidirectional(K.LSTM(4), name="l")]
    return keras.Sequential([keras.Input((None,)), *layers])


@pytest.mark.parametrize(
    "make, layer",
    [
        (lambda: model_of(K.Masking(), K.LSTM(4, name="l")), None),
        (lambda: model_of(K.Masking(), K.Dense(3), K.LSTM(4, name="l")), None),
        (lambda: embedded(mask_zero=True), None),
        (masked_by_argument, "l"),
        (masked_in_a_model, "inner/l"),
        (masked_below_the_last_step, "l"),
        (embedded, None),
    ],
)
def test_masks_are_reported(make, layer, tmp_path):
    masked = make not in (masked_below_the_last_step, embedded)
    for source in forms(make(), tmp_path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", weights.AssumptionWarning)
            weights.read(source, layer=layer)
        found = [str(one.message) for one in caught if one.category is weights.AssumptionWarning]
        want = f"{layer or 'l'}: the model masks steps, which is not a weight: give lengths="
        assert [one.startswith(want) for one in found] == [True] * masked


@pytest.mark.parametrize("in_a_model", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_layers_that_are_called_twice(own, in_a_model, tmp_path):
    x, y, layer = keras.Input((5, 3)), keras.Input((5, 3)), K.GRU(3, name="l", **STEPS)
    name, called = "l", layer
    if in_a_model:
        name, called = "inner/l", keras.Sequential([keras.Input((5, 3)), layer], name="inner")
    once = called(x)
    twice = called(K.Dropout(0.5)(once) if own else y)
    layer(x)  # of no model
    inputs = [x] if own else [x, y]  # older Keras refuses one that is not used
    for source in forms(filled(keras.Model(inputs, K.Add()([once, twice]))), tmp_path):
        what = f"{name}: the model calls it 2 times" + ", on its own outputs" * own
        if own:
            with pytest.raises(weights.UnsupportedError, match=f"{what}. As one layer"):
                Session(source)
        with pytest.warns(weights.AssumptionWarning, match=f"{what}: run the weights"):
            assert weights.read(source, layer=name if own else None) == weights.from_keras(layer)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_go_backwards(bidirectional, tmp_path):
    gru = K.GRU(4, go_backwards=True, name="gru", **STEPS)
    if bidirectional:
        other = K.GRU(4, name="other", **STEPS)
        gru = K.Bidirectional(other, backward_layer=gru, name="both")
    for source in forms(model_of(gru), tmp_path):
        if bidirectional:
            np.testing.assert_allclose(Session(source).run(X)[0], gru(X), rtol=0, atol=1e-6)
            continue
        with pytest.raises(weights.UnsupportedError, match="gru begins with the last"):
            Session(source)
        with pytest.warns(weights.AssumptionWarning, match="gru: begins with the last"):
            outputs = Session(weights.read(source)).run(X[:, ::-1])[0]
        np.testing.assert_allclose(outputs, gru(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize("frozen", [False, True])
def test_layers_within_a_layer_of_an_hdf5_model(frozen, tmp_path):
    """Their arrays are found by name, or by their order, in which frozen layers are the last."""
    layers = [K.GRU(3, name=name, **STEPS) for name in ("a", "b")]
    model = model_of(keras.Sequential([keras.Input((5, 3)), *layers], name="inner"))
    layers[0].trainable = not frozen
    path = tmp_path / "model.h5"
    filled(model).save(path)
    wanted = {name: weights.from_keras(layer) for name, layer in zip("ab", layers, strict=True)}
    for name, one in wanted.items():
        assert weights.read(path, layer=f"inner/{name}") == one
    with h5py.File(path, "r+") as file:  # names as TensorFlow 1 made them of names in use
        group = file["model_weights/inner"]
        for name in "ab":
            group.move(f"inner/{name}", f"inner/{name}_1")
        names = [re.sub("/([ab])/", r"/\1_1/", name) for name in group.attrs["weight_names"]]
        group.attrs["weight_names"] = names
    for name, one in wanted.items():
        if frozen:
            with pytest.raises(ValueError, match=f"{name}.*: which arrays of the file are its own"):
                weights.read(path, layer=f"inner/{name}")
        else:
            assert weights.read(path, layer=f"inner/{name}") == one


def test_keras_1_is_refused(tmp_path):
    path = tmp_path / "model.h5"
    model_of(K.LSTM(4, name="lstm")).save(path)
    edit_config(path, lambda config: config["config"]["layers"][1]["config"].update(output_dim=4))
    with pytest.raises(weights.UnsupportedError, match="lstm: the file was written by Keras 1"):
        Session(path)


@pytest.mark.parametrize("version, slope", [("2.2.4", 0.2), ("2.11.0", 0.2), ("3.0.0", 1 / 6)])
def test_hard_sigmoid_is_that_of_the_file_s_keras(version, slope, tmp_path):
    path = tmp_path / "model.h5"
    layer = K.LSTM(4, recurrent_activation="hard_sigmoid")
    model_of(layer).save(path)
    with h5py.File(path, "r+") as file:
        file.attrs["keras_version"] = version
    assert weights.read(path).hard_sigmoid == slope
    assert weights.read(layer).hard_sigmoid == 1 / 6


@pytest.mark.parametrize(
    "change", [("layers/", "_layer_checkpoint_dependencies/"), ("/", "\\")], ids=["2.12", "Windows"]
)
def test_paths_of_other_releases(change, tmp_path):
    both = K.Bidirectional(K.LSTM(4))
    path = tmp_path / "model.keras"
    model_of(both).save(path)
    with zipfile.ZipFile(path) as file:
        files = {name: file.read(name) for name in file.namelist()}
    (tmp_path / "old.h5").write_bytes(files["model.weights.h5"])
    groups = []
    with h5py.File(tmp_path / "old.h5") as old, h5py.File(tmp_path / "new.h5", "w") as new:
        old.visit(lambda name: groups.append(name) if name.endswith("/vars") else None)
        for name in groups:
            place = name.removesuffix("/vars").replace(*change)
            old.copy(name, new.require_group(place), "vars")
    files["model.weights.h5"] = (tmp_path / "new.h5").read_bytes()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    assert weights.read(path) == weights.from_keras(both)
    with pytest.warns(weights.AssumptionWarning):
        assert weights.read(tmp_path / "new.h5") == weights.from_keras(both)


def test_bfloat16(tmp_path):
    lstm = K.LSTM(4, dtype="bfloat16", recurrent_initializer="glorot_uniform")
    path = tmp_path / "model.keras"
    filled(keras.Sequential([keras.Input((5, 3), dtype="bfloat16"), lstm])).save(path)
    assert weights.read(path) == weights.from_keras(lstm)
    assert weights.read(path).dtype == "bfloat16"


def test_cells_and_lists_of_one_name():
    cells = [K.LSTMCell(4, name="cell") for _ in range(2)]
    filled(keras.Sequential([keras.Input((5, 3)), K.RNN(cells, **STEPS)]))
    read = weights.read(cells)
    assert read.num_layers == 2 and read == weights.from_keras(cells)
    assert_close(
        Session(read).run(X)[0].swapaxes(0, 1),
        weight_stacks.run(read.astype("float64"), X.swapaxes(0, 1).astype("f8")).output,
        weight_stacks.tolerances.stack_bound("float", 200, 2),
        "output",
    )
