"""Models of tf_keras on the fused ops: numbers, training, files, XLA, and the switch itself."""

from __future__ import annotations

import concurrent.futures
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import children, switched
from helpers.legacy_keras import (
    assert_same,
    disable,
    enable,
    enabled,
    fused,
    fused_ops,
    make,
    sequence,
)

import tf_blockrnn
from tf_blockrnn import _loader

layers = tf.keras.layers  # tf_keras' under TF_USE_LEGACY_KERAS=1
WORDS = np.random.default_rng(1).integers(0, 5, [12, 6])  # 0 is padding
TARGETS = np.random.default_rng(2).normal(size=[12, 1]).astype(np.float32)


def _sequential():
    return tf.keras.Sequential(
        [
            layers.Embedding(5, 4, mask_zero=True),
            layers.LSTM(6, return_sequences=True, dropout=0.2),
            layers.GRU(5),
            layers.Dense(1),
        ]
    )


def _small():
    return tf.keras.Sequential(
        [layers.Embedding(5, 4, mask_zero=True), layers.LSTM(5), layers.Dense(1)]
    )


def _encoder_decoder():
    words = tf.keras.Input([6], dtype="int32")
    embedded = layers.Embedding(5, 4, mask_zero=True)(words)
    _, *states = layers.LSTM(5, return_state=True)(embedded)
    decoded = layers.LSTM(5, return_sequences=True)(embedded, initial_state=states)
    return tf.keras.Model(words, layers.Dense(1)(layers.SimpleRNN(5)([decoded, states[0]])))


MODELS = {"sequential": _sequential, "encoder-decoder": _encoder_decoder}


def _train(make_model, on: bool, **compiled):
    """Predictions before and after some steps of training, and the losses."""
    tf.keras.utils.set_random_seed(4)
    model = make_model()
    (enable if on else disable)()
    try:
        model.compile("adam", "mse", **compiled)
        before = model.predict(WORDS, verbose=0)
        losses = model.fit(
            WORDS, TARGETS, batch_size=4, epochs=2, shuffle=False, verbose=0
        ).history["loss"]
        return model, [before, np.array(losses), model.predict(WORDS, verbose=0)]
    finally:
        disable()


def _assert_near(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("name", MODELS)
def test_training(name):
    _, theirs = _train(MODELS[name], on=False)
    model, mine = _train(MODELS[name], on=True)
    _assert_near(mine, theirs)
    assert not fused_ops(lambda x: model(x, training=True), tf.constant(WORDS))
    with fused():
        assert fused_ops(lambda x: model(x, training=True), tf.constant(WORDS))


@pytest.mark.parametrize("missing", [False, True])
def test_jit_compile(monkeypatch, tmp_path, missing):
    """With the ops, or on Keras' operations where the library for XLA could not be loaded."""
    if missing:
        monkeypatch.setattr(_loader, "missing_xla", lambda: "there is no library")
    # Without XLA as the reference.
    _, theirs = _train(_small, on=False)
    model, mine = _train(_small, on=True, jit_compile=True)
    assert model.jit_compile
    _assert_near(mine, theirs)
    compiled = tf.function(tf.function(lambda x: model(x)), jit_compile=True)
    with fused():
        assert fused_ops(lambda x: model(x), tf.constant(WORDS))
        program = compiled.experimental_get_compiler_ir(tf.constant(WORDS))(stage="hlo")
        model.save(tmp_path, save_format="tf")
    assert ('custom_call_target="BlockRNN>LSTMSequence"' in program) != missing
    assert b"BlockRNN" not in (tmp_path / "saved_model.pb").read_bytes()


@pytest.mark.parametrize("ending", ["", ".keras", ".h5"])
def test_saved_files_are_plain_keras(ending, tmp_path):
    model, (*_, predicted) = _train(_small, on=True)
    path = tmp_path / f"model{ending}"
    with fused():
        model.save(path, save_format=ending[1:] or "tf")
        config = json.dumps(model.get_config(), default=str)
    files = [path] if ending else [path / "saved_model.pb"]
    assert all(b"BlockRNN" not in file.read_bytes() for file in files)
    assert "blockrnn" not in config
    loaded = tf.keras.models.load_model(path)
    assert type(loaded.layers[1]) is layers.LSTM
    np.testing.assert_allclose(loaded.predict(WORDS, verbose=0), predicted, rtol=1e-5, atol=1e-6)
    with fused():
        assert fused_ops(loaded, tf.constant(WORDS))


def test_exported_files_are_plain(tmp_path):
    model = _small()
    model(WORDS)
    with fused(), warnings.catch_warnings():
        warnings.filterwarnings("error", ".*falls back")
        model.export(tmp_path / "export")
        tf.saved_model.save(model, tmp_path / "saved")
        module = tf.Module()
        module.call = tf.function(lambda x: model(x))
        module.call(tf.constant(WORDS))
        module.model = model
        tf.saved_model.save(module, tmp_path / "traced")
    for folder in ("export", "saved", "traced"):
        assert b"BlockRNN" not in (tmp_path / folder / "saved_model.pb").read_bytes(), folder


def test_switch_is_idempotent_and_reversible():
    plain = {kind: vars(kind)["call"] for kind in (layers.LSTM, layers.GRU, layers.SimpleRNN)}
    layer = make("LSTM", sequence())
    assert not enabled()
    enable()
    enable()
    assert enabled()
    made_while_on = make("LSTM", sequence())
    graph = tf.function(lambda x: layer(x))
    mine = graph(sequence())
    disable()
    assert not enabled()
    disable()
    assert all(vars(kind)["call"] is call for kind, call in plain.items())
    assert not fused_ops(layer, sequence()) and not fused_ops(made_while_on, sequence())
    assert_same([mine], [layer(sequence())])
    # What was traced before stays what it was.
    nodes = graph.get_concrete_function(sequence()).graph.as_graph_def().node
    assert "BlockRNN>LSTMSequence" in {node.op for node in nodes}


@pytest.mark.parametrize("use", switched.USES)
def test_models_that_were_used_before_trace_again_after_a_switch_and_only_then(use):
    traces = []

    class Traced(layers.LSTM):
        def call(self, inputs, mask=None, training=None, initial_state=None):
            traces.append(enabled())
            return super().call(inputs, mask, training, initial_state)

    model = tf.keras.Sequential([layers.Embedding(5, 4), Traced(5), layers.Dense(1)])
    switched.check_traces(model, use, WORDS, TARGETS, traces, enable, disable)


def test_a_function_that_the_user_set_is_kept():
    model = tf.keras.Sequential([layers.Embedding(5, 4), layers.LSTM(5), layers.Dense(1)])
    report = tf_blockrnn.report
    switched.check_own_function_is_kept(model, WORDS, TARGETS, report, fused)


def test_someone_elses_wrapper_stays():
    plain = vars(layers.GRU)["call"]
    layer, seen = make("GRU", sequence()), []
    enable()
    ours = layers.GRU.call
    layers.GRU.call = lambda self, *args, **kwargs: seen.append(1) or ours(self, *args, **kwargs)
    try:
        theirs = vars(layers.GRU)["call"]
        disable()
        assert vars(layers.GRU)["call"] is theirs
        assert not fused_ops(layer, sequence()) and seen
        enable()
        assert vars(layers.GRU)["call"] is theirs
        assert fused_ops(layer, sequence()) == {"BlockRNN>GRUAfterSequence"}
    finally:
        layers.GRU.call = ours
        disable()
    assert vars(layers.GRU)["call"] is plain


def test_threads():
    layer = make("LSTM", sequence())
    want = layer(sequence())

    def run(number: int) -> None:
        for _ in range(20):
            (enable if number % 2 else disable)()
            assert_same([layer(sequence())], [want])

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))
    disable()
    assert layers.LSTM.call.__module__ == "tf_keras.src.layers.rnn.lstm"
    assert not fused_ops(layer, sequence())


ON_DEMAND = """
import sys, tf_blockrnn, tf_blockrnn._enable_tf_keras as t
assert not t.enabled() and 'tf_keras' not in sys.modules
t.disable()
assert 'tf_keras' not in sys.modules
t.enable()
assert t.enabled() and 'tf_keras' in sys.modules
"""
LATER = """
import sys, tf_blockrnn
with tf_blockrnn.enable_keras():
    assert 'tf_keras' not in sys.modules
    import tf_keras
    assert hasattr(tf_keras.layers.LSTM.call, '__wrapped__')
assert not hasattr(tf_keras.layers.LSTM.call, '__wrapped__')
import tf_blockrnn._enable_tf_keras as t
assert not t.enabled()
"""


@pytest.mark.parametrize("code", [ON_DEMAND, LATER], ids=["on demand", "later"])
def test_tf_keras_is_imported_only_on_demand_and_switched_later(code):
    # TensorFlow itself imports tf_keras where TF_USE_LEGACY_KERAS is 1.
    child = children.run_python(["-c", code], fresh=True, TF_USE_LEGACY_KERAS="0")
    children.assert_ok(child, "the import")


def test_graphs_of_version_1():
    """Without eager execution a model is one graph, built as its layers are called."""
    code = """
import numpy as np, tensorflow as tf
tf.compat.v1.disable_v2_behavior()
from helpers.legacy_keras import disable, enable
keras = tf.compat.v1.keras

def train(on):
    (enable if on else disable)()
    keras.backend.clear_session()
    model = keras.Sequential([
        keras.layers.Masking(input_shape=(5, 2)),
        keras.layers.LSTM(4, recurrent_activation="sigmoid", return_sequences=True),
        keras.layers.GRU(3, recurrent_activation="sigmoid"),
        keras.layers.Dense(1)])
    random = np.random.default_rng(1)
    model.set_weights([random.normal(0, 0.5, w.shape) for w in model.get_weights()])
    x = random.normal(size=(8, 5, 2)) * random.integers(0, 2, (8, 5, 1))
    model.compile("sgd", "mse")
    model.fit(x, x[:, 0, :1], epochs=2, batch_size=4, shuffle=False, verbose=0)
    types = {node.op for node in keras.backend.get_session().graph.as_graph_def().node}
    return model.predict(x), {op for op in types if op.startswith("BlockRNN>")}

theirs, mine = train(False), train(True)
assert not theirs[1] and {"BlockRNN>LSTMSequence", "BlockRNN>GRUSequence"} <= mine[1], mine[1]
np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-5, atol=1e-6)
"""
    children.assert_ok(children.run_code(code), "a model of version 1")


def test_tf_keras_is_in_use():
    assert layers.LSTM is tf_keras.layers.LSTM
