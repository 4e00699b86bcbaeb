"""Second derivatives of whole sequences: gradient penalties, Hessians, forward mode.

Against Keras' own layers, and against finite differences of the first gradient.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, layer_pairs, plain_recurrences, tolerances
from helpers.second_cases import (
    BOUND,
    CASES,
    LENGTHS,
    MASK,
    B,
    Case,
    H,
    I,
    T,
    along,
    check_finite_differences,
    random_array,
    weighted,
)
from tensorflow.python.eager import forwardprop

pytestmark = pytest.mark.types

all_cases = pytest.mark.parametrize("case", CASES)


@all_cases
def test_it_is_the_finite_difference_of_the_first_gradient(tfb, case):
    check_finite_differences(tfb, Case(case))


@pytest.mark.parametrize("case", ["lstm all", "rnn tanh all"])
def test_a_graph_of_unknown_sizes_gives_the_same(tfb, case):
    call = Case(case)
    tensors = call.tensors()
    steps = {"x", "cotangent 0"}
    unknown = {
        k: tf.TensorSpec([None] * (2 if k in steps else v.shape.rank - 1) + [v.shape[-1]], v.dtype)
        for k, v in tensors.items()
    }
    got = tf.function(lambda given: call.second(tfb, given), input_signature=[unknown])(tensors)
    for name, want in call.second(tfb, tensors).items():
        compare.assert_close(got[name], want, BOUND, name)


@pytest.mark.parametrize(
    "mode, kind, masked",
    [
        *(("eager", kind, True) for kind in layer_pairs.KINDS),
        ("eager", "GRU", False),
        ("graph", "RNN-tanh", True),
    ],
)
def test_a_gradient_penalty_is_that_of_keras(mode, kind, masked):
    mask = layer_pairs.MASK if masked else None
    x = tf.constant(layer_pairs.sequence(), tf.float64)

    def penalty(layer):
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x, mask=mask) ** 2)
            norms = tf.reduce_sum(inner.gradient(loss, x) ** 2, axis=[1, 2])
            total = tf.reduce_sum((norms - 1) ** 2) + loss
        return outer.gradient(total, layer.trainable_variables)

    ours, peer = layer_pairs.pair(kind, "float64", return_sequences=True)
    run = tf.function(penalty) if mode == "graph" else penalty
    for got, want in zip(run(ours), penalty(peer), strict=True):
        compare.assert_close(got, want, BOUND)


def _straight_through_lstm(tensors, clip, factors, zoneout):
    """The LSTM in TensorFlow's ops, whose clip has the derivative 1; [B, T, I]."""
    h, cs, outputs = tensors["h"], tensors["cs"], []
    draws = [tf.unstack(drawn, axis=1) for drawn in zoneout]
    for x, keep_h, keep_cs in zip(tf.unstack(tensors["x"], axis=1), *draws, strict=True):
        of_state = [
            tf.matmul(h * factor, w)
            for factor, w in zip(tf.unstack(factors), tf.split(tensors["w_h"], 4, 1), strict=True)
        ]
        bars = tf.matmul(x, tensors["w_x"]) + tf.concat(of_state, 1) + tensors["b"]
        step = plain_recurrences.lstm_step(bars, cs, forget_bias=0.5, clip=clip)
        h = tf.where(keep_h, h, step["h"])
        cs = tf.where(keep_cs, cs, step["cs"])
        outputs.append(h)
    return [tf.stack(outputs, 1), h, cs]


@pytest.mark.parametrize("drawn", [False, True], ids=["", "zoneout"])
def test_the_clip_is_passed_through(tfb, drawn):
    clip = 0.375  # a number in float32, as the attr is one
    call = Case("lstm mask dropout", cell_clip=clip)
    del call.options["mask"]
    tensors = call.tensors()
    zoneout = [tf.zeros([B, T, H], tf.bool)] * 2
    if drawn:
        zoneout = [tf.constant(random_array((B, T, H), [seed]) > 0.2) for seed in (5, 6)]
        call.options |= {"zoneout_h": zoneout[0], "zoneout_c": zoneout[1]}
    got = call.second(tfb, tensors)
    factors = call.options["recurrent_dropout_factors"]
    cells = _straight_through_lstm(tensors, clip, factors, zoneout)[2]
    assert 0 < np.mean(np.abs(cells) == clip) < 1
    call.call = lambda tfb, given: _straight_through_lstm(given, clip, factors, zoneout)
    for name, want in call.second(tfb, tensors).items():
        compare.assert_close(got[name], want, BOUND, name)


@pytest.mark.parametrize(
    "case", ["lstm lengths peepholes", "gru after", "gru before all", "rnn tanh"]
)
def test_nothing_comes_from_the_padding(tfb, case):
    call = Case(case)
    want = call.second(tfb, call.tensors())
    padding = np.arange(T) >= LENGTHS[:, np.newaxis]
    call.inputs["x"][padding] = np.nan
    call.cotangents["cotangent 0"][padding] = np.nan
    for name, value in call.second(tfb, call.tensors()).items():
        np.testing.assert_array_equal(value, want[name], name)


@pytest.mark.parametrize("op", ["LSTMSequence", "GRUSequence", "GRUAfterSequence"])
@pytest.mark.parametrize("zoneout", ["", "draws", "mean"])
def test_saved_gates_have_gradients(tfb, op, zoneout):
    """Second derivatives go through them: against finite differences, for all outputs."""
    width = {"LSTMSequence": 4 * H, "GRUAfterSequence": 3 * H}.get(op)
    x, h, cs = (T, B, I), (B, H), (B, H)
    shapes = {"x": x, "h_prev": h}
    if op == "GRUSequence":
        shapes |= {"w_ru_x": (I, 2 * H), "w_ru_h": (H, 2 * H), "w_c_x": (I, H), "w_c_h": (H, H)}
        shapes |= {"b_ru": (2 * H,), "b_c": (H,)}
    else:
        shapes |= {"w_x": (I, width), "w_h": (H, width)}
        shapes |= {"b": (width,)} if op == "LSTMSequence" else {"b_x": (width,), "b_h": (width,)}
    if op == "LSTMSequence":
        shapes |= {"cs_prev": cs, "peepholes": (3, H), "w_p": (H, H)}
    values = {k: random_array(shape, [seed]) for seed, (k, shape) in enumerate(shapes.items())}
    fixed = {
        "mask": tf.constant(MASK),
        "sequence_lengths": tf.constant(LENGTHS),
        "recurrent_dropout": tf.constant(
            random_array((4 if op == "LSTMSequence" else 3, B, H), [77])
        ),
    }
    for seed, state in enumerate("hc" if op == "LSTMSequence" else "h"):
        drawn = random_array((T, B, H), [80 + seed]) > 0.2
        fixed[f"zoneout_{state}"] = tf.constant(drawn if zoneout == "draws" else np.zeros(0, bool))
        if zoneout == "mean":
            fixed[f"zoneout_rate_{state}"] = 0.25

    def loss(tensors):
        return tf.add_n([weighted(y) for y in getattr(tfb.raw_ops, op)(**tensors, **fixed)])

    tensors = {k: tf.constant(v) for k, v in values.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = loss(tensors)
    got = tape.gradient(total, tensors)
    step = tolerances.FINITE_DIFFERENCE_STEP
    for seed, (name, value) in enumerate(values.items()):
        direction = along(got[name], 100 + seed)
        ends = [
            float(loss({**tensors, name: tf.constant(value + sign * step * direction)}))
            for sign in (1, -1)
        ]
        found = np.sum(got[name].numpy() * direction)
        want = (ends[0] - ends[1]) / (2 * step)
        compare.assert_close(found, want, tolerances.FINITE_DIFFERENCES, name)


@pytest.mark.parametrize("case", ["lstm", "gru after", "gru before", "rnn tanh"])
def test_forward_mode_through_a_function_is_that_of_eager_calls(tfb, case):
    call = Case(case)
    tensors = [tf.constant(v) for v in call.inputs.values()]
    tangents = [tf.constant(random_array(v.shape, [7])) for v in call.inputs.values()]

    def compute(*tensors):
        return call.call(tfb, dict(zip(call.inputs, tensors, strict=True)))

    found = []
    for function in (compute, tf.function(compute)):
        with tf.autodiff.ForwardAccumulator(tensors, tangents) as accumulator:
            outputs = function(*tensors)
        found.append([accumulator.jvp(y) for y in outputs])
    for eager, of_function in zip(*found, strict=True):
        compare.assert_close(of_function, eager, BOUND)


@pytest.mark.parametrize("case", ["lstm", "gru after", "gru before"])
def test_forward_mode_needs_no_branch(tfb, case, monkeypatch):
    """Its cotangents are seen to be no zeros, so that the fused gradient is not traced beside."""

    def branch(*_, **__):
        raise AssertionError("a branch in forward mode")

    monkeypatch.setattr(tf, "cond", branch)
    call = Case(case, steps=2, batch=2)  # sizes that nothing has been traced for
    tensors = [tf.constant(v) for v in call.inputs.values()]
    tangents = [tf.constant(random_array(v.shape, [8])) for v in call.inputs.values()]
    with tf.autodiff.ForwardAccumulator(tensors, tangents) as accumulator:
        outputs = call.call(tfb, dict(zip(call.inputs, tensors, strict=True)))
    assert all(np.any(accumulator.jvp(y)) for y in outputs)


@pytest.mark.parametrize("case", ["lstm", "gru after", "rnn tanh"])
def test_forward_mode_agrees_with_backward_mode(tfb, case):
    """⟨J·v, J·v⟩ = ⟨Jᵀ·J·v, v⟩."""
    call = Case(case)
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    tangents = {k: tf.constant(random_array(v.shape, [7])) for k, v in call.inputs.items()}
    with tf.autodiff.ForwardAccumulator(
        list(tensors.values()), list(tangents.values())
    ) as accumulator:
        outputs = call.call(tfb, tensors)
        pushed = [accumulator.jvp(y) for y in outputs]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = call.call(tfb, tensors)
    pulled = tape.gradient(outputs, tensors, output_gradients=pushed)
    forward = sum(np.sum(y * y) for y in pushed)
    backward = sum(np.sum(pulled[k] * tangents[k]) for k in tensors)
    compare.assert_close(forward, backward, BOUND)


PLAIN = {"lstm": "lstm", "gru": "gru after", "simple_rnn": "rnn tanh"}
LEFT_OUT = ("mask", "lengths", "recurrent_dropout_factors")


@pytest.mark.parametrize("case", ["lstm all", "gru before products"])
def test_forward_mode_where_ranks_are_unknown(tfb, case, monkeypatch):
    """As they are in gradients that TensorFlow traces for more than some 30 shapes of an op.

    Each trace is called with other arguments left out, or with fewer steps, too.
    """
    monkeypatch.setattr(forwardprop, "_TRACE_COUNT_LIMIT", 0)
    full, other = Case(case), Case(case, steps=2)
    if case == "lstm all":
        attrs = {name: value for name, value in full.options.items() if name not in LEFT_OUT}
        other = Case(PLAIN[full.name], **attrs)
        for name in LEFT_OUT:
            other.options.pop(name, None)
    for call in (full, other):
        tensors = call.tensors()
        pulled = call.second(tfb, tensors)
        tangents = {k: along(gradient, 9) for k, gradient in pulled.items()}
        with tf.autodiff.ForwardAccumulator(
            list(tensors.values()), [tf.constant(v) for v in tangents.values()]
        ) as accumulator:
            first = call.first(tfb, tensors)
        want = sum(np.sum(pulled[k] * tangents[k]) for k in tensors)
        compare.assert_close(accumulator.jvp(first), want, BOUND)


def test_a_hessian_is_symmetric(tfb):
    call = Case("lstm lengths peepholes")
    tensors = {k: tf.constant(v) for k, v in call.inputs.items()}
    h = tensors["h"]
    with tf.GradientTape(persistent=True) as outer:
        outer.watch(h)
        with tf.GradientTape() as inner:
            inner.watch(h)
            loss = weighted(call.call(tfb, {**tensors, "h": h})[0])
        gradient = inner.gradient(loss, h)
    hessian = np.reshape(outer.jacobian(gradient, h, experimental_use_pfor=False), (B * H, B * H))
    assert np.abs(hessian).max() > 0
    compare.assert_close(hessian, hessian.T, BOUND)


@pytest.mark.parametrize("sizes", [(0, B), (T, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("case", ["lstm", "gru after products", "gru before", "rnn relu"])
def test_no_steps_and_no_rows(tfb, case, sizes):
    call = Case(case, *sizes)
    got = call.second(tfb, call.tensors())
    for name, value in {**call.inputs, **call.cotangents}.items():
        assert got[name].shape == value.shape, name
        assert np.isfinite(got[name]).all(), name


@pytest.mark.parametrize("case", ["lstm mask dropout", "gru after", "gru before", "rnn tanh"])
def test_half_is_computed_in_float32(tfb, case):
    dtype = np.float16
    call = Case(case, dtype=dtype)
    got = call.second(tfb, call.tensors())
    exact = Case(case)
    exact.inputs = {k: v.astype(np.float64) for k, v in call.inputs.items()}
    exact.cotangents = {k: v.astype(np.float64) for k, v in call.cotangents.items()}
    if "recurrent_dropout_factors" in call.options:
        exact.options["recurrent_dropout_factors"] = tf.cast(
            call.options["recurrent_dropout_factors"], tf.float64
        )
    bound = tolerances.second_bound(dtype, T * (I + H))
    for name, want in exact.second(tfb, exact.tensors()).items():
        assert got[name].dtype == dtype, name
        compare.assert_close(got[name], want, bound, name)


@pytest.mark.parametrize("case", ["lstm all", "gru after", "gru before", "rnn tanh"])
def test_the_first_gradient_alone_has_no_loop(tfb, case):
    call = Case(case)
    graph = tf.function(lambda given: call.first(tfb, given)).get_concrete_function(call.tensors())
    types = [op.type for op in graph.graph.get_operations()]
    assert sum(kind.startswith("BlockRNN>") for kind in types) == 2
    assert not any("While" in kind for kind in types)
