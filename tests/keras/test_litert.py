"""`tf_blockrnn.to_litert`: the LiteRT interpreter gives the numbers of the fused model."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import tolerances
from helpers.compare import assert_close

import tf_blockrnn
from tf_blockrnn import layers

pytestmark = pytest.mark.types

interpreter = pytest.importorskip(
    "ai_edge_litert.interpreter",
    reason="not run: ai-edge-litert, of requirements/dev.in, is not installed",
)

BATCH, TIME, INPUT, UNITS = 3, 6, 4, 5
# Two layers' sums over all steps. Each of the two programs errs by the bound of one.
BOUND = tolerances.parity_bound("float", 2 * TIME * (INPUT + UNITS))
LAYERS = {
    "LSTM": lambda **k: layers.LSTM(UNITS, **k),
    "LSTM extended": lambda **k: layers.LSTM(
        UNITS, use_peephole=True, cell_clip=0.3, projection=3, **k
    ),
    "GRU": lambda **k: layers.GRU(UNITS, **k),
    "GRU reset before": lambda **k: layers.GRU(UNITS, reset_after=False, **k),
    "RNN relu": lambda **k: layers.SimpleRNN(UNITS, activation="relu", **k),
}


def randomise(model: keras.Model) -> keras.Model:
    """Biases are random too: with Keras' zeros a wrong order of gates would not show."""
    random = np.random.default_rng(11)
    model.set_weights([random.normal(0, 0.6, w.shape) for w in model.get_weights()])
    return model


def sequence(batch: int = BATCH, time: int = TIME) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(batch, time, INPUT)).astype(np.float32)


def loaded(content: bytes):
    """The interpreter of a model that needs LiteRT's own operations alone."""
    made = interpreter.Interpreter(model_content=content)
    made.allocate_tensors()
    return made


def call(litert, *inputs: np.ndarray, signature: str = "serving_default") -> dict[str, np.ndarray]:
    """Calls a signature with the inputs in the order of their names."""
    runner = litert.get_signature_runner(signature)
    return runner(**dict(zip(sorted(runner.get_input_details()), inputs, strict=True)))


def assert_converts(model: keras.Model, *inputs: np.ndarray, want=None, **options) -> bytes:
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    want = model(given) if want is None else want
    content = tf_blockrnn.to_litert(model, batch_size=len(inputs[0]), **options)
    got = call(loaded(content), *inputs)
    want = tf.nest.flatten(want)
    assert len(got) == len(want)
    for n, value in enumerate(want):
        assert_close(got[f"output_{n}"], value.numpy(), BOUND, f"output {n}")
    return content


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_with_a_mask(kind):
    """Both directions, all outputs; rows with padding at either end, and without a step."""
    x = sequence()
    x[0, 3:], x[1, :2] = 0, 0
    x[2] = 0
    i = keras.Input((TIME, INPUT))
    y = keras.layers.Bidirectional(LAYERS[kind](return_sequences=True))(keras.layers.Masking()(i))
    last = LAYERS[kind](return_sequences=True, return_state=True, go_backwards=True)
    model = randomise(keras.Model(i, last(y)))
    assert_converts(model, x)
    assert last.fused and getattr(last, "use_cudnn", "auto") in ("auto", False)


def test_names_a_shared_layer_and_a_mask_that_is_an_input():
    a, b = keras.Input((TIME, INPUT), name="a"), keras.Input((TIME, INPUT), name="b")
    m = keras.Input((TIME,), dtype="bool", name="m")
    shared = layers.LSTM(UNITS)
    outputs = {"sum": shared(a) + shared(b), "first": shared(a, mask=m)}
    model = randomise(keras.Model({"a": a, "b": b, "m": m}, outputs))
    mask = np.random.default_rng(2).random((BATCH, TIME)) < 0.6
    x = sequence(), sequence()[::-1], mask
    want = model(dict(zip("abm", x, strict=True)))
    got = call(loaded(tf_blockrnn.to_litert(model, batch_size=BATCH)), *x)
    assert set(got) == set(want)
    for name in want:
        assert_close(got[name], want[name].numpy(), BOUND, name)


def test_resets_that_are_an_input():
    x, resets = keras.Input((TIME, INPUT), name="a"), keras.Input((TIME,), dtype="bool", name="b")
    model = randomise(keras.Model([x, resets], layers.GRU(UNITS)(x, resets=resets)))
    begins = np.random.default_rng(2).random((BATCH, TIME)) < 0.4
    assert np.any(model([sequence(), begins]) != model([sequence(), np.zeros_like(begins)]))
    assert_converts(model, sequence(), begins)


def test_resets_of_other_steps_are_refused_by_the_interpreter():
    x, resets = keras.Input((None, INPUT), name="a"), keras.Input((None,), dtype="bool", name="b")
    model = randomise(keras.Model([x, resets], layers.GRU(UNITS)(x, resets=resets)))
    content = assert_converts(model, sequence(), np.ones((BATCH, TIME), bool))
    for steps in (1, TIME - 1, TIME + 1):
        with pytest.raises(RuntimeError, match="RESHAPE"):
            call(loaded(content), sequence(), np.ones((BATCH, steps), bool))


def test_open_time():
    """The interpreter resizes what the model leaves open."""
    model = keras.Sequential([keras.Input((None, INPUT)), layers.GRU(UNITS)])
    litert = interpreter.Interpreter(model_content=tf_blockrnn.to_litert(randomise(model)))
    (given,), (made,) = litert.get_input_details(), litert.get_output_details()
    for time in (TIME, 1, 9):
        x = sequence(1, time)
        litert.resize_tensor_input(given["index"], x.shape)
        litert.allocate_tensors()
        litert.set_tensor(given["index"], x)
        litert.invoke()
        assert_close(litert.get_tensor(made["index"]), model(x).numpy(), BOUND)


@pytest.mark.parametrize(("kind", "first"), [("LSTM extended", "states"), ("GRU", "zeros")])
def test_stateful(kind, first):
    """States of batch 1 go from call to call, from those of the model or from zeros."""
    layer = LAYERS[kind](stateful=True, return_sequences=True)
    i = keras.Input((TIME, INPUT), batch_size=1)
    model = randomise(keras.Model(i, keras.layers.Dense(2)(layer(i))))
    x = sequence(1)
    model(x)
    litert = loaded(tf_blockrnn.to_litert(model))
    if first == "zeros":
        call(litert, signature="reset_states")
        layer.reset_states()
    for _ in range(3):
        want = model(x).numpy()
        assert_close(call(litert, x)["output_0"], want, BOUND)
    layer.reset_states()
    from_zeros = model(x).numpy()
    assert np.abs(want - from_zeros).max() > 100 * BOUND, "the states change nothing"
    call(litert, signature="reset_states")
    assert_close(call(litert, x)["output_0"], from_zeros, BOUND)


def test_a_call_that_assigns_a_variable():
    """Other variables that a call assigns are kept too, and are not states."""

    @keras.saving.register_keras_serializable("test_litert")
    class Count(keras.layers.Layer):
        def build(self, _):
            self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, x):
            self.calls.assign(self.calls + 1.0)
            return x * self.calls

    i = keras.Input((TIME, INPUT), batch_size=1)
    count = Count()
    model = keras.Model(i, count(layers.GRU(UNITS, stateful=True)(i)))
    litert, x = loaded(tf_blockrnn.to_litert(model)), sequence(1)
    assert float(count.calls) == 0  # converting calls nothing
    for n in range(4):
        if n == 2:
            call(litert, signature="reset_states")
            model.layers[1].reset_states()
        assert_close(call(litert, x)["output_0"], model(x).numpy(), BOUND)


def test_cells_and_a_subclassed_model():
    """A model that no config describes; it stays as it is."""

    class Model(keras.Model):
        def __init__(self, secret):
            super().__init__()
            cells = [layers.LSTMCell(UNITS), layers.GRUCell(UNITS)]
            self.rnn, self.secret = keras.layers.RNN(cells), secret

        def call(self, x):
            return self.rnn(x) * self.secret

    model, x = Model(3.0), sequence()
    want = model(x)
    with pytest.raises(ValueError, match="input_signature must be given for model 'model"):
        tf_blockrnn.to_litert(model)
    signature = tf.TensorSpec([None, TIME, INPUT])
    assert_converts(model, x, want=want, input_signature=signature)
    np.testing.assert_array_equal(model(x), want)


def test_keras_own_layers_while_enabled():
    model = keras.Sequential([keras.Input((TIME, INPUT)), keras.layers.LSTM(UNITS)])
    with tf_blockrnn.enable_keras():
        assert_converts(randomise(model), sequence())


@pytest.mark.parametrize("precision", ["float32", "int8", "bfloat16"])
def test_frozen_models(precision):
    model = keras.Sequential([keras.Input((TIME, INPUT)), keras.layers.LSTM(UNITS, name="one")])
    frozen = tf_blockrnn.freeze(randomise(model), precision)
    if precision == "float32":
        assert_converts(frozen, sequence())
        return
    message = f'\'one\' must be of precision "float32", it is frozen to "{precision}"'
    with pytest.raises(ValueError, match=message):
        tf_blockrnn.to_litert(frozen)


def test_what_is_refused():
    model = keras.Sequential([keras.Input((4, 3)), layers.LSTM(2)])
    for error, values in ((ValueError, (0, -1)), (TypeError, (2.0, True, None, "1"))):
        for value in values:
            with pytest.raises(error, match="batch_size must be a positive integer, got"):
                tf_blockrnn.to_litert(model, batch_size=value)
    half = keras.Sequential([keras.Input((4, 3)), layers.LSTM(2, dtype="float16", name="one")])
    for error, given, words in (
        (ValueError, half, "'one' must compute in float32.* it computes in float16"),
        (ValueError, keras.Sequential([layers.LSTM(2)]), "model must be built, but sequential"),
        (TypeError, layers.LSTM(2), "model must be a keras.Model, got LSTM"),
    ):
        with pytest.raises(error, match=words):
            tf_blockrnn.to_litert(given)


def test_no_cudnn_is_traced(monkeypatch):
    """Keras would put cuDNN's op into the graph where it sees a GPU."""
    model = keras.Sequential([keras.Input((TIME, INPUT)), layers.LSTM(UNITS)])
    called = []
    from keras.src.layers.rnn import lstm

    monkeypatch.setattr(lstm.backend, "lstm", lambda *a, **k: called.append(1))
    tf_blockrnn.to_litert(model)
    assert not called
    assert model.layers[0].use_cudnn == "auto"


def test_the_cudnn_op_of_a_model_is_an_error_of_the_converter():
    class Cudnn(keras.layers.Layer):
        def call(self, x):
            state, params = tf.zeros([1, tf.shape(x)[1], 2]), tf.ones([2 * 4 * (INPUT + 2 + 2)])
            options = {"sequence_lengths": [TIME] * BATCH, "is_training": False}
            return tf.raw_ops.CudnnRNNV3(
                input=x, input_h=state, input_c=state, params=params, **options
            ).output

    i = keras.Input((BATCH, INPUT), batch_size=TIME)
    with pytest.raises(Exception, match="CudnnRNNV3' op is neither a custom op nor a flex op"):
        tf_blockrnn.to_litert(keras.Model(i, Cudnn()(i)))


def test_tensorflow_lite_takes_what_unfuse_model_gives():
    """Its own converter refuses fused models, as docs/limits.md says."""
    stack = [layers.LSTM(UNITS, return_sequences=True), layers.GRU(UNITS)]
    model = randomise(keras.Sequential([keras.Input((TIME, INPUT), batch_size=1), *stack]))
    convert = tf.lite.TFLiteConverter.from_keras_model
    with pytest.raises(Exception, match="neither a custom op nor a flex op"):
        convert(model).convert()
    x = sequence(1)
    plain = loaded(convert(tf_blockrnn.unfuse_model(model, copy=True)).convert())
    plain.set_tensor(plain.get_input_details()[0]["index"], x)
    plain.invoke()
    (output,) = plain.get_output_details()
    assert_close(plain.get_tensor(output["index"]), model(x), BOUND)
