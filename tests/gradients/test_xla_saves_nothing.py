"""Under XLA a call that no tape sees saves nothing, and its gradient computes it again."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.xla

_T, _B, _I, _H = 5, 3, 4, 6


def _lstm(tfb, tf):
    rng = np.random.default_rng(3)
    shapes = [(_B, _T, _I), (_I, 4 * _H), (_H, 4 * _H), (4 * _H,)]
    given = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]
    return lambda x, w, u, b: tfb.lstm(x, w, u, b, go_backwards=True)[0], given


def _gru(reset_after):
    def make(tfb, tf):
        rng = np.random.default_rng(4)
        shapes = [(_B, _T, _I), (_I, 3 * _H), (_H, 3 * _H), (3 * _H,)]
        given = [tf.constant(rng.normal(size=shape), tf.float32) for shape in shapes]
        return lambda x, w, u, b: tfb.gru(x, w, u, b, reset_after=reset_after)[0], given

    return make


@pytest.fixture(params=[_lstm, _gru(True), _gru(False)], ids=["lstm", "gru_after", "gru_before"])
def model(request, tfb, tf):
    return request.param(tfb, tf)


def _gradients(tf, function, given):
    with tf.GradientTape() as tape:
        tape.watch(given)
        loss = tf.reduce_sum(function(*given) ** 2)
    return tape.gradient(loss, given)


def _saves(function, given):
    """Whether the one forward op of a jitted function saves what a gradient needs."""
    concrete = function.get_concrete_function(*given)
    ops = [op for op in concrete.graph.get_operations() if op.type.startswith("BlockRNN>")]
    assert len(ops) == 1
    return ops[0].get_attr("is_training")


def test_inference_saves_nothing(tf, model):
    function, given = model
    jitted = tf.function(function, jit_compile=True)
    assert not _saves(jitted, given)
    np.testing.assert_array_equal(jitted(*given), function(*given))


def test_the_gradient_of_a_function_traced_before_the_tape(tf, model):
    function, given = model
    jitted = tf.function(function, jit_compile=True)
    jitted(*given)
    assert not _saves(jitted, given)
    for computed, expected in zip(
        _gradients(tf, jitted, given), _gradients(tf, function, given), strict=True
    ):
        np.testing.assert_array_equal(computed, expected)


def test_symbolic_gradients(tf, model):
    function, given = model

    @tf.function(jit_compile=True)
    def gradients(*given):
        return tf.gradients(tf.reduce_sum(function(*given) ** 2), given)

    for computed, expected in zip(gradients(*given), _gradients(tf, function, given), strict=True):
        np.testing.assert_array_equal(computed, expected)


def test_a_tape_in_the_function_saves(tf, model):
    function, given = model

    @tf.function(jit_compile=True)
    def gradients(*given):
        return _gradients(tf, function, list(given))

    graph = gradients.get_concrete_function(*given).graph
    forward = [
        op
        for op in graph.get_operations()
        if op.type.startswith("BlockRNN>") and not op.type.endswith("Grad")
    ]
    assert [op.get_attr("is_training") for op in forward] == [True]


def test_without_xla_a_call_for_inference_has_no_gradient(tfb, tf):
    def call(x):
        none = tf.zeros([0])
        return tfb.raw_ops.GRUAfterSequence(
            x=x, h_prev=tf.zeros([2, 3]), w_x=tf.ones([4, 9]), w_h=tf.ones([3, 9]),
            b_x=tf.zeros([9]), b_h=tf.zeros([9]), mask=tf.zeros([0], tf.bool),
            sequence_lengths=tf.zeros([0], tf.int32), recurrent_dropout=none,
            zoneout_h=tf.zeros([0], tf.bool), is_training=False,
        ).h  # fmt: skip

    @tf.function
    def gradients(x):
        return tf.gradients(call(x), x)

    with pytest.raises(ValueError, match="a gradient needs is_training=True"):
        gradients(tf.ones([5, 2, 4]))
