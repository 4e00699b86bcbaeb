"""Where GRU, LSTM and SimpleRNN run on the op, where they do not, and that they report it."""

from __future__ import annotations

import doctest
import importlib
import inspect
import warnings

import keras
import numpy as np
import pytest
from helpers import layer_pairs
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    MASK,
    OPS,
    TIME,
    UNITS,
    assert_same,
    initial_states,
    make_ours,
    make_peer,
    op_types,
    pair,
    sequence,
    values,
)

LOOPS = {"While", "StatelessWhile"}
CLASSES = ("GRU", "LSTM", "SimpleRNN")


@pytest.fixture(autouse=True)
def _package(tfb):
    keras.utils.set_random_seed(7)


# ---- arguments, weights, config


def keras_defaults(name):
    parameters = inspect.signature(getattr(keras.layers, name)).parameters
    empty = inspect.Parameter.empty
    return {n: p.default for n, p in parameters.items() if p.default is not empty}


@pytest.mark.parametrize("name", CLASSES)
def test_takes_every_argument_of_keras(name):
    from tf_blockrnn import layers

    ours, peer = getattr(layers, name), getattr(keras.layers, name)
    defaults = keras_defaults(name)
    by_name = ours(UNITS, **defaults, zero_output_for_mask=True, name="layer")
    by_position = ours(UNITS, *defaults.values(), zero_output_for_mask=True, name="layer")
    its = peer(UNITS, **defaults, zero_output_for_mask=True, name="layer")
    assert by_name.get_config() == by_position.get_config() == its.get_config()
    call = inspect.signature(peer.call)
    assert list(inspect.signature(ours.call).parameters) == list(call.parameters)


def shown(function):
    """The arguments as help and editors show them."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", [*CLASSES, "GRUCell", "LSTMCell"])
def test_shows_the_signature_of_keras(name):
    """And before **kwargs the arguments that Keras has not."""
    from tf_blockrnn import layers

    extras = {}
    if "LSTM" in name:
        extras |= {"use_peephole": False, "cell_clip": None, "projection": None}
    if "RNN" not in name:
        extras["zoneout_h"] = 0.0
    if "LSTM" in name:
        extras["zoneout_c"] = 0.0
    by_keyword = inspect.Parameter.KEYWORD_ONLY
    own = [(n, by_keyword, default) for n, default in extras.items()]
    if not name.endswith("Cell"):
        own.append(("recompute", by_keyword, False))
    *arguments, kwargs = shown(getattr(keras.layers, name))
    assert shown(getattr(layers, name)) == [*arguments, *own, kwargs]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_and_shapes_are_those_of_keras(kind, use_bias):
    ours, peer = (
        make(kind, use_bias=use_bias, name="layer", return_state=True)
        for make in (make_ours, make_peer)
    )
    for layer in (ours, peer):
        layer.build((None, TIME, INPUT))
    assert [(w.path, tuple(w.shape), w.dtype) for w in ours.weights] == [
        (w.path, tuple(w.shape), w.dtype) for w in peer.weights
    ]
    shapes = [layer.compute_output_shape((None, TIME, INPUT)) for layer in (ours, peer)]
    assert shapes[0] == shapes[1]
    assert ours.count_params() == peer.count_params()


def test_initial_weights_are_those_of_keras():
    for kind in KINDS:
        layers = []
        for make in (make_ours, make_peer):
            keras.utils.set_random_seed(3)
            layers.append(make(kind))
            layers[-1].build((None, TIME, INPUT))
        for mine, its in zip(*(layer.get_weights() for layer in layers), strict=True):
            np.testing.assert_array_equal(mine, its)


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
    if kind == "GRU-before":
        extra |= {"Split", "SplitV", "ConcatV2"}  # of gru() itself, which reorders the weights
    types = [op.type for op in needed if op.type not in extra]
    assert {name: types.count(name) for name in types} == SMALL[kind]


def test_keras_own_loop_is_what_is_looked_for(tf):
    """The test above could not fail if Keras' graph had no such nodes either."""
    peer = make_peer("GRU")
    types = op_types(tf.function(peer), tf.constant(sequence()))
    assert LOOPS & set(types) and OPS["GRU"] not in types


# ---- and where it is not, Keras' own numbers, bit for bit

UNFUSED = [
    ("GRU", {"activation": "relu"}, "activation is relu, the op has tanh"),
    ("GRU", {"recurrent_activation": "hard_sigmoid"}, "recurrent_activation is hard_sigmoid"),
    ("LSTM", {"activation": None}, "activation is linear"),
    ("LSTM", {"recurrent_activation": "tanh"}, "the op has sigmoid"),
    ("RNN-tanh", {"activation": "selu"}, "activation is selu, the op has tanh and relu"),
]


@pytest.mark.parametrize(("kind", "arguments", "reason"), UNFUSED, ids=str)
def test_takes_keras_maths_and_says_so_once(tf, monkeypatch, kind, arguments, reason):
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    dropping = {**arguments, "dropout": 0.3, "recurrent_dropout": 0.3, "seed": 5}
    with pytest.warns(UserWarning, match=f"{KINDS[kind][0]}.*{reason}.*layer.why_not") as said:
        ours = make_ours(kind, **dropping)
    assert [w.filename for w in said] == [layer_pairs.__file__]  # where the layer is made
    peer = make_peer(kind, **dropping)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_ours(kind, **dropping)
        for layer in (ours, peer):
            layer.build((BATCH, TIME, INPUT))
        peer.set_weights(ours.get_weights())
        assert not ours.fused and reason in ours.why_not_fused and ours.supports_jit
        for call in ({}, {"training": True, "mask": MASK}):
            np.testing.assert_array_equal(ours(sequence(), **call), peer(sequence(), **call))
    assert OPS[kind] not in op_types(tf.function(ours), tf.constant(sequence()))


def test_fused_layers_say_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            assert make_ours(kind)(sequence()) is not None
        assert make_ours("GRU", activation=keras.ops.tanh).fused
        assert make_ours("RNN-tanh", activation=keras.ops.relu).fused


class Doubling(keras.layers.GRUCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training=training)
        return 2 * output, states


def test_a_cell_of_another_class_is_called(tf, monkeypatch):
    from tf_blockrnn import layers
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())

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
def test_with_a_gpu_keras_path_runs_in_a_build_without_cuda(tf, tfb, monkeypatch, kind):
    ours, peer = pair(kind)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "no nvcc")
    assert "GPU" in ours.why_not_fused and "no nvcc" in ours.why_not_fused
    np.testing.assert_array_equal(ours(sequence()), peer(sequence()))


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_gpu_the_op_runs_in_a_build_with_cuda(tf, tfb, monkeypatch, kind):
    ours, _ = pair(kind)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "")
    assert ours.fused


# ---- documentation


@pytest.mark.parametrize("module", ["gru", "lstm", "simple_rnn"])
def test_examples_run(module):
    outcome = doctest.testmod(importlib.import_module(f"tf_blockrnn.layers.{module}"))
    assert outcome.attempted > 0 and outcome.failed == 0
