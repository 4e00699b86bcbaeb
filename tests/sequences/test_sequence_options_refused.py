"""Options of the sequence functions that are malformed, left out or empty."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers.sequence_functions import DIMS, FUNCTIONS, PROJ, call, random_inputs


def _refused(tfb, key, match, *, dims=DIMS, projected=False, **changes):
    """The same error eagerly and in a graph, of unknown shapes and of known ones."""
    variant = FUNCTIONS[key]
    inputs = random_inputs(variant, dims, np.float32, dropout=True, projected=projected)
    inputs |= changes
    tensors = {k: v if v is None else tf.constant(v) for k, v in inputs.items()}
    given = {k: v for k, v in tensors.items() if v is not None}

    def outputs(arguments):
        return call(tfb, variant, {**tensors, **arguments}, time_major=True)[0]

    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        outputs(given)
    unknown = {k: tf.TensorSpec(None, tf.float32) for k in given}
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        tf.function(outputs, input_signature=[unknown])(given)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=match):
        tf.function(outputs)(given)


def test_malformed_options_are_refused(tfb):
    t, b, i, h = DIMS
    zeros = np.zeros
    for key in FUNCTIONS:
        gates = len(FUNCTIONS[key].gates)
        # Twice the gates: what has to be split into them first, by TensorFlow, can be.
        for shape in ((2 * gates, b, h), (gates, b + 1, h)):
            wrong = zeros(shape, np.float32)
            _refused(tfb, key, "recurrent_dropout(_factors)? must have shape", dropout=wrong)
    _refused(tfb, "lstm", "w_x must .* where I = 4H", w_x=None)
    for key in ("gru-after", "gru-before"):
        match = "x must have 3 parts|w_(ru_)?x must .* where I = 3H"
        _refused(tfb, key, match, w_x=None)
    _refused(tfb, "rnn-tanh", "w_x must .* where I = H", w_x=None)
    _refused(tfb, "lstm-projection", "w_p must .* where P = H", w_p=None)
    _refused(tfb, "lstm-projection", "w_p must have shape", w_p=zeros((PROJ, h + 1), np.float32))


def test_messages_name_the_argument_that_is_wrong(tfb):
    """With the state left out, whose size is that of the weights; and where TensorFlow splits."""
    zeros = tf.zeros

    def refused(match, function, *arguments, **options):
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            function(*arguments, **options)

    x, b = zeros([2, 3, 4]), zeros([8])
    refused(r"w_p must have shape \[P, H\]", tfb.lstm, x, zeros([4, 8]), zeros([3, 8]), b)
    refused(
        r"w_p must have shape \[P, H\]",
        tfb.lstm,
        x,
        zeros([4, 8]),
        zeros([3, 8]),
        b,
        w_p=zeros([3, 3]),
    )
    refused("lstm: w_h must have 2 dims", tfb.lstm, x, zeros([4, 8]), zeros([8]), b)
    refused("lstm: x must have 3 dims", tfb.lstm, x[0], zeros([4, 8]), zeros([2, 8]), b)
    w_h, b, before = zeros([2, 6]), zeros([6]), {"reset_after": False}
    refused("gru: .*w_x must .*got", tfb.gru, x, zeros([4, 7]), w_h, b, **before)
    refused("gru: .*w_h must .*got", tfb.gru, x, zeros([4, 6]), zeros([2, 7]), b, **before)
    refused("gru: .*b_x must .*got", tfb.gru, x, zeros([4, 6]), w_h, zeros([7]), **before)
    keras = {**before, "gate_order": "urc"}
    refused("gru: x must .*got", tfb.gru, x, None, w_h, b, **keras)
    factors = zeros([4, 2, 2])
    refused(
        "gru: recurrent_dropout_factors must .*got",
        tfb.gru,
        x,
        zeros([4, 6]),
        w_h,
        b,
        recurrent_dropout_factors=factors,
        **keras,
    )


def _refused_by_op(function, tensors, match):
    """Eagerly, while a graph is built, and when one of unknown shapes runs."""
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        function(*tensors)
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
    with pytest.raises(ValueError, match=match):
        tf.function(function).get_concrete_function(*specs)
    unknown = [tf.TensorSpec(None, t.dtype) for t in tensors]
    concrete = tf.function(function).get_concrete_function(*unknown)
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        concrete(*tensors)


def test_a_projection_to_nothing_is_refused(tfb):
    b, h = 2, 3

    def lstm(w_p, w_h, h_prev):
        return tfb.lstm(
            tf.zeros([b, 4, 5]),
            tf.zeros([5, 4 * h]),
            w_h,
            tf.zeros([4 * h]),
            initial_state=(h_prev, tf.zeros([b, h])),
            w_p=w_p,
        )

    tensors = [tf.zeros([0, h]), tf.zeros([0, 4 * h]), tf.zeros([b, 0])]
    _refused_by_op(lstm, tensors, r"w_p must have shape \[P, H\] with P above 0")


@pytest.mark.parametrize("left_out", ["w_ru_x", "w_c_x"])
def test_weights_of_the_input_are_left_out_together(tfb, left_out):
    t, b, h = 4, 2, 3
    weights = {"w_ru_x": tf.zeros([3 * h, 2 * h]), "w_c_x": tf.zeros([3 * h, h])}
    weights[left_out] = tf.zeros([0])

    def gru(w_ru_x, w_c_x):
        return tfb.raw_ops.GRUSequence(
            x=tf.zeros([t, b, 3 * h]),
            h_prev=tf.zeros([b, h]),
            w_ru_x=w_ru_x,
            w_ru_h=tf.zeros([h, 2 * h]),
            w_c_x=w_c_x,
            w_c_h=tf.zeros([h, h]),
            b_ru=tf.zeros([2 * h]),
            b_c=tf.zeros([h]),
            mask=tf.zeros([0], tf.bool),
            sequence_lengths=tf.zeros([0], tf.int32),
            recurrent_dropout=tf.zeros([0]),
            zoneout_h=tf.zeros([0], tf.bool),
        )

    match = rf"w_ru_x and w_c_x must be left out together, got \[0\] for {left_out} alone"
    _refused_by_op(gru, list(weights.values()), match)


def test_an_unknown_activation_is_refused(tfb):
    with pytest.raises(ValueError, match="activation.*sigmoid"):
        tfb.simple_rnn(
            tf.zeros([1, 1, 1]),
            tf.zeros([1, 1]),
            tf.zeros([1, 1]),
            tf.zeros([1]),
            activation="sigmoid",
        )


@pytest.mark.parametrize("lengths", [[0, 2], None])
def test_a_projection_of_no_units(tfb, lengths):
    """H = 0: a step gives zeros, and a row without steps keeps its state and its gradient."""
    batch, width = 2, 3
    steps = 0 if lengths is None else 2
    h_first = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    w_p = tf.zeros([width, 0])
    with tf.GradientTape() as tape:
        tape.watch(h_first)
        _, state = tfb.lstm(
            tf.ones([batch, steps, 5]),
            tf.zeros([5, 0]),
            tf.zeros([width, 0]),
            tf.zeros([0]),
            w_p=w_p,
            initial_state=(h_first, tf.zeros([batch, 0])),
            lengths=lengths,
        )
        weighted = tf.reduce_sum(state.h * [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    kept = np.array([[1.0], [0.0 if steps else 1.0]])
    np.testing.assert_array_equal(state.h, h_first * kept)
    np.testing.assert_array_equal(
        tape.gradient(weighted, h_first), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] * kept
    )


def test_what_does_not_fit_is_refused_in_an_empty_batch(tfb):
    """Weights that are left out are checked whatever the batch."""
    ops = tfb.raw_ops
    none, mask = tf.zeros([0]), tf.zeros([0], tf.bool)
    lengths = tf.zeros([0], tf.int64)
    inputs = {"x": tf.zeros([3, 0, 6]), "h_prev": tf.zeros([0, 2]), "mask": mask}
    inputs |= {"sequence_lengths": lengths, "recurrent_dropout": none, "zoneout_h": mask}
    with pytest.raises(tf.errors.InvalidArgumentError, match="w_ru_x and w_c_x"):
        ops.GRUSequence(
            **inputs,
            w_ru_x=none,
            w_ru_h=tf.zeros([2, 4]),
            w_c_x=tf.zeros([6, 2]),
            w_c_h=tf.zeros([2, 2]),
            b_ru=tf.zeros([4]),
            b_c=tf.zeros([2]),
        )
