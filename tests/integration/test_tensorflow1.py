"""Functions, layers and second derivatives where TensorFlow's old behaviour is switched on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, tolerances
from helpers.children import PROGRAMS, assert_ok, run_python
from helpers.second_cases import BOUND, Case
from helpers.wrapper_calls import (
    GATES,
    IN,
    LAYERS,
    B,
    H,
    T,
    layer_gradient,
    sequence_arguments,
    sequence_call,
)

pytestmark = [pytest.mark.types, pytest.mark.xdist_group("tensorflow1")]

CASES = ("lstm all", "gru before all")


def child(tmp_path, *arguments):
    mode, *cases = arguments
    out = tmp_path / "found.npz"
    program = str(PROGRAMS / "tensorflow1_child.py")
    assert_ok(run_python([program, mode, str(out), *cases], fresh=True), f"child, {mode}")
    with np.load(out) as found:
        return dict(found)


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    return child(tmp_path_factory.mktemp("second"), "second", *CASES)


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_right_with_loops_of_version_1(tfb, second, case):
    """TensorFlow's own gradients of gradients of such loops are not."""
    call = Case(case)
    for name, want in call.second(tfb, call.tensors()).items():
        compare.assert_close(second[f"{case}: {name}"], want, BOUND, name)


def test_dims_may_be_objects(tfb, tmp_path):
    found = child(tmp_path, "shapes")
    for name in GATES:
        assert compare.bits(found[name]) == compare.bits(sequence_call(tfb, name)[0])
    for name in LAYERS:
        want = layer_gradient(tfb.layers, name)
        assert np.any(want)
        assert compare.bits(found[name]) == compare.bits(want)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    return child(tmp_path_factory.mktemp("session"), "session")


@pytest.mark.parametrize("name", GATES)
def test_in_a_session_with_sizes_that_show_when_it_runs(tfb, session, name):
    given = sequence_arguments(name)
    with tf.GradientTape() as tape:
        tape.watch(given["w_h"])
        outputs = getattr(tfb, name)(**given, lengths=tf.constant([3, 1]))[0]
        total = tf.reduce_sum(outputs**2)
    bound = tolerances.composed_bound("float", T * (IN + H))
    compare.assert_close(session[name], outputs, bound)
    compare.assert_close(session[f"{name}: w_h"], tape.gradient(total, given["w_h"]), bound)
    assert session[name].shape == (B, T, H)


@pytest.mark.parametrize("name", GATES)
def test_a_reference_variable_is_of_the_type_that_it_refers_to(session, name):
    width = GATES[name] * H
    columns = f"{GATES[name]}H" if GATES[name] > 1 else "H"
    said = (
        f"{name}: w_x must have shape [I, {columns}] = [5, {width}], or None where I = {columns}, "
    )
    assert str(session[f"{name}: said"]).startswith(f"{said}got [6, 6]; given are x [")
