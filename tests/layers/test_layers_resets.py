"""`resets=` of the layers: sequences that begin in the middle of rows."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compare

BATCH, STEPS, INPUT, UNITS = 3, 8, 4, 5
KINDS = {
    "lstm": ("LSTM", {"use_peephole": True, "zoneout_h": 0.2}),
    "projected": ("LSTM", {"projection": 3}),
    "gru": ("GRU", {}),
    "gru before": ("GRU", {"reset_after": False}),
    "rnn": ("SimpleRNN", {}),
    "layer norm lstm": ("LayerNormLSTM", {}),
    "layer norm gru": ("LayerNormGRU", {}),
}
all_kinds = pytest.mark.parametrize("kind", KINDS)
RESETS = np.zeros((BATCH, STEPS), bool)
RESETS[0, [0, 3]] = RESETS[1, [2, 5, 6]] = True
MASK = np.ones((BATCH, STEPS), bool)
MASK[0, 5:] = MASK[1, 2:4] = False
X = np.random.default_rng(1).normal(size=(BATCH, STEPS, INPUT)).astype(np.float32)


def make(kind, **more):
    from tf_blockrnn import layers

    name, own = KINDS[kind]
    layer = getattr(layers, name)(UNITS, **own, **{"return_sequences": True, **more})
    layer.build((BATCH if more.get("stateful") else None, None, INPUT))
    rng = np.random.default_rng(2)
    shapes = [weight.shape for weight in layer.get_weights()]
    layer.set_weights([rng.normal(size=shape).astype(np.float32) / 2 for shape in shapes])
    return layer


def _piece_by_piece(layer, mask=None):
    """The outputs of calls with each piece alone, and the gradients of the weights."""
    outputs = np.zeros((BATCH, STEPS, layer.compute_output_shape(X.shape)[-1]), np.float32)
    total = 0.0
    with tf.GradientTape() as tape:
        for row in range(BATCH):
            begins = [0, *(t for t in range(1, STEPS) if RESETS[row, t]), STEPS]
            for begin, end in zip(begins[:-1], begins[1:], strict=True):
                part = np.s_[row : row + 1, begin:end]
                given = None if mask is None else mask[part]
                y = layer(X[part], mask=given)
                outputs[part] = y.numpy()
                total += tf.reduce_sum(y * y)
    return outputs, tape.gradient(total, layer.trainable_variables)


@all_kinds
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_pieces_are_sequences_of_their_own(tfb, kind, backwards, masked):
    layer = make(kind, go_backwards=backwards)
    mask = MASK if masked else None
    if backwards and masked:
        mask = None  # Keras' rule for masked outputs in their order; the ops' tests have it
    with tf.GradientTape() as tape:
        got = layer(X, mask=mask, resets=RESETS)
        total = tf.reduce_sum(got * got)
    gradients = tape.gradient(total, layer.trainable_variables)
    want, want_gradients = _piece_by_piece(layer, mask)
    if backwards:
        # Outputs are in the order in which the steps are done, of a row and of a piece.
        undone = np.zeros_like(want)
        for row in range(BATCH):
            begins = [0, *(t for t in range(1, STEPS) if RESETS[row, t]), STEPS]
            for begin, end in zip(begins[:-1], begins[1:], strict=True):
                undone[row, begin:end] = want[row, begin:end][::-1]
        want = undone[:, ::-1]
    compare.assert_close(got, want, 2e-6, "outputs")
    for one, other in zip(gradients, want_gradients, strict=True):
        compare.assert_close(one, other, 1e-5, "gradient")


@all_kinds
def test_functional_model_with_a_second_input(tfb, kind, tmp_path):
    layer = make(kind)
    x = keras.Input((STEPS, INPUT))
    resets = keras.Input((STEPS,), dtype="bool")
    model = keras.Model([x, resets], layer(x, resets=resets))
    want = layer(X, resets=RESETS).numpy()
    np.testing.assert_array_equal(model([X, RESETS]), want)
    np.testing.assert_array_equal(model.predict([X, RESETS], verbose=0), want)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded([X, RESETS]), want)
    model.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_array_equal(exported.serve([tf.constant(X), tf.constant(RESETS)]), want)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
def test_fit(tfb, jit):
    layer = make("gru", dropout=0.1, recurrent_dropout=0.1)
    x, resets = keras.Input((STEPS, INPUT)), keras.Input((STEPS,), dtype="bool")
    model = keras.Model([x, resets], keras.layers.Dense(1)(layer(x, resets=resets)))
    model.compile("adam", "mse", jit_compile=jit)
    before = [w.copy() for w in layer.get_weights()]
    model.fit([X, RESETS], np.ones((BATCH, STEPS, 1)), verbose=0, epochs=2)
    assert all(np.any(a != b) for a, b in zip(before, layer.get_weights(), strict=True))


@pytest.mark.parametrize("kind", ["lstm", "gru", "layer norm lstm"])
def test_a_stateful_layer_carries_the_last_piece(tfb, kind):
    layer = make(kind, stateful=True)
    layer(X)  # makes the states of this batch
    layer.reset_state()
    resets = np.zeros_like(RESETS)
    resets[0, 6] = resets[1, 4] = True
    first = layer(X[:, :4]).numpy()
    second = layer(X[:, 4:], resets=resets[:, 4:]).numpy()
    layer.reset_state()
    whole = layer(X, resets=resets).numpy()
    compare.assert_close(np.concatenate([first, second], axis=1), whole, 2e-6, "outputs")
    # A reset before the first step: the state that was carried is not read.
    alone = make(kind)
    alone.set_weights(layer.get_weights()[: len(alone.get_weights())])
    compare.assert_close(second[1], alone(X[1:2, 4:])[0], 2e-6, "begins anew")


@all_kinds
def test_wrong_resets_are_refused(tfb, kind):
    layer = make(kind)
    for wrong in (RESETS[:, :-1], RESETS[:2], RESETS[0], RESETS[..., None]):
        with pytest.raises(ValueError, match=r"resets must have shape \[B, T\] = \[3, 8\], got"):
            layer(X, resets=wrong)
    for wrong in ("int32", "float32"):
        with pytest.raises(TypeError, match=f"resets must be of bool, got {wrong}"):
            layer(X, resets=RESETS.astype(wrong))
    for wrong in ([[True], [True, False]], RESETS.astype(object)):
        with pytest.raises(TypeError, match="resets must be a tensor, got a value of type"):
            layer(X, resets=wrong)
    for wrong in (tf.sparse.from_dense(RESETS), tf.RaggedTensor.from_tensor(RESETS)):
        with pytest.raises(TypeError, match="resets must be a dense tensor, got .*; pass "):
            layer(X, resets=wrong)
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):  # Keras' own
        layer(X[0], resets=RESETS)
    layer(X, resets=RESETS)


@all_kinds
def test_wrong_resets_of_a_functional_model_are_refused(tfb, kind):
    layer, x = make(kind), keras.Input((STEPS, INPUT))
    declare = r'resets must be of bool, got .*; declare it with keras.Input\(..., dtype="bool"\)'
    for dtype in (None, "int32"):
        with pytest.raises(TypeError, match=declare):
            layer(x, resets=keras.Input((STEPS,), dtype=dtype))
        with pytest.raises(TypeError, match=declare):
            layer(x, None, None, False, keras.Input((STEPS,), dtype=dtype))
    for wrong in ((STEPS - 1,), (STEPS, 1)):
        with pytest.raises(ValueError, match=r"resets must have shape \[B, T\] = \[None, 8\], got"):
            layer(x, resets=keras.Input(wrong, dtype="bool"))
    with pytest.raises(TypeError, match="resets must be a dense tensor"):
        layer(x, resets=keras.Input((STEPS,), dtype="bool", sparse=True))
    assert layer(x, resets=keras.Input((None,), dtype="bool")).shape[:2] == (None, STEPS)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.xla)])
@pytest.mark.parametrize("activation", ["tanh", "elu"], ids=["fused", "Keras"])
def test_resets_of_other_steps_are_refused_when_a_graph_runs(tfb, activation, jit):
    layer = make("gru", activation=activation)
    assert layer.fused == (activation == "tanh")
    call = tf.function(
        lambda x, resets: layer(x, resets=resets),
        jit_compile=jit,
        input_signature=[tf.TensorSpec([None, None, INPUT]), tf.TensorSpec(None, tf.bool)],
    )
    compare.assert_close(call(X, RESETS), layer(X, resets=RESETS), 2e-6, "right ones")
    for wrong in (RESETS[:, :-1], RESETS[:2], RESETS[:1, :1], RESETS[0]):
        # XLA's own error stands for ours where it removes an assertion.
        named = "resets|Cannot concatenate|compatible" if jit else "resets"
        with pytest.raises(tf.errors.InvalidArgumentError, match=named):
            call(X, wrong)


def test_frozen_and_recomputed_layers(tfb):
    x, resets = keras.Input((STEPS, INPUT)), keras.Input((STEPS,), dtype="bool")
    layer = make("gru", recompute=True)
    model = keras.Model([x, resets], layer(x, resets=resets))
    want = model([X, RESETS]).numpy()
    compare.assert_close(tfb.freeze(model)([X, RESETS]), want, 2e-6, "frozen")
    plain = make("gru")
    for variant in (layer, plain):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(variant(X, resets=RESETS) ** 2)
        gradients = tape.gradient(total, variant.trainable_variables)
        found = [compare.bits(g.numpy()) for g in gradients]
        want = found if variant is layer else want
    assert found == want
