"""Keras' export of fused models to ONNX, run by ONNX Runtime, against the model's own outputs."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from helpers import covering, onnx_export, tolerances
from helpers.compare import assert_close

pytestmark = [pytest.mark.types, pytest.mark.usefixtures("tfb")]

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


def layer(kind: str, units: int = UNITS, **arguments) -> keras.Layer:
    from tf_blockrnn import layers

    name, own = KINDS[kind]
    made = getattr(layers, name)(units, **{**own, **arguments})
    assert made.fused, made.why_not_fused
    return made


def sequence(batch: int = BATCH, time: int = TIME, inputs: int = INPUT) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(batch, time, inputs)).astype(np.float32)


def assert_exports(model: keras.Model, inputs, path, bound=BOUND, **options) -> onnx.ModelProto:
    """That the file computes what the model does; returns its content."""
    inputs = inputs if isinstance(inputs, list) else [inputs]
    want = onnx_export.randomise(model, *inputs)
    proto = onnx_export.export(model, path / "model.onnx", **options)
    got = onnx_export.run(proto, inputs)
    for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert mine.dtype == theirs.dtype
        assert_close(mine, theirs, bound, f"output {n}")
    return proto


# What the call is given: nothing, initial states, or these and a mask, where Keras and the op
# differ.
GIVEN = ("", "states", "states, mask", "mask")
BOOLS = [False, True]


@pytest.mark.parametrize(
    ("kind", "opset", "given", "dtype", "backwards", "sequences", "zero"),
    covering.pairwise(KINDS, [11, 13, 15, 18], GIVEN, ["float32", "mixed_float16"], *[BOOLS] * 3),
)
def test_layer(tmp_path, kind, opset, given, dtype, backwards, sequences, zero):
    if opset != 15:  # the default
        onnx_export.needs_opset_of_choice()
    count = (2 if kind.startswith("LSTM") else 1) * ("states" in given)
    x, states = keras.Input((None, INPUT)), [keras.Input((UNITS,)) for _ in range(count)]
    mask = keras.Input((None,), dtype="bool") if "mask" in given else None
    options = {"return_sequences": sequences, "go_backwards": backwards, "dtype": dtype}
    made = layer(kind, return_state=True, zero_output_for_mask=zero, **options)
    outputs = made(x, mask=mask, initial_state=states or None)
    inputs = [x, *states] if mask is None else [x, *states, mask]
    model = keras.Model(inputs if len(inputs) > 1 else x, outputs)
    values = [np.full((len(MASK), UNITS), 0.3 + n, np.float32) for n in range(count)]
    values = [sequence(len(MASK)), *values, *([] if mask is None else [MASK])]
    # ONNX Runtime keeps the state in float32 between the steps.
    half = tolerances.composed_bound("half", (INPUT + UNITS) * TIME)
    bound = BOUND if dtype == "float32" else half
    proto = assert_exports(model, values, tmp_path, bound, opset_version=opset)
    onnx_export.assert_weights_are_folded(proto)
    assert [each.version for each in proto.opset_import if each.domain == ""] == [opset]
    assert len(onnx_export.recurrent_nodes(proto)) == 1


def test_embedding_with_mask_in_a_bidirectional_stack(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(7, INPUT, mask_zero=True),
            keras.layers.Bidirectional(layer("LSTM", return_sequences=True)),
            layer("GRU", return_sequences=True),
            keras.layers.Bidirectional(layer("RNN-relu"), merge_mode="sum"),
            keras.layers.Dense(2),
        ]
    )
    tokens = np.array([[1, 2, 3, 4], [5, 6, 0, 0], [1, 0, 2, 0]], np.int32)
    proto = assert_exports(model, tokens, tmp_path)
    assert len(onnx_export.recurrent_nodes(proto)) == 5
    other = np.ones((2, 8), np.int32)  # other sizes than those of the trace
    (got,) = onnx_export.run(proto, [other])
    assert_close(got, model(other).numpy(), BOUND, "other sizes")


@pytest.mark.parametrize("batch, time", [(BATCH, None), (None, TIME), (BATCH, TIME)])
def test_known_dims(tmp_path, batch, time):
    x = keras.Input(batch_shape=(batch, time, INPUT))
    h = keras.layers.Masking()(x)
    model = keras.Model(x, layer("LSTM")(layer("GRU", return_sequences=True)(h)))
    assert_exports(model, sequence(), tmp_path)


def test_states_as_inputs_and_outputs(tmp_path):
    """What the refusal of a stateful model advises."""
    x, *states = keras.Input((None, INPUT)), keras.Input((UNITS,)), keras.Input((UNITS,))
    made = layer("LSTM", return_state=True)
    model = keras.Model([x, *states], made(x, initial_state=states))
    given = [np.full((BATCH, UNITS), value, np.float32) for value in (0.5, -2.0)]
    assert_exports(model, [sequence(), *given], tmp_path)


def test_nested_and_subclassed_models(tmp_path):
    inner = keras.Sequential([keras.Input((None, INPUT)), layer("GRU", return_sequences=True)])

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.top = inner, layer("LSTM", return_state=True)

        def call(self, x):
            return self.top(self.inner(x))

    signature = [keras.InputSpec("float32", (None, None, INPUT))]
    assert_exports(Outer(), sequence(), tmp_path, input_signature=signature)


@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell"])
def test_cells_in_a_loop(tfb, tmp_path, name):
    arguments = {"reset_after": False} if name == "GRUCell" else {}
    cell = getattr(tfb.layers, name)(UNITS, **arguments)
    assert cell.fused, cell.why_not_fused
    x = keras.Input((None, INPUT))
    model = keras.Model(x, keras.layers.RNN(cell, return_sequences=True)(x))
    proto = assert_exports(model, sequence(), tmp_path)
    found = [node.op_type for node in onnx_export.nodes(proto.graph)]
    assert found.count(name.removesuffix("Cell")) == 1 and "Loop" not in found


def test_enabled_layers_of_keras(tfb, tmp_path):
    """They become ONNX's nodes too."""
    x = keras.Input((None, INPUT))
    y = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))(x)
    with tfb.enable_keras():
        proto = assert_exports(keras.Model(x, keras.layers.GRU(UNITS)(y)), sequence(), tmp_path)
    found = sorted(node.op_type for node in onnx_export.recurrent_nodes(proto))
    assert found == ["GRU", "LSTM", "LSTM"]


def test_tf2onnx_from_keras():
    """What calls tf2onnx without Keras."""
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


# ---- what is refused


def _assert_refuses(model, path, words, **options):
    model(sequence())
    file = path / "model.onnx"
    file.write_text("an older file")
    with pytest.raises(NotImplementedError, match=words):
        model.export(str(file), format="onnx", verbose=False, **options)
    assert file.read_text() == "an older file"


@pytest.mark.parametrize("form", ["fused", "enabled", "cell"])
def test_a_stateful_model_is_refused(tfb, tmp_path, form):
    """An ONNX file has no state of its own: it would start from the state at the export."""
    x = keras.Input(batch_shape=(BATCH, TIME, INPUT))
    if form == "cell":
        made = keras.layers.RNN(tfb.layers.GRUCell(UNITS, reset_after=False), stateful=True)
    else:
        made = (keras.layers.GRU if form == "enabled" else tfb.layers.GRU)(UNITS, stateful=True)
    made.name = "remembers"
    with tfb.enable_keras():
        _assert_refuses(keras.Model(x, made(x)), tmp_path, "remembers.* keeps a state.*to_litert")


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"cell_clip": 1.0}, "cell_clip"),
        ({"projection": 2}, "projection"),
        ({"dtype": "float64"}, "double"),
        ({"dtype": "bfloat16", "recurrent_initializer": "zeros"}, "bfloat16"),
    ],
)
def test_refusals(tmp_path, arguments, word):
    x = keras.Input((None, INPUT))
    model = keras.Model(x, layer("LSTM", **arguments)(x))
    words = f"(?s)BlockRNN>LSTMSequence.*{word}.*tf_blockrnn.unfuse_model"
    _assert_refuses(model, tmp_path, words)


def test_refusal_in_a_loop(tmp_path):
    """tf2onnx converts the bodies of loops apart."""
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
    signature = [keras.InputSpec("float32", (None, None, INPUT))]
    _assert_refuses(model, tmp_path, "unfuse_model", input_signature=signature)


def test_an_opset_that_is_too_low_is_refused(tmp_path):
    onnx_export.needs_opset_of_choice()
    x = keras.Input((None, INPUT))
    _assert_refuses(keras.Model(x, layer("GRU")(x)), tmp_path, "opset 11", opset_version=9)
