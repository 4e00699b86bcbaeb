"""The attrs `frozen` and `precision` of the sequence ops: what the kernels refuse."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

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
        "resets": tf.zeros([0], tf.bool),
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


# Of which kernels that compare samples miss an element.
LARGE = 128


def _from_dlpack(tf, array):
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


# Tensors of an array's memory.
FOREIGN = {
    "tensor": _from_dlpack,
    "reshaped": lambda tf, array: tf.reshape(_from_dlpack(tf, array.ravel()), array.shape),
    "slice": lambda tf, array: _from_dlpack(tf, array[None])[0],
    "variable": lambda tf, array: tf.Variable(_from_dlpack(tf, array)),
}


@pytest.fixture
def large(tf, call):
    """Calls RNNSequence, frozen, with w_h of 64 KB in aligned memory of NumPy."""
    from tf_blockrnn._ops.frozen import fingerprint

    room = np.zeros([LARGE * LARGE + 16], np.float32)
    start = -room.ctypes.data % 64 // 4
    w_h = room[start : start + LARGE * LARGE].reshape(LARGE, LARGE)
    w_h[:] = np.random.default_rng(0).standard_normal(w_h.shape)
    weights = {"w_x": tf.ones([INPUT, LARGE]), "b": tf.zeros([LARGE])}
    fingerprints = [fingerprint(weight) for weight in (weights["w_x"], w_h, weights["b"])]
    options = {"h_prev": tf.ones([BATCH, LARGE]), "frozen": "".join(fingerprints), **weights}
    return SimpleNamespace(w_h=w_h, run=lambda w_h: call(w_h=w_h, **options))


def _refused(tf):
    return pytest.raises(tf.errors.InvalidArgumentError, match="w_h must have the fingerprint")


ELEMENT = np.s_[1, 22]
ALL = np.s_[:]


# Under XLA, which does not say whose the memory is, samples are compared.
@pytest.mark.parametrize(
    ("mode", "where"), [("eager", ELEMENT), ("eager", ALL), ("graph", ELEMENT), ("jit", ALL)]
)
@pytest.mark.parametrize("kind", FOREIGN)
def test_weights_in_memory_of_another_library_that_writes_to_it(tf, large, kind, mode, where):
    w_h = FOREIGN[kind](tf, large.w_h)
    run = run_modes.in_mode(mode, lambda: large.run(w_h))
    want = run()
    before = large.w_h.copy()
    large.w_h[where] += 1
    with _refused(tf):
        run()
    large.w_h[:] = before
    np.testing.assert_array_equal(run(), want)


def test_weights_of_a_variable_that_another_library_writes_to(tf, large):
    w_h = tf.Variable(tf.constant(large.w_h))
    large.run(w_h)
    capsule = tf.experimental.dlpack.to_dlpack(w_h.value())
    exporter = SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0))
    shared = np.from_dlpack(exporter)
    ctypes.memset(shared.ctypes.data, 0, shared.nbytes)
    assert not np.any(w_h)
    with _refused(tf):
        large.run(w_h)


@pytest.mark.parametrize("where", [ELEMENT, ALL])
def test_weights_of_a_variable_that_is_assigned_to(tf, large, where):
    w_h = tf.Variable(tf.constant(large.w_h))
    large.run(w_h)
    w_h[where].assign(w_h[where] + 1)
    with _refused(tf):
        large.run(w_h)


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
