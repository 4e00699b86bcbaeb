"""LSTMBlockCell and LSTMBlockCellGrad: numbers, golden numbers, the clip."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import block_cells, cell_numbers, compare, run_modes, tolerances

OPS = (block_cells.LSTM, block_cells.LSTM_GRAD)
all_ops = pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
all_dtypes = pytest.mark.parametrize("dtype", block_cells.DTYPES)


@all_ops
@all_dtypes
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_numbers(tfb, op, dtype, mode, device):
    all_dims = run_modes.shared(dtype, block_cells.ODD_DIMS)
    all_dims = run_modes.fewer(mode, all_dims, modes=run_modes.TRACED)
    cell_numbers.check_numbers(tfb.raw_ops, op, dtype, mode, device, all_dims)


@all_ops
@all_dtypes
@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_numbers_of_empty_dims(tfb, op, dtype, mode, device):
    all_dims = run_modes.fewer(mode, block_cells.EMPTY_DIMS, slice(3))
    cell_numbers.check_numbers(tfb.raw_ops, op, dtype, mode, device, all_dims)


@all_ops
@all_dtypes
def test_numbers_of_special_values(tfb, op, dtype, device):
    cell_numbers.check_special_values(tfb.raw_ops, op, dtype, device)


@all_ops
@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("dims", [(1, 1, 1), (3, 5, 7), (17, 33, 31), (64, 128, 128)])
def test_numbers_are_tensorflows(tfb, op, dtype, dims):
    cell_numbers.check_parity(tfb.raw_ops, op, dtype, dims)


def test_golden_numbers(tf, tfb):
    """Published: two layers of two units, weights .5, states .1, x 1, bias 0, forget_bias 1."""
    golden = ((0.68967271, 0.44848421), (0.39897051, 0.24024698))
    x = tf.ones([1, 2])
    for cs, h in golden:
        got = tfb.raw_ops.LSTMBlockCell(
            x=x,
            cs_prev=tf.fill([1, 2], 0.1),
            h_prev=tf.fill([1, 2], 0.1),
            w=tf.fill([4, 8], 0.5),
            wci=tf.zeros([2]),
            wcf=tf.zeros([2]),
            wco=tf.zeros([2]),
            b=tf.zeros([8]),
            forget_bias=1.0,
        )
        np.testing.assert_allclose(got.cs.numpy(), np.full([1, 2], cs), atol=tolerances.GOLDEN)
        np.testing.assert_allclose(got.h.numpy(), np.full([1, 2], h), atol=tolerances.GOLDEN)
        x = got.h


@pytest.mark.parametrize("dtype", block_cells.DTYPES)
@pytest.mark.parametrize("use_peephole", [False, True])
def test_numbers_of_the_clip(tf, tfb, dtype, use_peephole, device):
    """0, negative and NaN clips mean no clip; a positive one clips infinity and leaves NaN."""
    op, dims = block_cells.LSTM, (4, 3, 17)
    inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
    # Large states of both signs, so that every positive clip below has work to do.
    inputs["cs_prev"] = (inputs["cs_prev"].astype(np.float64) * 50).astype(inputs["x"].dtype)
    inputs["cs_prev"][0, :3] = [np.inf, -np.inf, np.nan]
    # With peepholes an infinite state opens these two forget gates; closed, ∞ · 0 would be NaN.
    inputs["wcf"][:2] = [1, -1]
    for clip in (0.0, -0.0, -2.0, np.nan, -np.inf, np.inf, 0.5, 3.0, 1e-3):
        attrs = {"cell_clip": float(clip), "use_peephole": use_peephole}
        with tf.device(device):
            got = block_cells.call(tfb.raw_ops, op, inputs, attrs)
        with np.errstate(all="ignore"):
            want = block_cells.oracle(op, inputs, attrs)
        bound = tolerances.bound(dtype, block_cells.reduction_length(dims))
        for name in op.outputs:
            what = f"{name} cell_clip={clip} use_peephole={use_peephole}"
            compare.assert_close(getattr(got, name).numpy(), want[name], bound, what)
        if 0 < clip < np.inf:
            cs = got.cs.numpy().astype(np.float64)
            edge = float(np.asarray(clip, np.float32).astype(inputs["x"].dtype))
            assert (cs[0, 0], cs[0, 1]) == (edge, -edge)
            assert np.isnan(cs[0, 2])
            assert np.nanmax(np.abs(cs)) <= edge


def test_numbers_of_unused_peepholes(tfb):
    """Without use_peephole a peephole may have any length, NaN in it goes nowhere."""
    op, dims = block_cells.LSTM, (3, 5, 7)
    inputs = block_cells.random_inputs(op, dims, np.float32)
    want = block_cells.call(tfb.raw_ops, op, inputs, {})
    for length in (0, 1, 6, 8, 1000):
        changed = {k: np.full([length], np.nan, np.float32) for k in ("wci", "wcf", "wco")}
        got = block_cells.call(tfb.raw_ops, op, {**inputs, **changed}, {})
        for name in op.outputs:
            assert compare.bits(getattr(got, name)) == compare.bits(getattr(want, name)), name

    op = block_cells.LSTM_GRAD
    inputs = block_cells.random_inputs(op, dims, np.float32)
    attrs = {"use_peephole": False}
    want = block_cells.call(tfb.raw_ops, op, inputs, attrs)
    for lengths in ((0, 1, 8), (1000, 0, 7)):
        changed = {
            k: np.full([n], np.nan, np.float32)
            for k, n in zip(("wci", "wcf", "wco"), lengths, strict=True)
        }
        got = block_cells.call(tfb.raw_ops, op, {**inputs, **changed}, attrs)
        for name in ("cs_prev_grad", "dicfo"):
            assert compare.bits(getattr(got, name)) == compare.bits(getattr(want, name)), name
        for name, n in zip(("wci_grad", "wcf_grad", "wco_grad"), lengths, strict=True):
            np.testing.assert_array_equal(getattr(got, name).numpy(), np.zeros([n], np.float32))


def test_cell_clip_is_straight_through_in_the_gradient(tf, tfb):
    """A clipped state passes its gradient as if it had not been clipped, as in TensorFlow."""
    op = block_cells.LSTM
    inputs = block_cells.random_inputs(op, (3, 4, 5), np.float64)
    inputs["cs_prev"] = inputs["cs_prev"] * 10
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors["cs_prev"])
        got = tfb.raw_ops.LSTMBlockCell(**tensors, cell_clip=0.5)
        total = tf.reduce_sum(got.cs)
    clipped = np.abs(got.cs.numpy()) == 0.5
    assert clipped.any()
    gradient = tape.gradient(total, tensors["cs_prev"]).numpy()
    compare.assert_close(gradient, got.f.numpy(), tolerances.bound("double", 9, backward=True))


def test_numbers_of_saturated_gates(tfb, device):
    """Pre-activations far past where exp overflows: the gates reach 0 and 1, and no NaN comes."""
    cell_numbers.check_saturation(tfb.raw_ops, block_cells.LSTM, ("b",), device)
