"""The gradient is that of an eager call, in whatever order functions are traced and compiled."""

from __future__ import annotations

import functools

import pytest
from helpers import compare, traced_orders
from helpers.covering import in_turn, pairwise
from helpers.second_cases import BOUND
from helpers.traced_orders import (
    CASES,
    DERIVATIVES,
    EAGER,
    LOOP_OF_TENSORFLOW,
    OF_TENSORFLOW,
    PLANS,
    Model,
    Plan,
)

# Between two programs, XLA's and ours, each of which may err by the bound of the derivative. With
# layer normalisation, inputs that are wrong in their last bit make an element wrong by 0.7 of this.
_BOUND = 2.0 * BOUND
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
            compare.assert_close(value, expected, _BOUND)


def _check_unless_tensorflow_fails(tfb, case, captured, derivative, plan):
    """What fails must fail where TensorFlow's own ops are in the same place, too."""
    own = OF_TENSORFLOW
    if derivative == "tape_of_tape" and plan.inner == "jit":
        own = LOOP_OF_TENSORFLOW  # second derivatives have a loop
    try:
        _check(tfb, case, captured, derivative, plan)
    except Exception as failed:
        with pytest.raises(Exception) as too:  # noqa: PT011 (refusals are not all of one type)
            _check(tfb, own, captured, derivative, plan)
        # Wrong numbers where its numbers are wrong, too: derivatives by captured variables.
        assert too.errisinstance(AssertionError) == isinstance(failed, AssertionError)
        pytest.xfail(f"{own}: {type(too.value).__name__}, here {type(failed).__name__}")


@pytest.mark.parametrize("plan, derivative", CORE, ids=str)
def test_lstm(tfb, plan, derivative):
    _check_unless_tensorflow_fails(tfb, "lstm", False, derivative, Plan(*plan))


@pytest.mark.xla
@pytest.mark.parametrize("derivative, case, captured, inner, outside, traced, called", ALL)
def test_all_ops(tfb, derivative, case, captured, inner, outside, traced, called):
    plan = Plan(inner, outside, traced, called)
    _check_unless_tensorflow_fails(tfb, case, captured, derivative, plan)
