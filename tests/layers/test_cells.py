"""The Keras cells against Keras' own, in keras.layers.RNN and on their own."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers import covering
from helpers.layer_pairs import (
    INPUT,
    KINDS,
    MASK,
    UNITS,
    assert_same,
    cell_pair,
    initial_states,
    make_ours,
    make_peer,
    needs_a_rate_of_one,
    sequence,
    share_weights,
    values,
)

all_kinds = pytest.mark.parametrize("kind", KINDS)


DTYPES = ("float32", "float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16")
OPTIONS = (
    {"return_sequences": True, "return_state": True},
    {"unroll": True},
    {"go_backwards": True, "return_sequences": True},
    {"cell": {"use_bias": False}},
    {"cell": {"implementation": 1}},
)


def without_implementation(kind, cell):
    """Keras' SimpleRNNCell has but one."""
    plain = kind.startswith("RNN")
    return {k: v for k, v in cell.items() if not (plain and k == "implementation")}


@pytest.mark.parametrize(
    ("kind", "dtype", "options", "mode"),
    covering.pairwise(KINDS, DTYPES, OPTIONS, ("eager", "graph")),
)
def test_equals_keras(tf, kind, dtype, options, mode):
    options = {**options, "cell": without_implementation(kind, options.get("cell", {}))}
    ours, peer = cell_pair(kind, dtype, **options)
    assert ours.cell.fused
    assert {w.dtype for w in ours.weights} == {w.dtype for w in peer.weights}
    run = values if mode == "eager" else tf.function(values)
    mine, its = run(ours, sequence(), mask=MASK), values(peer, sequence(), mask=MASK)
    assert_same(mine, its, dtype=ours.compute_dtype)


@all_kinds
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


# And whether the layer is unrolled.
DROPOUTS = [
    ({"dropout": 0.5}, True),
    ({"recurrent_dropout": 0.5}, False),
    ({"dropout": 0.25, "recurrent_dropout": 0.5}, True),
    ({"dropout": 0.5, "implementation": 1}, False),
    ({"dropout": 1.0, "recurrent_dropout": 1.0}, False),
]


@pytest.mark.types
@pytest.mark.parametrize(
    ("kind", "how"),
    [row for first in (0, 1, 3) for row in covering.in_turn(KINDS, DROPOUTS, first)],
)
def test_dropout_equals_keras(tf, kind, how):
    arguments, unroll = without_implementation(kind, how[0]), how[1]
    needs_a_rate_of_one(*arguments.values())
    ours, peer = cell_pair(kind, cell={**arguments, "seed": 13}, unroll=unroll)
    assert ours.cell.fused
    # A call may draw a mask even when it does not train, so the calls of both must keep pace.
    assert_same(*([layer(sequence())] for layer in (ours, peer)))
    for run in (values, tf.function(values)):
        for _ in range(2):
            assert_same(*(run(layer, sequence(), training=True) for layer in (ours, peer)))
