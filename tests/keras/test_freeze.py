"""`tf_blockrnn.freeze`: predictions of the model with weights that are packed once."""

from __future__ import annotations

import concurrent.futures
import copy
import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import children, covering, onnx_export, tolerances
from helpers.compare import assert_close, bits

import tf_blockrnn
from tf_blockrnn import layers
from tf_blockrnn._ops.frozen import frozen_bytes

pytestmark = pytest.mark.types

INPUT, UNITS = 7, 24
LAYERS = {
    "LSTM": lambda **k: keras.layers.LSTM(UNITS, **k),
    "LSTM with peepholes": lambda **k: layers.LSTM(UNITS, use_peephole=True, cell_clip=0.5, **k),
    "LSTM zoneout": lambda **k: layers.LSTM(UNITS, zoneout_h=0.2, zoneout_c=0.35, **k),
    "GRU": lambda **k: keras.layers.GRU(UNITS, **k),
    "GRU zoneout": lambda **k: layers.GRU(UNITS, zoneout_h=0.2, **k),
    "LSTM projection": lambda **k: layers.LSTM(UNITS, projection=3, **k),
    "GRU reset before": lambda **k: keras.layers.GRU(UNITS, reset_after=False, **k),
    "RNN": lambda **k: keras.layers.SimpleRNN(UNITS, **k),
    "RNN relu": lambda **k: layers.SimpleRNN(UNITS, activation="relu", **k),
}
DTYPES = ("float64", "float16", "bfloat16", "mixed_float16")


@pytest.fixture(autouse=True)
def _other_models_are_gone():
    gc.collect()


def _model(make, seed=0, **options):
    keras.utils.set_random_seed(seed)
    # Keras' own initializer has no bfloat16.
    layer = make(recurrent_initializer="glorot_uniform", **options)
    model = keras.Sequential([keras.Input((None, INPUT)), layer])
    _randomize(model, seed)
    return tf_blockrnn.fuse_model(model)


def _randomize(model, seed):
    """Weights other than zeros everywhere."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(0.3 * rng.standard_normal(weight.shape))


def _x(batch, steps, seed=1):
    return np.random.default_rng(seed).standard_normal((batch, steps, INPUT)).astype("float32")


def _same_bits(one, other):
    for mine, its in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
        assert bits(mine) == bits(its)


def _calls(model):
    """The ways to call a model."""
    return {
        "eager": model,
        "function": tf.function(lambda x: model(x)),
        "jit": tf.function(lambda x: model(x), jit_compile=True),
        "predict": lambda x: model.predict(np.asarray(x), verbose=0),
    }


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, "float32") for kind in LAYERS), *covering.in_turn(LAYERS, DTYPES)],
)
def test_the_bits_are_those_of_the_model(kind, dtype):
    model = _model(LAYERS[kind], dtype=dtype, return_sequences=True)
    frozen = tf_blockrnn.freeze(model)
    before, mine = _calls(model), _calls(frozen)
    packed = frozen_bytes()
    for batch, steps in ((1, 5), (2, 12), (20, 13)):
        x = tf.constant(_x(batch, steps))
        for how in ("eager", "function"):
            _same_bits(mine[how](x), before[how](x))
    for how in ("jit", "predict"):
        _same_bits(mine[how](_x(3, 15)), before[how](_x(3, 15)))
    assert frozen_bytes() > packed


def test_the_bits_for_any_batch():
    model = _model(LAYERS["LSTM"])
    frozen = tf_blockrnn.freeze(model)
    for batch in range(1, 21):
        for steps in (1, 11, 12, 30):
            _same_bits(frozen(_x(batch, steps)), model(_x(batch, steps)))


def _stack():
    """Both directions, a mask, a layer with two outputs, a state that is kept."""
    keras.utils.set_random_seed(3)
    words = keras.Input((14,), batch_size=4, dtype="int32")
    x = keras.layers.Embedding(20, INPUT, mask_zero=True)(words)
    x = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))(x)
    x, state = keras.layers.GRU(UNITS, return_sequences=True, return_state=True)(x)
    x = layers.LSTM(9, return_sequences=True, stateful=True)(x)
    return keras.Model(words, [keras.layers.Dense(3)(x), state])


def test_a_stack():
    model = tf_blockrnn.fuse_model(_stack())
    frozen = tf_blockrnn.freeze(model)
    words = np.random.default_rng(0).integers(0, 20, (4, 14))
    words[:, 9:] = 0
    for _ in range(3):  # with the state of the call before
        _same_bits(frozen(words), model(words))
    assert not frozen.layers[2].forward_layer.trainable


def test_plain_layers_are_frozen_and_the_model_stays_as_it_is():
    model = keras.Sequential([keras.Input((None, INPUT)), keras.layers.GRU(UNITS)])
    model.compile("adam", "mse")
    frozen = tf_blockrnn.freeze(model)
    assert type(model.layers[0]) is keras.layers.GRU
    assert model.layers[0].trainable
    assert isinstance(frozen.layers[0], layers.GRU)
    model.fit(_x(4, 3), np.zeros((4, UNITS)), verbose=0)
    frozen(_x(1, 2))  # has weights of its own


def test_one_copy_for_all_functions_and_threads():
    before = frozen_bytes()
    model = _model(LAYERS["LSTM"])
    frozen = tf_blockrnn.freeze(model)
    x, want = tf.constant(_x(2, 20)), model(_x(2, 20))
    assert frozen_bytes() == before
    frozen(x)
    one = frozen_bytes() - before
    weights = 4 * sum(int(np.prod(weight.shape)) for weight in model.weights)
    assert weights <= one < 3 * weights
    calls = [*_calls(frozen).values(), *_calls(frozen).values()]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda call: call(x), calls * 4))
    for result in results:
        np.testing.assert_allclose(result, want, atol=1e-6)
    assert frozen_bytes() - before == one
    del frozen, calls, results
    gc.collect()
    assert frozen_bytes() == before


def test_changed_weights_are_refused():
    frozen = tf_blockrnn.freeze(_model(LAYERS["GRU"]))
    calls = {name: call for name, call in _calls(frozen).items() if name != "predict"}
    x = tf.constant(_x(2, 4))
    want = {name: call(x) for name, call in calls.items()}
    kernel = frozen.layers[0].cell.kernel
    kept = tf.identity(kernel)
    for change in (lambda: kernel.assign(kept * 2), lambda: kernel.value.assign_add(kept)):
        change()
        for call in calls.values():
            with pytest.raises(tf.errors.InvalidArgumentError, match="freeze the model again"):
                call(x)
        kernel.assign(kept)
        for name, call in calls.items():
            _same_bits(call(x), want[name])


def test_training_is_refused():
    frozen = tf_blockrnn.freeze(_model(LAYERS["LSTM"]))
    x = tf.constant(_x(2, 4))
    frozen.compile("sgd", "mse")
    with pytest.raises(ValueError, match="is frozen for inference and takes training=False"):
        frozen.fit(x, np.zeros((2, UNITS)), verbose=0)
    frozen.evaluate(x, np.zeros((2, UNITS)), verbose=0)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "GRU reset before", "RNN"])
def test_gradients_are_refused(kind):
    frozen = tf_blockrnn.freeze(_model(LAYERS[kind]))

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = frozen(x)
        return tape.gradient(y, x)

    def forward(x):
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            y = frozen(x)
        return accumulator.jvp(y)

    calls = (gradient, tf.function(gradient), tf.function(gradient, jit_compile=True), forward)
    for call in calls:
        with pytest.raises(ValueError, match="for inference and has no gradient"):
            call(tf.constant(_x(2, 4)))


@pytest.mark.parametrize(("precision", "bound"), [("bfloat16", 5e-3), ("int8", 2e-2)])
def test_low_precision(precision, bound):
    """Of each cell the bits are those of a session: inference/test_session_precision.py."""
    model = keras.Sequential([keras.Input((None, INPUT)), LAYERS["LSTM"](return_sequences=True)])
    calls = _calls(tf_blockrnn.freeze(model, precision=precision))
    x = tf.constant(_x(3, 20))
    want = model(x)
    for how in ("eager", "function", "jit"):
        assert 0 < np.abs(calls[how](x) - want).max() <= bound


_LOAD = """
import sys
import numpy as np
import tensorflow as tf
import tf_blockrnn
from tf_blockrnn._ops.frozen import frozen_bytes
served = tf.saved_model.load(sys.argv[1])
np.save(sys.argv[2], served.serve(np.load(sys.argv[3])))
print(tf_blockrnn.build_info()["cpu_isa"], frozen_bytes() > 0)
"""


def test_export_loads_on_another_instruction_set(tmp_path):
    model = _model(LAYERS["LSTM"])
    frozen = tf_blockrnn.freeze(model)
    x = _x(2, 15)
    np.save(tmp_path / "x.npy", x)
    frozen.export(tmp_path / "served", verbose=False)
    files = [str(tmp_path / name) for name in ("served", "y.npy", "x.npy")]
    isa = tf_blockrnn.build_info()["cpu_isas_available"][0]
    run = children.run_python(["-c", _LOAD, *files], fresh=True, TF_BLOCKRNN_CPU_ISA=isa)
    assert children.assert_ok(run, isa) == f"{isa} True\n"
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(x), atol=1e-6)


def test_saving_drops_the_state(tmp_path):
    frozen = tf_blockrnn.freeze(_model(LAYERS["LSTM"]))
    frozen.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    packed = frozen_bytes()
    loaded(_x(2, 3))
    assert frozen_bytes() == packed
    _same_bits(tf_blockrnn.freeze(loaded)(_x(2, 13)), frozen(_x(2, 13)))
    assert frozen_bytes() > packed


def test_copies_of_a_frozen_model_that_was_trained(tmp_path):
    model = keras.Sequential([keras.Input((None, INPUT)), keras.layers.LSTM(UNITS, dropout=0.5)])
    model.compile("adam", "mse")
    x, y = _x(4, 3), np.zeros((4, UNITS), "float32")
    model.fit(x, y, verbose=0)
    frozen = tf_blockrnn.freeze(model)
    assert frozen.evaluate(x, y, verbose=0) == tf_blockrnn.fuse_model(model).evaluate(
        x, y, verbose=0
    )
    frozen.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for copied in (loaded, copy.deepcopy(frozen), tf_blockrnn.fuse_model(frozen, copy=True)):
        assert "_frozen" not in vars(copied.layers[0])
        _same_bits(copied(x), frozen(x))
    _same_bits(tf_blockrnn.freeze(frozen)(x), frozen(x))


def test_a_model_is_trained_on_the_outputs():
    frozen, head = tf_blockrnn.freeze(_model(LAYERS["LSTM"])), keras.layers.Dense(1)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(head(tf.stop_gradient(frozen(_x(2, 4)))))
    assert all(gradient is not None for gradient in tape.gradient(loss, head.weights))


def test_onnx_export_of_float32_alone(tmp_path):
    model = _model(LAYERS["LSTM"])
    frozen = tf_blockrnn.freeze(model)
    frozen(_x(2, 5))  # which an export needs
    proto = onnx_export.export(frozen, tmp_path / "model.onnx")
    (mine,) = onnx_export.run(proto, [_x(2, 5)])
    assert_close(mine, model(_x(2, 5)), tolerances.ONNX, "output")
    low = tf_blockrnn.freeze(model, precision="int8")
    low(_x(2, 5))
    with pytest.raises(Exception, match="its weights are frozen in int8"):
        onnx_export.export(low, tmp_path / "low.onnx")


def test_layers_that_cannot_be_frozen_are_reported():
    model = keras.Sequential(
        [
            keras.Input((None, INPUT)),
            keras.layers.LSTM(4, activation="relu", return_sequences=True, name="own"),
            keras.layers.RNN(keras.layers.GRUCell(4, name="cell"), return_sequences=True),
            keras.layers.RNN(
                tf_blockrnn.layers.LayerNormGRUCell(4, name="norm"), return_sequences=True
            ),
            keras.layers.GRU(4, return_sequences=True),
            keras.layers.GRU(4),
        ]
    )
    with pytest.warns(
        UserWarning, match=r"freeze did not freeze: own \(activation is relu"
    ) as seen:
        frozen = tf_blockrnn.freeze(model)
    for name in ("cell", "norm"):
        assert f"{name} (it is a cell" in str(seen[0].message)
    np.testing.assert_allclose(frozen(_x(2, 3)), model(_x(2, 3)), atol=1e-6)
    assert "_frozen" in vars(frozen.layers[3])


def test_malformed_arguments():
    model = _model(LAYERS["LSTM"])
    for precision, error in (("float16", ValueError), (None, TypeError), (8, TypeError)):
        with pytest.raises(error, match="freeze: precision must be one of .* got"):
            tf_blockrnn.freeze(model, precision=precision)
    with pytest.raises(TypeError, match="freeze: model must be a keras.Model, got int"):
        tf_blockrnn.freeze(3)
    with pytest.raises(ValueError, match="freeze: model must be built, but gru"):
        tf_blockrnn.freeze(keras.Sequential([keras.layers.GRU(3, name="gru")]))
    with pytest.raises(ValueError, match="for layer 'half', which computes in float16, got .int8"):
        tf_blockrnn.freeze(_model(LAYERS["GRU"], dtype="float16", name="half"), "int8")
    wide = keras.Sequential([keras.Input((None, 133145)), keras.layers.GRU(1, name="wide")])
    with pytest.raises(ValueError, match="'wide': it adds up to 133144 terms, .* are 133145"):
        tf_blockrnn.freeze(wide, "int8")
    tf_blockrnn.freeze(wide, "bfloat16")
