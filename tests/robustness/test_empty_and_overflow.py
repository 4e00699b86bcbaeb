"""Empty tensors, and dims at which sizes no longer fit their integers.

A tensor of 2^62 rows and no columns costs no memory, so every size can be tried.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, built_graphs, perturbation, run_modes

BIG = 2**62
cells = pytest.mark.parametrize("op", block_cells.OPS.values(), ids=block_cells.OPS)
modes = pytest.mark.parametrize("mode", perturbation.MODES)
# XLA itself dies of arrays whose dims, but for those of 0, have a product beyond int64.
modes_but_xla = pytest.mark.parametrize("mode", perturbation.MODES[:3])


def _call(raw_ops, op, shapes, attrs, mode):
    tensors = {k: built_graphs.zeros(v) for k, v in shapes.items()}
    return built_graphs.call_or_trace(mode, getattr(raw_ops, op.name), tensors, attrs)


@cells
@modes
def test_batches_past_int32_cost_nothing_without_units(tfb, op, mode):
    for batch in (2**31 - 1, 2**31, 2**32 + 1, 2**40):
        dims = (batch, 0, 0)
        got = _call(tfb.raw_ops, op, op.shapes(dims), op.attr_cases[-1], mode)
        for name, shape in op.output_shapes(dims).items():
            assert getattr(got, name).shape.as_list() == list(shape), name


@cells
@modes
def test_a_batch_is_not_cut_to_32_bits(tfb, op, mode):
    """2^32 + 1 rows are not 1 row, nor are 2^32 rows none."""
    sizes = ((2**32 + 1, 1), (2**32, 0), (1, 2**32 + 1))
    for batch, other in run_modes.fewer(mode, sizes, slice(1)):
        shapes = op.shapes((batch, 0, 0))
        for argument, expressions in op.inputs.items():
            if expressions != ("B", "H"):
                continue
            wrong = {**shapes, argument: (other, 0)}
            with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=op.name):
                _call(tfb.raw_ops, op, wrong, op.attr_cases[-1], mode)


@cells
@modes_but_xla
def test_many_inputs_without_units(tfb, op, mode):
    """I = 2^62 with H = 0 is legal: the weights have that many rows of nothing."""
    dims = (0, BIG, 0)
    got = _call(tfb.raw_ops, op, op.shapes(dims), op.attr_cases[-1], mode)
    for name, shape in op.output_shapes(dims).items():
        assert getattr(got, name).shape.as_list() == list(shape), name


def _overflowing(op):
    """Shapes in which 2H, 4H or I + H leaves int64, and would agree if it wrapped around."""
    wrap = {"2H": lambda h: (2 * h) % 2**64, "4H": lambda h: (4 * h) % 2**64}
    for i, h in (
        (0, BIG),
        (0, 2**61),
        (0, 2**63 - 1),
        (BIG, BIG),
        (2**63 - 1, 1),
        (2**63 - 1, BIG),
    ):
        shapes = {}
        for name, expressions in op.inputs.items():
            dims = []
            for e in expressions:
                if e == "B":
                    value = 0
                elif e == "I":
                    value = i
                elif e == "I+H":
                    value = (i + h) % 2**64
                elif e in wrap:
                    value = wrap[e](h)
                else:
                    value = h
                # What int64 makes of it; a negative dim cannot be given at all.
                dims.append(value if value < 2**63 else 0)
            # Tensors of so many elements do not exist; without rows they do.
            if 0 not in dims:
                dims[0] = 0
            shapes[name] = tuple(dims)
        yield shapes


@cells
@modes_but_xla
def test_overflowing_sizes_are_refused(tfb, op, mode):
    count = 0
    for shapes in _overflowing(op):
        assert not block_cells.is_legal(op, shapes, op.attr_cases[-1])
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=op.name):
            _call(tfb.raw_ops, op, shapes, op.attr_cases[-1], mode)
        count += 1
    assert count == 6


@cells
def test_empty_outputs_have_the_right_shape(tfb, op):
    for dims in block_cells.EMPTY_DIMS:
        got = _call(tfb.raw_ops, op, op.shapes(dims), op.attr_cases[-1], "eager")
        for name, shape in op.output_shapes(dims).items():
            assert getattr(got, name).shape.as_list() == list(shape), (dims, name)


@pytest.mark.parametrize("family", ["GRUBlockCell", "LSTMBlockCell"])
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_an_empty_batch_has_zero_weight_gradients(tfb, family, mode):
    """They were once whatever lay in memory, so memory is filled with something else first."""
    op = block_cells.OPS[family]
    dims = (0, 65, 64)
    tensors = {
        k: tf.constant(v) for k, v in block_cells.random_inputs(op, dims, np.float32).items()
    }
    attrs = op.attr_cases[1] if family == "LSTMBlockCell" else {}

    def compute(arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(tfb.raw_ops, family)(**arguments, **attrs)
            total = tf.add_n([tf.reduce_sum(v) for v in outputs])
        return tape.gradient(total, arguments)

    compute = run_modes.in_mode(mode, compute)
    for _ in range(5):
        poison = [tf.fill([129, n], np.float32(np.nan)) for n in (64, 128, 256)]
        poison += [tf.fill([n], np.float32(np.nan)) for n in (64, 128, 256)]
        del poison
        for name, gradient in compute(tensors).items():
            assert gradient.shape == tensors[name].shape
            np.testing.assert_array_equal(gradient.numpy(), np.zeros(gradient.shape), name)


def test_peephole_gradients_of_an_empty_batch_are_zero(tfb):
    op = block_cells.LSTM_GRAD
    inputs = block_cells.random_inputs(op, (0, 3, 64), np.float32)
    for use_peephole in (False, True):
        for _ in range(5):
            poison = [tf.fill([64], np.float32(np.nan)) for _ in range(8)]
            del poison
            got = block_cells.call(tfb.raw_ops, op, inputs, {"use_peephole": use_peephole})
            for name in ("wci_grad", "wcf_grad", "wco_grad"):
                np.testing.assert_array_equal(getattr(got, name).numpy(), np.zeros([64]), name)


def test_d_x_without_units_is_zero(tfb):
    """H = 0: the sum over no units is zero. TensorFlow leaves it unwritten."""
    op = block_cells.GRU_GRAD
    inputs = block_cells.random_inputs(op, (33, 65, 0), np.float32)
    for _ in range(5):
        poison = [tf.fill([33, 65], np.float32(np.nan)) for _ in range(4)]
        del poison
        got = block_cells.call(tfb.raw_ops, op, inputs, {})
        np.testing.assert_array_equal(got.d_x.numpy(), np.zeros([33, 65]))
