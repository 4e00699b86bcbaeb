"""fuse_model and unfuse_model: other classes of layers, all else the same objects."""

from __future__ import annotations

import functools
import threading
import warnings

import keras
import numpy as np
import pytest
import running
import tensorflow as tf
from helpers import children
from helpers.compare import assert_close
from running import BOUND, recurrent_types, state_bits
from scenarios import ALL, BATCH, FEATURES, STEPS, UNITS, Small, series

pytestmark = pytest.mark.types


@pytest.fixture(autouse=True)
def layers(tfb):
    keras.utils.set_random_seed(3)
    return tfb.layers


def outputs(model, x, **call):
    return [np.asarray(y) for y in keras.tree.flatten(model(x, **call))]


def assert_equal(got, want):
    for mine, its in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, its)


def config(model):
    """None of a model that has none, as those of most people."""
    try:
        return model.get_config()
    except (NotImplementedError, ValueError):  # which Keras 3.11 has in making the other
        return None


# ---- every kind of model

FUSED = (
    "mixed stack",
    "padding, both ways",
    "two kinds of layers",
    "sentences of words",
    "RNN of a stack of cells",
    "RNN of StackedRNNCells",
    "cell with dropout",
    "decoder of a cell",
    "names",
    "shared layer",
    "layers in containers",
    "layers made in build",
    "custom layer",
)


@pytest.mark.parametrize("name", FUSED)
def test_fuses_and_unfuses_in_place(tfb, layers, name):
    model, x = running.make(ALL[name]), ALL[name].inputs()
    want, before, kinds = outputs(model, x), config(model), recurrent_types(model)
    parts, variables = model._flatten_layers(), model.variables
    names, bits = [layer.name for layer in parts], state_bits(model)
    assert all(cls is getattr(keras.layers, cls.__name__) for cls in kinds) and kinds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # The second time changes nothing.
            assert tfb.fuse_model(model) is model
    assert recurrent_types(model) == [getattr(layers, cls.__name__) for cls in kinds]
    assert all(a is b for a, b in zip(model._flatten_layers(), parts, strict=True))
    assert all(a is b for a, b in zip(model.variables, variables, strict=True))
    assert [layer.name for layer in parts] == names and state_bits(model) == bits
    running.check_fused(ALL[name], model)
    assert tfb.unfuse_model(model) is model
    assert recurrent_types(model) == kinds
    assert not any(type(layer).__module__.startswith("tf_blockrnn") for layer in parts)
    assert_equal(outputs(model, x), want)
    assert state_bits(model) == bits and config(model) == before
    # Made anew: what a layer drew above has moved its seed on.
    found = running.run(ALL[name], tfb.fuse_model(running.make(ALL[name])))
    running.assert_equal(found, running.stock(name), ALL[name].tolerance)


def sequential(*layers):
    return keras.Sequential([keras.Input((STEPS, FEATURES)), *layers])


def test_a_model_that_is_not_built(tfb):
    model = Small()
    tfb.fuse_model(model)
    assert recurrent_types(model) == [tfb.layers.GRU]
    got = outputs(model, series())
    tfb.unfuse_model(model)
    assert_close(got[0], outputs(model, series())[0], BOUND)


class Helper:
    """Not a Keras object: a cell, as keras.layers.RNN takes it, around a Keras cell."""

    def __init__(self, cell):
        self.cell, self.state_size = cell, cell.state_size

    def call(self, x, states):
        return self.cell(x, states)


def test_layers_that_keras_does_not_track(tfb, layers):
    model = Small()
    hidden = [keras.layers.GRU(UNITS) for _ in range(3)]
    vars(model).update(
        hidden={"a": [(hidden[0],)]}, made=functools.partial(hidden[1]), bound=hidden[2].__call__
    )
    cell = keras.layers.GRUCell(UNITS)
    model.rnn = keras.layers.RNN(Helper(cell))
    tfb.fuse_model(model)
    assert {type(layer) for layer in hidden} == {layers.GRU} and type(cell) is layers.GRUCell
    assert type(model.recurrent.cell) is keras.layers.GRUCell and model.recurrent.fused
    tfb.unfuse_model(model)
    assert {type(layer) for layer in hidden} == {keras.layers.GRU}
    assert type(cell) is keras.layers.GRUCell


def test_unbuilt_cells_build_after_the_change(tfb, layers):
    for cell in (layers.LSTMCell(UNITS), keras.layers.LSTMCell(UNITS)):
        model = keras.Sequential([keras.layers.RNN(cell)])
        change = tfb.unfuse_model if isinstance(cell, layers.LSTMCell) else tfb.fuse_model
        change(model)
        assert model(series()).shape == (BATCH, UNITS) and len(cell.weights) == 3


# ---- state

LAYERS = {
    "stateful": lambda: keras.layers.LSTM(UNITS, stateful=True),
    "stateful, both ways": lambda: keras.layers.Bidirectional(
        keras.layers.LSTM(UNITS, stateful=True)
    ),
    "dropout, a mask per gate": lambda: keras.layers.GRU(
        UNITS, dropout=0.5, implementation=1, use_cudnn=False, seed=2
    ),
    "dropout": lambda: keras.layers.GRU(UNITS, dropout=0.5, use_cudnn=False, seed=2),
}


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_states_and_draws_go_on(tfb, name, copy):
    def make():
        keras.utils.set_random_seed(1)
        shape = keras.Input(batch_shape=(BATCH, STEPS, FEATURES))
        return keras.Sequential([shape, LAYERS[name](), keras.layers.Dropout(0.5, seed=3)])

    model, peer = make(), make()
    for change in (tfb.fuse_model, tfb.unfuse_model):
        model(series(), training=True), peer(series(), training=True)
        model = change(model, copy=copy)
        if "dropout" in name:
            layer = model.layers[0]
            assert layer.use_cudnn is False
            assert layer.cell.implementation == peer.layers[0].cell.implementation
        for _ in range(2):
            mine, its = (each(series(), training=True) for each in (model, peer))
            assert_close(mine, its, running.bound(6))


def test_trainable_stays(tfb):
    frozen = keras.layers.LSTM(UNITS, return_sequences=True)
    model = sequential(frozen, keras.layers.GRU(UNITS))
    frozen.trainable = False
    model.layers[1].cell.bias.trainable = False
    for change in (tfb.fuse_model, tfb.unfuse_model):
        change(model)
        trainable = [w.name for w in model.trainable_variables]
        assert not frozen.trainable and trainable == ["kernel", "recurrent_kernel"]


# ---- training


def trainer(optimizer=None, **options):
    model = running.make(ALL["GRU of the first paper"])
    model.compile(optimizer or keras.optimizers.Adam(0.01), "mse", metrics=["mae"], **options)
    return model


def fit(model, epochs=2):
    target = np.ones((BATCH, model.output_shape[-1]), "float32")
    history = model.fit(series(), target, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"]


@pytest.mark.parametrize("copy", [False, True])
def test_fit_goes_on_as_if_nothing_had_happened(tfb, copy):
    """The state of the optimizer is kept; one model is compiled by XLA, the other runs eagerly."""

    def make():
        kind = keras.optimizers.Adam if copy else keras.optimizers.SGD
        options = {} if copy else {"momentum": 0.9}
        return trainer(kind(0.1, **options), run_eagerly=copy, jit_compile=not copy)

    model, peer = make(), make()
    for change in (tfb.fuse_model, tfb.unfuse_model):
        fit(model), fit(peer)
        slots, before = [np.asarray(v) for v in model.optimizer.variables], model
        model = change(model, copy=copy)
        assert (model is before) != copy and model.jit_compile == (not copy)
        assert_equal([np.asarray(v) for v in model.optimizer.variables], slots)
        assert int(model.optimizer.iterations) > 0
        np.testing.assert_allclose(fit(model), fit(peer), rtol=1e-5, atol=1e-5)
        got = model.predict(series(), verbose=0)
        np.testing.assert_allclose(got, peer(series()), rtol=1e-5, atol=1e-5)
        assert [m.name for m in model.metrics] == [m.name for m in peer.metrics]


def test_functions_are_made_anew(tfb, monkeypatch):
    """Those of fit, evaluate and predict run the op afterwards, also of nested models."""
    inner = keras.Sequential([keras.Input((STEPS, FEATURES)), keras.layers.GRU(2)])
    model = keras.Sequential([inner])
    x, target = series(), np.ones((BATCH, 2), "float32")
    for each in (inner, model):
        each.compile("sgd", "mse")
    runs = [
        *(functools.partial(m.fit, x, target, verbose=0) for m in (inner, model)),
        *(functools.partial(m.evaluate, x, target, verbose=0) for m in (inner, model)),
        *(functools.partial(m.predict, x, verbose=0) for m in (inner, model)),
    ]
    for run in runs:
        run()
    calls = []
    op = tfb.layers.GRU.call
    monkeypatch.setattr(tfb.layers.GRU, "call", lambda *a, **k: calls.append(1) or op(*a, **k))
    tfb.fuse_model(model)
    for run in runs:
        count = len(calls)
        run()
        assert len(calls) > count  # traced anew


def test_checkpoints_go_both_ways(tfb, tmp_path):
    model, plain = (trainer() for _ in range(2))
    fit(model)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    path = checkpoint.save(str(tmp_path / "plain"))
    model.save_weights(tmp_path / "plain.weights.h5")
    want = [np.asarray(w) for w in model.weights]
    tfb.fuse_model(model)
    fit(model)
    checkpoint.restore(path).assert_consumed()
    assert_equal([np.asarray(w) for w in model.weights], want)
    fit(model)
    model.load_weights(tmp_path / "plain.weights.h5")
    assert_equal([np.asarray(w) for w in model.weights], want)
    model.save_weights(tmp_path / "fused.weights.h5")
    plain.load_weights(tmp_path / "fused.weights.h5")
    assert_equal([np.asarray(w) for w in plain.weights], [np.asarray(w) for w in model.weights])


def test_weight_tied_layers(tfb):
    first, second = keras.layers.GRU(UNITS), keras.layers.GRU(UNITS)
    for layer in (first, second):
        layer.build((None, STEPS, FEATURES))
    vars(second.cell)["kernel"] = first.cell.kernel
    x = keras.Input((STEPS, FEATURES))
    model = keras.Model(x, first(x) + second(2.0 * x))
    want = model(series())
    tfb.fuse_model(model)
    assert second.cell.kernel is first.cell.kernel
    assert_close(model(series()), want, BOUND)


def test_while_another_thread_predicts(tfb):
    model, x = trainer(), series()
    want = model.predict(x, verbose=0)
    stop, errors, calls = threading.Event(), [], []

    def predict():
        try:
            while not stop.is_set():
                np.testing.assert_allclose(model.predict(x, verbose=0), want, rtol=1e-5, atol=1e-5)
                calls.append(1)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=predict)
    thread.start()
    for _ in range(5):
        tfb.unfuse_model(tfb.fuse_model(model))
    stop.set()
    thread.join()
    assert not errors and calls


# ---- files


def test_keras_files_and_saved_models(tfb, tmp_path):
    """Of both kinds; what is unfused runs where the package cannot be imported."""
    model, x = running.make(ALL["two kinds of layers"]), series()
    want = np.asarray(model(x))
    np.save(tmp_path / "x.npy", x)
    for name, change in (("fused", tfb.fuse_model), ("plain", tfb.unfuse_model)):
        change(model)
        model.save(tmp_path / f"{name}.keras")
        model.export(tmp_path / f"{name}_export", verbose=False)
        tf.saved_model.save(model, tmp_path / f"{name}_saved")
        again = keras.saving.load_model(tmp_path / f"{name}.keras")
        assert recurrent_types(again) == recurrent_types(model)
        assert_close(again(x), want, BOUND)
        again = type(model).from_config(model.get_config())
        assert recurrent_types(again) == recurrent_types(model)
    served = tf.saved_model.load(tmp_path / "fused_export")
    assert_close(served.serve(x), want, BOUND)
    saved = tf.saved_model.load(tmp_path / "fused_saved")
    output = saved.signatures["serving_default"](tf.constant(x))
    assert_close(next(iter(output.values())), want, BOUND)
    code = f"""
import sys
sys.modules["tf_blockrnn"] = None  # Importing it fails.
import keras, numpy as np, tensorflow as tf
folder = {str(tmp_path)!r}
x = tf.constant(np.load(folder + "/x.npy"))
exported, saved = (tf.saved_model.load(folder + f"/plain_{{way}}") for way in ("export", "saved"))
got = [
    keras.saving.load_model(folder + "/plain.keras")(x),
    exported.serve(x),
    next(iter(saved.signatures["serving_default"](x).values())),
]
np.save(folder + "/got.npy", np.stack(got))
try:
    keras.saving.load_model(folder + "/fused.keras")
except TypeError as error:
    assert "tf_blockrnn" in str(error)
else:
    raise AssertionError("loaded fused layers without the package")
"""
    children.assert_ok(children.run_code(code), "an unfused model without the package")
    for got in np.load(tmp_path / "got.npy"):
        assert_close(got, want, BOUND)
