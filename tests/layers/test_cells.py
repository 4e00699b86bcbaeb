"""The Keras cells: one op for each step, on their own too, and never old weights.

That their numbers are Keras' is in test_layers_numbers.py and test_layers_dropout.py.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers import covering
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    OPS,
    UNITS,
    assert_same,
    initial_states,
    make_ours,
    make_peer,
    pair,
    sequence,
    share_weights,
)


def nodes_by_function(function, x):
    """Op types in the graph of a tf.function, and in each function that it calls."""
    definition = function.get_concrete_function(x).graph.as_graph_def()
    found = {"": [node.op for node in definition.node]}
    for each in definition.library.function:
        found[each.signature.name] = [node.op for node in each.node_def]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_op_for_each_step(tf, kind):
    ours, _ = pair(kind, cell="stepped", return_sequences=True)
    functions = nodes_by_function(tf.function(ours), tf.constant(sequence()))
    bodies = {name: ops for name, ops in functions.items() if name and OPS[kind] in ops}
    assert len(bodies) == 1
    for ops in bodies.values():
        assert ops.count(OPS[kind]) == 1
        # The weights are not copied at each step.
        assert not {"ConcatV2", "Split", "MatMul"} & set(ops)


@pytest.mark.parametrize("kind", KINDS)
def test_cell_on_its_own(tf, kind):
    ours, peer = make_ours(kind, cell=True), make_peer(kind, cell=True)
    share_weights([ours, peer], (None, INPUT))
    x, states = sequence()[:, 0], initial_states(kind)
    for given in [states] if kind == "LSTM" else [states[0], states]:
        mine, its = ours(x, given), peer(x, given)
        assert isinstance(mine[1], list) == isinstance(its[1], list)
        assert_same(keras.tree.flatten(mine), keras.tree.flatten(its))
    imaginary = tf.nest.map_structure(lambda a: tf.complex(a, a), (x, states))
    for given in ((imaginary[0], states), (x, imaginary[1])):
        with pytest.raises(ValueError, match="must be real numbers, got complex64"):
            ours(*given)


def test_inputs_of_another_rank_are_those_of_keras(tf):
    ours, peer = make_ours("RNN-tanh", cell=True), make_peer("RNN-tanh", cell=True)
    share_weights([ours, peer], (None, 3, INPUT))
    x, h = tf.ones([2, 3, INPUT]), tf.ones([2, 3, UNITS])
    np.testing.assert_array_equal(ours(x, [h])[0], peer(x, [h])[0])


class Doubling(keras.layers.Layer):
    """Steps a cell, doubles its weights and steps again; with Keras' protocol for dropout masks."""

    def __init__(self, cell, loop, protocol):
        super().__init__()
        self.cell, self.loop, self.protocol = cell, loop, protocol

    def step(self, states, x):
        _, states = self.cell(x, states)
        for weight in self.cell.trainable_variables:
            weight.assign(2.0 * weight)
        return states

    def call(self, x):
        import tensorflow as tf

        states = self.cell.get_initial_state(BATCH)
        if self.protocol:
            self.cell.get_dropout_mask(x)
        if self.loop:
            states = tf.while_loop(
                lambda n, *_: n < 3, lambda n, *s: (n + 1, *self.step(list(s), x)), [0, *states]
            )[1:]
        else:
            for _ in range(3):
                states = self.step(states, x)
        if self.protocol:
            self.cell.reset_dropout_mask()
        return states[0]


@pytest.mark.parametrize(
    ("kind", "graph", "how"),
    covering.pairwise(KINDS, [False, True], [(False, False), (False, True), (True, False)]),
)
def test_weights_assigned_between_two_steps(tf, kind, graph, how):
    ours, peer = pair(kind, cell=True)
    x = tf.constant(sequence()[:, 0])
    got = []
    for layer in (ours, peer):
        outer = Doubling(layer.cell, *how)
        got.append([(tf.function(outer) if graph else outer)(x)])
    assert_same(*got, steps=8)


@pytest.mark.parametrize("cell", [True, "stepped"])
@pytest.mark.parametrize("kind", KINDS)
def test_loop_of_a_layer_in_a_loop_of_the_user(tf, kind, cell):
    """Weights that are assigned between two calls of keras.layers.RNN, in one graph."""
    ours, peer = pair(kind, cell=cell)
    x = tf.constant(sequence())

    def run(layer):
        def body(n, total):
            total += layer(x)
            for weight in layer.trainable_variables:
                weight.assign(1.5 * weight)
            return n + 1, total

        return tf.while_loop(lambda n, _: n < 3, body, [0, tf.zeros_like(layer(x))])[1]

    assert_same(*([tf.function(run)(layer)] for layer in (ours, peer)), steps=8)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_failed_sequence_are_not_used_again(tf, kind):
    ours, peer = pair(kind, cell=True)

    class Fails(type(ours.cell)):
        steps = 0

        def call(self, inputs, states, training=False):
            Fails.steps += 1
            if Fails.steps == 3:
                raise RuntimeError("step 3")
            return super().call(inputs, states, training=training)

    ours.cell.__class__ = Fails
    x = tf.constant(sequence())
    with pytest.raises(RuntimeError, match="step 3"):
        ours(x)
    for layer in (ours, peer):
        layer.set_weights([2 * w for w in layer.get_weights()])
    states = ours.get_initial_state(BATCH)
    assert_same(*([layer.cell(x[:, 0], states)[0], layer(x)] for layer in (ours, peer)))


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_step_too", [True, False])
def test_steps_in_a_tf_function_see_new_weights(tf, kind, first_step_too):
    ours, peer = pair(kind, cell=True)

    class Compiled(type(ours.cell)):
        def call(self, inputs, states, training=False):
            self.steps += 1
            if self.steps == 1 and not first_step_too:
                return super().call(inputs, states)
            return self.compiled(inputs, states)

    cell = ours.cell
    cell.compiled = tf.function(cell.call)
    cell.__class__ = Compiled
    x = tf.constant(sequence())
    for scale in (1.0, 2.0):
        for layer in (ours, peer):
            layer.set_weights([scale * w for w in layer.get_weights()])
        cell.steps = 0
        assert_same([ours(x)], [peer(x)])
