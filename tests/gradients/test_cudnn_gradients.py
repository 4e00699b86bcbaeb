"""Gradients of the cuDNN RNN ops: differences, tapes, both names, what is not differentiable."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, covering, cudnn_ops, run_modes, tolerances
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from helpers.second_cases import along

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
NAMES = ("ours", "stock")
names = pytest.mark.parametrize("name", NAMES)
ARGUMENTS = ("input", "input_h", "input_c", "params")


def _raw_ops(tfb, name):
    return tfb.raw_ops if name == "ours" else tf.raw_ops


def _total(call, raw_ops, tensors, cotangents) -> float:
    outputs = call.forward(raw_ops, tensors)
    pairs = zip(outputs[:3], cotangents, strict=True)
    return sum((call.laid_out(v.numpy()) * c).sum() for v, c in pairs)


@pytest.mark.types
@modes
@pytest.mark.parametrize("lengths, time_major", [(None, True), ((3, 0, 2), False)], ids=str)
def test_backprop_is_the_difference_of_forward(tfb, mode, lengths, time_major):
    """Along one direction of input, input_h, input_c and params, in float64."""
    step = tolerances.FINITE_DIFFERENCE_STEP
    for number, net in enumerate(cudnn_ops.networks(mode)):
        call = Call(net, 3, 3, lengths, time_major=time_major)
        tensors = call.tensors(call.random("double", seed=number))
        cotangents = call.cotangents("double")
        outputs = call.forward(tfb.raw_ops, tensors)
        gradients = call.backward(tfb.raw_ops, tensors, outputs, cotangents)
        for name in ARGUMENTS:
            gradient = getattr(gradients, f"{name}_backprop").numpy()
            direction = along(gradient, number)
            up, down = (
                _total(
                    call,
                    tfb.raw_ops,
                    {**tensors, name: tensors[name] + sign * step * direction},
                    cotangents,
                )
                for sign in (1, -1)
            )
            got, want = np.sum(gradient * direction), (up - down) / (2 * step)
            assert want != 0 or name == "input_c", (call, name)
            compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, f"{call} {name}")


def _tape(call, raw_ops, tensors, cotangents, used=(True, True, True)):
    """Gradients by TensorFlow's differentiation; an output that is not used has no cotangent."""
    watched = {k: tensors[k] for k in ARGUMENTS}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = call.forward(raw_ops, {**tensors, **watched})
        targets = [o for o, use in zip(outputs, used, strict=False) if use]
    given = [tf.constant(call.laid_out(c)) for c, u in zip(cotangents, used, strict=True) if u]
    return tape.gradient(targets, watched, output_gradients=given)


@pytest.mark.parametrize(
    ("mode", "version", "run", "name"),
    covering.pairwise(cudnn_ops.MODES, [1, 2, 3], run_modes.MODES, NAMES),
)
def test_registered_gradient(tfb, mode, version, run, name):
    """Of all outputs and of each alone; TensorFlow's own for its names, on the same kernels."""
    net = Network(mode, 2, 2, 3, 4, 2 if mode == "lstm" and version == 3 else 0)
    lengths = (5, 0, 3) if version == 3 else None
    call = Call(net, 5, 3, lengths, time_major=version != 3, version=version)
    arrays, cotangents = call.random("double"), call.cotangents("double")
    tensors, reference = call.tensors(arrays), call.run(arrays)
    bound = tolerances.stack_bound("double", call.longest_sum(), 2, backward=True)
    outputs = range(3 if mode == "lstm" else 2)
    for used in ((True,) * 3, *(tuple(k == number for k in range(3)) for number in outputs)):

        def compute(tensors, used=used):
            return _tape(call, _raw_ops(tfb, name), tensors, cotangents, used)

        got = run_modes.in_mode(run, compute)(tensors)
        given = (c if u else None for c, u in zip(cotangents, used, strict=True))
        want = reference.backward(*given)
        for argument in ARGUMENTS:
            value = call.laid_out(got[argument].numpy())
            what = f"{call} {argument} {used}"
            compare.assert_close(value, want[f"{argument}_backprop"], bound, what)


@modes
@names
def test_lengths_have_no_gradient(tfb, mode, name):
    call = Call(Network(mode, 1, 1, 3, 4))
    tensors = call.tensors(call.random("float"))
    with tf.GradientTape() as tape:
        tape.watch(list(tensors.values()))
        outputs = call.forward(_raw_ops(tfb, name), tensors)
    got = tape.gradient(outputs.output, tensors)
    assert got["sequence_lengths"] is None
    assert all(v is not None for k, v in got.items() if k in ("input", "input_h", "params"))


@pytest.mark.parametrize(
    ("version", "run", "name"), covering.pairwise([1, 2, 3], run_modes.MODES, NAMES)
)
def test_no_gradient_without_training(tfb, version, run, name):
    """A clear error, as TensorFlow's; and Backprop itself refuses such a call, too."""
    call = Call(Network("lstm", 1, 1, 3, 4), version=version)
    tensors = call.tensors(call.random("float"))
    raw_ops = _raw_ops(tfb, name)

    def compute(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors["params"])
            outputs = call.forward(raw_ops, tensors, is_training=False)
        return tape.gradient(outputs.output, tensors["params"])

    with pytest.raises(ValueError, match="CudnnRNN.*is_training"):
        run_modes.in_mode(run, compute)(tensors)
    outputs = call.forward(raw_ops, tensors, is_training=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="reserve_space must"):
        call.backward(raw_ops, tensors, outputs, call.cotangents("float"))


@names
def test_one_graph_for_all_shapes(tfb, name):
    """Forward and gradient of shapes that are not known when the graph is built."""
    modes_of = {}
    for mode in cudnn_ops.MODES:
        pattern = Call(Network(mode, 2, 2, 3, 4))
        signature = {
            k: tf.TensorSpec(None, v.dtype)
            for k, v in pattern.tensors(pattern.random("double")).items()
        }

        @tf.function(input_signature=[signature])
        def compute(tensors, pattern=pattern):
            watched = {k: tensors[k] for k in ARGUMENTS}
            with tf.GradientTape() as tape:
                tape.watch(watched)
                outputs = pattern.forward(_raw_ops(tfb, name), {**tensors, **watched})
                total = tf.add_n([tf.reduce_sum(o) for o in outputs[:3]])
            return outputs, tape.gradient(total, watched)

        modes_of[mode] = compute
    for mode, compute in modes_of.items():
        for layers, dims, (steps, batch) in (
            (1, (3, 4), (5, 2)), (3, (4, 2), (2, 5)), (2, (3, 3), (0, 4)), (1, (2, 2), (3, 0)),
        ):  # fmt: skip
            call = Call(Network(mode, layers, 2, *dims), steps, batch)
            arrays = call.random("double")
            outputs, got = compute(call.tensors(arrays))
            run = call.run(arrays)
            cudnn_ops.check_outputs(call, outputs, run, "double", f"{call}")
            ones = [np.ones(v.shape) for v in run.outputs().values()]
            want = run.backward(*ones)
            bound = tolerances.stack_bound("double", call.longest_sum(), layers, backward=True)
            for argument in ARGUMENTS:
                expected = want[f"{argument}_backprop"]
                compare.assert_close(got[argument], expected, bound, f"{call} {argument}")


def test_shapes_of_the_graph(tfb):
    """What the arguments' shapes tell of the outputs' is known when the graph is built."""
    for mode in cudnn_ops.MODES:
        for version in (1, 2, 3):
            for raw_ops in (tfb.raw_ops, tf.raw_ops):
                num_proj = 2 if mode == "lstm" and version == 3 else 0
                call = Call(
                    Network(mode, 2, 2, 3, 4, num_proj), 5, 3, time_major=version != 3,
                    version=version,
                )  # fmt: skip
                tensors = call.tensors(call.random("float"))

                @tf.function
                def graph(tensors, call=call, raw_ops=raw_ops):
                    outputs = call.forward(raw_ops, tensors)
                    cotangents = [np.zeros(o.shape, np.float32) for o in outputs[:3]]
                    cotangents = [call.laid_out(c) for c in cotangents]
                    return outputs, call.backward(raw_ops, tensors, outputs, cotangents)

                outputs, gradients = graph.get_concrete_function(tensors).structured_outputs
                got = call.forward(raw_ops, tensors)
                for name in cudnn_ops.OUTPUTS:
                    assert getattr(outputs, name).shape == getattr(got, name).shape, name
                for name, argument in zip(cudnn_ops.GRADIENTS, ARGUMENTS, strict=True):
                    assert getattr(gradients, name).shape == tensors[argument].shape, name
