"""Tapes around functions and around each other: when the fused gradient is taken."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, second_op_cases
from helpers.second_cases import BOUND, Case, weighted

from tf_blockrnn._ops import second_derivatives


@pytest.fixture
def with_gates(tfb, monkeypatch):
    """Grows whenever a gradient is computed for cotangents of the gates as well."""
    runs = []
    compute = second_derivatives.with_gates

    def counted(*args):
        run = tf.numpy_function(lambda: runs.append(args[0].name) or np.int32(0), [], tf.int32)
        with tf.control_dependencies([run]):  # in a graph, where it is computed
            gradients = compute(*args)
            return gradients._make(map(tf.identity, gradients))

    monkeypatch.setattr(second_derivatives, "with_gates", counted)
    return runs


@pytest.mark.types
@pytest.mark.parametrize("case", ["lstm", "gru before"])
def test_a_persistent_tape_around_a_function_takes_the_fused_gradient(tfb, with_gates, case):
    """It passes a cotangent for each output of the op, also for unused ones."""
    call = Case(case)
    tensors = call.tensors()
    found = []
    for run in (tf.function, lambda function: function):
        function = run(lambda given: call.call(tfb, given)[0])
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(tensors)
            total = weighted(function(tensors))
        found.append(tape.gradient(total, tensors["w_h"]))
    assert not with_gates
    compare.assert_close(*found, BOUND)


@pytest.mark.types
@pytest.mark.parametrize("case", ["lstm", "gru before"])
def test_a_persistent_tape_around_a_function_builds_no_second_derivative(tfb, monkeypatch, case):
    """Which would take long: a loop, its gradient, and the gradient of that."""

    def never(*_, **__):
        raise AssertionError("a second derivative was built")

    monkeypatch.setattr(second_derivatives.util, "gradient_of_call", never)
    call = Case(case)
    variables = {k: tf.Variable(v) for k, v in call.inputs.items()}
    function = tf.function(
        lambda: call.call(tfb, {k: v.read_value() for k, v in variables.items()})[0]
    )
    with tf.GradientTape(persistent=True) as tape:
        total = weighted(function())
    assert tape.gradient(total, variables["w_h"]) is not None


@pytest.mark.types
def test_a_tape_around_another_takes_the_fused_gradient_first(tfb, with_gates):
    call = Case("lstm")
    tensors = call.tensors()
    found = []
    for run in (tf.function, lambda function: function):
        function = run(lambda given: call.call(tfb, given)[0])
        with_gates.clear()
        with tf.GradientTape() as outer:
            outer.watch(tensors["w_h"])
            with tf.GradientTape() as inner:
                inner.watch(tensors["w_h"])
                total = weighted(function(tensors))
            first = inner.gradient(total, tensors["w_h"])
            assert not with_gates
            again = weighted(first)
        found.append((first, outer.gradient(again, tensors["w_h"])))
        assert with_gates
    for of_function, eager in zip(*found, strict=True):
        compare.assert_close(of_function, eager, BOUND)


@pytest.mark.types
def test_two_tapes_in_a_function_of_any_batch_take_the_fused_gradient_first(tfb, with_gates):
    """The outer one records how zeros of unknown shape are made."""
    call = Case("lstm")
    given = call.tensors()
    any_size = {k: tf.TensorSpec([None] * len(v.shape), v.dtype) for k, v in given.items()}

    @tf.function(input_signature=[any_size])
    def penalty(given):
        with tf.GradientTape() as outer:
            outer.watch(given)
            with tf.GradientTape() as inner:
                inner.watch(given)
                total = weighted(call.call(tfb, given)[0])
            again = weighted(inner.gradient(total, given["w_h"]))
        return outer.gradient(again, given["w_h"])

    penalty(given)
    assert len(with_gates) == 1  # of the second derivative


@pytest.mark.types
def test_a_gradient_by_a_persistent_tape_is_saved_with_its_derivative(tfb, tmp_path):
    call = second_op_cases.make("lstm", steps=2)
    given = {name: tf.constant(value) for name, value in call.inputs.items()}
    x, module = given.pop("x"), tf.Module()
    h = tf.function(lambda x: call.call(tfb, {**given, "x": x})[0])

    @tf.function(input_signature=[tf.TensorSpec(x.shape, x.dtype)])
    def gradients(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            totals = weighted(h(x)), weighted(h(2 * x))
        return [tape.gradient(total, x) for total in totals]

    module.gradients = gradients
    tf.saved_model.save(module, str(tmp_path))
    found = []
    for each in (module, tf.saved_model.load(str(tmp_path))):
        with tf.GradientTape() as tape:
            tape.watch(x)
            first = each.gradients(x)
        found.append([*first, tape.gradient(first, x)])
    for loaded, own in zip(*found, strict=True):
        compare.assert_close(loaded, own, BOUND)


@pytest.mark.types
@pytest.mark.parametrize("steps", [2, 200], ids="{} steps".format)  # few and many zeros
@pytest.mark.parametrize("case", ["lstm", "gru after", "layer norm gru", "BlockLSTM", "LSTM cell"])
def test_derivatives_by_a_cotangent_of_zeros(tfb, case, steps):
    """The product of the Jacobian and a vector, by the gradient of a gradient that is zero."""
    call = second_op_cases.make(case, steps=steps)
    given = {name: tf.constant(value) for name, value in call.inputs.items()}
    first, function = next(iter(given)), tf.function(lambda given: call.call(tfb, given))
    vector = tf.cos(given[first])

    def product(function, like):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(given)
                outputs = function(given)
            cotangents = [like(output) for output in outputs]
            outer.watch(cotangents)
            gradient = inner.gradient(outputs, given[first], output_gradients=cotangents)
        return outer.gradient(gradient, cotangents, output_gradients=vector)

    want = product(function, tf.ones_like)
    for of in (function, function.python_function):
        for run in (product, tf.function(product, autograph=False)):
            for value, expected in zip(run(of, tf.zeros_like), want, strict=True):
                assert value is not None
                compare.assert_close(value, expected, BOUND)


@pytest.mark.types
@pytest.mark.parametrize("case", ["lstm", "gru after", "layer norm gru", "BlockLSTM", "rnn tanh"])
def test_derivatives_of_the_hessian_times_zeros(tfb, case):
    """By the vector: it is linear in that, so they do not depend on it."""
    call = second_op_cases.make(case, steps=2)
    given = {name: tf.constant(value) for name, value in call.inputs.items()}
    x = given.pop("x")

    def derivative(function, vector):
        with tf.GradientTape() as third:
            third.watch(vector)
            with tf.GradientTape() as second:
                second.watch(x)
                with tf.GradientTape() as first:
                    first.watch(x)
                    total = weighted(function({**given, "x": x})[0])
                gradient = first.gradient(total, x)
            product = second.gradient(gradient, x, output_gradients=vector)
        return third.gradient(product, vector, output_gradients=tf.cos(x))

    want = derivative(lambda given: call.call(tfb, given), tf.sin(x))
    for function in (lambda given: call.call(tfb, given), tf.function(lambda g: call.call(tfb, g))):
        compare.assert_close(derivative(function, tf.zeros_like(x)), want, BOUND)
