"""GRU, LSTM and SimpleRNN in models: loaded by each other, cloned, in threads."""

from __future__ import annotations

import concurrent.futures

import keras
import numpy as np
import pytest
from helpers import tolerances
from helpers.compare import assert_close
from helpers.layer_pairs import (
    INPUT,
    REDUCTION,
    TIME,
    make_ours,
    make_peer,
    randomise,
    sequence,
    values,
)

WORDS = 9


def words(rows=6, steps=TIME + 2):
    """Padded with zeros on the right, on the left, and in between."""
    found = np.random.default_rng(4).integers(0, WORDS, (rows, steps))
    found[0, 3:] = 0
    found[1, :3] = 0
    return found


def build(make):
    """All three layers in one model, behind masks, in both directions."""
    inputs = keras.Input((None,), dtype="int32")
    y = keras.layers.Embedding(WORDS, INPUT, mask_zero=True)(inputs)
    y = keras.layers.Bidirectional(make("LSTM", 3, return_sequences=True))(y)
    y = make("GRU", 4, return_sequences=True, go_backwards=True, name="gru")(y)
    y = keras.layers.TimeDistributed(keras.layers.Dense(3))(y)
    y, state = make("RNN-tanh", 3, return_state=True, name="simple_rnn")(y)
    y = keras.layers.Concatenate()([y, state])
    return keras.Model(inputs, keras.layers.Dense(1)(y))


@pytest.fixture(scope="module")
def models(tfb):
    """Ours and Keras' with the same weights."""
    keras.utils.set_random_seed(7)
    both = [build(make) for make in (make_ours, make_peer)]
    randomise(both[0])
    both[1].set_weights(both[0].get_weights())
    return both


@pytest.mark.types
def test_each_loads_the_others_files(models, tmp_path):
    ours, peer = models
    bound = tolerances.composed_bound("float32", 3 * REDUCTION)
    for source, make in ((ours, make_peer), (peer, make_ours)):
        for name in ("model.keras", "model.weights.h5"):
            path = tmp_path / f"{make.__name__}_{name}"
            source.save(path) if path.suffix == ".keras" else source.save_weights(path)
            target = build(make)
            target.load_weights(path)
            for mine, its in zip(target.get_weights(), source.get_weights(), strict=True):
                np.testing.assert_array_equal(mine, its)
            assert_close(target(words()), source(words()), bound)


def test_threads_share_one_function_and_one_layer(tf):
    """Gradients on several threads at once are the bits of one thread's."""
    layer = make_ours("LSTM", return_sequences=True)
    layer.build((None, None, INPUT))
    randomise(layer)
    compiled = tf.function(lambda x: values(layer, x, training=True))
    work = [tf.constant(sequence(rows)) for rows in (1, 2, 3, 5)] * 2
    want = [[np.asarray(value) for value in compiled(x)] for x in work]
    eager = [[np.asarray(value) for value in values(layer, x)] for x in work]

    def run(number):
        return [compiled(work[number]), values(layer, work[number])]

    with concurrent.futures.ThreadPoolExecutor(len(work)) as pool:
        got = list(pool.map(run, range(len(work)), timeout=120))
    for number, found in enumerate(got):
        for mine, its in zip(found, (want[number], eager[number]), strict=True):
            for a, b in zip(mine, its, strict=True):
                np.testing.assert_array_equal(a, b)
