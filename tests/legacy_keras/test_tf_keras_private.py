"""Each name of tf_keras' that is not public and that this package uses: it does that."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers.legacy_keras import BATCH, INPUT, KINDS, TIME, UNITS, make

from tf_blockrnn import _keras_private

X = tf.ones([BATCH, TIME, INPUT])


def test_layers_and_cells():
    found = _keras_private.tf_keras_layers()
    assert set(found) == {"GRU", "LSTM", "SimpleRNN"}
    for layers, cells in found.values():
        for layer, cell in zip(layers, cells, strict=True):
            assert "call" in vars(layer) and type(layer(2).cell) is cell
    known = {layer for layers, _ in found.values() for layer in layers}
    assert {cls for cls, _, _ in KINDS.values()} == known


def test_held_layers_and_is_compiled_by_xla():
    both = tf_keras.layers.Bidirectional(tf_keras.layers.GRU(UNITS))
    model = tf_keras.Sequential([both, tf_keras.layers.Dense(1)])
    assert _keras_private.held_layers(model) == model.layers
    assert _keras_private.held_layers(both) == [both.forward_layer, both.backward_layer]
    for jit_compile in (True, False):
        model.compile("sgd", "mse", jit_compile=jit_compile)
        assert _keras_private.is_compiled_by_xla(model) == jit_compile


def test_symbolic_tensors():
    assert _keras_private.is_tf_keras_tensor(tf_keras.Input((2,)))
    assert not _keras_private.is_tf_keras_tensor(tf.ones([2]))


def test_constants():
    class Cell(tf_keras.layers.SimpleRNNCell):
        def call(self, inputs, states, constants=None, training=None):
            return super().call(inputs, states, training)

    layer = tf_keras.layers.RNN(Cell(UNITS))
    assert not _keras_private.has_constants(layer)
    layer(X, constants=[tf.ones([2])])
    assert _keras_private.has_constants(layer)


def test_runtime():
    layer = tf_keras.layers.LSTM(UNITS, return_runtime=True)
    assert _keras_private.returns_runtime(layer)
    assert not _keras_private.returns_runtime(tf_keras.layers.LSTM(UNITS))
    assert not _keras_private.returns_runtime(tf_keras.layers.SimpleRNN(UNITS))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_and_states(kind):
    layer = make(kind, X)
    layer(X)
    x, states = _keras_private.inputs_and_states(layer, X, None)
    assert x is X and all(not np.any(state) for state in states)
    given = [tf.fill([BATCH, UNITS], float(n)) for n in range(1, len(states) + 1)]
    for inputs, state in ((X, given), ([X, *given], None)):
        x, states = _keras_private.inputs_and_states(layer, inputs, state)
        assert x is X and all(a is b for a, b in zip(states, given, strict=True))


def test_could_use_cudnn():
    assert _keras_private.could_use_cudnn(tf_keras.layers.LSTM(UNITS))
    for layer in (
        tf_keras.layers.LSTM(UNITS, use_bias=False),
        tf_keras.layers.GRU(UNITS, reset_after=False),
        tf_keras.layers.SimpleRNN(UNITS),
    ):
        assert not _keras_private.could_use_cudnn(layer)


@pytest.mark.parametrize("kind", ["GRU-before", "RNN-tanh", "GRU-v1", "LSTM-v1"])
def test_reset_cell_dropout_masks(kind):
    layer = make(kind, X, dropout=0.5)

    def mask():
        drawn = layer.cell.get_dropout_mask_for_cell(tf.ones([50, 40]), True, count=1)
        return np.asarray(tf.nest.flatten(drawn)[0])

    _keras_private.reset_cell_dropout_masks(layer)
    first = mask()
    np.testing.assert_array_equal(mask(), first)
    _keras_private.reset_cell_dropout_masks(layer)
    assert np.any(mask() != first)
