"""`resets=` of the layers in Keras models, and on Keras' own operations.

tests/layers/test_layers_resets.py compares the layers on the op with each sequence by itself.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compare

pytestmark = pytest.mark.usefixtures("tfb")

BATCH, STEPS, INPUT, UNITS = 3, 7, 4, 5
RESETS = np.zeros((BATCH, STEPS), bool)
RESETS[0, [0, 3]] = RESETS[1, [2, 4, 6]] = True
MASK = np.ones((BATCH, STEPS), bool)
# Masked steps: at boundaries, before the first step that counts, a whole row.
MASK[0, 2:4] = MASK[1, [0, 2, 6]] = MASK[2] = False
X = np.random.default_rng(1).normal(size=(BATCH, STEPS, INPUT)).astype("float32")
ALL = {"return_sequences": True, "return_state": True}
FUSED = {
    "lstm": ("LSTM", {"use_peephole": True, "zoneout_h": 0.2, "zoneout_c": 0.3}),
    "projected": ("LSTM", {"projection": 3}),
    "gru": ("GRU", {"zoneout_h": 0.2}),
    "gru before": ("GRU", {"reset_after": False}),
    "rnn": ("SimpleRNN", {}),
    "layer norm lstm": ("LayerNormLSTM", {"norm_output_only": True}),
    "layer norm gru": ("LayerNormGRU", {}),
}
OPTIONS = {
    "plain": {},
    "masked": {"mask": MASK},
    "backwards": {"go_backwards": True},
    "backwards, masked": {"go_backwards": True, "mask": MASK},
    "unrolled, zeros": {"unroll": True, "zero_output_for_mask": True, "mask": MASK},
    "backwards, zeros": {"go_backwards": True, "zero_output_for_mask": True, "mask": MASK},
    "last output": {"return_sequences": False, "mask": MASK},
    "states given": {"states": True, "mask": MASK},
    "training": {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 4, "training": True},
    "float16": {"dtype": "mixed_float16", "mask": MASK},
}


def make(kind, **more):
    from tf_blockrnn import layers

    name, own = FUSED[kind]
    layer = getattr(layers, name)(UNITS, **{**ALL, **own, **more})
    layer.build((BATCH, STEPS, INPUT))
    draw = np.random.default_rng(2)
    layer.set_weights([draw.normal(size=w.shape) / 2 for w in layer.get_weights()])
    return layer


def without_ops():
    from tf_blockrnn.layers import _fused_call

    return _fused_call.without_ops()


def with_gradients(layer, x=X, states=None, **call):
    """All results of a call, then the gradients of the inputs, the states and the weights."""
    x = tf.constant(x)
    states = [tf.constant(state) for state in states or []]
    with tf.GradientTape() as tape:
        tape.watch([x, *states])
        found = keras.tree.flatten(layer(x, initial_state=states or None, **call))
        total = sum(tf.reduce_sum(tf.cast(y, tf.float32) ** 2) for y in found)
    wanted = [x, *states, *layer.trainable_variables]
    return [*found, *tape.gradient(total, wanted, unconnected_gradients="zero")]


def assert_same(got, want, bound=1e-5):
    assert len(got) == len(want)
    for n, (mine, expected) in enumerate(zip(got, want, strict=True)):
        mine, expected = (np.asarray(each, "float32") for each in (mine, expected))
        compare.assert_close(mine, expected, bound, f"result {n}")


# ---- Keras' own operations


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("option", OPTIONS)
def test_keras_operations_compute_what_the_op_does(kind, option):
    arguments = dict(OPTIONS[option])
    call = {name: arguments.pop(name) for name in ("mask", "training") if name in arguments}
    if call.get("training") and "zoneout_h" in FUSED[kind][1]:
        arguments |= {"zoneout_h": 0.0}  # the op draws all steps at once, Keras' loop each
        arguments |= {"zoneout_c": 0.0} if FUSED[kind][0] == "LSTM" else {}
    given = arguments.pop("states", False)
    results = []
    for _ in range(2):
        keras.utils.set_random_seed(3)
        layer = make(kind, **arguments)
        assert layer.fused
        if given:
            draw = np.random.default_rng(5)
            sizes = layer.state_size
            call["states"] = [draw.normal(size=(BATCH, n)).astype("float32") for n in sizes]
        if results:
            with without_ops():
                results.append(with_gradients(layer, resets=RESETS, **call))
        else:
            results.append(with_gradients(layer, resets=RESETS, **call))
    bound = 0.02 if option == "float16" else 1e-5
    assert_same(*results, bound)


UNFUSED = {
    "lstm": {"activation": "relu"},
    "gru": {"recurrent_activation": "hard_sigmoid"},
    "rnn": {"activation": "softsign"},
    "layer norm gru": {"activation": "relu"},
}


@pytest.mark.filterwarnings("ignore:.*falls back")
@pytest.mark.parametrize("kind", UNFUSED)
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("form", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_a_layer_that_falls_back_has_resets(kind, backwards, form):
    """Each sequence by itself, through the same layer."""
    layer = make(kind, **UNFUSED[kind], go_backwards=backwards, return_state=False)
    assert not layer.fused
    (got, *gradients) = form(lambda: with_gradients(layer, resets=tf.constant(RESETS)))()
    got = got[:, ::-1] if backwards else got
    want, of_pieces = np.zeros_like(got), None
    for row in range(BATCH):
        begins = sorted({0, STEPS, *np.flatnonzero(RESETS[row]).tolist()})
        for begin, end in zip(begins[:-1], begins[1:], strict=True):
            y, of_x, *of_weights = with_gradients(layer, X[row : row + 1, begin:end])
            want[row, begin:end] = y[0, ::-1] if backwards else y[0]
            compare.assert_close(gradients[0][row, begin:end], of_x[0], 1e-5, "gradient of x")
            pairs = zip(of_pieces or of_weights, of_weights, strict=True)
            of_pieces = [a + b for a, b in pairs] if of_pieces else of_weights
    assert_same([got, *gradients[1:]], [want, *of_pieces])


@pytest.mark.filterwarnings("ignore:.*falls back")
def test_a_stateful_layer_that_falls_back():
    layer = make("gru", **UNFUSED["gru"], stateful=True)
    resets = RESETS.copy()
    resets[1, 3] = True
    parts = [layer(X[:, a:b], resets=resets[:, a:b]) for a, b in ((0, 3), (3, STEPS))]
    layer.reset_state()
    whole, last = layer(X, resets=resets)
    got = np.concatenate([y for y, _ in parts], axis=1)
    assert_same([got, parts[1][1], layer.states[0]], [whole, last, last])
    assert np.any(got[2, 3:] != make("gru", **UNFUSED["gru"])(X[2:, 3:])[0][0])  # it was carried


class OwnCell(keras.layers.GRUCell):
    pass


def _with(layer, **attributes):
    vars(layer).update(attributes)
    return layer


def _cases_without_resets():
    from tf_blockrnn import layers

    cell, loop = layers.GRU(UNITS), layers.GRU(UNITS)
    cell.cell = OwnCell(UNITS)
    return {
        "its cell is of the custom class OwnCell": cell,
        "its inner_loop is not Keras' own": _with(loop, inner_loop=loop.inner_loop),
        "use_cudnn=True requires cuDNN": layers.GRU(UNITS, use_cudnn=True),
    }


@pytest.mark.filterwarnings("ignore:.*falls back")
def test_layers_of_which_the_steps_are_not_known_refuse_resets():
    for reason, layer in _cases_without_resets().items():
        with pytest.raises(ValueError, match=f"supports no resets: {reason}"):
            layer(X, resets=RESETS)


# ---- models


def _of_words(layer):
    """Words, of which 0 is padding that is masked, and the resets."""
    words, resets = keras.Input((STEPS,), dtype="int32"), keras.Input((STEPS,), dtype="bool")
    y = keras.layers.Embedding(9, INPUT, mask_zero=True)(words)
    return keras.Model([words, resets], layer(y, resets=resets))


@pytest.mark.filterwarnings("ignore:.*falls back")
@pytest.mark.parametrize("arguments", [{}, UNFUSED["gru"]], ids=["op", "keras"])
def test_the_mask_of_an_embedding_is_not_lost(tmp_path, arguments):
    """Keras passes it on to a layer only where the layer is called with one tensor."""
    from tf_blockrnn import layers

    layer = layers.GRU(UNITS, return_sequences=True, **arguments)  # built by the call
    model = _of_words(layer)
    words = np.random.default_rng(3).integers(1, 9, (BATCH, STEPS)) * MASK
    (embedding,) = (each for each in model.layers if isinstance(each, keras.layers.Embedding))
    x = tf.constant(np.asarray(embedding(words)))  # without the mask
    want = layer(x, mask=MASK, resets=RESETS)
    got = model([words, RESETS])
    assert_same([got], [want], 1e-6)
    assert np.abs(want - layer(x, resets=RESETS)).max() > 1e-3
    assert np.array_equal(got._keras_mask, MASK)
    assert_same([model.predict([words, RESETS], verbose=0)], [want], 1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert_same([loaded([words, RESETS])], [want], 1e-6)


class Stack(keras.Model):
    """A subclass that hands the resets to each layer, and has both directions."""

    def __init__(self):
        from tf_blockrnn import layers

        super().__init__()
        self.first = layers.LSTM(UNITS, return_sequences=True)
        self.back = layers.GRU(UNITS, return_sequences=True, go_backwards=True)
        self.head = keras.layers.Dense(1)

    def call(self, inputs):
        y = self.first(inputs["x"], resets=inputs["resets"])
        z = keras.ops.flip(self.back(inputs["x"], resets=inputs["resets"]), axis=1)
        return self.head(keras.ops.concatenate([y, z], axis=-1))


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
def test_a_subclassed_model_trains_as_on_each_sequence_by_itself(jit):
    """The sequences of all rows as a batch, padded, with a loss over the steps that count."""
    pieces = []
    for row in range(BATCH):
        begins = sorted({0, STEPS, *np.flatnonzero(RESETS[row]).tolist()})
        pieces += [(row, a, b) for a, b in zip(begins[:-1], begins[1:], strict=True)]
    models = [Stack(), Stack()]
    inputs = {"x": X, "resets": RESETS}
    for model in models:
        model(inputs)
    models[1].set_weights(models[0].get_weights())
    model, plain = models
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    model.fit(inputs, np.ones((BATCH, STEPS, 1)), BATCH, epochs=1, verbose=0)
    with tf.GradientTape() as tape:
        total = 0.0
        for row, a, b in pieces:
            none = tf.zeros((1, b - a), tf.bool)
            y = plain({"x": X[row : row + 1, a:b], "resets": none})
            total += tf.reduce_sum((y - 1.0) ** 2)
        total /= BATCH * STEPS
    gradients = tape.gradient(total, plain.trainable_variables)
    keras.optimizers.SGD(0.1).apply(gradients, plain.trainable_variables)
    assert_same(model.get_weights(), plain.get_weights())


def test_bidirectional_and_keras_layers_refuse_resets(tfb):
    from tf_blockrnn import layers

    both = keras.layers.Bidirectional(layers.GRU(UNITS))
    for layer in (both, keras.layers.GRU(UNITS)):
        with pytest.raises(TypeError, match="resets"):
            layer(X, resets=RESETS)
    model = _of_words(layers.GRU(UNITS))
    for copy in (False, True):
        with pytest.raises(ValueError, match=r"unfuse_model: layer .* is called with resets"):
            tfb.unfuse_model(model, copy=copy)
    model([np.ones((BATCH, STEPS), "int32"), RESETS])


@pytest.mark.parametrize("kind", ["lstm", "gru before", "layer norm gru"])
def test_sizes_that_the_graph_does_not_know(kind):
    """Those that do not fit are found when the graph runs."""
    layer = make(kind)
    spec = [tf.TensorSpec([None, None, INPUT]), tf.TensorSpec(None, tf.bool)]
    run = tf.function(lambda x, resets: layer(x, resets=resets), input_signature=spec)
    assert_same(run(X, RESETS), layer(X, resets=RESETS))
    for wrong in (RESETS[:, 1:], RESETS[:1], RESETS[0], RESETS[..., np.newaxis]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="resets"):
            run(X, wrong)


def test_forms_of_resets():
    layer = make("gru")
    want = layer(X, resets=RESETS)
    for form in (tf.constant, tf.Variable, np.ndarray.tolist):
        for mine, expected in zip(layer(X, resets=form(RESETS)), want, strict=True):
            np.testing.assert_array_equal(mine, expected)


def _with_resets(layer):
    x, resets = keras.Input((STEPS, INPUT)), keras.Input((STEPS,), dtype="bool")
    return keras.Model([x, resets], layer(x, resets=resets))


def test_onnx_export_is_refused(tfb, tmp_path):
    from tf_blockrnn import layers

    model = _with_resets(layers.GRU(UNITS))
    model([X, RESETS])
    with pytest.raises(NotImplementedError, match="it has resets") as refused:
        model.export(tmp_path / "m.onnx", format="onnx", verbose=False)
    assert "unfuse_model" not in str(refused.value)


def test_sessions_say_that_resets_are_theirs_to_give(tfb, tmp_path):
    from tf_blockrnn import inference, layers

    model = _with_resets(layers.GRU(UNITS, return_sequences=True))
    model.save(tmp_path / "model.keras")
    for source in (model, tmp_path / "model.keras"):
        with pytest.warns(UserWarning, match="give resets= to the session"):
            session = inference.Session(source)
        got, _ = session.run(X, resets=RESETS)
        assert_same(got, model([X, RESETS]))
