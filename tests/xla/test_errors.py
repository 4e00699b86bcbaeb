"""What a compiled program refuses: the errors, and the words, that the op has without XLA."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, cudnn_ops, run_modes, sequence_functions, sequence_ops
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

DIMS = (4, 3, 2, 5)


def _refusal(function, *args):
    """The contract's sentence in an error, without what TensorFlow puts around it."""
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        function(*args)
    message = re.sub(r"\{\{.*?\}\}", "", error.value.message).strip().splitlines()[0]
    return re.sub(r" *\[Op:.*$", "", message)


def _same_refusal(function, *args):
    want = _refusal(function, *args)
    got = _refusal(run_modes.in_mode("jit", function), *args)
    assert re.search(r"\w+: \w+.* must .* got ", want)
    assert got.endswith(want), (got, want)
    return want


@pytest.mark.parametrize("op", sequence_ops.OPS.values(), ids=sequence_ops.OPS)
@pytest.mark.parametrize("valid", [-1, 5, 2**40])
def test_seq_len_max_out_of_range(tfb, op, valid):
    tensors = sequence_ops.tensors_of(sequence_ops.random_inputs(op, DIMS, np.float32, valid=valid))
    function = getattr(tfb.raw_ops, op.name)
    refusal = _same_refusal(lambda given: function(**given, **op.attr_cases[0]), tensors)
    assert f"seq_len_max must be in 0..T = 0..{DIMS[0]}, got {valid}" in refusal


@pytest.mark.parametrize("name", ["lstm", "gru-after", "gru-before"])
@pytest.mark.parametrize("kind", [tf.int32, tf.int64])
def test_lengths_out_of_range(tfb, name, kind):
    """Refused as it runs: the same program takes other lengths before and after."""
    function = sequence_functions.PLAIN[name]
    inputs = sequence_functions.random_inputs(function, DIMS, np.float32)

    def run(lengths):
        return sequence_functions.call(tfb, function, inputs, time_major=True, lengths=lengths)[0]

    compiled = run_modes.in_mode("jit", run)
    legal = tf.constant([4, 0, 2], kind)
    want = compare.bits(run(legal))
    for wrong in ([5, 0, 0], [0, -1, 0], [0, 0, 2**31 - 1]):
        assert compare.bits(compiled(legal)) == want
        # As it runs the program knows the op's names alone.
        refusal, eager = (_refusal(f, tf.constant(wrong, kind)) for f in (compiled, run))
        assert refusal.rpartition("sequence_")[2] == eager.partition(": ")[2].partition(";")[0]
    assert compare.bits(compiled(legal)) == want


def _cudnn(lengths, **more):
    call = Call(Network("gru", 2, 2, 3, 4), 4, 3, lengths, **more)
    return call, call.tensors(call.random("float")), call.cotangents("float")


@pytest.mark.parametrize("name", ["ours", "stock"])
def test_lengths_of_cudnn_rnn_out_of_range(tfb, name):
    raw_ops = tfb.raw_ops if name == "ours" else tf.raw_ops
    call, tensors, _ = _cudnn((4, 2, 3))
    for wrong in ([5, 0, 0], [0, -1, 0]):
        given = {**tensors, "sequence_lengths": tf.constant(wrong)}
        refusal = _same_refusal(lambda given: call.forward(raw_ops, given), given)
        assert "sequence_lengths" in refusal


def test_reserve_space_of_another_call(tfb):
    """Of other lengths, of another network, cut, and none: refused by a program, as it runs."""
    call, tensors, cotangents = _cudnn((4, 2, 3))
    own = call.forward(tfb.raw_ops, tensors)
    other, other_tensors, _ = _cudnn((1, 2, 3))
    foreign = other.forward(tfb.raw_ops, other_tensors).reserve_space
    compiled_own = run_modes.in_mode("jit", lambda t: call.forward(tfb.raw_ops, t))(tensors)
    compiled_foreign = run_modes.in_mode("jit", lambda t: other.forward(tfb.raw_ops, t))(
        other_tensors
    )
    whole = own.reserve_space

    def backward(space):
        outputs = own._replace(reserve_space=space)
        return call.backward(tfb.raw_ops, tensors, outputs, cotangents)

    compiled = run_modes.in_mode("jit", backward)
    want = cudnn_ops.bits(backward(whole))
    assert cudnn_ops.bits(compiled(whole)) == want
    assert cudnn_ops.bits(compiled(compiled_own.reserve_space)) == want
    for space in (
        foreign, compiled_foreign.reserve_space, whole[:-1], whole[:40], whole[:0],
        tf.zeros_like(whole), tf.concat([whole, whole], 0),
    ):  # fmt: skip
        refusal = _same_refusal(backward, space)
        assert "reserve_space must" in refusal


def _wrong_shapes(op):
    shapes = op.shapes(DIMS)
    return {
        "w": {**shapes, "w": (shapes["w"][0] + 1, shapes["w"][1])},
        "x": {**shapes, "x": shapes["x"][1:]},
        "b": {**shapes, "b": (1,)},
    }


@pytest.mark.parametrize(
    "argument, known", [("w", "ranks"), ("b", "ranks"), *((k, "nothing") for k in "wxb")]
)
def test_shapes_that_are_known_when_it_is_compiled(tfb, argument, known):
    op = sequence_ops.LSTM_V2
    shapes = _wrong_shapes(op)[argument]
    tensors = {k: tf.ones(v) for k, v in shapes.items() if k != "seq_len_max"}
    tensors["seq_len_max"] = tf.constant(1, tf.int64)
    signature = {
        k: tf.TensorSpec(None if known == "nothing" else [None] * v.shape.rank, v.dtype)
        for k, v in tensors.items()
    }

    def run(given):
        return tfb.raw_ops.BlockLSTMV2(**given)

    compiled = run_modes.in_mode("jit", run, input_signature=[signature])
    want = _refusal(run, tensors)
    assert f"{argument} must" in want
    assert _refusal(compiled, tensors).endswith(want)
    with pytest.raises(ValueError, match=re.escape(want)):  # known as the graph is built
        run_modes.in_mode("jit", run)(tensors)


def test_sizes_that_depend_on_data(tfb):
    function = sequence_functions.PLAIN["gru-after"]
    inputs = sequence_functions.random_inputs(function, DIMS, np.float32)

    def run(keep):
        x = tf.boolean_mask(inputs["x"], keep)
        return sequence_functions.call(tfb, function, {**inputs, "x": x}, time_major=True)

    keep = tf.constant([True, False, True, True])
    run(keep)
    with pytest.raises(tf.errors.UnimplementedError) as error:
        run_modes.in_mode("jit", run)(keep)
    for part in ("GRUAfterSequence: x has shape", "depends on data", "pad it", "mask"):
        assert part in error.value.message, part


def test_sizes_of_a_network_must_be_constants(tfb):
    """CudnnRNNParamsSize gives the size of an array."""

    def size(layers):
        return tfb.raw_ops.CudnnRNNParamsSize(
            num_layers=layers, num_units=3, input_size=2, T=tf.float32, S=tf.int32
        )

    assert run_modes.in_mode("jit", lambda: size(2))().numpy() == size(2).numpy()
    zeros = run_modes.in_mode("jit", lambda: tf.zeros(size(2)))()
    assert zeros.shape == size(2).numpy().tolist()
    compiled = run_modes.in_mode("jit", size)
    for layers in (2, 3):  # an argument that is needed so is one: a program for each value
        assert compiled(tf.constant(layers)).numpy() == size(layers).numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a compile-time constant"):
        run_modes.in_mode("jit", lambda: size(tf.random.uniform([], 1, 3, tf.int32)))()
