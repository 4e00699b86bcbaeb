"""Every op that has a gradient has one of every order; a new op has to be in a table here."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, tolerances
from helpers.run_modes import in_mode
from helpers.second_cases import BOUND, along, weighted
from helpers.second_op_cases import make
from tensorflow.python.framework import ops

pytestmark = pytest.mark.types

NOT_DIFFERENTIABLE = {
    "CudnnRNNParamsSize",
    "CudnnRNNParamsToCanonical",
    "CudnnRNNParamsToCanonicalV2",
    "CudnnRNNCanonicalToParams",
    "CudnnRNNCanonicalToParamsV2",
}
# Each forward op and a case of it.
CASES = {
    "GRUBlockCell": "GRU cell",
    "LSTMBlockCell": "LSTM cell peepholes",
    "BlockGRU": "BlockGRU",
    "BlockLSTM": "BlockLSTM",
    "BlockLSTMV2": "BlockLSTMV2",
    "GRUSequence": "gru before",
    "GRUAfterSequence": "gru after",
    "LSTMSequence": "lstm",
    "LayerNormGRUSequence": "layer norm gru",
    "LayerNormLSTMSequence": "layer norm lstm",
    "RNNSequence": "rnn tanh",
    "CudnnRNN": "stack lstm V1",
    "CudnnRNNV2": "stack gru V2",
    "CudnnRNNV3": "stack lstm",
}


def test_all_ops_are_here(tfb):
    found = set(tfb.raw_ops.__all__)
    backward = {op for op in found if "Grad" in op or "Backprop" in op}
    assert found - backward - NOT_DIFFERENTIABLE == CASES.keys()
    for op in found - NOT_DIFFERENTIABLE:
        assert ops.gradient_registry.lookup(f"BlockRNN>{op}") is not None, op
    for op in NOT_DIFFERENTIABLE:
        with pytest.raises(LookupError):
            ops.gradient_registry.lookup(f"BlockRNN>{op}")


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("op", CASES)
def test_third_derivatives_are_finite_differences(tfb, op, mode):
    """Of second ones, along one direction; the ops that run are those of the table."""
    call, step = make(CASES[op]), tolerances.FINITE_DIFFERENCE_STEP
    tensors = call.tensors()
    name = next(iter(call.inputs))

    def second(moved):
        return weighted(call.second(tfb, {**tensors, name: moved})[name])

    def third(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = second(x)
        return tape.gradient(total, x)

    got = in_mode(mode, third)(tensors[name])
    direction = along(got, 4)
    up, down = (float(second(tensors[name] + sign * step * direction)) for sign in (1, -1))
    want = (up - down) / (2 * step)
    assert want != 0
    compare.assert_close(np.sum(got * direction), want, tolerances.FINITE_DIFFERENCES, op)
    inputs = {key: tensors[key] for key in call.inputs}
    graph = tf.function(lambda given: call.call(tfb, given)).get_concrete_function(inputs).graph
    assert f"BlockRNN>{op}" in {node.type for node in graph.get_operations()}


# A block op, three kinds of sequences and a stack.
_COMPILED = ("BlockLSTMV2", "GRUSequence", "LSTMSequence", "LayerNormLSTMSequence", "CudnnRNNV3")


@pytest.mark.parametrize("op", _COMPILED)
@pytest.mark.parametrize("over", ["forward mode over a tape", "a tape over two"])
def test_compiled_derivatives_of_derivatives(tfb, op, over):
    """In a function that XLA compiles they are those of tapes in eager mode."""
    call = make(CASES[op])
    tensors = call.tensors()
    name, x = next(iter(tensors.items()))
    direction = tf.constant(along(x, 4))

    def first(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            inputs = {key: tensors[key] for key in call.inputs}
            total = tf.add_n(list(map(weighted, call.call(tfb, {**inputs, name: x}))))
        return tape.gradient(total, x)

    def second(x):
        return call.second(tfb, {**tensors, name: x})[name]

    def along_direction(function, x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = tf.reduce_sum(function(x) * direction)
        return tape.gradient(total, x)

    def pushed(x):
        with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
            found = first(x)
        return accumulator.jvp(found)

    forward = over.startswith("forward")
    compiled = pushed if forward else functools.partial(along_direction, second)
    got = in_mode("jit", compiled)(x)
    want = along_direction(first if forward else second, x)
    compare.assert_close(got, want, BOUND, op)
