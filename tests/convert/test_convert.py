"""convert_model and restore_model: other layers, all else as it was."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import children, convert_models
from helpers.compare import assert_close
from helpers.convert_checks import (
    BOUND,
    assert_predicts,
    assert_same_state,
    bound,
    recurrent_types,
    state,
)
from helpers.convert_models import BATCH, INPUTS, MODELS, STEPS, UNITS


@pytest.fixture(autouse=True)
def layers(tfb):
    keras.utils.set_random_seed(3)
    return tfb.layers


@pytest.fixture(scope="module")
def models(tfb):
    """By name: the original, converted, restored."""
    made = {}
    for name in MODELS:
        original = convert_models.make(name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fused = tfb.convert_model(original)
            made[name] = original, fused, tfb.restore_model(fused)
    return made


# ---- every kind of model


@pytest.mark.parametrize("name", MODELS)
def test_converts(models, layers, name):
    original, fused, _ = models[name]
    assert type(fused) is type(original)
    found, wanted = recurrent_types(fused), recurrent_types(original)
    assert [cls.__name__ for cls in found] == [cls.__name__ for cls in wanted]
    assert found and all(cls is getattr(layers, cls.__name__) for cls in found)
    assert all(cls is getattr(keras.layers, cls.__name__) for cls in wanted)
    names = [
        # Keras names what a TextVectorization holds anew each time.
        [x.name for x in m._flatten_layers() if not isinstance(x, keras.layers.StringLookup)]
        for m in (original, fused)
    ]
    assert names[0] == names[1]
    assert all(layer.fused for layer in fused._flatten_layers() if hasattr(layer, "fused"))
    assert_same_state(state(fused), state(original))
    x = convert_models.inputs(name)
    assert_predicts(fused, original(x), x)


@pytest.mark.parametrize("name", MODELS)
def test_restores(models, name):
    original, fused, plain = models[name]
    assert recurrent_types(plain) == recurrent_types(original)
    assert not any(
        type(layer).__module__.startswith("tf_blockrnn") for layer in plain._flatten_layers()
    )
    assert_same_state(state(plain), state(original))
    x = convert_models.inputs(name)
    for mine, its in zip(*(keras.tree.flatten(m(x)) for m in (plain, original)), strict=True):
        np.testing.assert_array_equal(mine, its)
    configs = [m.get_config() for m in (original, plain)]
    if name != "lambdas":  # Their bytecode is in the config.
        assert configs[0] == configs[1]


@pytest.mark.parametrize("name", ["functional", "functions", "shared", "small", "text"])
def test_original_is_left_alone(tfb, name):
    original = convert_models.make(name)
    before, config, x = state(original), original.get_config(), convert_models.inputs(name)
    y = keras.tree.flatten(original(x))
    copy = tfb.convert_model(original)
    mine, its = ({id(v) for v in m.variables} for m in (copy, original))
    assert not mine & its
    for variable in copy.trainable_variables:
        variable.assign_add(tf.ones_like(variable.value))
    assert_same_state(state(original), before)
    assert original.get_config() == config
    for got, want in zip(keras.tree.flatten(original(x)), y, strict=True):
        np.testing.assert_array_equal(got, want)


def test_shared_layer_stays_shared(models):
    for model in models["shared"]:
        inner = model.get_layer("inner")
        wrapper = next(x for x in model.layers if isinstance(x, keras.layers.TimeDistributed))
        layer = model.get_layer("shared")
        assert inner.layers[0] is layer and wrapper.layer is layer
        assert len(model.weights) == 5
    tower = models["subclassed"][1]
    assert tower.again is tower.first


def test_converting_twice_changes_nothing(tfb, models):
    for name in ("bidirectional", "subclassed"):
        once = models[name][1]
        twice = tfb.convert_model(once)
        assert twice.get_config() == once.get_config()
        assert recurrent_types(twice) == recurrent_types(once)
        assert_same_state(state(twice), state(once))


def test_gradients_equal(models):
    x = convert_models.inputs("subclassed")
    gradients = []
    for model in models["subclassed"][:2]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(model(x)))
        gradients.append(tape.gradient(loss, model.trainable_variables))
    for mine, its in zip(*gradients, strict=True):
        assert_close(mine, its, BOUND)


# ---- state


@pytest.mark.parametrize("wrapped", [False, True])
def test_states_of_stateful_layers_go_on(tfb, wrapped):
    layer = keras.layers.LSTM(UNITS, stateful=True)
    model = keras.Sequential(
        [
            keras.Input(batch_shape=(BATCH, STEPS, INPUTS)),
            keras.layers.Bidirectional(layer) if wrapped else layer,
        ]
    )
    x = convert_models.inputs("sequential")
    fresh = np.asarray(model(x))
    fused = tfb.convert_model(model)
    want = np.asarray(model(x))
    assert np.abs(want - fresh).max() > 1e-3
    assert_close(fused(x), want, bound(2))
    plain = tfb.restore_model(fused)
    want = model(x)
    assert_close(plain(x), want, bound(2))


@pytest.mark.parametrize("implementation", [1, 2])
def test_seeds_and_the_kind_of_dropout_are_kept(tfb, implementation):
    layer = keras.layers.GRU(UNITS, dropout=0.5, implementation=implementation, use_cudnn=False)
    model = keras.Sequential([keras.Input((STEPS, INPUTS)), layer, keras.layers.Dropout(0.5)])
    x = convert_models.inputs("sequential")
    model(x, training=True)  # The seed generators have moved on.
    fused = tfb.convert_model(model)
    plain = tfb.restore_model(fused)
    assert plain.layers[0].use_cudnn is False
    assert plain.layers[0].cell.implementation == implementation
    for _ in range(2):
        want = model(x, training=True)
        assert_close(fused(x, training=True), want, BOUND)
        assert_close(plain(x, training=True), want, BOUND)


def test_trainable_and_dtype_policy_are_kept(tfb):
    inner = keras.Sequential([keras.Input((None, INPUTS)), keras.layers.GRU(UNITS)])
    inner.trainable = False
    x = keras.Input((None, INPUTS))
    frozen = keras.layers.LSTM(UNITS, return_sequences=True)
    y = keras.layers.Dense(INPUTS)(frozen(x))
    model = keras.Model(x, inner(y))
    frozen.trainable = False
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        copy = tfb.convert_model(model)
    finally:
        keras.config.set_dtype_policy("float32")
    # The input layers of Sequential models apart, which have nothing to train or to compute.
    flags, policies = (
        [
            [get(x) for x in m._flatten_layers() if not isinstance(x, keras.layers.InputLayer)]
            for m in (model, copy)
        ]
        for get in (lambda x: x.trainable, lambda x: x.dtype_policy.name)
    )
    assert flags[0] == flags[1] and not all(flags[0])
    assert [w.name for w in copy.trainable_variables] == ["kernel", "bias"]
    assert policies[0] == policies[1]
    model.trainable = False
    model.get_layer(inner.name).layers[0].trainable = True
    assert not tfb.convert_model(model).trainable_variables


class Twice(keras.layers.Layer):
    """Holds a layer by itself and in a wrapper."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(INPUTS)
        self.wrapper = keras.layers.TimeDistributed(self.dense)

    def build(self, shape):
        self.wrapper.build(shape)

    def call(self, x):
        return self.wrapper(x)


def test_a_layer_in_a_frozen_wrapper_may_be_trainable(tfb):
    twice = Twice()
    model = keras.Sequential([keras.Input((None, INPUTS)), twice, keras.layers.GRU(UNITS)])
    twice.wrapper.trainable = False
    twice.dense.trainable = True
    copy = tfb.convert_model(model).layers[0]
    assert copy.dense.trainable and not copy.wrapper.trainable
    assert all(weight.trainable for weight in copy.dense.weights)


def test_what_single_variables_say_is_kept(tfb):
    """What is trainable, penalties, bounds, and LoRA's factors, which Keras would merge."""
    penalty, bound_ = keras.regularizers.L2(0.1), keras.constraints.NonNeg()
    x = keras.Input((None, INPUTS))
    gru = keras.layers.GRU(UNITS, return_sequences=True, kernel_regularizer="l1")
    lstm = keras.layers.LSTM(UNITS, return_sequences=True, bias_regularizer="l2")
    dense = keras.layers.Dense(2, bias_regularizer=penalty)
    y = dense(keras.layers.Bidirectional(lstm)(gru(x)))
    model = keras.Model(x, keras.layers.RNN(keras.layers.LSTMCell(UNITS))(y))
    dense.enable_lora(1)
    dense.lora_alpha = 3.0
    dense.lora_kernel_b.assign(tf.ones_like(dense.lora_kernel_b.value))
    gru.cell.recurrent_kernel.trainable = False
    gru.cell.kernel.regularizer = None
    gru.cell.bias.constraint = bound_
    model.layers[2].forward_layer.cell.kernel.regularizer = penalty
    model.layers[-1].cell.bias.trainable = False
    fused = tfb.convert_model(model)
    plain = tfb.restore_model(fused)
    x = convert_models.inputs("sequential")
    for copy in (fused, plain):
        assert_same_state(state(copy), state(model))
        for of_copy, variable in zip(copy.variables, model.variables, strict=True):
            assert of_copy.trainable == variable.trainable, variable.path
            for name in ("regularizer", "constraint"):
                its, own = getattr(of_copy, name), getattr(variable, name)
                assert type(its) is type(own) and (own is None or vars(its) == vars(own))
        assert copy.layers[1].cell.bias.constraint is bound_
        made_again = copy.layers[3].bias.regularizer
        assert made_again is copy.layers[3].bias_regularizer and made_again is not penalty
        assert [float(loss) for loss in copy.losses] == [float(loss) for loss in model.losses]
        assert_predicts(copy, model(x), x)
    assert recurrent_types(fused) != recurrent_types(model) == recurrent_types(plain)
    # The variables 3 + 6 + 4 + 3, less those of above and the kernel to which LoRA adds.
    assert len(fused.trainable_variables) == 16 - 3


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_quantized_layers(tfb, mode):
    """quantize() makes the variables in another order than a layer that is built quantized."""
    layers = [keras.layers.Dense(INPUTS), keras.layers.GRU(UNITS), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input((None, INPUTS)), *layers])
    for layer in (layers[0], layers[2]):
        layer.quantize(mode)
    layers[0].bias.trainable = False
    if mode == "int8":
        layers[2].enable_lora(1)
        layers[2].lora_kernel_b.assign(tf.ones_like(layers[2].lora_kernel_b.value))
    x = convert_models.inputs("sequential")
    fused = tfb.convert_model(model)
    assert_predicts(fused, model(x), x)
    for layer, of_copy in zip(layers, fused.layers, strict=True):
        by_name, wanted = ({v.path.split("/")[-1]: v for v in m.weights} for m in (of_copy, layer))
        assert by_name.keys() == wanted.keys()
        for name, variable in wanted.items():
            np.testing.assert_array_equal(by_name[name], variable, err_msg=name)
            assert by_name[name].trainable == variable.trainable, name


def test_flags_set_on_layers_are_kept(tfb):
    convolution = keras.layers.Conv1D(INPUTS, 3, padding="same")
    dense = keras.layers.TimeDistributed(keras.layers.Dense(INPUTS))
    convolution.supports_masking, dense.layer.autocast = True, False
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, INPUTS, mask_zero=True),
            convolution,
            dense,
            keras.layers.LSTM(UNITS),
        ]
    )
    x = np.array([[1, 2, 0, 0], [3, 4, 5, 6]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = tfb.convert_model(model)
        plain = tfb.restore_model(fused)
        for copy in (fused, plain):
            assert copy.layers[1].supports_masking and copy.layers[2].layer.autocast is False
            assert_predicts(copy, model(x), x)


def test_a_rate_that_was_lowered_to_0_and_back(tfb):
    """Keras' layer has a seed generator only if it was made with a rate above 0."""
    drop = keras.layers.Dropout(0.5)
    model = keras.Sequential([keras.Input((None, INPUTS)), keras.layers.GRU(UNITS), drop])
    x = convert_models.inputs("sequential")
    model(x, training=True)  # The seed generator has moved on.
    drop.rate = 0.0
    copies = tfb.convert_model(model), tfb.restore_model(model)
    drop.rate = 0.5
    want = model(x, training=True)
    for copy in copies:
        assert copy.layers[1].rate == 0.0
        assert_predicts(copy, model(x), x)
        copy.layers[1].rate = 0.5
        assert_close(copy(x, training=True), want, BOUND)


def test_a_rate_that_was_0_at_first(tfb):
    noise = keras.layers.GaussianNoise(0.0)
    model = keras.Sequential([keras.Input((None, INPUTS)), noise, keras.layers.GRU(UNITS)])
    noise.stddev = 0.5
    x = convert_models.inputs("sequential")
    for copy in (tfb.convert_model(model), tfb.restore_model(model)):
        assert copy.layers[0].stddev == 0.5
        assert_predicts(copy, model(x), x)
        # The original has no generator and cannot do this.
        assert np.abs(copy(x, training=True) - copy(x)).max() > 1e-3


@pytest.mark.parametrize("name", ["GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell"])
def test_activity_regularizers_go_there_and_back(tfb, name):
    options = {"reset_after": False} if name == "GRUCell" else {}
    layer = getattr(keras.layers, name)(UNITS, activity_regularizer="l2", **options)
    layer = keras.layers.RNN(layer) if name.endswith("Cell") else layer
    model = keras.Sequential([keras.Input((None, INPUTS)), layer])
    plain = tfb.restore_model(tfb.convert_model(model))
    assert plain.get_config() == model.get_config()
    assert recurrent_types(plain) == recurrent_types(model)


def own_loss(target, output):
    return keras.ops.mean(keras.ops.abs(target - output))


@pytest.mark.parametrize("name", ["sequential", "small"])
def test_compiled_configuration(tfb, name):
    model = convert_models.make(name)
    model.compile(keras.optimizers.Adam(0.001), own_loss, metrics=["mse"], jit_compile=True)
    fused = tfb.convert_model(model)
    assert isinstance(fused.optimizer, keras.optimizers.Adam)
    assert fused.optimizer is not model.optimizer
    assert float(fused.optimizer.learning_rate) == pytest.approx(0.001)
    x = convert_models.inputs(name)
    target = np.ones(fused(x).shape, "float32")
    losses = fused.fit(x, target, epochs=3, verbose=0).history
    assert losses["loss"][-1] < losses["loss"][0]
    assert set(losses) == {"loss", "mse"}
    assert int(model.optimizer.iterations) == 0


def test_compiled_functions_are_those_of_the_original(tfb):
    """Lambdas, and functions by the name of another or of Keras'."""

    def times(factor):
        def mean_squared_error(target, output):
            return factor * own_loss(target, output)

        return mean_squared_error

    model = keras.Sequential([keras.Input((None, INPUTS)), keras.layers.LSTM(UNITS)])
    wrapper = keras.metrics.MeanMetricWrapper
    metrics = [
        times(3.0),
        wrapper(times(5.0), name="five"),
        wrapper(keras.losses.mean_squared_error, name="of_keras"),
    ]
    model.compile("sgd", lambda y, p: own_loss(y, p), metrics=metrics)
    fused = tfb.convert_model(model)
    x, target = convert_models.inputs("sequential"), np.ones((BATCH, UNITS), "float32")
    assert fused.loss is model.loss
    for m in (fused, model):
        m.fit(x, target, batch_size=BATCH, shuffle=False, verbose=0)
    got, want = (m.evaluate(x, target, verbose=0) for m in (fused, model))
    assert len(got) == 4 and len(set(want)) == 4
    assert_close(got, want, bound(2))
    assert [m.name for m in fused.metrics] == [m.name for m in model.metrics]
    assert (model.loss.__name__, metrics[0].__name__) == ("<lambda>", "mean_squared_error")


def test_trains_like_the_original(tfb):
    model = convert_models.make("sequential")
    model.compile(keras.optimizers.SGD(0.05), "mse")
    fused = tfb.convert_model(model)
    x = convert_models.inputs("sequential")
    target = np.ones((BATCH, 2), "float32")
    for m in (model, fused):
        m.fit(x, target, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
    for mine, its in zip(fused.variables, model.variables, strict=True):
        assert_close(mine, its, bound(3), its.path)


# ---- files


def test_keras_files_and_saved_models(tfb, tmp_path, models):
    """Of both kinds; what is restored runs where the package cannot be imported."""
    original, fused, plain = models["bidirectional"]
    x = convert_models.inputs("bidirectional")
    want = np.asarray(original(x))
    np.save(tmp_path / "x.npy", x)
    for name, model in (("fused", fused), ("plain", plain)):
        model.save(tmp_path / f"{name}.keras")
        model.export(tmp_path / f"{name}_export", verbose=False)
        tf.saved_model.save(model, tmp_path / f"{name}_saved")
    again = keras.saving.load_model(tmp_path / "fused.keras")
    assert recurrent_types(again) == recurrent_types(fused)
    assert_close(again(x), want, BOUND)
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
    children.assert_ok(children.run_code(code), "a restored model without the package")
    for got in np.load(tmp_path / "got.npy"):
        assert_close(got, want, BOUND)
