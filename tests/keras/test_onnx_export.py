"""Keras' export of fused models to ONNX, run by ONNX Runtime, against the model's own outputs."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from helpers import onnx_export, tolerances
from helpers.compare import assert_close

pytestmark = pytest.mark.types

BATCH, TIME, INPUT, UNITS = 3, 5, 4, 3
BOUND = tolerances.ONNX
KINDS = {
    "LSTM": ("LSTM", {}),
    "LSTM-peephole": ("LSTM", {"use_peephole": True}),
    "LSTM-no-bias": ("LSTM", {"use_bias": False}),
    "GRU": ("GRU", {}),
    "GRU-before": ("GRU", {"reset_after": False}),
    "GRU-no-bias": ("GRU", {"use_bias": False}),
    "RNN-tanh": ("SimpleRNN", {}),
    "RNN-relu": ("SimpleRNN", {"activation": "relu"}),
}
# Full, right padded, left padded, with holes, and without any step.
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 1, 0], [0] * 5], bool)
kinds = pytest.mark.parametrize("kind", KINDS)


def layer(kind: str, units: int = UNITS, **arguments) -> keras.Layer:
    from tf_blockrnn import layers

    name, own = KINDS[kind]
    made = getattr(layers, name)(units, **{**own, **arguments})
    assert made.fused, made.why_not_fused
    return made


def sequence(batch: int = BATCH, time: int = TIME, inputs: int = INPUT) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(batch, time, inputs)).astype(np.float32)


def assert_exports(model: keras.Model, inputs, path, **options) -> onnx.ModelProto:
    """That the file computes what the model does; returns its content."""
    inputs = inputs if isinstance(inputs, list) else [inputs]
    want = onnx_export.randomise(model, *inputs)
    proto = onnx_export.export(model, path / "model.onnx", **options)
    got = onnx_export.run(proto, inputs)
    for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert_close(mine, theirs, BOUND, f"output {n}")
    assert onnx_export.recurrent_nodes(proto)
    return proto


@kinds
@pytest.mark.parametrize("opset", [11, 13, 15, 18])
def test_layer(tfb, tmp_path, kind, opset):
    del tfb
    if opset != 15:  # the default
        onnx_export.needs_opset_of_choice()
    inputs = keras.Input((None, INPUT))
    model = keras.Model(inputs, layer(kind, return_sequences=True)(inputs))
    proto = assert_exports(model, sequence(), tmp_path, opset_version=opset)
    onnx_export.assert_weights_are_folded(proto)
    assert [each.version for each in proto.opset_import if each.domain == ""] == [opset]
    assert len(onnx_export.recurrent_nodes(proto)) == 1


@kinds
@pytest.mark.parametrize("backwards", [False, True])
def test_states_in_and_out(tfb, tmp_path, kind, backwards):
    del tfb
    count = 2 if kind.startswith("LSTM") else 1
    inputs = [keras.Input((None, INPUT)), *(keras.Input((UNITS,)) for _ in range(count))]
    made = layer(kind, return_sequences=True, return_state=True, go_backwards=backwards)
    model = keras.Model(inputs, made(inputs[0], initial_state=inputs[1:]))
    states = [np.full((BATCH, UNITS), 0.3 + n, np.float32) for n in range(count)]
    assert_exports(model, [sequence(), *states], tmp_path)


@kinds
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
@pytest.mark.parametrize("opset", [11, 15])
def test_masks_of_any_form(tfb, tmp_path, kind, backwards, sequences, opset):
    """Also beside initial states that are not zero, where Keras and the op differ."""
    del tfb
    x, mask = keras.Input((None, INPUT)), keras.Input((None,), dtype="bool")
    count = 2 if kind.startswith("LSTM") else 1
    states = [keras.Input((UNITS,)) for _ in range(count)]
    made = layer(kind, return_sequences=sequences, return_state=True, go_backwards=backwards)
    model = keras.Model([x, mask, *states], made(x, mask=mask, initial_state=states))
    before = [np.full((len(MASK), UNITS), 0.3 + n, np.float32) for n in range(count)]
    given = [sequence(len(MASK)), MASK, *before]
    assert_exports(model, given, tmp_path, opset_version=opset)


def test_zero_output_for_mask(tfb, tmp_path):
    del tfb
    x, mask = keras.Input((None, INPUT)), keras.Input((None,), dtype="bool")
    made = layer("GRU", return_sequences=True, zero_output_for_mask=True)
    assert_exports(
        keras.Model([x, mask], made(x, mask=mask)), [sequence(len(MASK)), MASK], tmp_path
    )


@kinds
def test_embedding_with_mask_in_a_bidirectional_stack(tfb, tmp_path, kind):
    del tfb
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(7, INPUT, mask_zero=True),
            keras.layers.Bidirectional(layer(kind, return_sequences=True)),
            layer(kind, return_sequences=True),
            keras.layers.Bidirectional(layer(kind), merge_mode="sum"),
            keras.layers.Dense(2),
        ]
    )
    tokens = np.array([[1, 2, 3, 4], [5, 6, 0, 0], [1, 0, 2, 0]], np.int32)
    proto = assert_exports(model, tokens, tmp_path)
    assert len(onnx_export.recurrent_nodes(proto)) == 5


@pytest.mark.parametrize("batch, time", [(None, None), (BATCH, None), (None, TIME), (BATCH, TIME)])
def test_known_and_unknown_dims(tfb, tmp_path, batch, time):
    del tfb
    x = keras.Input(batch_shape=(batch, time, INPUT))
    h = keras.layers.Masking()(x)
    model = keras.Model(x, layer("LSTM")(layer("GRU", return_sequences=True)(h)))
    proto = assert_exports(model, sequence(), tmp_path)
    if (batch, time) == (None, None):  # other sizes than those of the trace
        other = sequence(2, 8)
        (got,) = onnx_export.run(proto, [other])
        assert_close(got, model(other).numpy(), BOUND, "other sizes")


def test_stateful(tfb, tmp_path):
    """An ONNX file has no state of its own: it starts from the state at the export."""
    del tfb
    x = keras.Input(batch_shape=(BATCH, TIME, INPUT))
    made = layer("LSTM", stateful=True)
    model = keras.Model(x, made(x))
    onnx_export.randomise(model, sequence())
    proto = onnx_export.export(model, tmp_path / "model.onnx")
    state = [each.numpy() for each in made.states]
    (got,) = onnx_export.run(proto, [sequence()])
    made.reset_states()
    for variable, value in zip(made.states, state, strict=True):
        variable.assign(value)
    assert_close(got, model(sequence()).numpy(), BOUND, "outputs")


def test_nested_and_subclassed_models(tfb, tmp_path):
    del tfb
    inner = keras.Sequential([keras.Input((None, INPUT)), layer("GRU", return_sequences=True)])

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.top = inner, layer("LSTM", return_state=True)

        def call(self, x):
            output, h, c = self.top(self.inner(x))
            return {"output": output, "h": h, "c": c}

    model = Outer()
    want = onnx_export.randomise(model, sequence())
    signature = [keras.InputSpec("float32", (None, None, INPUT))]
    proto = onnx_export.export(model, tmp_path / "m.onnx", input_signature=signature)
    names = [each.name for each in proto.graph.output]
    got = dict(zip(names, onnx_export.run(proto, [sequence()]), strict=True))
    for name, theirs in zip(sorted(got), want, strict=True):
        assert_close(got[name], theirs, BOUND, name)


def test_time_distributed(tfb, tmp_path):
    del tfb
    x = keras.Input(batch_shape=(BATCH, 2, TIME, INPUT))
    model = keras.Model(x, keras.layers.TimeDistributed(layer("LSTM"))(x))
    given = np.random.default_rng(0).normal(size=(BATCH, 2, TIME, INPUT)).astype(np.float32)
    assert_exports(model, given, tmp_path)


def test_encoder_and_decoder(tfb, tmp_path):
    del tfb
    source, target = keras.Input((None, INPUT)), keras.Input((None, INPUT))
    _, *states = layer("LSTM", return_state=True)(source)
    outputs = layer("LSTM", return_sequences=True)(target, initial_state=states)
    model = keras.Model([source, target], keras.layers.Dense(2)(outputs))
    assert_exports(model, [sequence(), sequence(time=2)], tmp_path)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_cells_in_a_loop(tfb, tmp_path, name):
    arguments = {"reset_after": False} if name == "GRUCell" else {}
    cell = getattr(tfb.layers, name)(UNITS, **arguments)
    assert cell.fused, cell.why_not_fused
    x = keras.Input((None, INPUT))
    model = keras.Model(x, keras.layers.RNN(cell, return_sequences=True)(x))
    (want,) = onnx_export.randomise(model, sequence())
    proto = onnx_export.export(model, tmp_path / "model.onnx")
    (got,) = onnx_export.run(proto, [sequence()])
    assert_close(got, want, BOUND, "outputs")
    assert "Loop" in {node.op_type for node in onnx_export.nodes(proto.graph)}


@kinds
def test_half(tfb, tmp_path, kind):
    del tfb
    x, mask = keras.Input((None, INPUT)), keras.Input((None,), dtype="bool")
    made = layer(kind, return_sequences=True, dtype="mixed_float16")
    model = keras.Model([x, mask], made(x, mask=mask))
    given = [sequence(len(MASK)), MASK]
    (want,) = onnx_export.randomise(model, *given)
    proto = onnx_export.export(model, tmp_path / "model.onnx")
    (got,) = onnx_export.run(proto, given)
    assert got.dtype == np.float16
    # ONNX Runtime keeps the state in float32 between the steps.
    bound = tolerances.composed_bound("half", (INPUT + UNITS) * TIME)
    assert_close(got, want, bound, "outputs")


@pytest.mark.parametrize("way", ["enable_keras", "fuse_model"])
def test_models_of_keras_own_layers(tfb, tmp_path, way):
    """They become ONNX's nodes on every way to the ops."""
    model = keras.Sequential(
        [
            keras.Input((None, INPUT)),
            keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True)),
            keras.layers.GRU(UNITS),
        ]
    )
    if way == "fuse_model":
        tfb.fuse_model(model)
        proto = assert_exports(model, sequence(), tmp_path)
    else:
        with tfb.enable_keras():
            proto = assert_exports(model, sequence(), tmp_path)
    found = sorted(node.op_type for node in onnx_export.recurrent_nodes(proto))
    assert found == ["GRU", "LSTM", "LSTM"]


def test_tf2onnx_from_keras(tfb, tmp_path):
    """Also what calls tf2onnx without Keras."""
    del tfb
    import tf2onnx

    x = keras.Input((None, INPUT), name="x")
    model = keras.Model(x, layer("LSTM")(x))
    (want,) = onnx_export.randomise(model, sequence())
    plain = keras.Input((INPUT,))
    try:
        tf2onnx.convert.from_keras(keras.Model(plain, keras.layers.Dense(1)(plain)))
    except KeyError:
        pytest.skip(f"not run: tf2onnx takes no model of Keras {keras.__version__}")
    proto, _ = tf2onnx.convert.from_keras(model)
    (got,) = onnx_export.run(onnx_export.checked(proto), [sequence()])
    assert_close(got, want, BOUND, "outputs")


def _assert_refuses(model, path, *words):
    model(sequence())
    file = path / "model.onnx"
    file.write_text("an older file")
    with pytest.raises(NotImplementedError) as raised:
        model.export(str(file), format="onnx", verbose=False)
    for word in (*words, "tf_blockrnn.unfuse_model"):
        assert word in str(raised.value)
    assert file.read_text() == "an older file"


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"cell_clip": 1.0}, "cell_clip"),
        ({"projection": 2}, "projection"),
        ({"dtype": "float64"}, "double"),
        ({"dtype": "bfloat16", "recurrent_initializer": "zeros"}, "bfloat16"),
    ],
)
def test_refusals(tfb, tmp_path, arguments, word):
    del tfb
    x = keras.Input((None, INPUT))
    model = keras.Model(x, layer("LSTM", **arguments)(x))
    _assert_refuses(model, tmp_path, "BlockRNN>LSTMSequence", word)


def test_refusal_in_a_loop(tfb, tmp_path):
    """tf2onnx converts the bodies of loops apart."""
    del tfb
    made = layer("LSTM", cell_clip=1.0)

    class Loop(keras.Model):
        def call(self, x):
            return tf.while_loop(
                lambda n, _: n < tf.shape(x)[0],
                lambda n, total: (n + 1, total + tf.reduce_sum(made(x))),
                (tf.constant(0), tf.zeros([])),
            )[1]

    model = Loop()
    model.layer = made
    model(sequence())
    signature = [keras.InputSpec("float32", (None, None, INPUT))]
    with pytest.raises(NotImplementedError, match="unfuse_model"):
        model.export(
            str(tmp_path / "m.onnx"), format="onnx", verbose=False, input_signature=signature
        )
    assert not (tmp_path / "m.onnx").exists()


def test_an_opset_that_is_too_low_is_refused(tfb, tmp_path):
    onnx_export.needs_opset_of_choice()
    del tfb
    x = keras.Input((None, INPUT))
    model = keras.Model(x, layer("GRU")(x))
    model(sequence())
    with pytest.raises(NotImplementedError, match="opset 11"):
        model.export(str(tmp_path / "m.onnx"), format="onnx", verbose=False, opset_version=9)
    assert not (tmp_path / "m.onnx").exists()
