"""The cells and the block ops: numbers in every type and mode, lengths, clip, peepholes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    block_cells,
    block_checks,
    compare,
    covering,
    run_modes,
    sequence_ops,
    tolerances,
)
from helpers.block_cells import DTYPES

OPS = block_cells.OPS | sequence_ops.OPS
LSTMS = (block_cells.LSTM, sequence_ops.LSTM, sequence_ops.LSTM_V2)
all_ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
all_dtypes = pytest.mark.parametrize("dtype", DTYPES)


def _cases(op):
    if op.name in sequence_ops.OPS:
        return sequence_ops.ODD_CASES
    return tuple((dims, None) for dims in block_cells.ODD_DIMS)


@all_ops
@all_dtypes
def test_numbers(tfb, op, dtype):
    cases = run_modes.shared(dtype, _cases(op))
    block_checks.check_numbers(tfb.raw_ops, op, dtype, "eager", cases)


@pytest.mark.parametrize("dims", [(2, 1, 1, 17), (4, 1, 17, 33), (4, 4, 5, 33)])
def test_few_terms_are_summed_unrounded(tfb, dims):
    """A weight's gradient is rounded once, on engines that multiply bfloat16 as well."""
    block_checks.check_rounded_once(tfb.raw_ops, sequence_ops.GRU_GRAD, dims, "bfloat16")


@pytest.mark.parametrize(
    ("name", "dtype", "mode"), covering.pairwise(OPS, ["bfloat16", "float"], run_modes.MODES)
)
def test_numbers_of_empty_dims(tfb, name, dtype, mode):
    op = OPS[name]
    all_dims = (sequence_ops if len(op.sizes) == 4 else block_cells).EMPTY_DIMS
    # XLA compiles each: every third of the sizes, of one op or another.
    all_dims = run_modes.fewer(mode, all_dims, slice(list(OPS).index(name) % 3, None, 3))
    block_checks.check_empty(tfb.raw_ops, op, dtype, mode, all_dims)


@pytest.mark.parametrize(
    ("name", "dtype", "mode"), covering.pairwise(sequence_ops.OPS, DTYPES, ["eager", "jit"])
)
def test_every_length(tfb, name, dtype, mode):
    block_checks.check_every_length(tfb.raw_ops, OPS[name], dtype, mode)


@all_ops
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
def test_special_values(tfb, op, dtype):
    block_checks.check_special_values(tfb.raw_ops, op, dtype)


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.stock], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", ["half", "float"])
def test_numbers_are_tensorflows(tfb, op, dtype):
    if op.name.startswith("GRU"):
        dtype = "float"  # which TensorFlow has alone
    for dims in ((1, 1, 1, 1), (5, 3, 5, 7), (4, 17, 33, 31), (6, 64, 128, 128)):
        block_checks.check_parity(tfb.raw_ops, op, dtype, dims[-len(op.sizes) :])


@all_dtypes
@pytest.mark.parametrize("op", LSTMS, ids=lambda op: op.name)
@pytest.mark.parametrize("use_peephole", [False, True])
def test_numbers_of_the_clip(tfb, op, dtype, use_peephole):
    block_checks.check_clip(tfb.raw_ops, op, dtype, use_peephole)


@pytest.mark.parametrize(
    ("op", "biases"), [(block_cells.GRU, ("b_ru", "b_c")), (block_cells.LSTM, ("b",))]
)
def test_numbers_of_saturated_gates(tfb, op, biases):
    """Pre-activations far past where exp overflows: the gates reach 0 and 1, and no NaN comes."""
    block_checks.check_saturation(tfb.raw_ops, op, biases)


@pytest.mark.parametrize("inputs, golden", [(2, 0.175991), (3, 0.156736)])
def test_golden_numbers_of_a_gru(tfb, inputs, golden):
    """Published: weights .5, state .1, x 1, b_ru 1, b_c 0, two units."""
    units = 2
    got = tfb.raw_ops.GRUBlockCell(
        x=tf.ones([1, inputs]),
        h_prev=tf.fill([1, units], 0.1),
        w_ru=tf.fill([inputs + units, 2 * units], 0.5),
        w_c=tf.fill([inputs + units, units], 0.5),
        b_ru=tf.ones([2 * units]),
        b_c=tf.zeros([units]),
    )
    np.testing.assert_allclose(got.h.numpy(), np.full([1, units], golden), atol=tolerances.GOLDEN)


def test_golden_numbers_of_an_lstm(tfb):
    """Published: two layers of two units, weights .5, states .1, x 1, bias 0, forget_bias 1."""
    golden = ((0.68967271, 0.44848421), (0.39897051, 0.24024698))
    none = dict.fromkeys(("wci", "wcf", "wco"), tf.zeros([2]))
    states = dict.fromkeys(("cs_prev", "h_prev"), tf.fill([1, 2], 0.1))
    x = tf.ones([1, 2])
    for cs, h in golden:
        weights = {"w": tf.fill([4, 8], 0.5), "b": tf.zeros([8]), **none}
        got = tfb.raw_ops.LSTMBlockCell(x=x, **states, **weights, forget_bias=1.0)
        np.testing.assert_allclose(got.cs.numpy(), np.full([1, 2], cs), atol=tolerances.GOLDEN)
        np.testing.assert_allclose(got.h.numpy(), np.full([1, 2], h), atol=tolerances.GOLDEN)
        x = got.h


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if "wci" in op.inputs], ids=lambda op: op.name
)
def test_peepholes_that_are_not_used(tfb, op):
    """They may have any length, NaN in them goes nowhere, their gradients are zeros of it."""
    dims, attrs = (3, 2, 5, 7)[-len(op.sizes) :], {"use_peephole": False}
    inputs = block_cells.random_inputs(op, dims, np.float32, valid=2)
    want = block_cells.call(tfb.raw_ops, op, inputs, attrs)
    for lengths in ((0, 1, 8), (1000, 0, 7)):
        named = dict(zip(("wci", "wcf", "wco"), lengths, strict=True))
        changed = {k: np.full([n], np.nan, np.float32) for k, n in named.items()}
        got = block_cells.call(tfb.raw_ops, op, {**inputs, **changed}, attrs)
        for name in op.outputs:
            value, of = getattr(got, name), name.removesuffix("_grad")
            if of in named:
                np.testing.assert_array_equal(value, np.zeros([named[of]], np.float32))
            else:
                assert compare.bits(value) == compare.bits(getattr(want, name)), name
