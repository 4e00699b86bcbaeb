"""The gradient is that of an eager call, in whatever order functions are traced and compiled."""

from __future__ import annotations

import functools

import pytest
import tensorflow as tf
from helpers import compare, traced_orders
from helpers.covering import in_turn, pairwise
from helpers.second_cases import BOUND
from helpers.traced_orders import CASES, DERIVATIVES, EAGER, OF_TENSORFLOW, PLANS, Model, Plan

# Tapes of tapes take seconds.
_FIRST = tuple(name for name in DERIVATIVES if name != "tape_of_tape")
CORE = in_turn(pairwise(*PLANS), _FIRST)
ALL = pairwise(DERIVATIVES, CASES, (False, True), *PLANS)


@functools.cache
def _expected(tfb, case, captured, derivative, called):
    plan = EAGER._replace(called="twice" if called == "nested" else called)
    return traced_orders.run(Model(tfb, case, captured), DERIVATIVES[derivative], plan)


def _check(tfb, case, captured, derivative, plan):
    want = _expected(tfb, case, captured, derivative, plan.called)
    got = traced_orders.run(Model(tfb, case, captured), DERIVATIVES[derivative], plan)
    assert any(value is not None for value in want)
    for value, expected in zip(got, want, strict=True):
        assert (value is None) == (expected is None)
        if expected is not None:
            compare.assert_close(value, expected, BOUND)


def _check_unless_tensorflow_fails(tfb, *arguments):
    """What fails must fail in the same way where TensorFlow's own ops are in the same place."""
    try:
        _check(tfb, *arguments)
    except Exception as error:
        with pytest.raises(type(error)):
            _check(tfb, OF_TENSORFLOW, *arguments[1:])
        pytest.xfail(f"{type(error).__name__} with TensorFlow's own ops, too")


@pytest.mark.parametrize("plan, derivative", CORE, ids=str)
def test_lstm(tfb, plan, derivative):
    _check_unless_tensorflow_fails(tfb, "lstm", False, derivative, Plan(*plan))


@pytest.mark.xla
@pytest.mark.parametrize("derivative, case, captured, inner, outside, traced, called", ALL)
def test_all_ops(tfb, derivative, case, captured, inner, outside, traced, called):
    plan = Plan(inner, outside, traced, called)
    _check_unless_tensorflow_fails(tfb, case, captured, derivative, plan)


@pytest.mark.xla
@pytest.mark.parametrize("case", ["lstm", OF_TENSORFLOW])
def test_a_compiled_loop_needs_a_bound(tfb, case):
    """For its gradient: a limit of XLA, with any op."""

    def unbounded(model, function, given):
        def loop(given):
            def body(k, state):
                return k + 1, model.after(function({**given, model.state: state}))

            return tf.while_loop(lambda k, _: k < 2, body, (0, given[model.state]))[1:]

        return traced_orders.tape(model, loop, given)

    model = Model(tfb, case)
    traced_orders.run(model, unbounded, Plan("jit", "in graph", "before", "once"))
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="maximum_iterations"):
        traced_orders.run(model, unbounded, Plan("jit", "in jit", "before", "once"))
