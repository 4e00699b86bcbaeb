"""Dropout in layers and cells: Keras' own masks, and none left where a thread finds them."""

from __future__ import annotations

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
from helpers import covering
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    MASK,
    OPS,
    TIME,
    assert_same,
    initial_states,
    needs_a_rate_of_one,
    op_types,
    pair,
    sequence,
    values,
)

KINDS = ["GRU", "GRU-before", "LSTM", "RNN-tanh"]
RATES = [(0.4, 0.0), (0.0, 0.4), (0.4, 0.3), (1.0, 0.0), (0.0, 1.0), (0.5, 1.0)]
DTYPES = ["float32", "mixed_float16", "mixed_bfloat16", "float64"]
# implementation=1 drops other inputs for each gate.
OPTIONS = [{}, {"implementation": 1, "use_bias": False}, {"unroll": True}]


def dropping_pair(kind, dropout, recurrent, **arguments):
    """With equal seeds. Keras' own tries its cuDNN path first, whose dropout of inputs fails when
    there is a mask for each gate; so that path is switched off."""
    peer = {} if kind.startswith("RNN") else {"use_cudnn": False}
    return pair(kind, dropout=dropout, recurrent_dropout=recurrent, seed=13, peer=peer, **arguments)


@pytest.mark.types
@pytest.mark.parametrize(
    ("kind", "rates", "dtype", "options", "cell"),
    covering.pairwise(KINDS, RATES, DTYPES, OPTIONS, [False, True, "stepped"]),
)
def test_equal_seeds_give_equal_numbers(tf, kind, rates, dtype, options, cell):
    needs_a_rate_of_one(*rates)
    both = dropping_pair(kind, *rates, dtype=dtype, return_sequences=True, cell=cell, **options)
    x, used = sequence(), both[0].compute_dtype
    # A call moves the seed on even when it does not train, so the calls of both must keep pace.
    assert_same(*([layer(x)] for layer in both), dtype=used)
    for mask in (None, MASK):
        assert_same(*(values(layer, x, mask=mask, training=True) for layer in both), dtype=used)
    plain = both[0](x)
    assert_same([plain], [both[1](x)], dtype=used)
    train = [tf.function(lambda x, layer=layer: layer(x, training=True)) for layer in both]
    found = [[step(x) for step in train] for _ in range(2)]
    for mine, its in found:
        assert_same([mine], [its], dtype=used)
    first, second = (mine for mine, _ in found)
    assert 1.0 in rates or (np.any(first != plain) and np.any(first != second))
    assert OPS[kind] in op_types(train[0], tf.constant(x))


@pytest.mark.parametrize("kind", KINDS)
def test_one_initial_state_for_all_rows_draws_one_random_mask(kind):
    states = [state[:1] for state in initial_states(kind)]
    layers = dropping_pair(kind, 0.0, 0.5, dtype="float64")
    assert_same(*(values(each, sequence(), states, training=True) for each in layers), "float64")


@pytest.mark.parametrize("width", [INPUT, None])
def test_dropout_of_unknown_dims(tf, width):
    ours, peer = dropping_pair("GRU", 0.4, 0.3)
    step = tf.function(
        lambda x: ours(x, training=True), input_signature=[tf.TensorSpec([None, None, width])]
    )
    for rows in (BATCH, 2):
        x = sequence(rows)
        assert_same([step(x)], [peer(x, training=True)])


def test_stateful_bidirectional_dropout_equals_keras(tf):
    outputs = []
    for layer in dropping_pair("GRU", 0.3, 0.3, return_sequences=True, stateful=True):
        both = keras.layers.Bidirectional(layer)
        both.build((BATCH, TIME, INPUT))
        both.set_weights([np.full(w.shape, 0.3) for w in both.get_weights()])
        x = sequence()
        outputs.append([both(x, training=True), both(x, mask=MASK, training=True), both(x)])
    assert_same(*outputs, steps=3)


def test_threads_train_at_once_with_masks_of_their_own(tf):
    """Each call's numbers are those of one mask, drawn for its own batch, whatever others do."""
    layer, _ = pair("GRU", dropout=0.5, seed=13)
    calls, threads = 6, 4
    x = {rows: tf.constant(sequence(rows)) for rows in range(1, threads + 1)}

    def train(rows):
        return np.asarray(layer(x[rows], training=True))

    start = layer.cell.seed_generator.state.numpy()
    legitimate = {rows: set() for rows in x}
    for drawn in range(calls * threads):
        for rows in x:
            layer.cell.seed_generator.state.assign([start[0], start[1] + drawn])
            legitimate[rows].add(train(rows).tobytes())
    layer.cell.seed_generator.state.assign(start)

    barrier = threading.Barrier(threads)

    def work(rows):
        barrier.wait(60)
        return all(train(rows).tobytes() in legitimate[rows] for _ in range(calls))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        assert all(pool.map(work, x, timeout=120))
    assert getattr(layer.cell, "_dropout_mask", None) is None
