"""Second derivatives of the cells, the block ops and the cuDNN ops, in every form.

Against finite differences of the first gradient, and against TensorFlow's differentiation of the
same recurrence in its own ops.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, covering, run_modes, second_op_cases, sequence_ops, tolerances
from helpers.second_cases import along, check_finite_differences, weighted
from helpers.second_op_cases import (
    BOUND,
    DROPOUT,
    FAMILIES,
    IMPLEMENTATIONS,
    PLAIN,
    UNCLIPPED,
    B,
    H,
    I,
    T,
    make,
)

from tf_blockrnn._ops import cudnn_rnn_stack

pytestmark = pytest.mark.types

families = pytest.mark.parametrize("case", FAMILIES)
# In graphs, which take ten times as long as eager calls.
implementations = pytest.mark.parametrize("case", IMPLEMENTATIONS)


def _plain(call):
    """The case in TensorFlow's ops; `second` ignores its first argument.

    Computed eagerly: to trace a graph of thousands of ops takes twenty times as long.
    """
    other = type(call).__new__(type(call))
    other.__dict__ |= call.__dict__
    other.call = lambda _, tensors: call.plain(tensors)
    return other


def _assert_same(got, want, bound=BOUND):
    assert got.keys() == want.keys()
    assert any(np.any(value) for value in want.values())
    for name, value in want.items():
        compare.assert_close(got[name], value, bound, name)


@pytest.mark.parametrize("case", UNCLIPPED)
def test_it_is_the_finite_difference_of_the_first_gradient(tfb, case):
    check_finite_differences(tfb, make(case))


@pytest.mark.parametrize("case", PLAIN)
def test_it_is_tensorflows_of_the_same_recurrence(tfb, case):
    call = make(case)
    want = _plain(call).second(tfb, call.tensors())
    _assert_same(call.second(tfb, call.tensors()), want)


@implementations
def test_a_program_of_xla_gives_the_same(tfb, case):
    call = make(case)
    got = run_modes.in_mode("jit", lambda given: call.second(tfb, given))(call.tensors())
    _assert_same(got, call.second(tfb, call.tensors()))


@pytest.mark.parametrize(
    ("case", "mode"), [(case, "jit" if case == DROPOUT[3] else "graph") for case in DROPOUT]
)
def test_dropout_has_the_mask_of_the_first_derivative(tfb, case, mode):
    """A finite difference along all inputs, in one graph: there the same seeds draw one mask."""
    call, step = make(case), tolerances.FINITE_DIFFERENCE_STEP
    tensors = call.tensors()
    signs = call.second(tfb, tensors)
    directions = {name: tf.constant(along(value, 3)) for name, value in signs.items()}

    def everything(given):
        ends = [
            call.first(tfb, {k: v + sign * step * directions[k] for k, v in given.items()})
            for sign in (1, -1)
        ]
        return call.second(tfb, given), ends, call.first(tfb, given)

    got, (up, down), here = run_modes.in_mode(mode, everything)(tensors)
    directional = sum(np.sum(got[name] * directions[name]) for name in got)
    compare.assert_close(directional, float(up - down) / (2 * step), tolerances.FINITE_DIFFERENCES)
    undropped = make(case, dropout=0.0).first(tfb, tensors)
    assert abs(float(undropped - here)) > 1e-3


@implementations
def test_second_derivatives_in_a_while_loop(tfb, case):
    """A sum over the turns of a loop, each with other numbers; and the gradient of that loop."""
    call = make(case)
    tensors = call.tensors()
    name = next(iter(tensors))

    @tf.function
    def looped(given):
        def turn(count, total):
            moved = {**given, name: given[name] * (1.0 + 0.5 * tf.cast(count, tf.float64))}
            return count + 1, total + call.first(tfb, moved)

        with tf.GradientTape() as tape:
            tape.watch(given)
            _, total = tf.while_loop(
                lambda count, _: count < 2, turn, (0, tf.zeros([], tf.float64))
            )
        return total, tape.gradient(total, given)

    total, got = looped(tensors)
    want, totals = [], []
    for factor in (1.0, 1.5):
        moved = {**tensors, name: tensors[name] * factor}
        second = call.second(tfb, moved)
        want.append({**second, name: second[name] * factor})
        totals.append(call.first(tfb, moved))
    compare.assert_close(total, sum(totals), BOUND)
    _assert_same(got, {key: want[0][key] + want[1][key] for key in got})


@pytest.mark.parametrize(
    ("case", "mode"),
    [*((case, "eager") for case in FAMILIES), *((case, "graph") for case in IMPLEMENTATIONS)],
)
def test_forward_mode_agrees_with_backward_mode(tfb, case, mode):
    """⟨cotangents, J·v⟩ = ⟨Jᵀ·cotangents, v⟩, of the op itself."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    tangents = {k: tf.constant(along(v, 5)) for k, v in call.inputs.items()}
    cotangents = [tf.constant(v) for v in call.cotangents.values()]
    run = run_modes.in_mode(mode, lambda given: call.call(tfb, given))
    with tf.autodiff.ForwardAccumulator(
        list(tensors.values()), list(tangents.values())
    ) as accumulator:
        pushed = [accumulator.jvp(y) for y in run(tensors)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = run(tensors)
    pulled = tape.gradient(
        outputs, tensors, output_gradients=cotangents, unconnected_gradients="zero"
    )
    forward = sum(np.sum(c * y) for c, y in zip(cotangents, pushed, strict=True))
    backward = sum(np.sum(pulled[k] * tangents[k]) for k in tensors)
    assert forward != 0
    compare.assert_close(forward, backward, BOUND)


@implementations
def test_both_products_of_a_hessian_with_a_vector_agree(tfb, case):
    """Forward over reverse, reverse over reverse, and the recurrence in TensorFlow's ops."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    tangents = {k: tf.constant(along(v, 6)) for k, v in call.inputs.items()}

    def first(call, given):
        with tf.GradientTape() as tape:
            tape.watch(given)
            loss = tf.add_n([weighted(y) for y in call.call(tfb, given)])
        return tape.gradient(loss, given, unconnected_gradients="zero")

    def reverse(call):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            found = first(call, tensors)
            directional = tf.add_n([tf.reduce_sum(found[k] * tangents[k]) for k in tensors])
        return tape.gradient(directional, tensors, unconnected_gradients="zero")

    with tf.autodiff.ForwardAccumulator(
        list(tensors.values()), list(tangents.values())
    ) as accumulator:
        found = first(call, tensors)
    forward = {
        k: accumulator.jvp(gradient, unconnected_gradients="zero") for k, gradient in found.items()
    }
    want = reverse(_plain(call))
    _assert_same(reverse(call), want)
    _assert_same(forward, want)


@pytest.mark.parametrize(("case", "use_pfor"), covering.in_turn(IMPLEMENTATIONS, [True, False]))
def test_jacobians(tfb, case, use_pfor):
    """Of all outputs by the first input: the recurrence's in TensorFlow's ops."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    name = next(iter(tensors))

    def jacobian(call, use_pfor):
        with tf.GradientTape(persistent=not use_pfor) as tape:
            tape.watch(tensors[name])
            flat = tf.concat([tf.reshape(y, [-1]) for y in call.call(tfb, tensors)], 0)
        return tape.jacobian(flat, tensors[name], experimental_use_pfor=use_pfor)

    want = tf.function(lambda: jacobian(_plain(call), True))()
    assert np.any(want)
    compare.assert_close(tf.function(lambda: jacobian(call, use_pfor))(), want, BOUND)


@pytest.mark.parametrize("use_pfor", [True, False])
@pytest.mark.parametrize("case", ["LSTM cell peepholes", "GRU cell"])
def test_jacobians_of_each_row(tfb, case, use_pfor):
    """`batch_jacobian`, where the batch comes first; of the gradient, so a Hessian of each row."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}

    def hessians(call, use_pfor):
        x = tensors["x"]
        with tf.GradientTape(persistent=not use_pfor) as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(tf.sin(call.call(tfb, {**tensors, "x": x})[-1]))
            gradient = inner.gradient(loss, x)
        return outer.batch_jacobian(gradient, x, experimental_use_pfor=use_pfor)

    want = tf.function(lambda: hessians(_plain(call), True))()
    got = tf.function(lambda: hessians(call, use_pfor))()
    assert np.any(want)
    compare.assert_close(got, want, BOUND)
    compare.assert_close(got, tf.transpose(got, [0, 2, 1]), BOUND)


@pytest.mark.parametrize("case", ["BlockLSTM peepholes", "BlockGRU", "lstm projected"])
def test_nothing_comes_from_the_padding(tfb, case):
    call = make(case)
    want = call.second(tfb, call.tensors())
    if case.startswith("Block"):
        padding = np.broadcast_to((np.arange(T) >= T - 1)[:, np.newaxis], (T, B))
    else:
        padding = np.arange(T) >= np.array(second_op_cases.LENGTHS)[:, np.newaxis]
        assert not call.cudnn.time_major
    for name in ("x", "input"):
        if name in call.inputs:
            call.inputs[name][padding] = np.nan
    for name, value in call.cotangents.items():
        if value.shape[:2] == padding.shape and not name.endswith(("_h", "_c")):
            value[padding] = np.nan
    for name, value in call.second(tfb, call.tensors()).items():
        np.testing.assert_array_equal(value, want[name], name)


@pytest.mark.parametrize("case", ["BlockLSTM", "BlockLSTMV2 peepholes", "BlockGRU h"])
@pytest.mark.parametrize("dims", [(0, 3, 2, 4), (3, 0, 2, 4), (2, 3, 0, 4)], ids=str)
def test_empty_dims_of_block_ops(tfb, case, dims):
    call = make(case, dims=dims)
    got = call.second(tfb, call.tensors())
    want = _plain(call).second(tfb, call.tensors()) if dims[0] else None
    for name, value in call.tensors().items():
        assert got[name].shape == value.shape, name
        assert np.isfinite(got[name]).all(), name
        if want is not None:
            compare.assert_close(got[name], want[name], BOUND, name)


@pytest.mark.parametrize("op", [sequence_ops.LSTM, sequence_ops.LSTM_V2, sequence_ops.GRU])
def test_no_step_that_counts(tfb, op):
    call = second_op_cases.BlockCase(op, valid=0)
    for name, value in call.second(tfb, call.tensors()).items():
        assert not np.any(value), name


@pytest.mark.parametrize("sizes", [(0, 3), (4, 0)], ids=str)
@pytest.mark.parametrize("case", ["lstm projected", "gru V2", "rnn_tanh"])
def test_no_steps_and_no_rows_of_stacks(tfb, case, sizes):
    steps, batch = sizes
    call = make(case, steps=steps, batch=batch, lengths=None)
    got = call.second(tfb, call.tensors())
    for name, value in call.tensors().items():
        assert got[name].shape == value.shape, name
        assert np.isfinite(got[name]).all(), name


@pytest.mark.parametrize("case", ["BlockLSTMV2", "BlockGRU"])
def test_a_graph_of_unknown_sizes_gives_the_same(tfb, case):
    call = make(case)
    unknown = {k: tf.TensorSpec([None] * v.shape.rank, v.dtype) for k, v in call.tensors().items()}
    got = tf.function(lambda given: call.second(tfb, given), input_signature=[unknown])(
        call.tensors()
    )
    _assert_same(got, call.second(tfb, call.tensors()))


@pytest.mark.parametrize("case", ["lstm projected", "gru V2"])
def test_a_stack_needs_the_number_of_its_layers_alone(tfb, case):
    call = make(case)
    tensors = call.tensors()
    states = ("input_h", "input_c", "cotangent output_h", "cotangent output_c")
    axis = 0 if call.cudnn.time_major else 1
    for known in (True, False):
        unknown = {
            k: tf.TensorSpec(
                [
                    v.shape[n] if known and k in states and n == axis else None
                    for n in range(v.shape.rank)
                ],
                v.dtype,
            )
            for k, v in tensors.items()
        }
        function = tf.function(lambda given: call.second(tfb, given), input_signature=[unknown])
        if known:
            _assert_same(function(tensors), call.second(tfb, tensors))
        else:
            with pytest.raises(ValueError, match="number of layers.*input_h.*got"):
                function(tensors)


@pytest.mark.parametrize("case", ["BlockLSTM peepholes", "BlockLSTMV2", "BlockGRU"])
def test_half_is_computed_in_float32(tfb, case):
    call = make(case, dtype=np.float16)
    got = call.second(tfb, call.tensors())
    exact = make(case)
    exact.inputs = {k: v.astype(np.float64) for k, v in call.inputs.items()}
    exact.cotangents = {k: v.astype(np.float64) for k, v in call.cotangents.items()}
    bound = tolerances.second_bound(np.float16, T * 4 * H)
    for name, want in exact.second(tfb, exact.tensors()).items():
        assert got[name].dtype == tf.float16, name
        compare.assert_close(got[name], want, bound, name)


@pytest.mark.parametrize("case", ["lstm projected", "gru V2", "rnn_relu", "lstm V1", "GRU cell"])
def test_tensorflows_own_ops_have_them_too(tfb, case):
    call = make(case)
    bound = BOUND
    if case == "GRU cell":  # which TensorFlow has in float32 alone
        call, bound = make(case, dtype=np.float32), tolerances.second_bound("float", T * (I + H))
    _assert_same(call.second(tf, call.tensors()), call.second(tfb, call.tensors()), bound)


def test_a_foreign_reserve_space_has_no_mask_to_read(tfb, monkeypatch):
    """As that of TensorFlow's op on a GPU is one, cuDNN's own."""
    call = make("rnn_tanh dropout")
    assert np.any(call.second(tfb, call.tensors())["params"])
    monkeypatch.setattr(cudnn_rnn_stack, "_MARK", b"another!")
    with pytest.raises(tf.errors.InvalidArgumentError, match="reserve_space must be"):
        call.second(tfb, call.tensors())


@families
def test_the_first_gradient_alone_costs_nothing_more(tfb, case):
    call = make(case)
    call.cotangents = {k: v for k, v in call.cotangents.items() if k.endswith((" h", " output"))}

    def first(given):
        inputs = {k: given[k] for k in call.inputs}
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = call.call(tfb, inputs)
        name = next(iter(call.cotangents))
        kept = outputs[0] if name.endswith("output") else outputs[-1]
        return tape.gradient(kept, inputs, output_gradients=given[name])

    graph = tf.function(first).get_concrete_function(call.tensors()).graph
    types = [op.type for op in graph.get_operations()]
    assert sum(kind.startswith("BlockRNN>") for kind in types) == 2
    assert not any("While" in kind or "If" in kind for kind in types)


def test_one_network_has_derivatives_of_third_order(tfb):
    """They are derivatives of what a second derivative is made of: against finite differences."""
    for case, mode in (("BlockGRU h", "graph"), ("gru V2", "eager")):
        call, step = make(case), tolerances.FINITE_DIFFERENCE_STEP
        tensors = call.tensors()
        name = next(iter(call.inputs))

        def second(given, call=call, name=name):
            found = call.second(tfb, given)
            return weighted(found[name])

        def third(given, second=second, name=name):
            with tf.GradientTape() as tape:
                tape.watch(given[name])
                total = second(given)
            return tape.gradient(total, given[name])

        got = run_modes.in_mode(mode, third)(tensors)
        direction = along(got, 4)
        ends = [
            float(second({**tensors, name: tensors[name] + sign * step * direction}))
            for sign in (1, -1)
        ]
        want = (ends[0] - ends[1]) / (2 * step)
        compare.assert_close(np.sum(got * direction), want, tolerances.FINITE_DIFFERENCES, case)


def test_the_cases_are_of_every_kind():
    """All modes, versions, directions, layers, projections, padding, and skipped inputs."""
    nets = [make(case) for case in PLAIN if case not in second_op_cases._BLOCK]
    nets = [case for case in nets if isinstance(case, second_op_cases.CudnnCase)]
    assert {case.net.mode for case in nets} == {"lstm", "gru", "rnn_tanh", "rnn_relu"}
    assert {case.cudnn.version for case in nets} == {1, 2, 3}
    assert {case.net.directions for case in nets} == {1, 2}
    assert {case.net.layers for case in nets} == {1, 2, 3}
    assert {case.net.skip for case in nets} == {True, False}
    assert {case.cudnn.time_major for case in nets} == {True, False}
    assert any(case.net.num_proj for case in nets)
