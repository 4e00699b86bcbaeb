"""Dropout in GRU, LSTM and SimpleRNN: Keras' own masks, and none left where a thread finds them."""

from __future__ import annotations

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    MASK,
    OPS,
    TIME,
    assert_same,
    needs_a_rate_of_one,
    op_types,
    pair,
    sequence,
    values,
)

KINDS = ["GRU", "GRU-before", "LSTM", "RNN-tanh"]
RATES = [(0.4, 0.0), (0.0, 0.4), (0.4, 0.3)]


@pytest.fixture(autouse=True)
def _package(tfb):
    keras.utils.set_random_seed(7)


def dropping_pair(kind, dropout, recurrent, **arguments):
    """With equal seeds. Keras' own tries its cuDNN path first, whose dropout of inputs fails when
    there is a mask for each gate; so that path is switched off."""
    peer = {} if kind.startswith("RNN") else {"use_cudnn": False}
    return pair(kind, dropout=dropout, recurrent_dropout=recurrent, seed=13, peer=peer, **arguments)


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dropout", "recurrent"), RATES)
def test_equal_seeds_give_equal_numbers(tf, kind, dropout, recurrent):
    ours, peer = dropping_pair(kind, dropout, recurrent, return_sequences=True)
    x = sequence()
    plain = ours(x)
    # A call moves the seed on even when it does not train, so the calls of both must keep pace.
    assert_same([plain], [peer(x)])
    for mask in (None, MASK):
        both = [values(layer, x, mask=mask, training=True) for layer in (ours, peer)]
        assert_same(*both)
    assert np.abs(np.asarray(both[0][0]) - np.asarray(plain)).max() > 1e-3
    train = [tf.function(lambda x, layer=layer: layer(x, training=True)) for layer in (ours, peer)]
    first, second = ([step(x) for step in train] for _ in range(2))
    assert_same(first[:1], first[1:])
    assert_same(second[:1], second[1:])
    assert np.abs(np.asarray(first[0]) - np.asarray(second[0])).max() > 1e-3
    assert OPS[kind] in op_types(train[0], tf.constant(x))


@pytest.mark.parametrize("kind", ["GRU", "GRU-before", "LSTM"])
def test_a_mask_for_each_gate(kind):
    """implementation=1 drops other inputs for each gate."""
    ours, peer = dropping_pair(kind, 0.4, 0.0, implementation=1, use_bias=False)
    assert_same(*(values(layer, sequence(), training=True) for layer in (ours, peer)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dropout", "recurrent"), [(1.0, 0.0), (0.0, 1.0), (0.5, 1.0)])
def test_rates_of_one(kind, dropout, recurrent):
    needs_a_rate_of_one(dropout, recurrent)
    ours, peer = dropping_pair(kind, dropout, recurrent)
    for training in (True, False, True):
        assert_same(*(values(layer, sequence(), training=training) for layer in (ours, peer)))


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_dropout_in_other_types(dtype):
    ours, peer = dropping_pair("LSTM", 0.4, 0.3, dtype=dtype)
    both = [values(layer, sequence(), training=True) for layer in (ours, peer)]
    assert_same(*both, dtype=ours.compute_dtype)


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
