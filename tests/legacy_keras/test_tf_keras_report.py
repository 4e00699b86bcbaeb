"""`tf_blockrnn.report` of models of tf_keras, and the warning that names it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers.legacy_keras import disable, fused, fused_ops, make, sequence

import tf_blockrnn
from tf_blockrnn.layers import _fusing

layers = tf_keras.layers
SWITCH = "tf_blockrnn.enable_keras()"
STEPS = "Keras' operations compute the cell, step by step"
DRAWS = "draws its dropout masks anew at each step"


@pytest.fixture(autouse=True)
def _off_again():
    yield
    disable()


class OwnCall(layers.GRU):
    def call(self, inputs, mask=None, training=None, initial_state=None):
        return super().call(inputs, mask, training, initial_state)


class Everything(tf_keras.Model):
    """A layer in each place, none twice."""

    def __init__(self):
        super().__init__(name="everything")
        deep = layers.GRU(4, return_sequences=True, name="deep")
        inner = tf_keras.Sequential([tf_keras.Input((None, 3)), deep], name="encoder")
        frames = layers.TimeDistributed(layers.LSTM(4, name="of_frames"), name="frames")
        self.blocks = [{"first": inner}, frames]
        self.both = layers.Bidirectional(layers.LSTM(4, name="lstm"), name="both")
        steps = [layers.LSTMCell(4, name="a"), layers.GRUCell(4, name="b")]
        self.stack = layers.RNN(layers.StackedRNNCells(steps, name="cells"), name="stack")
        self.cell = layers.RNN(layers.GRUCell(4, name="cell"), name="steps")
        self.image = layers.ConvLSTM2D(2, 3, name="image")
        self.own = OwnCall(4, name="own")
        self.relu = layers.GRU(4, activation="relu", name="relu")
        self.drops = layers.SimpleRNN(4, dropout=0.2, name="drops")
        self.old = tf.compat.v1.keras.layers.LSTM(4, name="old")


# For each path whether it is fused while the switch is on, and a part of the reason.
EXPECTED = {
    "encoder/deep": (True, ""),
    "frames/of_frames": (True, ""),
    "both/forward_lstm": (True, ""),
    "both/backward_lstm": (True, ""),
    "stack": (False, STEPS),
    "steps": (False, STEPS),
    "image": (False, "there is no op for the cell ConvLSTMCell"),
    "own": (None, "OwnCall has its own call"),
    "relu": (False, "activation is relu, the op has tanh"),
    "drops": (None, DRAWS),
    "old": (False, "recurrent_activation is hard_sigmoid"),
}


def test_all_places():
    model = Everything()
    off = tf_blockrnn.report(model)
    with fused():
        on = tf_blockrnn.report(model)
    assert not off.enabled and on.enabled and "'everything' of tf_keras" in str(on)
    assert [row.path for row in off.rows] == [row.path for row in on.rows] == list(EXPECTED)
    for before, row in zip(off.rows, on.rows, strict=True):
        wanted, reason = EXPECTED[row.path]
        assert row.fused is wanted and reason in row.reason and bool(reason) == bool(row.reason)
        assert before.fused is False
        switched = wanted is not False
        assert (before.reason, before.change) == (f"{SWITCH} is off", SWITCH) or not switched
    assert max(map(len, str(on).splitlines())) <= 100
    (row,) = tf_blockrnn.report(model.both.forward_layer).rows
    assert row[:2] == ("forward_lstm", "tf_keras.layers.LSTM")


def test_unroll_lets_a_layer_with_dropout_train_on_the_op():
    with fused():
        for unroll in (False, True):
            layer = make("RNN-tanh", sequence(), dropout=0.2, unroll=unroll)
            (row,) = tf_blockrnn.report(layer).rows
            trains = fused_ops(lambda x, layer=layer: layer(x, training=True), sequence())
            assert row.fused is (True if unroll else None) and bool(trains) == unroll
            assert unroll or row.change.startswith("unroll=True")


def test_functions_that_are_traced_again():
    model = tf_keras.Sequential([layers.GRU(4)])
    x = np.ones((2, 5, 3), np.float32)
    model.predict(x, verbose=0)
    with fused():
        assert tf_blockrnn.report(model).traced_again == ("predict",)
        model.predict(x, verbose=0)
        assert tf_blockrnn.report(model).traced_again == ()
    assert tf_blockrnn.report(model).traced_again == ("predict",)


@pytest.mark.parametrize("reason", ["activation is relu", DRAWS])
def test_a_fallback_is_a_warning_that_names_the_layer_and_the_report(monkeypatch, reason):
    monkeypatch.setattr(_fusing, "_warned", set())
    options = {"dropout": 0.2} if reason == DRAWS else {"activation": "relu"}
    made = [layers.GRU(4, use_bias=False, name=name, **options) for name in ("which", "other")]
    words = rf"tf_keras's GRU 'which' falls back .*{reason}.*tf_blockrnn.report\(model\)"
    run = [tf.function(lambda x, layer=layer: layer(x, training=True)) for layer in made]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made[0](sequence())  # the switch is off
        with fused():
            with pytest.warns(UserWarning, match=words):
                run[0](sequence())
            run[1](sequence())
