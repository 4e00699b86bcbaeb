"""CudnnRNN in compiled programs: dropout, its masks, and reserve spaces that leave a program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, cudnn_ops, run_modes
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
versions = pytest.mark.parametrize("version", [1, 2, 3])
names = pytest.mark.parametrize("name", ["ours", "stock"])
SEEDS = (7, 11)


def _call(mode, version, **more):
    lengths = (5, 0, 3, 2) if version == 3 else None
    projected = 3 if mode == "lstm" and version == 3 else 0
    return Call(Network(mode, 2, 2, 3, 6, projected), 5, 4, lengths, version=version, **more)


def _raw_ops(tfb, name):
    return tfb.raw_ops if name == "ours" else tf.raw_ops


def _train(call, raw_ops):
    """All outputs but reserve_space, whose size differs, and the gradients, of one call."""
    cotangents = call.cotangents("float")

    def train(tensors):
        outputs = call.forward(raw_ops, tensors)
        return [*outputs[:3], *call.backward(raw_ops, tensors, outputs, cotangents)]

    return train


@versions
@names
def test_dropout_draws_what_a_function_without_xla_draws(tfb, version, name):
    """Call after call, from the seeds on; and every gradient is that of its call's mask."""
    call = _call("lstm", version, dropout=0.4, seeds=SEEDS)
    tensors = call.tensors(call.random("float"))
    series = {}
    for mode in ("graph", "jit"):
        train = run_modes.in_mode(mode, _train(call, _raw_ops(tfb, name)))
        series[mode] = [cudnn_ops.bits(train(tensors)) for _ in range(4)]
    assert series["jit"] == series["graph"]
    assert len({bits[0] for bits in series["jit"]}) == 4, "two calls with one mask"


def test_two_calls_of_a_program_have_masks_of_their_own(tfb):
    """Equal nodes would be merged otherwise, and each has its own generator, which starts alike."""
    call = _call("gru", 2, dropout=0.4, seeds=SEEDS)
    tensors = call.tensors(call.random("float"))

    def two(tensors):
        return [call.forward(tfb.raw_ops, tensors).output for _ in range(2)]

    plain, compiled = run_modes.in_mode("graph", two), run_modes.in_mode("jit", two)
    for _ in range(3):
        assert cudnn_ops.bits(compiled(tensors)) == cudnn_ops.bits(plain(tensors))
    unseeded = dataclasses.replace(call, seeds=(0, 0))
    draw = run_modes.in_mode(
        "jit", lambda t: [unseeded.forward(tfb.raw_ops, t).output for _ in range(2)]
    )
    drawn = [bits for _ in range(3) for bits in cudnn_ops.bits(draw(tensors))]
    assert len(set(drawn)) == 6, "no seeds, but the same mask"


@pytest.mark.parametrize("dropout, calls", [(0.0, 1), (0.4, 3)])
def test_equal_calls_are_merged_unless_they_draw(tfb, dropout, calls):
    call = _call("lstm", 3, dropout=dropout, seeds=SEEDS)
    tensors = call.tensors(call.random("float"))

    def three(tensors):
        return [call.forward(tfb.raw_ops, tensors).output for _ in range(3)]

    compiled = run_modes.in_mode("jit", three)
    program = compiled.experimental_get_compiler_ir(tensors)(stage="optimized_hlo")
    assert program.count("custom-call(") == calls


@versions
@names
def test_the_registered_gradient_takes_the_mask_of_its_call(tfb, version, name):
    """By a tape within the program, and by one around it, which compiles two programs."""
    call = _call("gru", version, dropout=0.4, seeds=SEEDS)
    tensors = call.tensors(call.random("float"))
    raw_ops = _raw_ops(tfb, name)

    def taped(forward):
        def compute(tensors):
            with tf.GradientTape() as tape:
                tape.watch(tensors["params"])
                output = forward(tensors)
            return output, tape.gradient(output, tensors["params"])

        return compute

    def forward(tensors):
        return call.forward(raw_ops, tensors).output

    want = run_modes.in_mode("graph", taped(forward))
    within = run_modes.in_mode("jit", taped(forward))
    around = taped(run_modes.in_mode("jit", forward))
    for _ in range(3):
        bits = cudnn_ops.bits(want(tensors))
        assert cudnn_ops.bits(within(tensors)) == bits
        assert cudnn_ops.bits(around(tensors)) == bits


@modes
@versions
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_reserve_space_passes_from_one_to_the_other(tfb, mode, version, dropout):
    """Forward in a program and backward eagerly, and the reverse."""
    call = _call(mode, version, dropout=dropout, seeds=SEEDS)
    tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")

    def forward(tensors):
        return call.forward(tfb.raw_ops, tensors)

    def backward(tensors, outputs):
        return call.backward(tfb.raw_ops, tensors, outputs, cotangents)

    plain = run_modes.in_mode("graph", forward)(tensors)
    compiled = run_modes.in_mode("jit", forward)(tensors)
    assert cudnn_ops.bits(compiled[:3]) == cudnn_ops.bits(plain[:3])
    # A program's has room for rows that have all steps.
    size = plain.reserve_space.shape[0]
    assert compiled.reserve_space.shape[0] >= size
    shorter = version == 3 and mode in ("lstm", "gru")  # the others have nothing for each step
    assert (compiled.reserve_space.shape[0] > size) == shorter
    assert compare.bits(compiled.reserve_space[:size]) == compare.bits(plain.reserve_space)
    assert not np.any(compiled.reserve_space[size:].numpy())
    want = cudnn_ops.bits(backward(tensors, plain))
    compiled_backward = run_modes.in_mode("jit", backward)
    assert cudnn_ops.bits(backward(tensors, compiled)) == want
    assert cudnn_ops.bits(compiled_backward(tensors, plain)) == want
    assert cudnn_ops.bits(compiled_backward(tensors, compiled)) == want


@modes
@names
def test_lengths_of_a_program_differ_from_call_to_call(tfb, mode, name):
    """One program with gradients for all lengths, the bits of eager calls."""
    base = _call(mode, 3, time_major=False)
    train = _train(base, _raw_ops(tfb, name))
    compiled = run_modes.in_mode("jit", train)
    for lengths in ((5, 0, 3, 2), (5, 5, 5, 5), (0, 0, 0, 0), (1, 2, 3, 4)):
        call = dataclasses.replace(base, lengths=lengths)
        tensors = call.tensors(call.random("float"))
        assert cudnn_ops.bits(compiled(tensors)) == cudnn_ops.bits(train(tensors)), lengths
    assert compiled.experimental_get_tracing_count() == 1
