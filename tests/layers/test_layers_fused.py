"""Where layers and cells run on the op, where they do not, and that they report it."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
from helpers import layer_pairs
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    LOOPS,
    MASK,
    OPS,
    TIME,
    UNITS,
    assert_same,
    class_name,
    initial_states,
    make_ours,
    make_peer,
    op_types,
    pair,
    sequence,
    share_weights,
    values,
)

# ---- the op is really there


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"return_sequences": True, "go_backwards": True, "zero_output_for_mask": True},
        {"stateful": True, "unroll": True, "use_bias": False},
    ],
    ids=["plain", "backwards", "stateful"],
)
def test_the_graph_has_one_op_and_no_loop(tf, kind, arguments):
    ours = make_ours(kind, **arguments)
    ours.build((BATCH, TIME, INPUT))
    x, states = tf.constant(sequence()), [tf.constant(s) for s in initial_states(kind)]

    @tf.function
    def train(x, states):
        return values(ours, x, states, mask=MASK, training=True)

    for function, given in ((tf.function(ours), [x]), (train, [x, states])):
        types = op_types(function, *given)
        assert types.count(OPS[kind]) == 1 and not LOOPS & set(types)
    assert OPS[kind] + "Grad" in types


# What a layer adds to the graph of the op alone, at most, for a batch of a known size.
SMALL = {
    "GRU": {"ReadVariableOp": 3, "Unpack": 1},
    "GRU-before": {"ReadVariableOp": 3},
    "LSTM": {"ReadVariableOp": 3},
    "RNN-tanh": {"ReadVariableOp": 3},
    "RNN-relu": {"ReadVariableOp": 3},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_is_small(tf, kind):
    """What runs, after TensorFlow has pruned unused nodes, is the op, weights and constants."""
    ours = make_ours(kind)
    ours.build((1, TIME, INPUT))
    compiled = tf.function(ours)
    x = tf.constant(sequence(1))
    graph = compiled.get_concrete_function(x).graph
    needed, stack = set(), [tensor.op for tensor in graph.outputs]
    while stack:
        op = stack.pop()
        if op not in needed:
            needed.add(op)
            stack += [tensor.op for tensor in op.inputs]
    extra = {"Const", "Placeholder", "Identity", "NoOp", OPS[kind]}
    types = [op.type for op in needed if op.type not in extra]
    assert {name: types.count(name) for name in types} == SMALL[kind]


# ---- and where it is not, Keras' own numbers, bit for bit

UNFUSED = [
    ("GRU", {"activation": "relu"}, "activation is relu, the op has tanh"),
    ("GRU", {"recurrent_activation": "hard_sigmoid"}, "recurrent_activation is hard_sigmoid"),
    ("LSTM", {"activation": None}, "activation is linear"),
    ("LSTM", {"recurrent_activation": "tanh"}, "the op has sigmoid"),
    ("RNN-tanh", {"activation": "selu"}, "activation is selu, the op has tanh and relu"),
]


@pytest.fixture
def first_warnings(monkeypatch):
    """Nothing has been warned of before."""
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())


@pytest.mark.usefixtures("first_warnings")
@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize(("kind", "arguments", "reason"), UNFUSED, ids=str)
def test_takes_keras_maths_and_says_so_once(tf, kind, arguments, reason, cell):
    arguments = {**arguments, "dropout": 0.3, "recurrent_dropout": 0.3, "seed": 5, "cell": cell}
    what = rf"{class_name(kind)}(Cell)? '\w+' falls back.*{reason}.*tf_blockrnn.report\(model\)"
    with pytest.warns(UserWarning, match=what) as said:
        ours = make_ours(kind, **arguments)
    assert [w.filename for w in said] == [layer_pairs.__file__]  # where it is made
    assert not ours.fused and reason in ours.why_not_fused and ours.supports_jit
    both = [ours, make_peer(kind, **arguments)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_ours(kind, **arguments)
        layers = [keras.layers.RNN(each) if cell else each for each in both]
        share_weights(layers)
        for call in ({}, {"training": True, "mask": MASK}):
            np.testing.assert_array_equal(*(layer(sequence(), **call) for layer in layers))
    assert OPS[kind] not in op_types(tf.function(layers[0]), tf.constant(sequence()))


def test_what_is_fused_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for cell in (False, True):
            for kind in KINDS:
                assert make_ours(kind, cell=cell).why_not_fused is None
            assert make_ours("GRU", cell=cell, activation=keras.ops.tanh).fused
            assert make_ours("RNN-tanh", cell=cell, activation=keras.ops.relu).fused


class Doubling(keras.layers.GRUCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2 * output, states


@pytest.mark.usefixtures("first_warnings")
def test_a_cell_of_another_class_is_called(tf):
    from tf_blockrnn import layers

    class Ours(layers.GRU):
        def __init__(self, units, **arguments):
            super().__init__(units, **arguments)
            self.cell = Doubling(units)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = Ours(UNITS)  # nothing is wrong yet when our constructor ends
    assert "Doubling" in layer.why_not_fused
    with pytest.warns(UserWarning, match="Doubling"):
        output = layer(sequence())
    plain = make_peer("GRU")
    plain.build((BATCH, TIME, INPUT))
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(output, 2 * plain(sequence()), rtol=1e-6)
    assert OPS["GRU"] not in op_types(tf.function(layer), tf.constant(sequence()))


def test_a_replaced_call_of_the_cell_is_called():
    ours, peer = pair("LSTM")
    for layer in (ours, peer):
        original = layer.cell.call
        layer.cell.call = lambda x, s, training=False, f=original: f(2 * x, s, training=training)
    assert not ours.fused
    np.testing.assert_array_equal(ours(sequence()), peer(sequence()))


def test_a_get_initial_state_of_ones_own_is_used():
    from tf_blockrnn import layers

    class Learned(layers.GRU):
        def get_initial_state(self, batch_size):
            return [keras.ops.full((batch_size, self.units), 0.25)]

    layer = Learned(UNITS, return_sequences=True)
    mine = layer(sequence(), mask=MASK)
    assert layer.fused
    peer = make_peer("GRU", return_sequences=True)
    peer.build((BATCH, TIME, INPUT))
    peer.set_weights(layer.get_weights())
    states = [np.full((BATCH, UNITS), 0.25, np.float32)]
    assert_same([mine], [peer(sequence(), mask=MASK, initial_state=states)])


def test_cudnn_alone_is_keras_own_error():
    layer = make_ours("GRU", use_cudnn=True)
    assert "use_cudnn=True" in layer.why_not_fused
    with pytest.raises(ValueError, match="cuDNN is not supported"):
        layer(sequence())
    assert make_ours("GRU", use_cudnn=False).fused


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_gpu_the_op_runs_in_a_build_with_cuda_alone(tf, tfb, monkeypatch, kind):
    ours, peer = pair(kind)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "")
    assert ours.fused
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "no nvcc")
    assert "GPU" in ours.why_not_fused and "no nvcc" in ours.why_not_fused
    np.testing.assert_array_equal(ours(sequence()), peer(sequence()))
