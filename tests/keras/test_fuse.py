"""fuse_model and unfuse_model: other classes of layers, all else the same objects."""

from __future__ import annotations

import threading
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import children, covering, fuse_models
from helpers.compare import assert_close
from helpers.fuse_checks import (
    BOUND,
    assert_same_state,
    bound,
    recurrent_types,
    state,
)
from helpers.fuse_models import BATCH, INPUTS, MODELS, STEPS, UNITS

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


# ---- every kind of model


@pytest.mark.parametrize("name", MODELS)
def test_fuses_and_unfuses_in_place(tfb, layers, name):
    model, x = fuse_models.make(name), fuse_models.inputs(name)
    want, config, kinds = outputs(model, x), model.get_config(), recurrent_types(model)
    parts, variables = model._flatten_layers(), model.variables
    paths, before = [v.path for v in variables], state(model)
    names = [layer.name for layer in parts]
    assert all(cls is getattr(keras.layers, cls.__name__) for cls in kinds) and kinds
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # The second time changes nothing.
            assert tfb.fuse_model(model) is model
    assert recurrent_types(model) == [getattr(layers, cls.__name__) for cls in kinds]
    assert all(a is b for a, b in zip(model._flatten_layers(), parts, strict=True))
    assert all(a is b for a, b in zip(model.variables, variables, strict=True))
    assert all(layer.fused for layer in model._flatten_layers() if hasattr(layer, "fused"))
    assert [layer.name for layer in parts] == names and [v.path for v in variables] == paths
    for got, wanted in zip(outputs(model, x), want, strict=True):
        assert_close(got, wanted, BOUND)
    assert tfb.unfuse_model(model) is model
    assert recurrent_types(model) == kinds
    assert not any(type(layer).__module__.startswith("tf_blockrnn") for layer in parts)
    assert_equal(outputs(model, x), want)
    assert_same_state(state(model), before)
    assert model.get_config() == config


def sequential(*layers):
    return keras.Sequential([keras.Input((STEPS, INPUTS)), *layers])


def test_a_model_that_is_not_built(tfb):
    model, x = fuse_models.Bare(), fuse_models.inputs("sequential")
    tfb.fuse_model(model)
    (found,) = recurrent_types(model)
    assert found is tfb.layers.GRU
    got = outputs(model, x)
    tfb.unfuse_model(model)
    assert_close(got[0], outputs(model, x)[0], BOUND)


class Helper:
    """Not a Keras object: a cell, as keras.layers.RNN takes it, around a Keras cell."""

    def __init__(self, cell):
        self.cell, self.state_size = cell, cell.state_size

    def call(self, x, states):
        return self.cell(x, states)


def test_layers_that_keras_does_not_track(tfb, layers):
    import functools

    model = fuse_models.Bare()
    hidden = [keras.layers.GRU(UNITS) for _ in range(3)]
    vars(model).update(
        hidden={"a": [(hidden[0],)]}, made=functools.partial(hidden[1]), bound=hidden[2].__call__
    )
    cell = keras.layers.GRUCell(UNITS)
    model.rnn = keras.layers.RNN(Helper(cell))
    tfb.fuse_model(model)
    assert {type(layer) for layer in hidden} == {layers.GRU} and type(cell) is layers.GRUCell
    assert type(model.r.cell) is keras.layers.GRUCell and model.r.fused
    tfb.unfuse_model(model)
    assert {type(layer) for layer in hidden} == {keras.layers.GRU}
    assert type(cell) is keras.layers.GRUCell


def test_unbuilt_cells_build_after_the_change(tfb, layers):
    x = np.ones((2, STEPS, INPUTS), "float32")
    for cell in (layers.LSTMCell(UNITS), keras.layers.LSTMCell(UNITS)):
        model = keras.Sequential([keras.layers.RNN(cell)])
        change = tfb.unfuse_model if isinstance(cell, layers.LSTMCell) else tfb.fuse_model
        change(model)
        assert model(x).shape == (2, UNITS) and len(cell.weights) == 3


# ---- state


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_states_of_stateful_layers_go_on(tfb, wrapped, copy):
    def make():
        keras.utils.set_random_seed(1)
        layer = keras.layers.LSTM(UNITS, stateful=True)
        shape = keras.Input(batch_shape=(BATCH, STEPS, INPUTS))
        layer = keras.layers.Bidirectional(layer) if wrapped else layer
        return keras.Sequential([shape, layer])

    model, peer, x = make(), make(), fuse_models.inputs("sequential")
    for change in (tfb.fuse_model, tfb.unfuse_model):
        model(x), peer(x)
        model = change(model, copy=copy)
        assert_close(model(x), peer(x), bound(4))


@pytest.mark.parametrize("implementation", [1, 2])
@pytest.mark.parametrize("copy", [False, True])
def test_dropout_goes_on(tfb, implementation, copy):
    def make():
        keras.utils.set_random_seed(1)
        layer = keras.layers.GRU(
            UNITS, dropout=0.5, implementation=implementation, use_cudnn=False, seed=2
        )
        return sequential(layer, keras.layers.Dropout(0.5, seed=3))

    model, peer, x = make(), make(), fuse_models.inputs("sequential")
    for change in (tfb.fuse_model, tfb.unfuse_model):
        model(x, training=True), peer(x, training=True)
        model = change(model, copy=copy)
        assert model.layers[0].use_cudnn is False
        assert model.layers[0].cell.implementation == implementation
        for _ in range(2):
            assert_close(model(x, training=True), peer(x, training=True), BOUND)


def test_trainable_stays(tfb):
    frozen = keras.layers.LSTM(UNITS, return_sequences=True)
    model = sequential(frozen, keras.layers.GRU(UNITS))
    frozen.trainable = False
    model.layers[1].cell.bias.trainable = False
    for change in (tfb.fuse_model, tfb.unfuse_model):
        change(model)
        assert not frozen.trainable and [w.name for w in model.trainable_variables] == [
            "kernel",
            "recurrent_kernel",
        ]


# ---- training


def trainer(name="sequential", optimizer="adam", **options):
    model = fuse_models.make(name)
    optimizer = {"adam": keras.optimizers.Adam(0.01), "sgd": keras.optimizers.SGD(0.1, 0.9)}[
        optimizer
    ]
    model.compile(optimizer, "mse", metrics=["mae"], **options)
    return model


def fit(model, epochs=2):
    x = fuse_models.inputs("sequential")
    target = np.ones((BATCH, model.output_shape[-1]), "float32")
    history = model.fit(x, target, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return history.history["loss"]


@pytest.mark.parametrize(
    ("optimizer", "run_eagerly", "copy"),
    covering.pairwise(["adam", "sgd"], [False, True], [False, True]),
)
def test_fit_goes_on_as_if_nothing_had_happened(tfb, optimizer, run_eagerly, copy):
    model, peer = (trainer("bidirectional", optimizer, run_eagerly=run_eagerly) for _ in range(2))
    for change in (tfb.fuse_model, tfb.unfuse_model):
        fit(model), fit(peer)
        slots, before = [np.asarray(v) for v in model.optimizer.variables], model
        model = change(model, copy=copy)
        assert (model is before) != copy
        assert_equal([np.asarray(v) for v in model.optimizer.variables], slots)
        assert int(model.optimizer.iterations) > 0
        np.testing.assert_allclose(fit(model), fit(peer), rtol=1e-5, atol=1e-5)
        x = fuse_models.inputs("sequential")
        np.testing.assert_allclose(model.predict(x, verbose=0), peer(x), rtol=1e-5, atol=1e-5)
        assert [m.name for m in model.metrics] == [m.name for m in peer.metrics]


def test_functions_are_made_anew(tfb, monkeypatch):
    """Those of fit, evaluate and predict run the op afterwards, also of nested models."""
    inner = keras.Sequential([keras.Input((STEPS, INPUTS)), keras.layers.GRU(2)])
    model = keras.Sequential([inner])
    x, target = fuse_models.inputs("sequential"), np.ones((BATCH, 2), "float32")
    for each in (inner, model):
        each.compile("sgd", "mse")
        each.fit(x, target, verbose=0)
        each.evaluate(x, target, verbose=0)
        each.predict(x, verbose=0)
    calls = []
    op = tfb.layers.GRU.call
    monkeypatch.setattr(
        tfb.layers.GRU, "call", lambda *a, **k: calls.append(len(calls)) or op(*a, **k)
    )
    tfb.fuse_model(model)
    for each in (inner, model):
        for run in (
            lambda m=each: m.fit(x, target, verbose=0),
            lambda m=each: m.evaluate(x, target, verbose=0),
            lambda m=each: m.predict(x, verbose=0),
        ):
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
        layer.build((None, STEPS, INPUTS))
    vars(second.cell)["kernel"] = first.cell.kernel
    x = keras.Input((STEPS, INPUTS))
    model = keras.Model(x, first(x) + second(2.0 * x))
    given = fuse_models.inputs("sequential")
    want = outputs(model, given)
    tfb.fuse_model(model)
    assert second.cell.kernel is first.cell.kernel
    assert_close(outputs(model, given)[0], want[0], BOUND)


def test_models_compiled_for_xla_stay_so(tfb):
    model, peer = sequential(keras.layers.SimpleRNN(2)), sequential(keras.layers.SimpleRNN(2))
    peer.set_weights(model.get_weights())
    model.compile("sgd", "mse", jit_compile=True)
    peer.compile("sgd", "mse", run_eagerly=True)
    for change in (tfb.fuse_model, tfb.unfuse_model):
        np.testing.assert_allclose(fit(model), fit(peer), rtol=1e-5, atol=1e-5)
        change(model)
        assert model.jit_compile is True
    np.testing.assert_allclose(fit(model), fit(peer), rtol=1e-5, atol=1e-5)


def test_while_another_thread_predicts(tfb):
    model, x = trainer("bidirectional"), fuse_models.inputs("sequential")
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
    model, x = fuse_models.make("bidirectional"), fuse_models.inputs("bidirectional")
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
        again = keras.Model.from_config(model.get_config())
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
