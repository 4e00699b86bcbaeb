"""Each layer of tf_keras gives on the fused ops what it gives on Keras' own operations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from helpers import covering
from helpers.legacy_keras import (
    INPUT,
    KINDS,
    MASK,
    TIME,
    UNITS,
    assert_same,
    both,
    fused,
    fused_ops,
    initial_states,
    make,
    sequence,
    values,
)

OPTIONS = {
    "plain": {},
    "sequences": {"return_sequences": True},
    "state": {"return_sequences": True, "return_state": True},
    "backwards": {"go_backwards": True, "return_state": True},
    "backwards-sequences": {"go_backwards": True, "return_sequences": True},
    "unroll": {"unroll": True, "return_sequences": True},
    "unroll-backwards": {"unroll": True, "go_backwards": True},
    "unroll-zero-output": {
        **{"unroll": True, "go_backwards": True, "zero_output_for_mask": True},
        **{"return_sequences": True, "return_state": True},
    },
    "no-bias": {"use_bias": False},
    "implementation-1": {"implementation": 1, "return_sequences": True},
    "time-major": {"time_major": True, "return_sequences": True},
    "zero-output": {"zero_output_for_mask": True, "return_sequences": True},
    "zero-output-last": {"zero_output_for_mask": True, "go_backwards": True, "return_state": True},
    "zero-output-time-major": {"zero_output_for_mask": True, "time_major": True},
}


CALLS = ("plain", "masked", "masked-states")
# Version 1's layers differ in their `call`, which hands all on to that of the base.
VERSION_1 = [kind for kind in KINDS if "-v1" in kind]
VERSION_2 = [kind for kind in KINDS if "-v1" not in kind]
CASES = [
    *covering.pairwise(VERSION_2, OPTIONS, CALLS),
    *covering.pairwise(VERSION_1, ["plain", "zero-output"], CALLS),
]


@pytest.mark.parametrize(("kind", "option", "call"), CASES)
def test_layer_numbers(kind, option, call):
    x, mask = sequence(), None if call == "plain" else tf.constant(MASK)
    if OPTIONS[option].get("time_major"):
        x = tf.transpose(x, [1, 0, 2])
        mask = None if mask is None else tf.transpose(mask)
    layer = make(kind, x, **OPTIONS[option])
    states = initial_states(kind) if call == "masked-states" else None
    assert_same(*both(lambda: values(layer, x, states, mask=mask)))
    with fused():
        assert fused_ops(lambda x: layer(x, mask=mask, initial_state=states), x) == {KINDS[kind][2]}


DTYPES = ["float16", "bfloat16", "float64", "mixed_bfloat16"]


@pytest.mark.parametrize(
    ("kind", "dtype"), [*covering.in_turn(KINDS, DTYPES), *covering.in_turn(KINDS, DTYPES, first=2)]
)
def test_dtypes(kind, dtype):
    x = sequence("float32" if dtype.startswith("mixed") else dtype)
    layer = make(kind, x, dtype=tf_keras.mixed_precision.Policy(dtype), return_state=True)
    assert_same(*both(lambda: values(layer, x, mask=tf.constant(MASK))), dtype.split("_")[-1])
    with fused():
        assert fused_ops(layer, x) == {KINDS[kind][2]}


@pytest.mark.parametrize("mask", [MASK[..., np.newaxis], MASK.astype(np.int32)], ids=["3d", "int"])
def test_forms_of_masks(mask):
    layer = make("LSTM", sequence(), return_sequences=True)
    assert_same(*both(lambda: values(layer, sequence(), mask=tf.constant(mask))))
    with fused():
        assert fused_ops(lambda x: layer(x, mask=tf.constant(mask)), sequence())


def test_one_mask_for_all_rows():
    layer = make("GRU", sequence(), unroll=True, return_sequences=True)
    assert_same(*both(lambda: values(layer, sequence(), mask=tf.constant(MASK[:1]))))


DROPOUTS = {
    "inputs": {"dropout": 0.4},
    "states": {"recurrent_dropout": 0.4},
    "both": {"dropout": 0.4, "recurrent_dropout": 0.3, "return_sequences": True},
    "implementation-1": {"dropout": 0.4, "implementation": 1, "use_bias": False},
    "implementation-2": {"dropout": 0.4, "implementation": 2, "use_bias": False},
    "unroll": {"dropout": 0.4, "recurrent_dropout": 0.3, "unroll": True},
}


@pytest.mark.parametrize(
    ("kind", "option", "training"), covering.pairwise(KINDS, DROPOUTS, [True, False, None])
)
def test_dropout_draws_as_keras_does(kind, option, training):
    layer = make(kind, sequence(), **DROPOUTS[option])
    assert_same(*both(lambda: values(layer, sequence(), training=training)))


@pytest.mark.parametrize(
    ("option", "kind"),
    [*covering.in_turn(DROPOUTS, VERSION_2), *covering.in_turn(DROPOUTS, VERSION_2, first=2)],
)
def test_dropout_in_a_graph(kind, option):
    layer = make(kind, sequence(), **DROPOUTS[option])
    at_each_step = not (layer.unroll or getattr(layer, "_could_use_gpu_kernel", False))
    if not at_each_step:  # else the steps of Keras' parallel loop draw in an order that varies
        assert_same(*both(lambda: tf.function(values)(layer, sequence(), training=True)))
    with fused():
        trained = fused_ops(lambda x: layer(x, training=True), sequence())
        assert trained == (set() if at_each_step else {KINDS[kind][2]})
        assert fused_ops(lambda x: layer(x, training=False), sequence()) == {KINDS[kind][2]}


def test_dropout_with_a_generator():
    """The random numbers of tf.random.Generator have a state of their own, in the layer."""

    def run():
        layer = make("GRU", sequence(), dropout=0.4, seed=3, rng_type="stateful")
        return [*values(layer, sequence(), training=True), layer(sequence(), training=True)]

    assert_same(*both(run))


class _OwnCall(tf_keras.layers.LSTM):
    def call(self, inputs, mask=None, training=None, initial_state=None):
        return inputs[:, 0]


class _OwnCell(tf_keras.layers.GRUCell):
    def call(self, inputs, states, training=None):
        output, states = super().call(inputs, states, training=training)
        return output + 1.0, states


class _CallsSuper(tf_keras.layers.GRU):
    def call(self, inputs, mask=None, training=None, initial_state=None):
        if tf.reduce_sum(inputs) > 1e6:  # AutoGraph converts this, and not what it calls
            inputs = -inputs
        return 2.0 * super().call(inputs, mask, training, initial_state)


def _with_cell(layer, cell):
    layer.cell = cell
    return layer


NOT_FUSED = {
    "relu": lambda: tf_keras.layers.LSTM(UNITS, activation="relu"),
    "hard_sigmoid": lambda: tf.compat.v1.keras.layers.GRU(UNITS),
    "linear": lambda: tf_keras.layers.SimpleRNN(UNITS, activation=None),
    "lambda": lambda: tf_keras.layers.GRU(UNITS, activation=lambda x: tf.tanh(x) * 2.0),
    "own call": lambda: _OwnCall(UNITS),
    "own cell": lambda: _with_cell(tf_keras.layers.GRU(UNITS, unroll=True), _OwnCell(UNITS)),
}


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_the_ops_do_not_compute_stays_with_keras(name):
    layer = NOT_FUSED[name]()
    layer.build(sequence().shape)
    assert_same(*both(lambda: [layer(sequence())]))
    with fused():
        assert not fused_ops(layer, sequence())


def test_subclass_that_calls_super_is_fused():
    layer = _CallsSuper(UNITS)
    assert_same(*both(lambda: [layer(sequence())]))
    with fused():
        assert fused_ops(layer, sequence()) == {"BlockRNN>GRUAfterSequence"}


def test_ragged_inputs():
    rows = tf.RaggedTensor.from_tensor(sequence(), lengths=[4, 1, 2, 3, 4])
    for options in ({}, {"return_sequences": True}):
        layer = make("LSTM", sequence(), **options)
        assert_same(*both(lambda layer=layer: tf.nest.flatten(layer(rows), True)))


def test_errors_are_keras_own():
    layer = tf_keras.layers.SimpleRNN(UNITS, unroll=True)
    with fused():
        with pytest.raises(ValueError, match="Cannot unroll"):
            layer(tf_keras.Input((None, INPUT)))
        with pytest.raises(ValueError, match="expected ndim=3"):
            tf_keras.layers.LSTM(UNITS)(tf.ones([2, 3]))
        with pytest.raises(ValueError, match="initial states"):
            layer = make("LSTM", sequence())
            layer.call(sequence(), initial_state=initial_states("GRU"))


@pytest.mark.parametrize("kind", KINDS)
def test_stateful(kind):
    layer = make(kind, sequence(), stateful=True, return_sequences=True, return_state=True)

    def run():
        layer.reset_states()
        layer(sequence())
        outputs = [*layer(sequence(), mask=tf.constant(MASK)), *layer.states]
        return [tf.identity(each) for each in outputs]

    assert_same(*both(run))
    graph = tf.function(lambda x: layer(x))

    def run_graph():
        layer.reset_states()
        graph(sequence())
        return [*graph(sequence()), *[tf.identity(state) for state in layer.states]]

    with fused():
        mine = run_graph()
    graph = tf.function(lambda x: layer(x))
    assert_same(mine, run_graph())


def test_unknown_dims():
    layer = make("LSTM", sequence(), return_sequences=True, go_backwards=True)
    spec = [tf.TensorSpec([None, None, INPUT]), tf.TensorSpec([None, None], tf.bool)]
    with fused():
        function = tf.function(lambda x, mask: layer(x, mask=mask), input_signature=spec)
        mine = function(sequence(), tf.constant(MASK))
    assert mine.shape == [5, TIME, UNITS]
    assert_same([mine], [layer(sequence(), mask=tf.constant(MASK))])
