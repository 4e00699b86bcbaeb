"""GRUBlockCell and GRUBlockCellGrad: numbers."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import block_cells, cell_numbers, run_modes, tolerances

OPS = (block_cells.GRU, block_cells.GRU_GRAD)
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
@pytest.mark.parametrize("dims", [(1, 1, 1), (3, 5, 7), (17, 33, 31), (64, 128, 128)])
def test_numbers_are_tensorflows(tfb, op, dims):
    cell_numbers.check_parity(tfb.raw_ops, op, "float", dims)


@pytest.mark.parametrize("inputs, golden", [(2, 0.175991), (3, 0.156736)])
def test_golden_numbers(tf, tfb, inputs, golden):
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


def test_numbers_of_saturated_gates(tfb, device):
    """Pre-activations far past where exp overflows: the gates reach 0 and 1, and no NaN comes."""
    cell_numbers.check_saturation(tfb.raw_ops, block_cells.GRU, ("b_ru", "b_c"), device)
