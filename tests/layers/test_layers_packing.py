"""The Keras cells rearrange their weights once for each sequence, and never keep old ones."""

from __future__ import annotations

import keras
import pytest
from helpers import tolerances
from helpers.cell_pairs import BATCH, KINDS, REDUCTION, layer_pair, make_ours, sequence
from helpers.compare import assert_close

pytestmark = pytest.mark.usefixtures("tfb")


def nodes_by_function(function, x):
    """Op types in the graph of a tf.function, and in each function that it calls."""
    definition = function.get_concrete_function(x).graph.as_graph_def()
    found = {"": [node.op for node in definition.node]}
    for each in definition.library.function:
        found[each.signature.name] = [node.op for node in each.node_def]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_graph_rearranges_weights_outside_of_the_loop(tf, kind):
    ours, _ = layer_pair(kind, return_sequences=True)
    op = f"BlockRNN>{kind}BlockCell"
    functions = nodes_by_function(tf.function(ours), tf.constant(sequence()))
    bodies = {name: ops for name, ops in functions.items() if name and op in ops}
    assert len(bodies) == 1
    for ops in bodies.values():
        assert ops.count(op) == 1
        assert not {"ConcatV2", "Split", "ReadVariableOp", "MatMul"} & set(ops)
    assert {"ConcatV2", "Split"} <= set(functions[""])


@pytest.fixture
def packings(monkeypatch):
    """Counts how often a cell rearranges its weights."""
    from tf_blockrnn import layers

    calls = []
    for cell in (layers.GRUCell, layers.LSTMCell):

        def counted(self, original=cell._pack_weights):
            calls.append(self)
            return original(self)

        monkeypatch.setattr(cell, "_pack_weights", counted)
    return calls


@pytest.mark.parametrize("kind", KINDS)
def test_rearranges_weights_once_per_sequence(tf, packings, kind):
    ours, _ = layer_pair(kind)
    x = tf.constant(sequence())
    for number in (1, 2):
        ours(x)
        assert len(packings) == number  # eager: a Python loop over the steps
    tf.function(ours)(x)
    assert len(packings) == 3
    ours.unroll = True
    tf.function(ours)(x)
    assert len(packings) == 4
    stack = keras.layers.RNN([make_ours(kind), make_ours(kind)])
    stack(x)  # builds the cells, which calls the layer once more for its shapes
    packings.clear()
    stack(x)
    assert len(packings) == 2
    cell, states = ours.cell, ours.get_initial_state(BATCH)
    packings.clear()
    cell(x[:, 0], states)
    cell(x[:, 0], states)
    assert len(packings) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_a_failed_sequence_are_not_used_again(tf, kind):
    ours, peer = layer_pair(kind)

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
    bound = tolerances.composed_bound("float32", REDUCTION)
    assert_close(ours.cell(x[:, 0], states)[0], peer.cell(x[:, 0], states)[0], bound)
    assert_close(ours(x), peer(x), bound)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first_step_too", [True, False])
def test_steps_in_a_tf_function_see_new_weights(tf, kind, first_step_too):
    ours, peer = layer_pair(kind)

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
    bound = tolerances.composed_bound("float32", REDUCTION)
    for scale in (1.0, 2.0):
        for layer in (ours, peer):
            layer.set_weights([scale * w for w in layer.get_weights()])
        cell.steps = 0
        assert_close(ours(x), peer(x), bound)
