"""What convert_model and restore_model leave as it is, warn of or refuse."""

from __future__ import annotations

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import convert_models
from helpers.convert_checks import assert_predicts, assert_same_state, recurrent_types, state
from helpers.convert_models import INPUTS, STEPS, UNITS


@pytest.fixture(autouse=True)
def layers(tfb):
    keras.utils.set_random_seed(3)
    return tfb.layers


class Own(keras.layers.GRU):
    """Somebody's own kind of GRU."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        return 2.0 * super().call(sequences, initial_state, mask, training)


def test_says_what_it_leaves(tfb):
    x = keras.Input((None, INPUTS))
    y = keras.layers.LSTM(UNITS, return_sequences=True, name="fits")(x)
    y = keras.layers.LSTM(UNITS, activation="relu", return_sequences=True, name="bent")(y)
    y = keras.layers.RNN(keras.layers.GRUCell(UNITS, name="late"), return_sequences=True)(y)
    model = keras.Model(x, Own(UNITS, name="own")(y))
    with pytest.warns(UserWarning, match="convert_model did not convert") as said:
        fused = tfb.convert_model(model)
    (message,) = {str(warning.message) for warning in said}
    for part in (
        r"bent (activation is relu",
        "late (reset_after is True",
        "own (Own is a custom subclass",
    ):
        assert part in message
    assert "fits" not in message
    assert recurrent_types(fused)[0] is tfb.layers.LSTM
    assert recurrent_types(fused)[1:] == recurrent_types(model)[1:]
    assert type(fused.get_layer("own")) is Own
    x = convert_models.inputs("sequential")
    assert_predicts(fused, model(x), x)


@pytest.mark.parametrize(
    "arguments", [{"use_peephole": True}, {"cell_clip": 1.0}, {"projection": 3}], ids=str
)
def test_refuses_what_keras_has_not(tfb, layers, arguments):
    layer = layers.LSTM(UNITS, name="more", **arguments)
    model = keras.Sequential(
        [keras.Input((None, INPUTS)), keras.layers.Bidirectional(layer, name="both")]
    )
    with pytest.raises(ValueError, match=rf"forward_more' has {next(iter(arguments))}"):
        tfb.restore_model(model)
    copy = tfb.convert_model(model)
    assert_same_state(state(copy), state(model))


class Named(keras.Model):
    """A functional model whose constructor takes something else."""

    def __init__(self, units):
        x = keras.Input((None, INPUTS))
        super().__init__(x, keras.layers.GRU(units)(x))


def test_refuses_what_it_cannot_make_again(tfb):
    with pytest.raises(TypeError, match="model must be a keras.Model, got GRU"):
        tfb.convert_model(keras.layers.GRU(UNITS))
    with pytest.raises(ValueError, match="Named is a subclass of Functional"):
        tfb.convert_model(Named(UNITS))
    model = convert_models.make("cells")
    model.extra = keras.layers.Dense(2)  # No config tells of it.
    model.extra.build((None, 3))
    with pytest.raises(ValueError, match="has 11 weights, and 9 when created again"):
        tfb.convert_model(model)


def _built(layer):
    layer.build((None, None, INPUTS))
    return layer


class Helper:
    """Nothing of Keras'."""

    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return self.layer(x)


WAYS = {
    "function": tf.function,
    "partial": lambda layer: functools.partial(layer, training=False),
    "closure": lambda layer: lambda x: layer(x),
    "method": lambda layer: layer.__call__,
    "object": Helper,
    "built": lambda layer: _built(layer).call,
}


class Reaching(keras.Model):
    """Calls a layer through what its constructor makes of it, and another as it should be."""

    def __init__(self, way, **kwargs):
        super().__init__(**kwargs)
        self.way = way
        self.first = keras.layers.LSTM(UNITS, return_sequences=True)
        self.recurrent = keras.layers.GRU(UNITS, name="reached")
        self.made = WAYS[way](self.recurrent)

    def call(self, x):
        return self.first(x)[:, -1] + self.made(x)

    def get_config(self):
        return {**super().get_config(), "way": self.way}


@pytest.mark.parametrize("way", WAYS)
def test_refuses_layers_that_are_reached_by_what_has_no_copy(tfb, way):
    x = convert_models.inputs("sequential")
    words = "layer '.*' uses its layer 'reached' through an object that cannot be copied"
    model = Reaching(way)
    fresh = tfb.convert_model(model)  # Nothing is built yet, so nothing is run.
    for copy in (fresh, tf.function(fresh)):
        with pytest.raises(ValueError, match=words):
            copy(x)
    want = model(x)
    for convert in (tfb.convert_model, tfb.restore_model):
        with (
            pytest.warns(UserWarning, match="cannot be built automatically"),
            pytest.raises(ValueError, match=words),
        ):
            convert(model)
    np.testing.assert_array_equal(model(x), want)


class Early(keras.layers.Layer):
    """Calls what it has made of a layer before there is a copy of that."""

    def __init__(self, way, **kwargs):
        super().__init__(**kwargs)
        self.way = way
        self.recurrent = _built(keras.layers.GRU(UNITS))
        self.function = tf.function(lambda x: self.recurrent(x))
        if way == "attribute":
            self.function(tf.zeros([1, STEPS, INPUTS]))
        if way == "method":
            self.run(tf.zeros([1, STEPS, INPUTS]))

    def build(self, shape):
        if self.way == "build":
            self.late = _built(keras.layers.GRU(UNITS))
            self.function = tf.function(self.late)  # Called while Keras builds the model.

    @tf.function
    def run(self, x):
        return self.recurrent(x)

    def call(self, x):
        return self.run(x) if self.way == "method" else self.function(x)


@pytest.mark.parametrize("way", ["attribute", "method", "build"])
def test_refuses_what_was_traced_too_early(tfb, way):
    x = convert_models.inputs("sequential")
    model = keras.Sequential([keras.Input((None, INPUTS)), Early(way, name="early")])
    want = np.asarray(model(x))
    name = "run" if way == "method" else "function"
    with pytest.raises(ValueError, match=f"layer 'early' calls its tf.function '{name}' before"):
        tfb.convert_model(model)
    np.testing.assert_array_equal(model(x), want)
    fine = keras.Sequential([keras.Input((None, INPUTS)), Early("", name="fine")])
    assert_predicts(tfb.convert_model(fine), fine(x), x)


class Reading(keras.layers.Layer):
    """Reads the weights of a layer without calling it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.recurrent = keras.layers.GRU(UNITS)
        self.dense = _built(keras.layers.Dense(UNITS))
        self.project = self.dense.call

    def call(self, x):
        return self.recurrent(x) + self.project(x)[:, 0]


def test_weights_of_the_constructor_are_nan(tfb):
    x = convert_models.inputs("sequential")
    model = keras.Sequential([keras.Input((None, INPUTS)), Reading()])
    assert np.isnan(tfb.convert_model(model)(x)).all()
    assert np.isfinite(model(x)).all()


SHARED = keras.layers.LSTM(UNITS, return_sequences=True)


class Reached(keras.Model):
    """A layer in a set, one in a function that finds it, in a closure one without weights."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.shared = SHARED  # The same in the model and in what is made again.
        self.towers = {keras.layers.GRU(UNITS)}
        self.activation = activation = keras.layers.Activation("tanh")
        self.curve = lambda x: activation(x)
        self.made = tf.function(lambda x: self.shared(x))

    def build(self, shape):
        # A layer made of one that is exchanged already.
        self.stack = keras.Sequential([self.shared, keras.layers.GRU(UNITS)])
        self.stack.build(shape)
        super().build(shape)

    def call(self, x):
        return self.curve(
            sum(tower(x) for tower in self.towers) + self.stack(self.made(x)[..., :4])
        )


def test_follows_sets_and_what_finds_the_layer_itself(tfb):
    x = convert_models.inputs("sequential")
    model = Reached()
    want = model(x)
    fused = tfb.convert_model(model)
    assert_predicts(fused, want, x)
    assert fused.shared is not SHARED and type(fused.shared) is tfb.layers.LSTM
    np.testing.assert_array_equal(model(x), want)
    assert_predicts(tfb.restore_model(fused), want, x)


class Noisy(keras.layers.Layer):
    """Its config does not hold how many generators it has."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generators = [keras.random.SeedGenerator(1)]


def test_refuses_other_seed_generators(tfb):
    noisy = Noisy(name="noisy")
    noisy.generators.append(keras.random.SeedGenerator(2))
    model = keras.Sequential([keras.layers.GRU(UNITS), noisy])
    with pytest.raises(ValueError, match="'noisy' has 2 seed generators, and 1 when created again"):
        tfb.convert_model(model)


def test_names_its_functions_in_a_warning(tfb):
    def curve(x):
        return keras.ops.tanh(x) * 0.5

    layer = keras.layers.GRU(UNITS, activation=curve, name="bent")
    model = keras.Sequential([keras.Input((None, INPUTS)), layer])
    with pytest.warns(UserWarning, match=r"bent \(activation is curve, the op has tanh\)"):
        copy = tfb.convert_model(model)
    assert copy.layers[0].cell.activation is curve and curve.__name__ == "curve"


class Times(keras.layers.Layer):
    """Of factors that its config does not hold."""

    factor = 1.0
    bias = None

    def call(self, x):
        return x * self.factor


def test_warns_of_values_set_after_the_constructor(tfb):
    layers = [Times(name="times"), keras.layers.TimeDistributed(Times(name="inner"))]
    model = keras.Sequential(
        [keras.Input((None, INPUTS)), *layers, keras.layers.LSTM(UNITS), Times(name="last")]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tfb.convert_model(model)
    layers[0].factor, layers[0].bias, layers[1].layer.factor = 5.0, "none", float("nan")
    with pytest.warns(UserWarning, match="configs, which do not contain") as said:
        tfb.convert_model(model)
    (warning,) = said
    assert warning.filename == __file__
    for part in (
        "times.factor is 5.0, in the copy 1.0",
        "times.bias is 'none', in the copy None",
        "inner.factor is nan, in the copy 1.0",
    ):
        assert part in str(warning.message)


def test_classes_of_one_name(tfb):
    """Are distinguished if the classes are given, and refused if only their name is."""

    def scale(by):
        class Scale(keras.layers.Layer):
            def call(self, x):
                return by * x

        return Scale()

    def regularizer(by):
        class Penalty(keras.regularizers.Regularizer):
            def __call__(self, x):
                return by * keras.ops.sum(x)

            def get_config(self):
                return {}

        return Penalty()

    def model(*layers):
        return keras.Sequential(
            [keras.Input((None, INPUTS)), keras.layers.GRU(UNITS, return_sequences=True), *layers]
        )

    good = model(scale(2.0), scale(10.0))
    x = convert_models.inputs("sequential")
    assert_predicts(tfb.convert_model(good), good(x), x)
    wrapped = model(*(keras.layers.TimeDistributed(scale(by)) for by in (2.0, 10.0)))
    with pytest.raises(ValueError, match="classes of one name cannot be told apart"):
        tfb.convert_model(wrapped)
    dense = [keras.layers.Dense(2, kernel_regularizer=regularizer(by)) for by in (0.1, 0.2)]
    words = "another object is registered in Keras under the same name, 'Penalty'"
    with pytest.raises(ValueError, match=words):
        tfb.convert_model(model(*dense))

    class MeanSquaredError(keras.metrics.MeanSquaredError):
        pass

    good.compile("sgd", "MeanSquaredError", metrics=[MeanSquaredError(name="own")])
    with pytest.raises(ValueError, match="under the same name, 'MeanSquaredError'"):
        tfb.convert_model(good)
