"""Every op that has a gradient has one of every order; a new op has to be in a table here."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, tolerances
from helpers.second_cases import along, weighted
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


@pytest.mark.parametrize("op", CASES)
def test_third_derivatives_are_finite_differences(tfb, op):
    """Of second ones, along one direction; the ops that run are those of the table."""
    call, step = make(CASES[op]), tolerances.FINITE_DIFFERENCE_STEP
    tensors = call.tensors()
    name = next(iter(call.inputs))

    def second(moved):
        return weighted(call.second(tfb, {**tensors, name: moved})[name])

    with tf.GradientTape() as tape:
        tape.watch(tensors[name])
        total = second(tensors[name])
    got = tape.gradient(total, tensors[name])
    direction = along(got, 4)
    up, down = (float(second(tensors[name] + sign * step * direction)) for sign in (1, -1))
    want = (up - down) / (2 * step)
    assert want != 0
    compare.assert_close(np.sum(got * direction), want, tolerances.FINITE_DIFFERENCES, op)
    inputs = {key: tensors[key] for key in call.inputs}
    graph = tf.function(lambda given: call.call(tfb, given)).get_concrete_function(inputs).graph
    assert f"BlockRNN>{op}" in {node.type for node in graph.get_operations()}
