"""`jit_compile=True`: XLA compiles models with the fused ops in them, and the numbers stay.

A selection of the scenarios of test_scenarios.py, on our layers, fused in place and under
enable_keras; and where XLA cannot compile the ops, what is done instead.
"""

from __future__ import annotations

import collections
import re
import warnings

import keras
import numpy as np
import pytest
import running
import tensorflow as tf
from helpers import children
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    OPS,
    TIME,
    UNITS,
    make_ours,
    make_peer,
    op_types,
    sequence,
)
from scenarios import ALL, classes_of

pytestmark = pytest.mark.xla

LSTM, GRU, GRU_BEFORE, RNN = (OPS[kind] for kind in ("LSTM", "GRU", "GRU-before", "RNN-tanh"))

# What the compiled step of training runs forward; each has its gradient besides.
CUSTOM_CALLS = {
    "words, both directions": [LSTM, LSTM],
    "mixed stack": [RNN, GRU, LSTM],
    "GRU of the first paper": [GRU_BEFORE],
    "states given, masked": [GRU],
    "stateful, both directions": [GRU, GRU],
    "mixed float16": [LSTM, GRU],
    "words, RNN of a cell": [LSTM],
    "dropout, a mask per gate": [LSTM],
}
# XLA draws other random numbers than TensorFlow's kernels from the same seed.
RANDOM = "dropout, a mask per gate"


def _custom_calls(name: str, model: keras.Model) -> list[str]:
    """The calls of our kernels in the compiled step of training of a model that has trained."""
    x = ALL[name].inputs()
    y = model(x)
    data = keras.tree.map_structure(tf.convert_to_tensor, (x, y))
    step = tf.function(lambda *data: model.train_step(data), jit_compile=True)
    program = step.experimental_get_compiler_ir(*data)(stage="hlo")
    return re.findall(r'custom_call_target="(BlockRNN>[^"]*)"', program)


def _check_compiled(name: str, model: keras.Model) -> None:
    """Runs a scenario, which must stay compiled and fused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = running.run(ALL[name], model, jit_compile=True)
    assert model.jit_compile is True
    expected = running.stock(name, jit_compile=True) if name == RANDOM else running.ours(name)
    running.assert_equal(found, expected, min(ALL[name].tolerance, 1e-5))
    forward = CUSTOM_CALLS[name]
    expected_calls = collections.Counter(forward + [f"{op}Grad" for op in forward])
    calls = collections.Counter(_custom_calls(name, model))
    if running.cells(model):  # Keras also calls a cell for the shape of its output; XLA drops it.
        assert set(calls) == set(expected_calls)
    else:
        assert calls == expected_calls


@pytest.mark.parametrize("name", CUSTOM_CALLS)
def test_our_layers(tfb, name):
    _check_compiled(name, running.make(ALL[name], classes_of(tfb.layers)))


def test_fuse_model(tfb):
    model = running.make(ALL[RANDOM])
    _check_compiled(RANDOM, tfb.fuse_model(model))


def test_enable_keras(tfb):
    name = "words, both directions"
    with tfb.enable_keras():
        _check_compiled(name, running.make(ALL[name]))


def _small(layer: keras.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((TIME, INPUT)), layer])


@pytest.mark.parametrize("cell", [False, True])
def test_auto_is_xla_where_keras_uses_it(tf, tfb, cell, monkeypatch):
    """Keras' "auto" is no XLA where there are CPUs alone, and else asks the layers."""
    model = _small(keras.layers.RNN(tfb.layers.GRUCell(UNITS)) if cell else make_ours("GRU"))
    model.compile("sgd", "mse", jit_compile="auto")
    assert model.jit_compile is False
    devices = [*tf.config.list_physical_devices(), tf.config.PhysicalDevice("/gpu:0", "GPU")]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: devices)
    model.compile("sgd", "mse", jit_compile="auto")
    assert model.jit_compile is True


# ---- files

LOADS = """
import sys, numpy as np, keras, tensorflow as tf, tf_blockrnn
at = sys.argv[1]
x = tf.constant(np.load(at + "/x.npy"))
model = keras.saving.load_model(at + "/model.keras")
assert model.jit_compile is True
compiled = tf.saved_model.load(at + "/compiled")
(function,) = compiled.call.concrete_functions
assert function.function_def.attr["_XlaMustCompile"].b
np.savez(at + "/found.npz", loaded=model.predict_on_batch(x), compiled=compiled.call(x))
"""


def test_a_compiled_model_loads_in_a_new_process(tf, tfb, tmp_path):
    x = sequence()
    model = _small(tfb.layers.LSTM(UNITS, return_sequences=True))
    model.add(tfb.layers.GRU(1))
    model.compile("sgd", "mse", jit_compile=True)
    module = tf.Module()
    module.model = model
    module.call = tf.function(lambda x: model(x), jit_compile=True)
    want = module.call(tf.constant(x))
    np.save(tmp_path / "x.npy", x)
    model.save(tmp_path / "model.keras")
    tf.saved_model.save(module, tmp_path / "compiled")
    run = children.run_python(["-c", LOADS, str(tmp_path)], timeout=120)
    children.assert_ok(run, "loading a compiled model")
    with np.load(tmp_path / "found.npz") as found:
        for name in ("loaded", "compiled"):
            np.testing.assert_array_equal(found[name], want, err_msg=name)


# ---- layers that someone marks


def test_a_false_of_others_counts_and_that_for_cudnn_does_not(tf, tfb, monkeypatch):
    layers = [make_ours("LSTM"), make_ours("LSTM", use_cudnn=False), make_peer("LSTM")]
    with tfb.enable_keras():
        assert all(layer.supports_jit for layer in layers)
        for layer in layers:
            layer.supports_jit = False
        assert not any(layer.supports_jit for layer in layers)
        # Keras' constructors do so where cuDNN may run the layer.
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
        monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "")
        assert [bool(layer.supports_jit) for layer in layers] == [True, False, True]
        monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "no nvcc")
        assert not any(layer.supports_jit for layer in layers)


def test_unfuse_model_switches_xla_off_for_cudnn(tf, tfb, monkeypatch):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "")
    model = _small(make_ours("GRU"))
    model.layers[0].supports_jit = False
    model.compile("sgd", "mse", jit_compile=True)
    assert model.jit_compile is True
    with pytest.warns(UserWarning, match="goes on with jit_compile=False: XLA cannot compile gru"):
        tfb.unfuse_model(model)
    assert model.jit_compile is False


# ---- where XLA cannot compile the ops


@pytest.fixture
def no_xla(tfb, monkeypatch):
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    monkeypatch.setattr(tfb._loader, "missing_xla", lambda: "there is no library")


@pytest.mark.usefixtures("no_xla")
@pytest.mark.filterwarnings("ignore:.*falls back")
def test_compile_does_without_xla(tfb):
    cells = (tfb.layers.GRUCell(UNITS), tfb.layers.LayerNormGRUCell(UNITS))
    plain = keras.layers.RNN(keras.layers.LSTMCell(UNITS))
    for layer in (make_ours("GRU"), *map(keras.layers.RNN, cells), plain):
        model = _small(layer)
        with pytest.warns(UserWarning, match="support `jit_compile=True`"):
            with tfb.enable_keras():
                model.compile("sgd", "mse", jit_compile=True)
        assert model.jit_compile is False
    assert plain.supports_jit is True
    model = _small(make_ours("GRU", activation="relu"))
    model.compile("sgd", "mse", jit_compile=True)
    assert model.jit_compile is True


class LayersInBuild(keras.Model):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def build(self, shape):
        self.recurrent = self.make(UNITS)

    def call(self, x):
        return self.recurrent(x)


@pytest.mark.usefixtures("no_xla")
@pytest.mark.parametrize("switch", [False, True])
def test_layers_created_after_compile_fall_back(tfb, switch):
    model = LayersInBuild(keras.layers.GRU if switch else tfb.layers.GRU)
    model.compile("sgd", "mse", jit_compile=True)
    before = tfb.enable_keras()
    if not switch:
        tfb.disable_keras()
    with before, pytest.warns(UserWarning, match="XLA compiles, and there is no lib") as said:
        model.fit(sequence(), np.ones((BATCH, UNITS)), verbose=0)
    assert len([w for w in said if "XLA" in str(w.message)]) == 1
    assert model.jit_compile is True


@pytest.mark.usefixtures("no_xla")
@pytest.mark.filterwarnings("ignore:.*falls back")
def test_a_function_inside_a_compiled_one_calls_keras_own_operations(tf):
    layer, x = make_ours("LSTM"), tf.constant(sequence())
    inner = tf.function(layer)
    want = layer(x)
    compiled = tf.function(lambda x: inner(x), jit_compile=True)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-6)
    assert OPS["LSTM"] not in op_types(compiled, x)


def test_fuse_model_switches_xla_off(tfb, request):
    model = _small(make_peer("GRU"))
    model.compile("sgd", "mse", jit_compile=True)
    request.getfixturevalue("no_xla")
    with pytest.warns(UserWarning, match=r"'sequential.*' was compiled .*compile gru") as said:
        tfb.fuse_model(model)
    assert [w.filename for w in said] == [__file__]
    assert model.jit_compile is False
    model.fit(sequence(), np.ones((BATCH, UNITS)), verbose=0)
