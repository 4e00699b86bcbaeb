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
SEQUENCES = sequence_ops.OPS.values()
LSTMS = (block_cells.LSTM, sequence_ops.LSTM, sequence_ops.LSTM_V2)
all_ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
sequences = pytest.mark.parametrize("op", SEQUENCES, ids=sequence_ops.OPS)
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


@all_ops
def test_numbers_in_a_graph(tfb, op):
    block_checks.check_numbers(tfb.raw_ops, op, "float", "graph", _cases(op)[3:8])


@pytest.mark.xla
@all_ops
@all_dtypes
def test_numbers_under_xla(tfb, op, dtype):
    cases = run_modes.fewer("jit", _cases(op))
    block_checks.check_numbers(tfb.raw_ops, op, dtype, "jit", cases)


@pytest.mark.parametrize(
    ("name", "dtype", "mode"), covering.pairwise(OPS, ["bfloat16", "float"], run_modes.MODES)
)
def test_numbers_of_empty_dims(tfb, name, dtype, mode):
    op = OPS[name]
    all_dims = (sequence_ops if len(op.sizes) == 4 else block_cells).EMPTY_DIMS
    block_checks.check_empty(tfb.raw_ops, op, dtype, mode, all_dims)


@pytest.mark.parametrize(
    ("name", "dtype", "mode"), covering.pairwise(sequence_ops.OPS, DTYPES, ["eager", "jit"])
)
def test_every_length(tfb, name, dtype, mode):
    block_checks.check_every_length(tfb.raw_ops, OPS[name], dtype, mode)


@sequences
@pytest.mark.parametrize("dtype", ["half", "float"])
def test_what_is_past_the_length_is_not_read(tfb, op, dtype):
    block_checks.check_past_is_not_read(tfb.raw_ops, op, dtype)


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


@all_dtypes
def test_steps_are_those_of_the_gru_cell(tfb, dtype):
    """TensorFlow's only GRU is the cell; ours, step after step, is the sequence."""
    op, dims = sequence_ops.GRU, (4, 3, 5, 17)
    inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
    got = block_cells.call(tfb.raw_ops, op, inputs, {})
    weights = {k: inputs[k] for k in ("w_ru", "w_c", "b_ru", "b_c")}
    h = inputs["h_prev"]
    bound = 2 * block_checks.bound_of(op, dims, dtype)
    for t in range(dims[0]):
        step = tfb.raw_ops.GRUBlockCell(x=inputs["x"][t], h_prev=h, **weights)
        for name in op.outputs:
            mine, cell = getattr(got, name)[t].numpy(), getattr(step, name).numpy()
            compare.assert_close(mine, cell, bound, f"{name} {t}")
        h = step.h


@pytest.mark.parametrize("op", LSTMS[1:], ids=lambda op: op.name)
@all_dtypes
def test_one_step_is_the_lstm_cell(tfb, op, dtype):
    """With T = 1 it is LSTMBlockCell, but for V2's order of gates."""
    dims = (1, 3, 5, 17)
    inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
    attrs = {"use_peephole": True, "cell_clip": 0.5}
    got = block_cells.call(tfb.raw_ops, op, inputs, attrs)
    cell = {k: v for k, v in inputs.items() if k != "seq_len_max"}
    cell["x"] = cell["x"][0]
    if op is sequence_ops.LSTM_V2:
        for name in ("w", "b"):
            i, f, c, o = np.split(cell[name], 4, axis=-1)
            cell[name] = np.concatenate([i, c, f, o], axis=-1)
        attrs["forget_bias"] = 0.0
    want = block_cells.call(tfb.raw_ops, block_cells.LSTM, cell, attrs)
    bound = block_checks.bound_of(op, dims, dtype)
    for name in op.outputs:
        mine, expected = getattr(got, name).numpy()[0], getattr(want, name).numpy()
        compare.assert_close(mine, expected, bound, name)


@pytest.mark.parametrize("op", LSTMS[1:], ids=lambda op: op.name)
@pytest.mark.parametrize("use_peephole", [False, True])
def test_gradients_are_tensorflows(tfb, op, use_peephole):
    """Forward and backward, ours and TensorFlow's, from the same inputs, with a clip that acts.

    The Grad op is called directly: TensorFlow's registered gradient of BlockLSTMV2 calls
    BlockLSTMGrad, which has another gate order.
    """
    dims, valid = (5, 4, 6, 8), 4
    attrs = {"cell_clip": 0.5, "use_peephole": use_peephole}
    inputs = block_cells.random_inputs(op, dims, np.float32, seed=4, valid=valid)
    inputs = block_cells.tensors_of(inputs)
    grad_op = sequence_ops.OPS[op.name.replace("LSTM", "LSTMGrad")]
    rng = np.random.default_rng(6)
    cs_grad, h_grad = (tf.constant(rng.normal(size=(5, 4, 8)).astype(np.float32)) for _ in range(2))
    found = []
    for raw_ops in (tfb.raw_ops, tf.raw_ops):
        outputs = getattr(raw_ops, op.name)(**inputs, **attrs)._asdict()
        given = {**inputs, **outputs, "cs_grad": cs_grad, "h_grad": h_grad}
        found.append(getattr(raw_ops, grad_op.name)(**given, use_peephole=use_peephole))
    with tf.GradientTape() as tape:
        sources = {k: v for k, v in inputs.items() if k != "seq_len_max"}
        tape.watch(sources)
        outputs = getattr(tfb.raw_ops, op.name)(**inputs, **attrs)
    taped = tape.gradient([outputs.cs, outputs.h], sources, output_gradients=[cs_grad, h_grad])
    bound = 2 * block_checks.bound_of(grad_op, dims, "float")
    for name in grad_op.outputs:
        ours, stock = (getattr(g, name).numpy() for g in found)
        within = slice(valid) if name == "x_grad" else slice(None)
        compare.assert_close(ours[within], stock[within], bound, name)
        gradient = taped[name.removesuffix("_grad")]
        gradient = np.zeros_like(ours) if gradient is None else gradient.numpy()
        compare.assert_close(gradient, ours, bound, f"{name} by the tape")


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
