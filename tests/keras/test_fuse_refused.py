"""What fuse_model and unfuse_model leave as it is, warn of or refuse."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
import running
import tensorflow as tf
from running import assert_predicts, recurrent_types
from scenarios import ALL, BATCH, FEATURES, STEPS, UNITS, WORDS, Small, series


@pytest.fixture(autouse=True)
def layers(tfb):
    keras.utils.set_random_seed(3)
    return tfb.layers


class Own(keras.layers.GRU):
    """A custom subclass of Keras' GRU."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        return 2.0 * super().call(sequences, initial_state, mask, training)


def test_says_what_it_leaves(tfb):
    x = keras.Input((None, FEATURES))
    y = keras.layers.LSTM(UNITS, return_sequences=True, name="fits")(x)
    y = keras.layers.LSTM(UNITS, activation="relu", return_sequences=True, name="bent")(y)
    cell = keras.layers.GRUCell(UNITS, recurrent_activation="hard_sigmoid", name="late")
    y = keras.layers.RNN(cell, return_sequences=True)(y)
    model = keras.Model(x, Own(UNITS, name="own")(y))
    x = series()
    want, kinds = np.asarray(model(x)), recurrent_types(model)
    with pytest.warns(UserWarning, match="fuse_model did not fuse") as said:
        tfb.fuse_model(model)
    assert [w.filename for w in said] == [__file__]
    (message,) = {str(warning.message) for warning in said}
    for part in (
        r"bent (activation is relu",
        "late (recurrent_activation is hard_sigmoid",
        "own (Own is a custom subclass",
    ):
        assert part in message
    assert "fits" not in message
    assert recurrent_types(model) == [tfb.layers.LSTM, *kinds[1:]]
    assert type(model.get_layer("own")) is Own
    assert_predicts(model, want, x)


def test_does_not_fuse_where_no_gpu_kernels_are(tfb, monkeypatch):
    from tf_blockrnn import _loader

    model = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.GRU(UNITS)])
    model.add(keras.layers.RepeatVector(2))
    model.add(keras.layers.RNN(keras.layers.LSTMCell(UNITS)))
    kinds = recurrent_types(model)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(_loader, "missing_cuda", lambda: "built without CUDA")
    with pytest.warns(UserWarning, match="gru.*no kernels for it.*lstm_cell.*no kernels for it"):
        tfb.fuse_model(model)
    assert recurrent_types(model) == kinds


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [{"use_peephole": True}, {"cell_clip": 1.0}, {"projection": 3}, {"zoneout_h": 0.5}],
    ids=str,
)
def test_refuses_what_keras_has_not(tfb, layers, arguments, copy):
    x = keras.Input((None, FEATURES))
    y = layers.GRU(UNITS, return_sequences=True)(x)
    more = layers.LSTM(UNITS, name="more", **arguments)
    y = keras.layers.Bidirectional(more, name="both")(y)
    model = keras.Model(x, y)
    kinds, words = recurrent_types(model), next(iter(arguments))
    with pytest.raises(ValueError, match=rf"(for|back)ward_more' has {words}"):
        tfb.unfuse_model(model, copy=copy)
    assert recurrent_types(model) == kinds  # nothing was changed before it
    cell = keras.layers.RNN(layers.LSTMCell(UNITS, name="cell", **arguments))
    with pytest.raises(ValueError, match=rf"'cell' has {words}, which keras.layers.LSTMCell"):
        tfb.unfuse_model(keras.Sequential([cell]), copy=copy)


def test_refuses_subclasses_of_our_layers(tfb, layers):
    class Mine(layers.GRU):
        pass

    class MineWithNorms(layers.LayerNormGRUCell):
        pass

    of_cell = keras.layers.RNN(MineWithNorms(2, name="norms"))
    with pytest.raises(ValueError, match="'norms' is of MineWithNorms, a custom subclass"):
        tfb.unfuse_model(keras.Sequential([of_cell]))
    model = keras.Sequential([layers.LSTM(UNITS, return_sequences=True), Mine(2, name="mine")])
    with pytest.raises(ValueError, match="'mine' is of Mine, a custom subclass"):
        tfb.unfuse_model(model)
    assert type(model.layers[0]) is layers.LSTM
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tfb.fuse_model(model)
    assert type(model.layers[1]) is Mine


def test_refuses_other_objects(tfb):
    for function in (tfb.fuse_model, tfb.unfuse_model):
        with pytest.raises(TypeError, match="model must be a keras.Model, got GRU"):
            function(keras.layers.GRU(UNITS))


def test_names_enable_keras_for_models_of_tf_keras(tfb):
    base = type("Model", (), {"__module__": "tf_keras.src.engine.training"})
    for cls in (base, type("Net", (base,), {"__module__": "__main__"})):
        for function in (tfb.fuse_model, tfb.unfuse_model):
            with pytest.raises(TypeError, match="model of tf_keras.*tf_blockrnn.enable_keras"):
                function(cls())


def test_an_error_leaves_the_model_as_it_was(tfb):
    class Fails(Small):
        def make_test_function(self, force=False):
            if force:
                raise RuntimeError("no new function")
            return super().make_test_function()

    model, x = Fails(), series()
    model.compile("sgd", "mse", jit_compile=True)
    target = np.ones((len(x), UNITS), "float32")
    model.fit(x, target, verbose=0)
    model.evaluate(x, target, verbose=0)
    functions = model.train_function, model.test_function
    with pytest.raises(RuntimeError, match="no new function"):
        tfb.fuse_model(model)
    assert type(model.recurrent) is keras.layers.GRU and model.jit_compile is True
    assert (model.train_function, model.test_function) == functions


# ---- copies


def text():
    """Words, of which only the vocabulary knows the numbers."""
    words = keras.layers.TextVectorization(output_mode="int", output_sequence_length=STEPS)
    words.adapt(["one two three", "two three four five"])
    x = keras.Input((), dtype="string")
    y = keras.layers.Embedding(WORDS, FEATURES, mask_zero=True)(words(x))
    return keras.Model(x, keras.layers.LSTM(UNITS)(y))


@pytest.mark.types
@pytest.mark.parametrize(
    "name",
    [
        "padding, both ways",
        "two kinds of layers",
        "sentences of words",
        "RNN of a stack of cells",
        "names",
        "small subclass",
        "text",
    ],
)
def test_copies_leave_the_original_alone(tfb, name):
    if name == "text":
        model, x = text(), tf.constant(["three two one", "five", "none of these four"])
    else:
        model, x = running.make(ALL[name]), ALL[name].inputs()
    want, kinds, config = keras.tree.flatten(model(x)), recurrent_types(model), model.get_config()

    def assert_gives_the_same(found):
        for mine, its in zip(keras.tree.flatten(found(x)), want, strict=True):
            np.testing.assert_array_equal(mine, its)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = tfb.fuse_model(model, copy=True)
        plain = tfb.unfuse_model(fused, copy=True)
    assert type(fused) is type(model) and plain.get_config() == config
    assert not {id(v) for v in model.variables} & {id(v) for v in fused.variables}
    assert [v.name for v in fused.variables] == [v.name for v in model.variables]
    assert [a.name for a in fused._flatten_layers()] == [a.name for a in model._flatten_layers()]
    assert recurrent_types(model) == kinds == recurrent_types(plain)
    assert recurrent_types(fused) == [getattr(tfb.layers, cls.__name__) for cls in kinds]
    assert_predicts(fused, model(x), x)
    assert_gives_the_same(plain)
    for variable in fused.trainable_variables:
        variable.assign_add(tf.ones_like(variable.value))
    assert_gives_the_same(model)


def named_like_kerass(target, output):
    return 3.0 * keras.ops.mean(keras.ops.abs(target - output))


named_like_kerass.__name__ = "mean_squared_error"


def test_functions_of_the_compiled_model_are_its_own(tfb):
    model = keras.Sequential([keras.Input((None, FEATURES)), keras.layers.LSTM(UNITS)])
    model.compile("sgd", named_like_kerass, metrics=[named_like_kerass])
    x, target = series(), np.ones((BATCH, UNITS), "float32")
    fused = tfb.fuse_model(model, copy=True)
    assert fused.loss is named_like_kerass
    got, want = (m.evaluate(x, target, verbose=0) for m in (fused, model))
    np.testing.assert_allclose(got, want, rtol=1e-5)


@keras.saving.register_keras_serializable("test")
class OwnSequential(keras.Sequential):
    """A class of the user's, whose plain attributes must be in the copy."""


def test_models_that_were_evaluated_and_stopped_are_copied(tfb):
    model = OwnSequential([keras.Input((None, FEATURES)), keras.layers.LSTM(UNITS)])
    model.compile("sgd", "mse")
    x, target = series(), np.ones((BATCH, UNITS), "float32")
    model.fit(x, target, validation_data=(x, target), verbose=0)
    model.stop_training = True  # as callbacks do
    want = model.predict(x, verbose=0)
    for copied in (tfb.freeze(model), tfb.fuse_model(model, copy=True)):
        assert_predicts(copied, want, x)


class Named(keras.Model):
    """A functional model whose constructor takes something else."""

    def __init__(self, units):
        x = keras.Input((None, FEATURES))
        super().__init__(x, keras.layers.GRU(units)(x))


class Times(keras.layers.Layer):
    """With a factor that its config does not contain."""

    factor = 1.0

    def call(self, x):
        return x * self.factor


def extra_layer():
    model = running.make(ALL["states of both directions"])
    model.extra = keras.layers.Dense(2)
    model.extra.build((None, 2))
    return model


def changed_value():
    times = Times(name="times")
    model = keras.Sequential([keras.Input((None, FEATURES)), times, keras.layers.GRU(UNITS)])
    times.factor = 5.0
    return model


def two_of_one_name():
    def activation(by):
        def curve(x):
            return by * x

        return curve

    dense = [keras.layers.Dense(FEATURES, activation=activation(by)) for by in (1.0, 2.0)]
    return keras.Sequential([keras.Input((None, FEATURES)), *dense, keras.layers.GRU(UNITS)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Named(UNITS), ""),
        (lambda: running.make(ALL["layers in containers"]), ""),
        # Keras 3.11 does not track it.
        (extra_layer, r"(layers instead of|functional\w*.extra is)"),
        (lambda: running.make(ALL["shared layer"]), "layers instead of"),
        (changed_value, "times.factor is 5.0"),
        (two_of_one_name, "'curve'"),
    ],
    ids=[
        "other constructor",
        "no config",
        "extra layer",
        "shared in a wrapper",
        "changed value",
        "two of one name",
    ],
)
def test_models_that_cannot_be_copied_are_fused_in_place(tfb, make, words):
    model, x = make(), series()
    kinds, want = recurrent_types(model), np.asarray(model(x))
    for function in (tfb.fuse_model, tfb.unfuse_model):
        with pytest.raises(
            ValueError, match=rf"(?s)cannot be copied: .*{words}.*Change it in place"
        ):
            function(model, copy=True)
    assert recurrent_types(model) == kinds
    assert_predicts(tfb.fuse_model(model), want, x)


def test_a_function_named_like_one_of_keras_is_copied_or_refused(tfb):
    def relu(x):
        return 2.0 * x

    dense = keras.layers.Dense(FEATURES, activation=relu)
    model = keras.Sequential([keras.Input((None, FEATURES)), dense, keras.layers.GRU(UNITS)])
    try:
        copy = tfb.fuse_model(model, copy=True)
    except ValueError:
        return
    assert copy.layers[0].activation is relu
