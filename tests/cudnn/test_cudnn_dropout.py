"""Dropout of the cuDNN RNN ops: which numbers it drops, how many, and that Backprop drops them too.

A network whose output is its mask makes the mask visible: every matrix but those between the layers
is zero, those are the identity, the activation is relu and the input is one.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import children, compare, cudnn_ops, tolerances
from helpers.cudnn_ops import Call
from helpers.reference import stack
from helpers.reference.stack import Network

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)


def _transparent(units, directions=1, layers=2, bias=0.0, dtype="float"):
    """The network and its params; with masks m1, m2, … the output is m1 ∘ m2 ∘ … + bias."""
    net = Network("rnn_relu", layers, directions, units, units, skip=True)
    params = np.zeros(net.params_size(), cudnn_ops.numpy_type(dtype))
    weights, biases = stack.canonical(net, params)
    for k in range(directions, net.layer_directions):
        # Direction d of a layer takes up what direction d of the layer below gives.
        eye = np.eye(units)
        parts = [eye if d == k % directions else 0 * eye for d in range(directions)]
        weights[2 * k][:] = np.concatenate(parts, axis=1)
        if k >= net.layer_directions - directions:
            biases[2 * k][:] = bias
    return net, params


def _transparent_call(steps, batch, units, dropout, *, seeds=(7, 11), dtype="float", **more):
    """The call and its tensors; `more` goes to the network or to the call."""
    network = {k: more.pop(k) for k in ("directions", "layers", "bias") if k in more}
    net, params = _transparent(units, dtype=dtype, **network)
    call = Call(net, steps, batch, dropout=dropout, seeds=seeds, **more)
    arrays = call.random(dtype)
    arrays = {k: np.zeros_like(v) for k, v in arrays.items()} | {"params": params}
    arrays["input"] = np.ones_like(arrays["input"])
    return call, call.tensors(arrays)


def _masks(raw_ops, calls_and_tensors) -> list[np.ndarray]:
    """The masks of calls that are nodes of one graph, which is run once."""

    @tf.function
    def graph(all_tensors):
        pairs = zip(calls_and_tensors, all_tensors, strict=True)
        return [call.forward(raw_ops, tensors).output for (call, _), tensors in pairs]

    return [v.numpy() for v in graph([tensors for _, tensors in calls_and_tensors])]


@pytest.mark.parametrize("dropout", [0.5, 0.1, 0.9, 0.001])
def test_rate_and_scale_over_a_million_draws(tfb, dropout):
    """The share of zeros is the rate within the statistical bound, along every axis; the rest
    is 1 / (1 - rate)."""
    steps, batch, units = 40, 800, 32
    dropout = float(np.float32(dropout))  # as the attr has it
    call, tensors = _transparent_call(steps, batch, units, dropout)
    mask = call.forward(tfb.raw_ops, tensors).output.numpy()
    assert mask.size >= 10**6
    kept = mask[mask != 0]
    np.testing.assert_allclose(kept, 1 / (1 - dropout), rtol=tolerances.EPS["float"])
    zeros = (mask == 0).astype(np.float64)
    for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
        share = zeros.mean(axis=axes)
        bound = tolerances.share_bound(dropout, zeros.size // share.size, share.size)
        assert np.max(np.abs(share - dropout)) <= bound, axes


@pytest.mark.parametrize("directions", [1, 2])
def test_draws_do_not_depend_on_one_another(tfb, directions):
    """Two neighbours along any axis, two layers and two calls are zero together as often as
    chance would have it."""
    dropout, steps, batch, units = 0.3, 20, 400, 16
    one = _transparent_call(steps, batch, units, dropout, directions=directions)
    call, tensors = one
    first, second = (call.forward(tfb.raw_ops, tensors).output.numpy() == 0 for _ in range(2))
    pairs = {"calls": (first, second)}
    for axis, distance in itertools.product(range(3), (1, 2, 4, 8)):
        whole = np.moveaxis(first, axis, 0)
        pairs[f"axis {axis}, {distance} apart"] = (whole[:-distance], whole[distance:])
    for name, (a, b) in pairs.items():
        bound = tolerances.share_bound(dropout**2, a.size, len(pairs))
        assert abs(np.mean(a & b) - dropout**2) <= bound, name
    # Two layers' masks: a number remains if neither drops it.
    call, tensors = _transparent_call(
        steps, batch, units, dropout, directions=directions, layers=3, seeds=(3, 4)
    )
    both = call.forward(tfb.raw_ops, tensors).output.numpy()
    kept = (1 - dropout) ** 2
    assert abs(np.mean(both != 0) - kept) <= tolerances.share_bound(kept, both.size)
    np.testing.assert_allclose(both[both != 0], 1 / kept, rtol=2 * tolerances.EPS["float"])


@pytest.mark.parametrize("dtype", cudnn_ops.DTYPES)
@pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])
def test_mask_of_backward_is_the_mask_of_forward(tfb, dtype, time_major):
    """Exactly, though other calls came between; a mask belongs to its reserve space."""
    lengths = (5, 3, 0, 5)
    call, tensors = _transparent_call(
        5, 4, 9, 0.5, bias=1.0, dtype=dtype, time_major=time_major, lengths=lengths
    )
    alive = np.arange(5)[:, None] < np.array(lengths)
    runs = [call.forward(tfb.raw_ops, tensors) for _ in range(3)]
    assert len({compare.bits(r.output) for r in runs}) == 3
    cotangents = [np.ones_like(c) for c in call.cotangents(dtype)]
    cotangents[1:] = [np.zeros_like(c) for c in cotangents[1:]]
    for outputs in (*runs[::-1], *runs):
        got = call.backward(tfb.raw_ops, tensors, outputs, cotangents)
        # The bias keeps every relu open, so nothing but the mask stops a gradient.
        mask = call.laid_out(outputs.output.numpy()).astype(np.float64) - 1
        assert set(np.unique(mask[alive])) == {0.0, 2.0}
        gradient = call.laid_out(got.input_backprop.numpy()).astype(np.float64)
        np.testing.assert_array_equal(gradient[alive], mask[alive])
        assert not np.any(gradient[~alive])


@modes
@pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])
def test_backprop_is_the_difference_with_the_same_mask(tfb, mode, time_major):
    """Same seeds in one graph: calls with moved arguments have the mask of the call itself."""
    step = tolerances.FINITE_DIFFERENCE_STEP
    net = Network(mode, 3, 2, 3, 4, 2 if mode == "lstm" else 0)
    call = Call(net, 5, 4, (5, 0, 2, 4), time_major, dropout=0.4, seeds=(1, 2))
    arrays, cotangents = call.random("double"), call.cotangents("double")
    rng = np.random.default_rng(9)
    moves = [
        (name, rng.normal(size=value.shape))
        for name, value in arrays.items()
        for _ in range(2)
        if name != "input_c" or mode == "lstm"
    ]
    inputs = [call.tensors(arrays)]
    for name, direction in moves:
        for sign in (step, -step):
            inputs.append(call.tensors({**arrays, name: arrays[name] + sign * direction}))

    @tf.function
    def graph(inputs):
        runs = [call.forward(tfb.raw_ops, tensors) for tensors in inputs]
        return runs, call.backward(tfb.raw_ops, inputs[0], runs[0], cotangents)

    runs, gradients = graph(inputs)
    plain = dataclasses.replace(call, dropout=0.0).forward(tfb.raw_ops, inputs[0])
    assert compare.bits(plain.output) != compare.bits(runs[0].output)
    totals = [
        sum((call.laid_out(v.numpy()) * c).sum() for v, c in zip(run, cotangents, strict=False))
        for run in runs[1:]
    ]
    for number, (name, direction) in enumerate(moves):
        want = (totals[2 * number] - totals[2 * number + 1]) / (2 * step)
        got = call.laid_out(getattr(gradients, f"{name}_backprop").numpy())
        got = (got * direction).sum()
        compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, f"{mode} {name}")


def test_seeds(tfb):
    """The same seeds draw the same masks, call after call, by both names; others draw others."""

    def calls(seeds):
        return _transparent_call(4, 5, 16, 0.5, seeds=seeds)

    pairs = [calls(s) for s in ((1, 2), (1, 2), (1, 3), (2, 2), (2, 1), (0, 1), (1, 0))]
    masks = _masks(tfb.raw_ops, pairs)
    assert compare.bits(masks[0]) == compare.bits(masks[1])
    assert len({compare.bits(m) for m in masks}) == len(masks) - 1
    assert compare.bits(_masks(tf.raw_ops, pairs[:1])[0]) == compare.bits(masks[0])
    call, tensors = pairs[0]
    series = []
    for raw_ops in (tfb.raw_ops, tfb.raw_ops, tf.raw_ops):
        graph = tf.function(lambda t, raw_ops=raw_ops: call.forward(raw_ops, t).output)
        series.append([compare.bits(graph(tensors)) for _ in range(4)])
    assert series[0] == series[1] == series[2]
    assert len(set(series[0])) == 4, "two calls with one mask"
    assert series[0][0] == compare.bits(masks[0])


def test_no_seeds_draw_anew_each_time(tfb):
    call, tensors = _transparent_call(4, 5, 16, 0.5, seeds=(0, 0))
    masks = _masks(tfb.raw_ops, [(call, tensors)] * 4)
    masks += [call.forward(tfb.raw_ops, tensors).output.numpy() for _ in range(4)]
    assert len({compare.bits(m) for m in masks}) == 8


@modes
def test_dropout_acts_between_layers_only_and_in_training_only(tfb, mode):
    for layers, is_training in ((1, True), (1, False), (3, False)):
        call = Call(Network(mode, layers, 2, 3, 4), 5, 3, (5, 0, 2), dropout=0.5)
        tensors = call.tensors(call.random("float"))
        got = call.forward(tfb.raw_ops, tensors, is_training=is_training)
        plain = dataclasses.replace(call, dropout=0.0)
        want = plain.forward(tfb.raw_ops, tensors, is_training=is_training)
        assert cudnn_ops.bits(got[:3]) == cudnn_ops.bits(want[:3])
    # Neither the input nor the output is dropped.
    call, tensors = _transparent_call(6, 7, 8, 0.5, layers=1)
    assert np.all(call.forward(tfb.raw_ops, tensors).output.numpy() == 1)


@pytest.mark.parametrize("name", ["CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"])
def test_calls_in_a_function_wait_for_none_and_serve_somebody(tfb, name):
    """Stateful ops run one after another there, wanted or not, but for those that draw numbers."""
    state, params = tf.zeros([1, 1, 2]), tf.zeros([56])
    lengths = {"sequence_lengths": [4]} if name == "CudnnRNNV3" else {}

    @tf.function
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            for _ in range(2):
                out = getattr(tfb.raw_ops, name)(
                    input=x, input_h=state, input_c=state, params=params, **lengths
                )
        return tape.gradient(out.output, x)

    graph = function.get_concrete_function(tf.ones([4, 1, 3])).graph
    assert not graph.control_outputs
    calls = [op for op in graph.get_operations() if op.type.startswith("BlockRNN>CudnnRNN")]
    assert len(calls) == 3
    assert not any(op.control_inputs for op in calls)


DETERMINISTIC = """
import tensorflow as tf, tf_blockrnn
tf.config.experimental.enable_op_determinism()
def call(**attrs):
    return tf_blockrnn.raw_ops.CudnnRNN(
        input=tf.ones([2, 1, 2]), input_h=tf.zeros([2, 1, 2]), input_c=tf.zeros([]),
        params=tf.ones([24]), rnn_mode="rnn_tanh", **attrs)
call(dropout=0.0)
call(dropout=0.5, seed=3)
try:
    call(dropout=0.5)
except tf.errors.InvalidArgumentError as error:
    print(error.message)
"""


def test_op_determinism_wants_a_seed():
    output = children.assert_ok(children.run_python(["-c", DETERMINISTIC]), "determinism")
    assert "CudnnRNN: with dropout" in output
    assert "seed or seed2 must be set, got 0" in output
