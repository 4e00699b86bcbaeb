"""Every op that has a gradient has one of every order; a new op has to be in a table here."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import second_cases, second_op_cases
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
    "CudnnRNN": "lstm V1",
    "CudnnRNNV2": "gru V2",
    "CudnnRNNV3": "lstm",
}


def _of_sequences(op):
    return op.endswith("Sequence")


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
def test_an_op_has_second_and_third_derivatives(tfb, op):
    """Finite numbers that are not all zeros; the ops that run are those of the table."""
    case = CASES[op]
    call = second_cases.Case(case) if _of_sequences(op) else second_op_cases.make(case)
    tensors = call.tensors()
    name = next(iter(call.inputs))

    with tf.GradientTape() as tape:
        tape.watch(tensors[name])
        second = call.second(tfb, tensors)
        total = second_cases.weighted(second[name])
    third = tape.gradient(total, tensors[name])
    for value in (second[name], third):
        assert np.isfinite(value).all()
        assert np.any(value)
    inputs = {key: tensors[key] for key in call.inputs}
    graph = tf.function(lambda given: call.call(tfb, given)).get_concrete_function(inputs).graph
    assert f"BlockRNN>{op}" in {node.type for node in graph.get_operations()}
