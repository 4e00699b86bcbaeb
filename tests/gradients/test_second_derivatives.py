"""Second derivatives of all ops and functions: gradient penalties, Hessians, forward mode.

Against finite differences of the first gradient, and against Keras' own layers.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, layer_pairs, plain_recurrences, run_modes, second_cases, tolerances
from helpers.second_cases import Case, along, check_finite_differences, random_array
from helpers.second_op_cases import CLIPPED, DROPOUT, FAMILIES, IMPLEMENTATIONS, SMOOTH, make
from tensorflow.core.function.polymorphism.function_cache import FunctionCache
from tensorflow.python.eager import forwardprop

from tf_blockrnn._ops import cudnn_rnn_stack, sequence_walk

pytestmark = pytest.mark.types

implementations = pytest.mark.parametrize("case", IMPLEMENTATIONS)


@pytest.fixture
def no_traces(monkeypatch):
    """Forward mode that traces anew what other tests of this process have had traced."""
    for name in ("_jvp_exact_config", "_jvp_relaxed_config"):
        config = dataclasses.replace(getattr(forwardprop, name), function_cache=FunctionCache())
        monkeypatch.setattr(forwardprop, name, config)
    monkeypatch.setattr(forwardprop, "_TRACE_COUNT", {})


def _assert_same(got, want, bound):
    assert got.keys() == want.keys()
    assert any(np.any(value) for value in want.values())
    for name, value in want.items():
        compare.assert_close(got[name], value, bound, name)


@pytest.mark.parametrize("case", SMOOTH)
def test_it_is_the_finite_difference_of_the_first_gradient(tfb, case):
    check_finite_differences(tfb, make(case))


@pytest.mark.parametrize("case", CLIPPED)
def test_the_clip_of_an_op_is_passed_through(tfb, case):
    call = make(case)
    got = call.second(tfb, call.tensors())
    call.call = lambda _, tensors: call.clipped(tensors)
    _assert_same(got, call.second(tfb, call.tensors()), call.bound)


def _straight_through_lstm(tensors, clip, factors, zoneout):
    """The LSTM in TensorFlow's ops, whose clip has the derivative 1; [B, T, I]."""
    h, cs, outputs = tensors["h"], tensors["cs"], []
    shares = [tf.unstack(share, axis=1) for share in zoneout]
    for x, of_h, of_cs in zip(tf.unstack(tensors["x"], axis=1), *shares, strict=True):
        of_state = [
            tf.matmul(h * factor, w)
            for factor, w in zip(tf.unstack(factors), tf.split(tensors["w_h"], 4, 1), strict=True)
        ]
        bars = tf.matmul(x, tensors["w_x"]) + tf.concat(of_state, 1) + tensors["b"]
        step = plain_recurrences.lstm_step(bars, cs, clip, forget_bias=0.6)
        h = of_h * h + (1 - of_h) * step["h"]
        cs = of_cs * cs + (1 - of_cs) * step["cs"]
        outputs.append(h)
    return [tf.stack(outputs, 1), h, cs]


@pytest.mark.parametrize("kind", ["", "draws", "mean"])
def test_the_clip_of_a_function_is_passed_through(tfb, kind):
    """All its numbers are those of float64, none of float32."""
    clip = 0.35
    call = Case("lstm mask dropout", cell_clip=clip)
    del call.options["mask"]
    tensors = call.tensors()
    size = (second_cases.B, second_cases.T, second_cases.H)
    factors = call.options["recurrent_dropout_factors"]
    zoneout = [tf.zeros(size, tf.float64)] * 2
    cells = _straight_through_lstm(tensors, clip, factors, zoneout)[2]
    assert 0 < np.mean(np.abs(cells) == clip) < 1
    if kind == "draws":
        draws = [tf.constant(random_array(size, [seed]) > 0.2) for seed in (5, 6)]
        call.options |= {"zoneout_h": draws[0], "zoneout_c": draws[1]}
        zoneout = [tf.cast(drawn, tf.float64) for drawn in draws]
    elif kind == "mean":
        call.options |= {"zoneout_h": 0.3, "zoneout_c": 0.1}
        zoneout = [tf.fill(size, tf.constant(rate, tf.float64)) for rate in (0.3, 0.1)]
    got = call.second(tfb, tensors)
    call.call = lambda tfb, given: _straight_through_lstm(given, clip, factors, zoneout)
    _assert_same(got, call.second(tfb, tensors), call.bound)


@pytest.mark.parametrize(
    "mode, kind", [*(("eager", kind) for kind in layer_pairs.KINDS), ("graph", "RNN-tanh")]
)
def test_a_gradient_penalty_is_that_of_keras(mode, kind):
    x = tf.constant(layer_pairs.sequence(), tf.float64)

    def penalty(layer):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x, mask=layer_pairs.MASK) ** 2)
            norms = tf.reduce_sum(inner.gradient(loss, x) ** 2, axis=[1, 2])
            total = tf.reduce_sum((norms - 1) ** 2) + loss
        return outer.gradient(total, layer.trainable_variables)

    ours, peer = layer_pairs.pair(kind, "float64", return_sequences=True)
    run = tf.function(penalty) if mode == "graph" else penalty
    for got, want in zip(run(ours), penalty(peer), strict=True):
        compare.assert_close(got, want, second_cases.BOUND)


@pytest.mark.parametrize(
    ("case", "mode"), [(case, "jit" if "tanh" in case else "graph") for case in DROPOUT]
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


@pytest.mark.parametrize("case", ["LSTM cell peepholes", "stack rnn_tanh V1"])
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
    compare.assert_close(total, sum(totals), call.bound)
    _assert_same(got, {key: want[0][key] + want[1][key] for key in got}, call.bound)


def _pushed(function, tensors, tangents):
    """What forward mode makes of the tangents, for each output."""
    with tf.autodiff.ForwardAccumulator(
        list(tensors.values()), list(tangents.values())
    ) as accumulator:
        outputs = function(tensors)
    return tf.nest.map_structure(accumulator.jvp, outputs)


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        *((case, "eager") for case in FAMILIES),
        *((case, "graph") for case in (*IMPLEMENTATIONS, "lstm", "gru before")),
    ],
)
def test_forward_mode_agrees_with_backward_mode(tfb, case, mode):
    """⟨cotangents, J·v⟩ = ⟨Jᵀ·cotangents, v⟩, of the op itself."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    tangents = {k: tf.constant(along(v, 5)) for k, v in call.inputs.items()}
    cotangents = [tf.constant(v) for v in call.cotangents.values()]
    run = run_modes.in_mode(mode, lambda given: call.call(tfb, given))
    pushed = _pushed(run, tensors, tangents)
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = run(tensors)
    pulled = tape.gradient(
        outputs, tensors, output_gradients=cotangents, unconnected_gradients="zero"
    )
    forward = sum(np.sum(c * y) for c, y in zip(cotangents, pushed, strict=True))
    backward = sum(np.sum(pulled[k] * tangents[k]) for k in tensors)
    assert forward != 0
    compare.assert_close(forward, backward, call.bound)


@pytest.mark.usefixtures("no_traces")
@pytest.mark.parametrize("case", ["lstm", "gru before"])
def test_forward_mode_needs_no_branch(tfb, case, monkeypatch):
    """Its cotangents are seen to be no zeros, so that the fused gradient is not traced beside."""

    def branch(*_, **__):
        raise AssertionError("a branch in forward mode")

    monkeypatch.setattr(tf, "cond", branch)
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    tangents = {k: tf.constant(random_array(v.shape, [8])) for k, v in call.inputs.items()}
    assert all(map(np.any, _pushed(lambda given: call.call(tfb, given), tensors, tangents)))


def _check_forward_over_backward(tfb, call):
    """⟨∇, v⟩ of a number of the first gradients, by both modes."""
    tensors = call.tensors()
    second = call.second(tfb, tensors)
    tangents = {k: tf.constant(along(gradient, 9)) for k, gradient in second.items()}
    got = _pushed(lambda given: call.first(tfb, given), tensors, tangents)
    want = sum(np.sum(second[k] * tangents[k]) for k in tensors)
    compare.assert_close(got, want, call.bound)


@implementations
def test_forward_over_backward(tfb, case):
    _check_forward_over_backward(tfb, make(case))


@pytest.mark.usefixtures("no_traces")
@pytest.mark.parametrize(
    "case, other",
    [
        ("lstm all", "lstm"),
        ("lstm resets all", "lstm"),
        ("gru before", "gru before products"),
        ("layer norm gru resets", "layer norm gru"),
    ],
)
def test_forward_mode_where_ranks_are_unknown(tfb, case, other, monkeypatch):
    """As they are in gradients that TensorFlow traces for more than some 30 shapes of an op.

    Each trace is called with other arguments left out, too; with other attrs it would be another.
    """
    monkeypatch.setattr(forwardprop, "_TRACE_COUNT_LIMIT", 0)
    asked, as_given = [], sequence_walk.as_given
    monkeypatch.setattr(
        sequence_walk, "as_given", lambda t, *more: asked.append(t.shape.rank) or as_given(t, *more)
    )
    full = make(case, time_major=True)
    left_out = {"mask", "resets", "lengths", "zoneout_h", "zoneout_c", "recurrent_dropout_factors"}
    if case == "lstm all":
        left_out -= {"lengths"}  # of int64; left out they are int32, another attr
    options = {k: v for k, v in full.options.items() if k not in left_out}
    for call in (full, make(other, **options)):
        _check_forward_over_backward(tfb, call)
    assert None in asked


@pytest.mark.parametrize(
    ("case", "use_pfor"), list(zip(IMPLEMENTATIONS, [True, False, True], strict=True))
)
def test_jacobians(tfb, case, use_pfor):
    """Of all outputs by the first input; times the cotangents it is the gradient."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    x = next(iter(tensors.values()))
    cotangents = tf.concat([tf.reshape(c, [-1]) for c in call.cotangents.values()], 0)

    @tf.function
    def found():
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            flat = tf.concat([tf.reshape(y, [-1]) for y in call.call(tfb, tensors)], 0)
        jacobian = tape.jacobian(flat, x, experimental_use_pfor=use_pfor)
        return jacobian, tape.gradient(flat, x, output_gradients=cotangents)

    jacobian, want = found()
    assert np.any(want)
    compare.assert_close(tf.tensordot(cotangents, jacobian, 1), want, call.bound)


@pytest.mark.parametrize("case, use_pfor", [("LSTM cell peepholes", True), ("GRU cell", False)])
def test_hessians_of_each_row(tfb, case, use_pfor):
    """`batch_jacobian` of the gradient, where the batch comes first."""
    call = make(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    x = tensors["x"]
    vector = tf.constant(random_array(x.shape, [1]))

    @tf.function
    def found():
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(tf.sin(call.call(tfb, {**tensors, "x": x})[-1]))
            gradient = inner.gradient(loss, x)
            directional = tf.reduce_sum(gradient * vector)
        hessians = outer.batch_jacobian(gradient, x, experimental_use_pfor=use_pfor)
        return hessians, outer.gradient(directional, x)

    hessians, want = found()
    assert np.any(want)
    compare.assert_close(tf.linalg.matvec(hessians, vector), want, call.bound)
    compare.assert_close(hessians, tf.linalg.matrix_transpose(hessians), call.bound)


@pytest.mark.parametrize(
    "case",
    [
        *("BlockLSTM peepholes", "BlockGRU", "stack lstm projected", "rnn tanh"),
        *("lstm lengths peepholes", "gru after", "gru before all"),
    ],
)
def test_nothing_comes_from_the_padding(tfb, case):
    call = make(case)
    want = call.second(tfb, call.tensors())
    for array, place in call.padding():
        array[place] = np.nan
    for name, value in call.second(tfb, call.tensors()).items():
        np.testing.assert_array_equal(value, want[name], name)


@pytest.mark.parametrize(
    "case",
    [
        *("BlockLSTM h", "BlockLSTMV2 h", "BlockGRU", "stack lstm projected"),
        *("stack gru V2", "stack rnn_tanh", "lstm", "gru after products", "gru before", "rnn relu"),
    ],
)
def test_empty_dims(tfb, case):
    for sizes in ({"steps": 0}, {"batch": 0}, *[{"inputs": 0}] * case.startswith("Block")):
        check_finite_differences(tfb, make(case, **sizes))


@pytest.mark.parametrize("case", ["BlockLSTM", "BlockLSTMV2", "BlockGRU"])
def test_no_step_that_counts(tfb, case):
    call = make(case)
    call.valid = 0
    for name, value in call.second(tfb, call.tensors()).items():
        assert not np.any(value), name


@pytest.mark.parametrize("case", ["BlockGRU", "rnn tanh all"])
def test_a_graph_of_unknown_sizes_gives_the_same(tfb, case):
    call = make(case)
    unknown = {k: tf.TensorSpec([None] * v.shape.rank, v.dtype) for k, v in call.tensors().items()}
    got = tf.function(lambda given: call.second(tfb, given), input_signature=[unknown])(
        call.tensors()
    )
    _assert_same(got, call.second(tfb, call.tensors()), call.bound)


def test_a_stack_needs_the_number_of_its_layers_alone(tfb):
    call = make("stack gru V2")
    tensors = call.tensors()
    for layers in (call.cudnn.net.layer_directions, None):
        unknown = {
            k: tf.TensorSpec([layers if "_h" in k else None, None, None][: v.shape.rank], v.dtype)
            for k, v in tensors.items()
        }
        function = tf.function(lambda given: call.second(tfb, given), input_signature=[unknown])
        if layers:
            _assert_same(function(tensors), call.second(tfb, tensors), call.bound)
        else:
            with pytest.raises(ValueError, match="number of layers.*input_h.*got"):
                function(tensors)


@pytest.mark.parametrize(
    "case",
    [
        *("BlockLSTM peepholes", "BlockLSTMV2", "BlockGRU", "rnn tanh"),
        *("lstm mask dropout", "gru after", "gru before"),
    ],
)
def test_half_is_computed_in_float32(tfb, case):
    call, exact = make(case, dtype=np.float16), make(case)
    exact.inputs = {k: v.astype(np.float64) for k, v in call.inputs.items()}
    exact.cotangents = {k: v.astype(np.float64) for k, v in call.cotangents.items()}
    got = call.second(tfb, call.tensors())
    assert all(value.dtype == tf.float16 for value in got.values())
    bound = tolerances.second_bound(np.float16, 1)
    _assert_same(got, exact.second(tfb, exact.tensors()), bound)


@pytest.mark.parametrize(
    "case",
    ["stack lstm projected", "stack gru V2", "stack rnn_relu", "stack lstm V1", "GRU cell"],
)
def test_tensorflows_own_ops_have_them_too(tfb, case):
    call = make(case)
    bound = call.bound
    if case == "GRU cell":  # which TensorFlow has in float32 alone
        call, bound = make(case, dtype=np.float32), tolerances.second_bound("float", 15)
    _assert_same(call.second(tf, call.tensors()), call.second(tfb, call.tensors()), bound)


def test_a_foreign_reserve_space_has_no_mask_to_read(tfb, monkeypatch):
    """As that of TensorFlow's op on a GPU is one, cuDNN's own."""
    call = make("stack rnn_tanh dropout")
    assert np.any(call.second(tfb, call.tensors())["params"])
    monkeypatch.setattr(cudnn_rnn_stack, "_MARK", b"another!")
    with pytest.raises(tf.errors.InvalidArgumentError, match="reserve_space must be"):
        call.second(tfb, call.tensors())


@pytest.mark.parametrize("case", FAMILIES)
def test_the_first_gradient_alone_costs_nothing_more(tfb, case):
    """Neither a loop nor a branch, and no other op than forward and backward."""
    call = make(case)
    main = next(k for k in call.cotangents if k.endswith((" h", " output", " 0")))

    def first(given):
        inputs = {k: given[k] for k in call.inputs}
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = dict(zip(call.cotangents, call.call(tfb, inputs), strict=True))
        return tape.gradient(outputs[main], inputs, output_gradients=given[main])

    graph = tf.function(first).get_concrete_function(call.tensors()).graph
    types = [op.type for op in graph.get_operations()]
    assert sum(kind.startswith("BlockRNN>") for kind in types) == 2
    assert not any("While" in kind or "If" in kind for kind in types)
