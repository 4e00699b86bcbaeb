"""Zoneout in training: the share of draws, whose they are, gradients.

The means, which are taken at inference, are in test_layers_own.py.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers.compare import bits
from helpers.layer_pairs import MASK, Stepped, make_ours, randomise, sequence

KINDS = ["GRU", "GRU-before", "LSTM"]
all_kinds = pytest.mark.parametrize("kind", KINDS)
# Of one step: what comes of it is 0 or 1 for each of them.
ROWS, UNITS = 40, 100
RATE = 0.2


def _rates(kind):
    return {"zoneout_h": RATE, **({"zoneout_c": 0.35} if kind == "LSTM" else {})}


def _made(kind, units=3, inputs=2, **arguments):
    layer = make_ours(kind, units, **{"return_sequences": True, **_rates(kind), **arguments})
    layer.build((None, None, inputs))
    randomise(layer)
    return layer


def _x(time):
    return np.random.default_rng(3).normal(size=[ROWS, time, 2]).astype("float32")


def _assert_share(kept, rate, what):
    """The share of independent draws, within five standard deviations."""
    deviation = np.sqrt(rate * (1 - rate) / kept.size)
    assert abs(np.mean(kept) - rate) < 5 * deviation, f"{np.mean(kept)} is not {rate}: {what}"


def _one_step(layer, kind, training=True):
    """Whether each unit of each state is what it was before the step."""
    rng = np.random.default_rng(5)
    states = [rng.uniform(-0.5, 0.5, [ROWS, UNITS]).astype("float32") for _ in _rates(kind)]
    _, *last = layer(_x(1), initial_state=states, training=training)
    return [np.asarray(new) == old for new, old in zip(last, states, strict=True)]


@all_kinds
@pytest.mark.parametrize("activation", ["tanh", "softsign"])
def test_training_keeps_a_share_of_each_state(kind, activation):
    """On the op, and on Keras' own operations, which compute other activations."""
    layer = _made(kind, UNITS, return_state=True, activation=activation)
    assert layer.fused == (activation == "tanh")
    first, again = (_one_step(layer, kind) for _ in range(2))
    for kept, anew, (name, rate) in zip(first, again, _rates(kind).items(), strict=True):
        _assert_share(kept, rate, name)
        # Drawn anew: those that two calls keep are no more than by chance.
        _assert_share(kept & anew, rate * rate, f"{name} twice")
    if kind == "LSTM":  # each state has draws of its own
        _assert_share(first[0] & first[1], RATE * 0.35, "both")
    assert not np.any(_one_step(layer, kind, training=False)[0])


@all_kinds
def test_every_step_has_draws_of_its_own(tf, kind):
    """Of the layer, and of its cell in a loop that is one op and in one that is not."""
    layer = _made(kind, UNITS)
    loop, stepped = (
        each(make_ours(kind, UNITS, cell=True, **_rates(kind)), return_sequences=True)
        for each in (keras.layers.RNN, Stepped)
    )
    assert loop.cell.fused
    for run in (layer, loop, tf.function(loop), stepped, tf.function(stepped)):
        outputs = np.asarray(run(_x(7), training=True))
        kept = outputs[:, 1:] == outputs[:, :-1]
        _assert_share(kept, RATE, "all steps")
        _assert_share(kept[:, 1:] & kept[:, :-1], RATE * RATE, "two steps in a row")
        _assert_share(kept[1:] & kept[:-1], RATE * RATE, "two rows")


@all_kinds
def test_a_rate_of_one_keeps_all(kind):
    names = {name: 1 for name in _rates(kind)}
    layer = _made(kind, zoneout_h=1, **({"zoneout_c": 1.0} if kind == "LSTM" else {}))
    assert {name: getattr(layer, name) for name in names} == names
    for training in (True, False):
        assert not np.any(np.asarray(layer(sequence(), training=training)))


@all_kinds
def test_the_draws_are_those_of_the_seed(tfb, tf, kind):
    """The same numbers as `tf_blockrnn.lstm` and `gru` give for the draws of such a generator."""
    layer = _made(kind, seed=13)
    x = tf.constant(sequence(), tf.float32)
    got = layer(x, mask=MASK, training=True)
    generator, draws = keras.random.SeedGenerator(13), {}
    for name, rate in _rates(kind).items():
        drawn = keras.random.uniform([*x.shape[:2], 3], dtype="float32", seed=generator)
        draws[name] = drawn < rate
    kernel, recurrent, bias = (tf.constant(weight) for weight in layer.get_weights())
    options = {"mask": tf.constant(MASK), **draws}
    if kind == "LSTM":
        want = tfb.lstm(x, kernel, recurrent, bias, **options)[0]
    else:
        biases = tf.unstack(bias) if kind == "GRU" else [bias]
        options |= {"gate_order": "urc", "reset_after": kind == "GRU"}
        want = tfb.gru(x, kernel, recurrent, *biases, **options)[0]
    assert bits(got) == bits(want)


@all_kinds
def test_gradients_are_those_of_the_draws(tf, kind):
    """Equal seeds give equal gradients; with `recompute` the same bits."""
    found = []
    for recompute in (False, True, 2):
        layer = _made(kind, seed=5, recompute=recompute)
        x = tf.constant(sequence(), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, mask=MASK, training=True) ** 2)
        found.append(tape.gradient(loss, [x, *layer.trainable_variables]))
    for other in found[1:]:
        assert [bits(g) for g in other] == [bits(g) for g in found[0]]
    assert all(np.any(np.asarray(g)) for g in found[0])


@pytest.mark.types
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_one_step_of_training_on_tensors_of_every_type(tf, dtype):
    # TensorFlow has no orthogonal matrices of bfloat16, Keras' default.
    initializer = {"recurrent_initializer": "glorot_uniform"}
    layer = make_ours("LSTM", zoneout_h=0.5, zoneout_c=0.5, dtype=dtype, **initializer)
    outputs = layer(tf.cast(sequence(), dtype), training=True)
    assert outputs.dtype == dtype
    assert np.isfinite(np.asarray(tf.cast(outputs, tf.float32))).all()
