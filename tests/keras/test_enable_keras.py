"""`enable_keras`: plain Keras layers on the ops, with Keras' numbers, and plain again after it."""

from __future__ import annotations

import concurrent.futures
import copy
import doctest
import threading
import warnings

import keras
import numpy as np
import pytest
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    MASK,
    OPS,
    TIME,
    UNITS,
    assert_same,
    initial_states,
    make_peer,
    op_types,
    randomise,
    sequence,
    values,
)

NAMES = ("GRU", "LSTM", "SimpleRNN")
CLASSES = [getattr(keras.layers, name) for name in NAMES]


def own_attributes():
    """What the switch replaces."""
    return [(vars(cls)["call"], vars(cls).get("supports_jit")) for cls in CLASSES]


OWN = own_attributes()


@pytest.fixture(autouse=True)
def _off_again(tfb):
    """Each test leaves Keras' classes as they were."""
    keras.utils.set_random_seed(7)
    yield
    tfb.disable_keras()
    assert own_attributes() == OWN


def built(kind, shape=(BATCH, TIME, INPUT), **arguments):
    layer = make_peer(kind, **arguments)
    layer.build(shape)
    randomise(layer)
    return layer


def is_fused(tf, kind, function, *arguments) -> bool:
    types = op_types(tf.function(function), *arguments)
    assert (OPS[kind] in types) != bool({"While", "StatelessWhile"} & set(types))
    return OPS[kind] in types


def twins(kind, **arguments):
    """Two layers with equal weights and seeds: one for the ops, one for Keras' own path."""
    return [built(kind, seed=13, **arguments) for _ in range(2)]


# ---- equal numbers, on the op

OPTIONS = [
    {},
    {"return_sequences": True, "return_state": True},
    {"go_backwards": True, "return_sequences": True, "zero_output_for_mask": True},
    {"stateful": True, "use_bias": False},
    {"unroll": True, "return_sequences": True},
    {"dropout": 0.4, "use_cudnn": False},
    {"dropout": 0.4, "recurrent_dropout": 0.3, "return_sequences": True, "use_cudnn": False},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_numbers_and_random_masks_equal_keras(tf, tfb, kind, options):
    options = dict(options)
    if kind.startswith("RNN"):
        options.pop("use_cudnn", None)
    ours, peer = twins(kind, **options)
    states = None if options.get("stateful") else initial_states(kind)
    calls = [
        {"training": True},
        {"training": False, "mask": MASK},
        {"training": True, "mask": MASK, "states": states},
    ]
    with tfb.enable_keras():
        got = [values(ours, sequence(), **call) for call in calls]
        assert is_fused(tf, kind, ours, tf.constant(sequence()))
    want = [values(peer, sequence(), **call) for call in calls]
    for mine, its in zip(got, want, strict=True):
        assert_same(mine, its, steps=3)


@pytest.mark.parametrize("kind", KINDS)
def test_one_initial_state_for_all_rows_draws_one_random_mask(tfb, kind):
    ours, peer = twins(kind, recurrent_dropout=0.5, dtype="float64")
    states = [state[:1] for state in initial_states(kind)]
    with tfb.enable_keras():
        got = values(ours, sequence(), states, training=True)
    assert_same(got, values(peer, sequence(), states, training=True), dtype="float64")


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_types_equal_keras(tfb, policy):
    ours, peer = twins("LSTM", dtype=policy, recurrent_initializer="zeros", return_state=True)
    with tfb.enable_keras():
        got = values(ours, sequence(), mask=MASK)
    assert_same(got, values(peer, sequence(), mask=MASK), dtype=ours.compute_dtype)


def model_of_all():
    inputs = keras.Input((TIME, INPUT))
    y = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))(inputs)
    y = keras.layers.GRU(4, return_sequences=True, recurrent_dropout=0.2, seed=1)(y)
    return keras.Model(inputs, keras.layers.SimpleRNN(2)(y))


def test_models_train_alike_and_are_plain_keras_after_it(tf, tfb, tmp_path):
    models = [model_of_all() for _ in range(2)]
    randomise(models[0])
    models[1].set_weights(models[0].get_weights())
    x, y = tf.constant(sequence()), np.ones((BATCH, 2))
    with tfb.enable_keras():
        made = model_of_all()
        made.compile("sgd", "mse")
        made.fit(x, y, verbose=0)
        models[0].compile("sgd", "mse")
        fused = models[0].fit(x, y, epochs=2, shuffle=False, verbose=0).history["loss"]
        types = op_types(tf.function(models[0]), x)
        assert not {"While", "StatelessWhile"} & set(types)
        assert types.count(OPS["LSTM"]) == 2
        made.save(tmp_path / "model.keras")
    models[1].compile("sgd", "mse")
    plain = models[1].fit(x, y, epochs=2, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(fused, plain, rtol=1e-5)
    for mine, its in zip(models[0].get_weights(), models[1].get_weights(), strict=True):
        np.testing.assert_allclose(mine, its, atol=1e-5)
    assert not any("BlockRNN" in op for op in op_types(tf.function(made), x))
    config = (made.to_json(), model_of_all().to_json())
    assert "tf_blockrnn" not in config[0]
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[2]) is keras.layers.GRU
    np.testing.assert_allclose(loaded(x), made(x), atol=1e-6)


# ---- subclasses and what is not fused


def test_a_subclass_that_changes_nothing_is_fused(tf, tfb):
    class Named(keras.layers.GRU):
        def call(self, sequences, initial_state=None, mask=None, training=False):
            return 2 * super().call(sequences, initial_state, mask, training)

    layer = Named(UNITS)
    want = layer(sequence())
    with tfb.enable_keras():
        assert_same([layer(sequence())], [want])
        assert is_fused(tf, "GRU", layer, tf.constant(sequence()))


class OwnLoop(keras.layers.GRU):
    def inner_loop(self, sequences, initial_state, mask, training=False):
        last, outputs, states = super().inner_loop(sequences, initial_state, mask, training)
        return 3 * last, 3 * outputs, states


class OwnCell(keras.layers.GRUCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 5 * output, states


class WithOwnCell(keras.layers.GRU):
    def __init__(self, units):
        super().__init__(units)
        self.cell = OwnCell(units)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: OwnLoop(UNITS), "inner_loop is not Keras' own"),
        (lambda: WithOwnCell(UNITS), "custom class OwnCell"),
        (lambda: keras.layers.GRU(UNITS, activation="relu"), "activation is relu"),
    ],
    ids=["inner_loop", "cell", "activation"],
)
def test_what_the_op_does_not_compute_is_keras_own_with_one_warning(
    tf, tfb, monkeypatch, make, reason
):
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    layer = make()
    want = np.asarray(layer(sequence()))
    with tfb.enable_keras():
        with pytest.warns(UserWarning, match=reason):
            got = layer(sequence())
        np.testing.assert_array_equal(got, want)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not is_fused(tf, "GRU", layer, tf.constant(sequence()))


def test_the_layers_of_this_package_stay_what_they_are(tf, tfb, monkeypatch):
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    ours = tfb.layers.LSTM(UNITS, use_peephole=True)
    with pytest.warns(UserWarning, match="relu"):
        other = tfb.layers.GRU(UNITS, activation="relu")
    want = [ours(sequence()), other(sequence())]
    with tfb.enable_keras(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same([ours(sequence()), other(sequence())], want)


def test_keras_errors_remain(tf, tfb):
    stateful = built("GRU", stateful=True)
    unrolled = built("LSTM", unroll=True)
    with tfb.enable_keras():
        # Keras 3.11 has no check of its own and fails in its step.
        kind = {"3.11": tf.errors.InvalidArgumentError}.get(keras.__version__[:4], ValueError)
        with pytest.raises(kind, match=r"batch|Incompatible shapes: \[4,3\]"):
            stateful(sequence(BATCH - 1))
        with pytest.raises(ValueError, match="Cannot unroll"):
            tf.function(unrolled).get_concrete_function(tf.TensorSpec([BATCH, None, INPUT]))
        with pytest.raises(ValueError, match="built for 2 input features, got 3"):
            unrolled(np.ones((BATCH, TIME, 3), "float32"))


# ---- the switch


def on() -> bool:
    return "tf_blockrnn" in keras.layers.GRU.call.__code__.co_filename


def test_it_restores_what_was_before_and_does_not_count(tfb):
    assert not tfb.keras_enabled() and not on()
    with tfb.enable_keras():
        with tfb.enable_keras():
            assert tfb.keras_enabled() and on()
        assert tfb.keras_enabled() and on()
        tfb.disable_keras()
        assert not tfb.keras_enabled() and not on()
    assert not on()
    tfb.enable_keras()
    tfb.enable_keras()
    tfb.disable_keras()
    tfb.disable_keras()
    assert not tfb.keras_enabled() and not on()
    tfb.enable_keras()
    with pytest.raises(ZeroDivisionError), tfb.enable_keras():
        1 / 0  # noqa: B018
    assert on()


def test_graphs_keep_what_they_were_traced_with(tf, tfb):
    layer, x = built("GRU"), tf.constant(sequence())
    before, during = tf.function(layer), tf.function(layer)
    before.get_concrete_function(x)
    with tfb.enable_keras():
        during.get_concrete_function(x)
        assert OPS["GRU"] not in op_types(before, x)
    assert OPS["GRU"] in op_types(during, x)
    assert_same([before(x)], [during(x)])


def test_threads_switch_and_call_at_once(tf, tfb):
    layer, x = built("GRU"), tf.constant(sequence())
    want = np.asarray(layer(x))
    barrier = threading.Barrier(4)

    def work(number):
        barrier.wait(60)
        for turn in range(30):
            if number < 2:
                (tfb.enable_keras if (turn + number) % 2 else tfb.disable_keras)()
            else:
                np.testing.assert_allclose(layer(x), want, atol=1e-5)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4), timeout=120))


def test_another_version_of_keras_is_an_error(tfb, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(keras.layers.GRU, "call", lambda self, inputs: inputs)
        with pytest.raises(RuntimeError, match=r"GRU.call of Keras .* other arguments"):
            tfb.enable_keras()
        assert not tfb.keras_enabled()


def test_another_backend_is_an_error(tfb, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(RuntimeError, match="backend is jax.*KERAS_BACKEND=tensorflow"):
        tfb.enable_keras()


# ---- XLA


def test_supports_jit_is_keras_own_again(tfb, monkeypatch):
    monkeypatch.setattr(tfb._loader, "missing_xla", lambda: "there is no library")
    layer = built("GRU")
    relu = keras.layers.GRU(UNITS, activation="relu")
    refused = keras.layers.GRU(UNITS)
    refused.supports_jit = False
    with tfb.enable_keras():
        made = built("GRU")
        assert not layer.supports_jit and not made.supports_jit and relu.supports_jit
        set_meanwhile = built("GRU")
        set_meanwhile.supports_jit = False
        assert not copy.copy(made).supports_jit
    assert layer.supports_jit and made.supports_jit
    assert not refused.supports_jit and not set_meanwhile.supports_jit


# ---- documentation


def test_examples_run():
    from tf_blockrnn import _enable_keras

    outcome = doctest.testmod(_enable_keras)
    assert outcome.attempted > 0 and outcome.failed == 0
