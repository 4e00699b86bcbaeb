"""BlockLSTM, BlockLSTMV2 and their gradients: numbers, lengths, clip, peepholes, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, compare, run_modes, sequence_ops
from helpers import sequence_checks as checks

all_ops = pytest.mark.parametrize("op", sequence_ops.LSTM_OPS, ids=lambda op: op.name)
all_dtypes = pytest.mark.parametrize("dtype", block_cells.DTYPES)
FORWARD = (sequence_ops.LSTM, sequence_ops.LSTM_V2)
# The clip is straight-through, so differences can only be taken where it does not act.
SMOOTH = [
    pytest.param(sequence_ops.LSTM, {"cell_clip": 0.0, "forget_bias": 0.5}, id="V1"),
    pytest.param(sequence_ops.LSTM, {"cell_clip": 100.0, "use_peephole": True}, id="V1-peephole"),
    pytest.param(sequence_ops.LSTM_V2, {}, id="V2"),
    pytest.param(sequence_ops.LSTM_V2, {"use_peephole": True}, id="V2-peephole"),
]
CASES = [
    *SMOOTH,
    pytest.param(sequence_ops.LSTM, {"cell_clip": 0.5, "use_peephole": True}, id="V1-clipped"),
    pytest.param(sequence_ops.LSTM_V2, {"cell_clip": 0.5}, id="V2-clipped"),
]


@all_ops
@all_dtypes
def test_numbers(tfb, op, dtype):
    cases = run_modes.shared(dtype, sequence_ops.ODD_CASES)
    checks.check_numbers(tfb.raw_ops, op, dtype, "eager", cases)


@all_ops
def test_numbers_in_a_graph(tfb, op):
    checks.check_numbers(tfb.raw_ops, op, "float", "graph", sequence_ops.ODD_CASES[3:8])


@pytest.mark.xla
@all_ops
@all_dtypes
def test_numbers_under_xla(tfb, op, dtype):
    cases = run_modes.fewer("jit", sequence_ops.ODD_CASES)
    checks.check_numbers(tfb.raw_ops, op, dtype, "jit", cases)


@pytest.mark.types
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


@all_ops
@pytest.mark.parametrize("dtype", ["half", "float"])
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (5, 3, 5, 7), (4, 17, 33, 31), (6, 8, 64, 64)])
def test_numbers_are_tensorflows(tfb, op, dtype, dims):
    checks.check_parity(tfb.raw_ops, op, dtype, dims)


@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
@pytest.mark.parametrize("use_peephole", [False, True])
def test_gradients_are_tensorflows(tfb, op, use_peephole):
    """Forward and backward, ours and TensorFlow's, from the same inputs, with a clip that acts.

    The Grad op is called directly: TensorFlow's registered gradient of BlockLSTMV2 calls
    BlockLSTMGrad, which has another gate order.
    """
    dims, valid = (5, 4, 6, 8), 4
    attrs = {"cell_clip": 0.5, "use_peephole": use_peephole}
    inputs = sequence_ops.tensors_of(
        sequence_ops.random_inputs(op, dims, np.float32, seed=4, valid=valid)
    )
    grad_name = op.name.replace("LSTM", "LSTMGrad")
    rng = np.random.default_rng(6)
    cs_grad, h_grad = (tf.constant(rng.normal(size=(5, 4, 8)).astype(np.float32)) for _ in range(2))
    found = []
    for raw_ops in (tfb.raw_ops, tf.raw_ops):
        outputs = getattr(raw_ops, op.name)(**inputs, **attrs)
        found.append(
            getattr(raw_ops, grad_name)(
                **inputs,
                **outputs._asdict(),
                cs_grad=cs_grad,
                h_grad=h_grad,
                use_peephole=use_peephole,
            )
        )
    with tf.GradientTape() as tape:
        sources = {k: v for k, v in inputs.items() if k != "seq_len_max"}
        tape.watch(sources)
        outputs = getattr(tfb.raw_ops, op.name)(**inputs, **attrs)
    taped = tape.gradient([outputs.cs, outputs.h], sources, output_gradients=[cs_grad, h_grad])
    grad_op = sequence_ops.OPS[grad_name]
    bound = 2 * checks.sequence_bound(grad_op, dims, "float")
    for name in grad_op.outputs:
        ours, stock = (getattr(g, name).numpy() for g in found)
        stock = stock[:valid] if name == "x_grad" else stock
        ours_valid = ours[:valid] if name == "x_grad" else ours
        compare.assert_close(ours_valid, stock, bound, name)
        gradient = taped[name.removesuffix("_grad")]
        gradient = np.zeros_like(ours) if gradient is None else gradient.numpy()
        compare.assert_close(gradient, ours, bound, f"{name} by the tape")


@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
@all_dtypes
def test_one_step_is_the_cell(tfb, op, dtype):
    """With T = 1 it is LSTMBlockCell, but for V2's order of gates."""
    dims = (1, 3, 5, 17)
    inputs = sequence_ops.random_inputs(op, dims, block_cells.numpy_type(dtype))
    attrs = {"use_peephole": True, "cell_clip": 0.5}
    got = sequence_ops.call(tfb.raw_ops, op, inputs, attrs)
    cell = {k: v for k, v in inputs.items() if k != "seq_len_max"}
    cell["x"] = cell["x"][0]
    if op is sequence_ops.LSTM_V2:
        for name in ("w", "b"):
            i, f, c, o = np.split(cell[name], 4, axis=-1)
            cell[name] = np.concatenate([i, c, f, o], axis=-1)
        attrs["forget_bias"] = 0.0
    want = block_cells.call(tfb.raw_ops, block_cells.LSTM, cell, attrs)
    bound = checks.sequence_bound(op, dims, dtype)
    for name in op.outputs:
        compare.assert_close(
            getattr(got, name).numpy()[0], getattr(want, name).numpy(), bound, name
        )


@pytest.mark.parametrize("op", FORWARD, ids=lambda op: op.name)
@pytest.mark.parametrize("use_peephole", [False, True])
def test_numbers_of_the_clip(tfb, op, use_peephole):
    """0, negative and NaN clips mean no clip; a positive one clips infinity and leaves NaN."""
    dims = (3, 4, 3, 17)
    for dtype in ("half", "float", "double"):
        inputs = sequence_ops.random_inputs(op, dims, block_cells.numpy_type(dtype))
        # Large states of both signs, so that every positive clip below has work to do.
        inputs["cs_prev"] = (inputs["cs_prev"].astype(np.float64) * 50).astype(inputs["x"].dtype)
        inputs["cs_prev"][0, :3] = [np.inf, -np.inf, np.nan]
        # With peepholes an infinite state opens these forget gates; closed, ∞ · 0 would be NaN.
        inputs["wcf"][:2] = [1, -1]
        for clip in (0.0, -2.0, np.nan, -np.inf, np.inf, 0.5, 3.0):
            attrs = {"cell_clip": float(clip), "use_peephole": use_peephole}
            got = sequence_ops.call(tfb.raw_ops, op, inputs, attrs)
            with np.errstate(all="ignore"):
                want = sequence_ops.oracle(op, inputs, attrs)
            for name in op.outputs:
                what = f"{name} {dtype} cell_clip={clip}"
                compare.assert_close(
                    getattr(got, name).numpy(),
                    want[name],
                    checks.sequence_bound(op, dims, dtype),
                    what,
                )
            if 0 < clip < np.inf:
                cs = got.cs.numpy().astype(np.float64)
                assert (cs[0, 0, 0], cs[0, 0, 1]) == (clip, -clip)
                assert np.isnan(cs[:, 0, 2]).all()
                assert np.nanmax(np.abs(cs)) <= clip


@all_ops
def test_peepholes_that_are_not_used(tfb, op):
    """They may have any length, NaN in them goes nowhere, their gradients are zeros of it."""
    inputs = sequence_ops.random_inputs(op, (3, 2, 5, 7), np.float32, valid=2)
    attrs = {"use_peephole": False}
    want = sequence_ops.call(tfb.raw_ops, op, inputs, attrs)
    for lengths in ((0, 1, 8), (1000, 0, 7)):
        changed = {
            k: np.full([n], np.nan, np.float32)
            for k, n in zip(("wci", "wcf", "wco"), lengths, strict=True)
        }
        got = sequence_ops.call(tfb.raw_ops, op, {**inputs, **changed}, attrs)
        for name in op.outputs:
            value = getattr(got, name)
            if name.removesuffix("_grad") in changed:
                length = len(changed[name.removesuffix("_grad")])
                np.testing.assert_array_equal(value.numpy(), np.zeros([length], np.float32))
            else:
                assert compare.bits(value) == compare.bits(getattr(want, name)), name


@pytest.mark.parametrize("op, attrs", SMOOTH)
@pytest.mark.parametrize("valid", [1, 2, 3])
def test_gradient_is_the_finite_difference(tfb, op, attrs, valid):
    checks.check_finite_differences(tfb.raw_ops, op, attrs, valid)


@pytest.mark.parametrize("op, attrs", CASES)
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_is_the_oracles_for_every_cotangent(tfb, op, attrs, mode):
    cases = [((4, 3, 2, 5), 4), ((4, 3, 2, 5), 2)]
    checks.check_gradients(tfb.raw_ops, op, attrs, "double", mode, cases)


@pytest.mark.parametrize("op, attrs", CASES)
@all_dtypes
def test_gradient_in_every_type(tfb, op, attrs, dtype):
    cases = [((1, 2, 8, 16), 1), ((5, 7, 17, 15), 4), ((3, 33, 9, 31), 3)]
    everything, only_h = (True,) * 7, (False,) * 6 + (True,)
    checks.check_gradients(tfb.raw_ops, op, attrs, dtype, "eager", cases, (everything, only_h))


@pytest.mark.types
@pytest.mark.parametrize("op, attrs", CASES)
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_of_empty_dims_and_of_no_steps(tfb, op, attrs, mode):
    """An empty batch has weight gradients of zero; T = 0 passes on what it was given."""
    cases = [(dims, None) for dims in run_modes.fewer(mode, sequence_ops.EMPTY_DIMS, slice(4))]
    cases.append(((4, 3, 2, 5), 0))
    everything, only_h = (True,) * 7, (False,) * 6 + (True,)
    checks.check_gradients(tfb.raw_ops, op, attrs, "double", mode, cases, (everything, only_h))


@pytest.mark.types
@pytest.mark.parametrize("op, attrs", CASES)
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_cotangents_past_the_length_are_ignored(tfb, op, attrs, mode):
    checks.check_cotangents_past_the_length(tfb.raw_ops, op, attrs, mode)


@pytest.mark.parametrize("op, attrs", SMOOTH)
@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_gradient_with_unknown_shapes(tfb, op, attrs, mode):
    checks.check_unknown_shapes(tfb.raw_ops, op, attrs, mode)


@pytest.mark.parametrize("op, attrs", SMOOTH)
def test_gradient_is_one_pass(tfb, op, attrs):
    """h and cs together, the usual case, cost one Grad op and no GEMM besides it."""
    used = (False, True, False, False, False, False, True)
    checks.check_one_pass(tfb.raw_ops, op, attrs, used)
