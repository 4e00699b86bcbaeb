"""What convert_model and restore_model leave as it is, warn of or refuse."""

from __future__ import annotations

import warnings

import convert_models
import keras
import pytest
from convert_checks import assert_predicts, assert_same_state, recurrent_types, state
from convert_models import INPUTS, UNITS


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
    with pytest.warns(UserWarning, match="convert_model left as they are") as said:
        fused = tfb.convert_model(model)
    (message,) = {str(warning.message) for warning in said}
    for part in (
        r"bent (activation is relu",
        "late (reset_after is True",
        "own (Own is a subclass",
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
    with pytest.raises(ValueError, match="has 14 variables, and 12 when made again"):
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
    with pytest.warns(UserWarning, match="configs, which do not hold") as said:
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
    """Are told apart where they are at hand, and refused where only their name is."""

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
    with pytest.raises(ValueError, match="Keras knows another object by the same name, 'Penalty'"):
        tfb.convert_model(model(*dense))

    class MeanSquaredError(keras.metrics.MeanSquaredError):
        pass

    good.compile("sgd", "MeanSquaredError", metrics=[MeanSquaredError(name="own")])
    with pytest.raises(ValueError, match="by the same name, 'MeanSquaredError'"):
        tfb.convert_model(good)
