"""`enable_keras`: plain Keras layers take the path of ours, and are plain again after it.

That this path gives Keras' numbers is shown in `layers/`.
"""

from __future__ import annotations

import concurrent.futures
import copy
import threading
import warnings

import keras
import numpy as np
import pytest
from helpers import switched
from helpers.compare import bits
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    LOOPS,
    MASK,
    OPS,
    TIME,
    UNITS,
    assert_same,
    initial_states,
    make_ours,
    make_peer,
    op_types,
    sequence,
    share_weights,
    values,
)

NAMES = ("GRU", "LSTM", "SimpleRNN")
CLASSES = [getattr(keras.layers, name) for name in NAMES]


def own_attributes():
    """What the switch replaces."""
    classes = (*CLASSES, keras.layers.RNN)
    return [(vars(cls)["call"], vars(cls).get("supports_jit")) for cls in classes]


OWN = own_attributes()


@pytest.fixture(autouse=True)
def _off_again(tfb):
    """Each test leaves Keras' classes as they were."""
    keras.utils.set_random_seed(7)
    yield
    tfb.disable_keras()
    assert own_attributes() == OWN


def built(kind, **arguments):
    layer = make_peer(kind, **arguments)
    share_weights([layer])
    return layer


def is_fused(tf, kind, function, *arguments) -> bool:
    types = op_types(tf.function(function), *arguments)
    assert (OPS[kind] in types) != bool(LOOPS & set(types))
    return OPS[kind] in types


# ---- the path of our layers

OPTIONS = [
    {"go_backwards": True, "return_sequences": True, "return_state": True},
    {"stateful": True, "use_bias": False, "zero_output_for_mask": True},
    {"unroll": True, "dropout": 0.4, "recurrent_dropout": 0.3, "dtype": "mixed_bfloat16"},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_bits_are_those_of_our_layers(tf, tfb, kind, options):
    """Keras' own operations give numbers that differ in their last bits."""
    options = {"seed": 13, "recurrent_initializer": "zeros", **options}
    ours, plain = make_ours(kind, **options), make_peer(kind, **options)
    share_weights([ours, plain])
    states = None if "stateful" in options else initial_states(kind)
    with tfb.enable_keras():
        for call in ({}, {"training": True, "mask": MASK, "states": states}):
            found = [values(layer, sequence(), **call) for layer in (plain, ours)]
            assert [bits(value) for value in found[0]] == [bits(value) for value in found[1]]
        assert is_fused(tf, kind, plain, tf.constant(sequence()))


def test_models_are_plain_keras_after_it(tf, tfb, tmp_path):
    inputs, x = keras.Input((TIME, INPUT)), tf.constant(sequence())
    with tfb.enable_keras():
        y = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True))(inputs)
        model = keras.Model(inputs, keras.layers.GRU(2, recurrent_dropout=0.2, seed=1)(y))
        model.compile("sgd", "mse")
        model.fit(x, np.ones((BATCH, 2)), verbose=0)
        types = op_types(tf.function(model), x)
        assert types.count(OPS["LSTM"]) == 2 and not LOOPS & set(types)
        model.save(tmp_path / "model.keras")
    assert not any("BlockRNN" in op for op in op_types(tf.function(model), x))
    assert "tf_blockrnn" not in model.to_json()
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.layers[2]) is keras.layers.GRU
    np.testing.assert_array_equal(loaded(x), model(x))


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


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: OwnLoop(UNITS), "inner_loop is not Keras' own"),
        (lambda: keras.layers.GRU(UNITS, activation="relu"), "activation is relu"),
    ],
    ids=["inner_loop", "activation"],
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


@pytest.mark.parametrize("before", [True, False])
def test_both_switches_restore_the_state_before(tfb, before):
    (tfb.enable_keras if before else tfb.disable_keras)()
    for switch, within in ((tfb.disable_keras, False), (tfb.enable_keras, True)):
        for again in (lambda: None, tfb.enable_keras, tfb.disable_keras):
            with switch():
                assert tfb.keras_enabled() == on() == within
                again()
            assert tfb.keras_enabled() == on() == before


def test_graphs_keep_what_they_were_traced_with(tf, tfb):
    layer, x = built("GRU"), tf.constant(sequence())
    before, during = tf.function(layer), tf.function(layer)
    before.get_concrete_function(x)
    with tfb.enable_keras():
        during.get_concrete_function(x)
        assert OPS["GRU"] not in op_types(before, x)
    assert OPS["GRU"] in op_types(during, x)
    assert_same([before(x)], [during(x)])


@pytest.mark.parametrize("use", switched.USES)
def test_models_that_were_used_before_trace_again_after_a_switch_and_only_then(tfb, use):
    traces = []

    class Traced(keras.layers.GRU):
        def call(self, sequences, initial_state=None, mask=None, training=False):
            traces.append(on())
            return super().call(sequences, initial_state, mask, training)

    model = keras.Sequential([keras.Input((TIME, INPUT)), Traced(UNITS)])
    y = np.ones((BATCH, UNITS), "float32")
    switched.check_traces(model, use, sequence(), y, traces, tfb.enable_keras, tfb.disable_keras)


def test_a_function_that_the_user_set_is_kept(tfb):
    model = keras.Sequential([keras.Input((TIME, INPUT)), keras.layers.GRU(UNITS)])
    y = np.ones((BATCH, UNITS), "float32")
    switched.check_own_function_is_kept(model, sequence(), y, tfb.report, tfb.enable_keras)


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
