"""BlockGRU and BlockGRUGrad: numbers, lengths, gradients."""

from __future__ import annotations

import pytest
from helpers import block_cells, compare, run_modes, sequence_ops
from helpers import sequence_checks as checks

all_ops = pytest.mark.parametrize("op", sequence_ops.GRU_OPS, ids=lambda op: op.name)
all_dtypes = pytest.mark.parametrize("dtype", block_cells.DTYPES)
GRU = sequence_ops.GRU


@all_ops
@all_dtypes
def test_numbers(tfb, op, dtype):
    cases = run_modes.shared(dtype, sequence_ops.ODD_CASES)
    checks.check_numbers(tfb.raw_ops, op, dtype, "eager", cases)


@pytest.mark.parametrize("dims", [(2, 1, 1, 17), (4, 1, 17, 33), (4, 4, 5, 33)])
def test_few_terms_are_summed_unrounded(tfb, dims):
    """A weight's gradient is rounded once, on engines that multiply bfloat16 as well."""
    checks.check_rounded_once(tfb.raw_ops, sequence_ops.GRU_GRAD, dims, "bfloat16")


@all_ops
def test_numbers_in_a_graph(tfb, op):
    checks.check_numbers(tfb.raw_ops, op, "float", "graph", sequence_ops.ODD_CASES[3:8])


@pytest.mark.xla
@all_ops
@all_dtypes
def test_numbers_under_xla(tfb, op, dtype):
    cases = run_modes.fewer("jit", sequence_ops.ODD_CASES)
    checks.check_numbers(tfb.raw_ops, op, dtype, "jit", cases)


@all_ops
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_numbers_of_empty_dims(tfb, op, dtype, mode):
    checks.check_empty(tfb.raw_ops, op, dtype, mode)


@all_ops
@all_dtypes
@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_every_length(tfb, op, dtype, mode):
    checks.check_every_length(tfb.raw_ops, op, dtype, mode)


@all_ops
@pytest.mark.parametrize("dtype", ["half", "float"])
def test_what_is_past_the_length_is_not_read(tfb, op, dtype):
    checks.check_past_is_not_read(tfb.raw_ops, op, dtype)


@all_ops
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
def test_special_values(tfb, op, dtype):
    checks.check_special_values(tfb.raw_ops, op, dtype)


@all_dtypes
def test_steps_are_those_of_the_cell(tfb, dtype):
    """TensorFlow's only GRU is the cell; ours, step after step, is the sequence."""
    dims = (4, 3, 5, 17)
    inputs = sequence_ops.random_inputs(GRU, dims, block_cells.numpy_type(dtype))
    got = sequence_ops.call(tfb.raw_ops, GRU, inputs, {})
    weights = {k: inputs[k] for k in ("w_ru", "w_c", "b_ru", "b_c")}
    h = inputs["h_prev"]
    bound = 2 * checks.sequence_bound(GRU, dims, dtype)
    for t in range(dims[0]):
        step = tfb.raw_ops.GRUBlockCell(x=inputs["x"][t], h_prev=h, **weights)
        for name in GRU.outputs:
            compare.assert_close(
                getattr(got, name)[t].numpy(), getattr(step, name).numpy(), bound, f"{name} {t}"
            )
        h = step.h


@pytest.mark.parametrize("valid", [1, 2, 3])
def test_gradient_is_the_finite_difference(tfb, valid):
    checks.check_finite_differences(tfb.raw_ops, GRU, {}, valid)


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_is_the_oracles_for_every_cotangent(tfb, mode):
    cases = [((4, 3, 2, 5), 4), ((4, 3, 2, 5), 2)]
    checks.check_gradients(tfb.raw_ops, GRU, {}, "double", mode, cases)


@all_dtypes
def test_gradient_in_every_type(tfb, dtype):
    cases = [((1, 2, 8, 16), 1), ((5, 7, 17, 15), 4), ((3, 33, 9, 31), 3)]
    everything, only_h = (True,) * 4, (False,) * 3 + (True,)
    checks.check_gradients(tfb.raw_ops, GRU, {}, dtype, "eager", cases, (everything, only_h))


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_of_empty_dims_and_of_no_steps(tfb, mode):
    """An empty batch has weight gradients of zero; T = 0 passes on what it was given."""
    cases = [(dims, None) for dims in run_modes.fewer(mode, sequence_ops.EMPTY_DIMS, slice(4))]
    cases.append(((4, 3, 2, 5), 0))
    everything, only_h = (True,) * 4, (False,) * 3 + (True,)
    checks.check_gradients(tfb.raw_ops, GRU, {}, "double", mode, cases, (everything, only_h))


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_cotangents_past_the_length_are_ignored(tfb, mode):
    checks.check_cotangents_past_the_length(tfb.raw_ops, GRU, {}, mode)


@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_gradient_with_unknown_shapes(tfb, mode):
    checks.check_unknown_shapes(tfb.raw_ops, GRU, {}, mode)


def test_gradient_is_one_pass(tfb):
    """h alone, the usual case, costs one Grad op and no GEMM besides it."""
    checks.check_one_pass(tfb.raw_ops, GRU, {}, (False, False, False, True))
