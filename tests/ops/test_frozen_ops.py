"""The attrs `frozen` and `precision` of the sequence ops: what the kernels refuse."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import run_modes

STEPS, BATCH, INPUT, UNITS = 3, 2, 5, 4


@pytest.fixture
def call(tf, tfb):
    """Calls RNNSequence with the options given, frozen with its weights."""
    from tf_blockrnn._ops.frozen import fingerprint

    rng = np.random.default_rng(0)
    shapes = {"w_x": [INPUT, UNITS], "w_h": [UNITS, UNITS], "b": [UNITS]}
    weights = {name: tf.constant(rng.standard_normal(s), tf.float32) for name, s in shapes.items()}
    none = tf.zeros([0], tf.float32)
    inputs = {
        "x": tf.constant(rng.standard_normal([STEPS, BATCH, INPUT]), tf.float32),
        "h_prev": tf.zeros([BATCH, UNITS]),
        "mask": tf.zeros([0], tf.bool),
        "sequence_lengths": tf.zeros([0], tf.int32),
        "recurrent_dropout": none,
        "frozen": "".join(fingerprint(weight) for weight in weights.values()),
    }

    def run(**options):
        return tfb.raw_ops.RNNSequence(**{**inputs, **weights, **options}).h

    return run


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_frozen_weights_give_the_same_bits(call, mode):
    for _ in range(2):
        got = run_modes.in_mode(mode, call)()
        np.testing.assert_array_equal(got, call(frozen=""))


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_other_weights_are_refused(tf, call, mode):
    with pytest.raises(tf.errors.InvalidArgumentError, match="RNNSequence: w_h must have the fing"):
        run_modes.in_mode(mode, call)(w_h=tf.ones([UNITS, UNITS]))


def test_int8_of_more_terms_than_int32_holds_is_refused(tf, call):
    from tf_blockrnn._ops.frozen import fingerprint

    weights = {"w_x": tf.ones([133145, UNITS]), "w_h": tf.ones([UNITS, UNITS]), "b": tf.ones(UNITS)}
    frozen = "".join(fingerprint(weight) for weight in weights.values())
    x = tf.ones([1, BATCH, 133145])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="RNNSequence: precision must not be int8 for more than 133144 inputs or units, got",
    ):
        call(x=x, frozen=frozen, precision="int8", **weights)
    assert call(x=x[..., :-1], frozen="", **(weights | {"w_x": weights["w_x"][:-1]})).shape[0] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frozen": "abc"}, "frozen must be empty or 96 hex digits, got"),
        ({"frozen": "g" * 96}, "frozen must be empty or 96 hex digits, got"),
        ({"frozen": "", "precision": "int8"}, "precision must be float32 unless frozen is set"),
        (
            {"recurrent_dropout": np.ones([1, BATCH, UNITS], "float32")},
            "recurrent_dropout must be left out where frozen is set",
        ),
    ],
)
def test_refused(tf, call, options, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"RNNSequence: {message}"):
        call(**options)
