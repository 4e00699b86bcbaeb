"""The oracle itself: an oracle that is wrong proves nothing."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import block_cells, compare, tolerances
from helpers.reference import block_ops

DIMS = (3, 4, 5)


def _differences(function, inputs, cotangents, name):
    step = tolerances.FINITE_DIFFERENCE_STEP
    gradient = np.zeros_like(inputs[name])
    for index in np.ndindex(*gradient.shape):
        totals = []
        for sign in (1, -1):
            moved = {k: v.copy() for k, v in inputs.items()}
            moved[name][index] += sign * step
            outputs = function(**moved)
            totals.append(sum((c * y).sum() for c, y in zip(cotangents, outputs, strict=True)))
        gradient[index] = (totals[0] - totals[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize("use_peephole", [False, True])
def test_lstm_vjp_is_the_derivative_of_the_forward(use_peephole):
    op = block_cells.LSTM
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    rng = np.random.default_rng(1)
    cotangents = [rng.normal(size=(3, 5)) for _ in op.outputs]
    attrs = {"use_peephole": use_peephole, "cell_clip": 0.0}  # the clip is straight-through

    def forward(**moved):
        return block_ops.lstm_block_cell(**moved, **attrs)

    gradients = block_ops.lstm_block_cell_vjp(**inputs, cotangents=cotangents, **attrs)
    for name, got in zip(op.inputs, gradients, strict=True):
        want = _differences(forward, inputs, cotangents, name)
        compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, name)


def test_gru_vjp_is_the_derivative_of_the_forward():
    op = block_cells.GRU
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    rng = np.random.default_rng(1)
    cotangents = [rng.normal(size=(3, 5)) for _ in op.outputs]
    gradients = block_ops.gru_block_cell_vjp(**inputs, cotangents=cotangents)
    for name, got in zip(op.inputs, gradients, strict=True):
        want = _differences(block_ops.gru_block_cell, inputs, cotangents, name)
        compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, name)


def test_grad_oracles_agree_with_the_vjps():
    bound = tolerances.bound("double", 10, backward=True)
    inputs = block_cells.random_inputs(block_cells.GRU, DIMS, np.float64)
    r, u, c, _ = block_ops.gru_block_cell(**inputs)
    d_h = np.random.default_rng(2).normal(size=(3, 5))
    got = block_ops.gru_block_cell_grad(**inputs, r=r, u=u, c=c, d_h=d_h)
    want = block_ops.gru_block_cell_vjp(**inputs, cotangents=(None, None, None, d_h))
    compare.assert_close(got[0], want[0], bound, "d_x")
    compare.assert_close(got[1], want[1], bound, "d_h_prev")
    compare.assert_close(got[3].sum(0), want[4], bound, "d_b_ru")
    compare.assert_close(got[2].sum(0), want[5], bound, "d_b_c")

    inputs = block_cells.random_inputs(block_cells.LSTM, DIMS, np.float64)
    attrs = {"use_peephole": True}
    outputs = block_ops.lstm_block_cell(**inputs, cell_clip=0.0, **attrs)
    cs_grad = np.random.default_rng(3).normal(size=(3, 5))
    got = block_ops.lstm_block_cell_grad(
        **inputs,
        **dict(zip(block_ops.LSTM_OUTPUTS[:6], outputs[:6], strict=True)),
        cs_grad=cs_grad,
        h_grad=d_h,
        **attrs,
    )
    cotangents = (None, cs_grad, None, None, None, None, d_h)
    want = block_ops.lstm_block_cell_vjp(**inputs, cotangents=cotangents, cell_clip=0.0, **attrs)
    compare.assert_close(got[0], want[1], bound, "cs_prev_grad")
    compare.assert_close(got[1].sum(0), want[7], bound, "b_grad")
    for position in (2, 3, 4):
        compare.assert_close(got[position], want[position + 2], bound, "peephole gradients")


@pytest.mark.parametrize("op, attrs", block_cells.op_cases())
@pytest.mark.parametrize("dims", [(1, 1, 1), (3, 5, 7), (17, 33, 31)])
def test_oracle_agrees_with_tensorflows_own_op(tf, op, attrs, dims):
    """TensorFlow's CPU kernels, float32, are right on legal input."""
    inputs = block_cells.random_inputs(op, dims, np.float32)
    got = getattr(tf.raw_ops, op.name)(**inputs, **attrs)
    want = block_cells.oracle(op, inputs, attrs)
    bound = tolerances.bound("float", block_cells.reduction_length(dims, op, attrs), op.backward)
    for name in op.outputs:
        compare.assert_close(getattr(got, name), want[name], bound, f"{op.name} {name}")
