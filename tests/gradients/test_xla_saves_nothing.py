"""Under XLA a call that no tape sees saves nothing, and its gradient computes it again."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import run_modes, traced_orders
from helpers.covering import pairwise
from helpers.traced_orders import CASES, OUTSIDE, Model, Plan

from tf_blockrnn._ops import sequence_util

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


@pytest.fixture
def repeated(monkeypatch):
    """The types of the forward ops that gradients have called again."""
    types, repeat = [], sequence_util.for_training

    def counted(op, cotangents):
        types.append(op.type)
        return repeat(op, cotangents)

    monkeypatch.setattr(sequence_util, "for_training", counted)
    return types


@pytest.mark.parametrize("case, inner, outside", pairwise(CASES, run_modes.MODES, OUTSIDE))
def test_training_repeats_nothing(tfb, repeated, case, inner, outside):
    """Whatever is compiled, if it is traced under the tape; without XLA also if it is not."""
    if inner == "eager" and outside == "around jit":
        inner = "graph"  # the function is the compiled one
    model = Model(tfb, case)
    traced = "under" if "jit" in (inner, *outside.split()) else "before"
    traced_orders.run(model, traced_orders.tape, Plan(inner, outside, traced, "twice"))
    assert not repeated


def test_a_program_of_inference_is_repeated_once(tfb, repeated):
    model = Model(tfb, "lstm")
    traced_orders.run(model, traced_orders.tape, Plan("jit", "in graph", "before", "once"))
    assert repeated == ["BlockRNN>LSTMSequence"]


@pytest.mark.parametrize("mode", run_modes.MODES)
@pytest.mark.parametrize("persistent", [False, True])
def test_an_op_that_is_told_to_save_nothing(tfb, tf, mode, persistent):
    rng = np.random.default_rng(5)
    shapes = {"x": (5, 2, 4), "h_prev": (2, 3), "cs_prev": (2, 3)}
    shapes |= {"w_x": (4, 12), "w_h": (3, 12), "b": (12,)}
    given = {name: tf.constant(rng.normal(size=shape)) for name, shape in shapes.items()}
    left_out = dict.fromkeys(("peepholes", "w_p", "recurrent_dropout"), tf.zeros([0], tf.float64))
    left_out |= dict.fromkeys(("mask", "resets", "zoneout_h", "zoneout_c"), tf.zeros([0], tf.bool))
    left_out["sequence_lengths"] = tf.zeros([0], tf.int32)

    def gradients(given, is_training):
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(given)
            made = tfb.raw_ops.LSTMSequence(**given, **left_out, is_training=is_training)
            total = tf.reduce_sum(made.h * made.h) + tf.reduce_sum(made.cs_last)
        return tape.gradient(total, given)

    want = gradients(given, True)
    got = run_modes.in_mode(mode, lambda given: gradients(given, False))(given)
    for name, gradient in want.items():
        np.testing.assert_array_equal(got[name], gradient, err_msg=name)


def _restored(tf, jitted, given, path):
    module = tf.Module()
    module.call = jitted
    jitted.get_concrete_function(*given)
    tf.saved_model.save(module, path)
    return tf.saved_model.load(path).call


@pytest.mark.parametrize("twice", [False, True])
def test_functions_of_files(tf, model, tmp_path, twice):
    function, given = model
    found = _restored(tf, tf.function(function, jit_compile=True), given, str(tmp_path))

    @tf.function
    def outside(x, *weights):
        y = found(x, *weights)
        return y + found(2 * x, *weights) if twice else y

    def plain(x, *weights):
        y = function(x, *weights)
        return y + function(2 * x, *weights) if twice else y

    for computed, expected in zip(
        _gradients(tf, outside, given), _gradients(tf, plain, given), strict=True
    ):
        np.testing.assert_allclose(computed, expected, rtol=1e-5, atol=1e-6)
