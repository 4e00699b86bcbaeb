"""Empty tensors, and dims at which sizes no longer fit their integers, of cells and block ops.

A tensor of 2^62 rows and no columns costs no memory, so every size can be tried.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, built_graphs, malformed, op_table, run_modes, sequence_ops

BIG = 2**62
OPS = block_cells.OPS | sequence_ops.OPS
REFUSED = (tf.errors.InvalidArgumentError, ValueError)
all_ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
modes = pytest.mark.parametrize("mode", malformed.MODES)
# XLA itself dies of arrays whose dims, but for those of 0, have a product beyond int64.
modes_but_xla = pytest.mark.parametrize("mode", malformed.MODES[:3])


def _call(raw_ops, op, shapes, mode, valid=1):
    tensors = {k: built_graphs.zeros(v) for k, v in shapes.items()}
    if "seq_len_max" in op.inputs:
        tensors["seq_len_max"] = tf.constant(valid, tf.int64)
    function, attrs = getattr(raw_ops, op.name), op.attr_cases[-1]
    return built_graphs.call_or_trace(mode, function, tensors, attrs)


def _assert_zeros(got, op, dims):
    for name, shape in op.output_shapes(dims).items():
        assert getattr(got, name).shape.as_list() == list(shape), (dims, name)
        if max(shape) < 2**41:  # NumPy takes no more
            assert not np.any(getattr(got, name).numpy())


def _dims(op, *dims):
    """(T, B, I, H), of a cell (B, I, H)."""
    return dims[-len(op.sizes) :]


@all_ops
@modes
def test_many_empty_rows_and_steps_return_at_once(tfb, op, mode):
    """Of nothing: there is nothing to do, and a loop over them would take long."""
    sizes = (2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**60)
    for size in run_modes.fewer(mode, sizes, slice(2, 4)):  # XLA dies of 2^60, of any op
        of_sizes = ((size, 0, 2, 3), (size, 0, 0, 0), (size, 2, 0, 0), (1, size, 0, 0))
        for dims in {_dims(op, *dims) for dims in of_sizes}:
            begin = time.perf_counter()
            got = _call(tfb.raw_ops, op, op.shapes(dims), mode, valid=dims[0])
            _assert_zeros(got, op, dims)
            assert time.perf_counter() - begin < 3, dims


@all_ops
@modes
def test_dims_are_not_cut_to_32_bits(tfb, op, mode):
    """2^32 + 1 rows or steps are not 1, nor are 2^32 none."""
    sizes = ((2**32 + 1, 1), (2**32, 0), (1, 2**32 + 1))
    for right, wrong in run_modes.fewer(mode, sizes, slice(1), malformed.GRAPHS):
        for symbol, dims in (("T", (right, 0, 2, 3)), ("B", (1, right, 0, 0))):
            legal = op.shapes(_dims(op, *dims))
            for argument, expressions in op.inputs.items():
                if symbol not in expressions or argument == "x":
                    continue
                pairs = zip(expressions, legal[argument], strict=True)
                changed = tuple(wrong if e == symbol else d for e, d in pairs)
                with pytest.raises(REFUSED, match=op.name):
                    _call(tfb.raw_ops, op, {**legal, argument: changed}, mode)


@all_ops
@modes_but_xla
def test_many_inputs_without_units(tfb, op, mode):
    """I = 2^62 with H = 0 is legal: the weights have that many rows of nothing."""
    dims = _dims(op, 1, 0, BIG, 0)
    _assert_zeros(_call(tfb.raw_ops, op, op.shapes(dims), mode), op, dims)


@all_ops
@modes_but_xla
def test_overflowing_sizes_are_refused(tfb, op, mode):
    """Dims in which 2H, 4H or I + H leaves int64, and would agree if it wrapped around."""
    largest = 2**63 - 1
    for i, h in ((0, BIG), (0, 2**61), (0, largest), (BIG, BIG), (largest, 1), (largest, BIG)):
        shapes = {}
        for name, expressions in op.inputs.items():
            exact = op_table.shape(expressions, {"T": 2, "B": 0, "I": i, "H": h, "P": h})
            # What int64 makes of it; a negative dim cannot be given at all.
            dims = [v if (v := dim % 2**64) < 2**63 else 0 for dim in exact]
            # Tensors of so many elements do not exist; without rows they do.
            if dims and 0 not in dims:
                dims[0] = 0
            shapes[name] = tuple(dims)
        with pytest.raises(REFUSED, match=op.name):
            _call(tfb.raw_ops, op, shapes, mode)
