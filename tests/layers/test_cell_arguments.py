"""What cells that are called by hand accept as inputs and states, and what they refuse."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest

BATCH, INPUT, UNITS = 2, 3, 4
KERAS_CELLS = ("LSTMCell", "GRUCell", "SimpleRNNCell")
CELLS = (*KERAS_CELLS, "LayerNormLSTMCell", "LayerNormGRUCell")
every_cell = pytest.mark.parametrize("name", CELLS)


def made(name, package=None, **arguments):
    """A built cell, with the same weights for the same arguments."""
    from tf_blockrnn import layers

    keras.utils.set_random_seed(7)
    cell = getattr(package or layers, name)(UNITS, name="one", **arguments)
    cell.build((None, INPUT))
    return cell


def given(tf, name):
    """Inputs and the states of a cell."""
    values = np.random.default_rng(3).normal(size=[3, BATCH, UNITS]).astype("float32")
    x, *states = map(tf.constant, values)
    return x[:, :INPUT], states if "LSTM" in name else states[:1]


def inputs_of(name):
    return "sequence" if name == "SimpleRNNCell" else "inputs"


def refused(cell, x, states, words):
    with pytest.raises(ValueError, match=re.escape(f'Cell "one": {words}')):
        cell(x, states)


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@every_cell
def test_a_wrong_number_of_states(tf, name, activation):
    """Also where Keras' operations compute the cell."""
    cell, (x, states) = made(name, activation=activation), given(tf, name)
    one = "1 tensor" if len(states) == 1 else "2 tensors"
    words = f"states must be a list of {one} [B, H] = [?, 4], got "
    for wrong in ([], states[1:], [*states, states[0]], (*states, *states, *states)):
        refused(cell, x, wrong, f"{words}{len(wrong)}")
    refused(cell, x, None, f"{words}None")
    if len(states) == 2:
        refused(cell, x, states[0], f"{words}one tensor of shape [2, 4]")
    refused(cell, x, [None] * len(states), "states[0] must be a dense tensor, got None")


def test_the_states_of_a_projection(tf):
    cell, (x, states) = made("LSTMCell", projection=2), given(tf, "LSTMCell")
    words = "states must be a list of 2 tensors [B, P] = [?, 2] and [B, H] = [?, 4], got 1"
    refused(cell, x, states[:1], words)
    words = "states[0] must have shape [B, P] = [2, 2], got [2, 4], for inputs of shape [2, 3]"
    refused(cell, x, states, words)


@every_cell
def test_shapes_that_do_not_fit(tf, name):
    cell, (x, states) = made(name), given(tf, name)
    inputs, last = inputs_of(name), len(states) - 1
    for wrong in ([2, 1], [1, 4], [3, 4], [2, 5], [1, 2, 4]):
        words = f"must have shape [B, H] = [2, 4], got {wrong}, for {inputs} of shape [2, 3]"
        refused(cell, x, [*states[:-1], tf.ones(wrong)], f"states[{last}] {words}")
        if not last:
            refused(cell, x, tf.ones(wrong), f"states {words}")
    words = f"[B, H] = [1, 4], got [2, 4], for {inputs} of shape [1, 3]"
    refused(cell, x[:1], states, f"states[0] must have shape {words}")
    refused(cell, tf.ones([2, 5]), states, f"{inputs} must have shape [B, I] = [?, 3], got [2, 5]")
    if "Norm" in name:
        refused(cell, x[None], states, f"{inputs} must have shape [B, I] = [?, 3], got [1, 2, 3]")


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@every_cell
def test_values_that_are_no_dense_numbers(tf, name, activation):
    cell, (x, states) = made(name, activation=activation), given(tf, name)
    inputs = inputs_of(name)
    for wrong in (tf.fill([2, 3], "a"), tf.complex(x, x)):
        refused(cell, wrong, states, f"{inputs} must be real numbers, got {wrong.dtype.name}")
    ragged = tf.RaggedTensor.from_tensor
    words = "must be a dense tensor, got a RaggedTensor; pass {}.to_tensor()"
    refused(cell, ragged(x), states, f"{inputs} {words.format(inputs)}")
    state = f"states[{len(states) - 1}]"
    wrong = [*states[:-1], ragged(states[-1])]
    refused(cell, x, wrong, f"{state} {words.format(state)}")
    wrong = [*states[:-1], tf.fill([2, 4], "a")]
    refused(cell, x, wrong, f"{state} must be real numbers, got string")
    wrong = [*states[:-1], tf.sparse.from_dense(states[-1])]
    refused(cell, x, wrong, f"{state} must be a dense tensor, got a SparseTensor")


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "SimpleRNN", "LayerNormLSTM", "LayerNormGRU"])
def test_strings_for_a_layer(tf, tfb, name, activation):
    layer = getattr(tfb.layers, name)(UNITS, activation=activation)
    with pytest.raises(ValueError, match="takes real numbers, got inputs of string"):
        layer(tf.fill([2, 3, 3], "a"))


@every_cell
def test_a_cell_that_is_not_built(tf, tfb, name):
    x, states = given(tf, name)
    with pytest.raises(ValueError, match='Cell "new" must be built before its method call is used'):
        getattr(tfb.layers, name)(UNITS, name="new").call(x, states)


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@every_cell
def test_forms_that_keras_accepts(tf, name, activation):
    cell, (x, states) = made(name, activation=activation), given(tf, name)
    want, new = cell(x, states)
    assert isinstance(new, list) and len(new) == len(states)
    forms = [tuple(states), tf.stack(states)] if len(states) == 2 else [tuple(states)]
    for form in forms:
        for call in (cell, tf.function(cell)):
            got, of_form = call(x, form)
            np.testing.assert_allclose(got, want, atol=1e-6)
            np.testing.assert_allclose(of_form, new, atol=1e-6)
    if len(states) == 1:
        got, state = cell(x, states[0])
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(state, want)


@pytest.mark.parametrize("activation", ["tanh", "elu"])
@every_cell
def test_layers_around_the_cell(tf, name, activation):
    x, states = given(tf, name)
    want, _ = made(name, activation=activation)(x, states)
    for stack in (False, True):
        cell = made(name, activation=activation)
        around = keras.layers.StackedRNNCells([cell]) if stack else cell
        layer = keras.layers.RNN(around)
        forms = [[states]] if stack else [states, tuple(states)]
        if len(states) == 1:
            forms += [states if stack else states[0]]
        for form in forms:
            got = layer(x[:, None], initial_state=form)
            np.testing.assert_allclose(got, want, atol=1e-6)


@every_cell
def test_sparse_inputs_are_those_of_keras_own_operations(tf, name):
    cell, (x, states) = made(name), given(tf, name)
    sparse = tf.sparse.from_dense(tf.where(x > 0, x, 0.0))
    want = cell(tf.sparse.to_dense(sparse), states)[0]
    for call in (cell, tf.function(cell)):
        np.testing.assert_allclose(call(sparse, states)[0], want, atol=1e-6)
    if name in KERAS_CELLS:
        stock = made(name, keras.layers)
        np.testing.assert_allclose(cell(sparse, states)[0], stock(sparse, states)[0], atol=1e-6)


def test_the_inputs_of_a_simple_cell_have_keras_own_name(tf, tfb):
    cell, (x, states) = made("SimpleRNNCell"), given(tf, "SimpleRNNCell")
    want, _ = cell(x, states)
    model = keras.Sequential([keras.layers.RNN(made("SimpleRNNCell", keras.layers))])
    model.build((None, None, INPUT))
    fused = tfb.fuse_model(model).layers[0].cell
    for each in (cell, fused, made("SimpleRNNCell", activation="tanh", dropout=0.5)):
        for call in (each, each.call):
            np.testing.assert_allclose(call(sequence=x, states=states)[0], want, atol=1e-6)
