"""Functions that XLA compiles, around loops, branches and functions, and inside of them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, run_modes, sequence_ops
from helpers.second_cases import BOUND, Case, weighted

STEPS = 4


@pytest.fixture(scope="module")
def call():
    return Case("lstm lengths peepholes", dtype=np.float32)


@pytest.fixture(scope="module")
def inputs(call):
    return {k: tf.constant(v) for k, v in call.inputs.items()}


def _jit(function, **options):
    return run_modes.in_mode("jit", function, **options)


def _bits(values):
    return [compare.bits(v) for v in tf.nest.flatten(values)]


@pytest.fixture(scope="module")
def step(tfb, call, inputs):
    """From one state to the next: a call over a sequence that begins with it."""
    return lambda h: call.call(tfb, {**inputs, "h": h})[1]


def _in_python(step, h):
    for _ in range(STEPS):
        h = step(h)
    return h


def _while_loop(step, h):
    def body(k, h):
        return k + 1, step(h)

    return tf.while_loop(lambda k, _: k < STEPS, body, (0, h), maximum_iterations=STEPS)[1]


def _scan(step, h):
    return tf.scan(lambda h, _: step(h), tf.range(STEPS), h)[-1]


def _branches(step, h):
    for k in range(STEPS):
        h = tf.cond(tf.reduce_sum(h) + 1000.0 * k > -1e6, lambda h=h: step(h), lambda h=h: 0 * h)
    return h


@pytest.mark.parametrize("flow", [_while_loop, _scan, _branches], ids=lambda f: f.__name__[1:])
def test_loops_and_branches(step, inputs, flow):
    """And gradients through them; a loop must have maximum_iterations then, as for any op."""

    def compute(flow, h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = flow(step, h)
        return last, tape.gradient(last, h)

    want = compute(_in_python, inputs["h"])
    got = _jit(lambda h: compute(flow, h))(inputs["h"])
    assert np.any(want[1].numpy())
    assert _bits(got) == _bits(want)


@pytest.mark.parametrize("mapped", [tf.map_fn, tf.vectorized_map], ids=lambda f: f.__name__)
def test_maps_run_row_by_row(tfb, call, inputs, mapped):
    def one(x):
        return call.call(tfb, {**inputs, "x": x})[0]

    many = tf.stack([inputs["x"], 2 * inputs["x"], -inputs["x"]])
    got = _jit(lambda many: mapped(one, many))(many)
    assert _bits(list(got)) == _bits([one(x) for x in many])


@pytest.mark.parametrize("outer, inner", [("jit", "graph"), ("graph", "jit"), ("jit", "jit")])
def test_functions_in_functions(step, inputs, outer, inner):
    nested = run_modes.in_mode(inner, step)

    def compute(h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = nested(nested(h) + 0.5)
        return last, tape.gradient(last, h)

    def plain(h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = step(step(h) + 0.5)
        return last, tape.gradient(last, h)

    assert _bits(run_modes.in_mode(outer, compute)(inputs["h"])) == _bits(plain(inputs["h"]))


def test_a_tape_around_a_compiled_function(tfb, call, inputs):
    """Forward and backward are programs of their own then."""
    found = []
    for mode in ("eager", "jit"):
        function = run_modes.in_mode(mode, lambda given: call.call(tfb, given))
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(inputs)
        found.append(_bits([outputs, list(tape.gradient(outputs, inputs).values())]))
    assert found[0] == found[1]


def test_one_function_for_many_shapes(tfb):
    """Traced anew for each shape, and compiled anew from one graph of unknown shapes."""
    op = sequence_ops.GRU
    unknown = {
        k: tf.TensorSpec([None] * len(v), tf.int64 if k == "seq_len_max" else tf.float32)
        for k, v in op.inputs.items()
    }
    run = lambda given: tfb.raw_ops.BlockGRU(**given)  # noqa: E731
    functions = [_jit(run), _jit(run, input_signature=[unknown])]
    sizes = [(3, 2, 5, 4), (1, 1, 1, 1), (0, 3, 4, 5), (6, 9, 17, 15), (3, 2, 5, 4), (2, 0, 3, 3)]
    for dims in sizes:
        tensors = sequence_ops.tensors_of(sequence_ops.random_inputs(op, dims, np.float32))
        want = _bits(run(tensors))
        assert [_bits(function(tensors)) for function in functions] == [want, want], dims
    assert functions[1].experimental_get_tracing_count() == 1
    assert functions[0].experimental_get_tracing_count() == len(set(sizes))


@pytest.mark.parametrize("experimental_use_pfor", [True, False])
def test_jacobian(tfb, call, inputs, experimental_use_pfor):
    def jacobian(h):
        with tf.GradientTape(persistent=not experimental_use_pfor) as tape:
            tape.watch(h)
            last = call.call(tfb, {**inputs, "h": h})[1]
        return tape.jacobian(last, h, experimental_use_pfor=experimental_use_pfor)

    want = jacobian(inputs["h"])
    assert np.any(want.numpy())
    assert _bits(_jit(jacobian)(inputs["h"])) == _bits(want)


def test_hessian(tfb):
    call = Case("rnn tanh")
    inputs = {k: tf.constant(v) for k, v in call.inputs.items()}

    def hessian(h):
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(h)
            with tf.GradientTape() as inner:
                inner.watch(h)
                loss = weighted(call.call(tfb, {**inputs, "h": h})[0])
            gradient = inner.gradient(loss, h)
        return outer.jacobian(gradient, h, experimental_use_pfor=False)

    want = hessian(inputs["h"])
    assert np.any(want.numpy())
    compare.assert_close(_jit(hessian)(inputs["h"]), want, BOUND)
