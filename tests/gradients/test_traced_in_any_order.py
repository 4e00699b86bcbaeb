"""The gradient is that of an eager call, in whatever order functions are traced and compiled."""

from __future__ import annotations

import functools

import pytest
from helpers import compare, traced_orders
from helpers.covering import in_turn, pairwise
from helpers.second_cases import BOUND
from helpers.traced_orders import CASES, DERIVATIVES, EAGER, PLANS, Model, Plan

CORE = in_turn(pairwise(*PLANS), tuple(DERIVATIVES))
ALL = pairwise(DERIVATIVES, CASES, (False, True), *PLANS)


@functools.cache
def _expected(tfb, case, captured, derivative, called):
    model = Model(tfb, case, captured)
    plan = EAGER._replace(called="twice" if called == "nested" else called)
    return traced_orders.run(model, DERIVATIVES[derivative], plan)


def _check(tfb, case, captured, derivative, plan):
    want = _expected(tfb, case, captured, derivative, plan.called)
    got = traced_orders.run(Model(tfb, case, captured), DERIVATIVES[derivative], plan)
    assert any(value is not None for value in want)
    for value, expected in zip(got, want, strict=True):
        assert (value is None) == (expected is None)
        if expected is not None:
            compare.assert_close(value, expected, BOUND)


@pytest.mark.parametrize("plan, derivative", CORE, ids=str)
def test_lstm(tfb, plan, derivative):
    _check(tfb, "lstm", False, derivative, Plan(*plan))


@pytest.mark.xla
@pytest.mark.parametrize("derivative, case, captured, inner, outside, traced, called", ALL)
def test_all_ops(tfb, derivative, case, captured, inner, outside, traced, called):
    _check(tfb, case, captured, derivative, Plan(inner, outside, traced, called))
