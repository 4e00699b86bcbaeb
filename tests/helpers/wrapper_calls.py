"""Calls of the public functions with arguments that fit, and what a refusal has to say."""

from __future__ import annotations

import re

import keras
import pytest
import tensorflow as tf

B, T, IN, H, P = 2, 3, 5, 4, 3
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}
LAYERS = ("LSTM", "GRU", "SimpleRNN")
BLOCK_FUNCTIONS = ("block_lstm", "block_lstm_v2", "block_gru")
CELLS = ("lstm_block_cell", "gru_block_cell")
FUNCTIONS = (*GATES, *BLOCK_FUNCTIONS, *CELLS)


def some(*shape):
    return tf.fill(shape, 0.1)


def sequence_arguments(name):
    width = GATES[name] * H
    biases = ("b_x", "b_h") if name == "gru" else ("b",)
    return {
        "x": some(B, T, IN),
        "w_x": some(IN, width),
        "w_h": some(H, width),
        **{bias: some(width) for bias in biases},
    }


def sequence_call(tfb, name, **changed):
    return getattr(tfb, name)(**{**sequence_arguments(name), **changed})


def layer_gradient(layers, name):
    """Of a layer's recurrent weights, with a mask that is one for all rows."""
    keras.utils.set_random_seed(1)
    layer = getattr(layers, name)(H)
    with tf.GradientTape() as tape:
        outputs = layer(tf.ones([B, T, IN]), mask=tf.ones([1, T], tf.bool))
        loss = tf.reduce_sum(outputs**2)
    return tape.gradient(loss, layer.trainable_variables[1])


def refused(message):
    return pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message))


def wrong_type(message):
    """A TypeError, eagerly as in graphs."""
    return pytest.raises(TypeError, match=re.escape(message))


def state_name(name):
    return "state" if name in CELLS else "initial_state"


def block_arguments(name):
    arguments = {"x": some(B, IN) if name in CELLS else some(T, B, IN)}
    if "gru" in name:
        weights = {"w_ru": some(IN + H, 2 * H), "w_c": some(IN + H, H)}
        biases = {"b_ru": some(2 * H), "b_c": some(H)}
        return {**arguments, **weights, **biases, state_name(name): some(B, H)}
    weights = {"w": some(IN + H, 4 * H), "b": some(4 * H)}
    return {**arguments, **weights, state_name(name): (some(B, H), some(B, H))}


def block_call(tfb, name, **changed):
    return getattr(tfb, name)(**{**block_arguments(name), **changed})


def arguments_of(name):
    return sequence_arguments(name) if name in GATES else block_arguments(name)


def call(tfb, name, **changed):
    """h of all steps."""
    outputs = getattr(tfb, name)(**{**arguments_of(name), **changed})
    return outputs[0] if name in GATES else outputs.h


def as_keras(tensors):
    def made(tensor):
        return keras.Variable(tensor.numpy(), dtype=tensor.dtype.name)

    return tf.nest.map_structure(made, tensors)
