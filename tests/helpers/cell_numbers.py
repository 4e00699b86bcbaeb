"""The numeric checks that both families of block cells share."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, tolerances

# A norm over a few elements is no measure: where one of them cancels, the whole array does. So
# small sizes are tried with many inputs and compared all together, over about this many elements.
_ELEMENTS = 64


def seeds_for(dims) -> range:
    elements = dims[0] * max(dims[1:])
    return range(max(1, -(-_ELEMENTS // max(elements, 1))) if elements else 1)


def check_numbers(raw_ops, op, dtype, mode, device, all_dims) -> None:
    """Every attribute case and every size of `all_dims` against the float64 oracle.

    All sizes are tried before it fails, so that one run tells which are wrong.
    """
    wrong = []
    for attrs in op.attr_cases:
        run = block_cells.caller(raw_ops, op, attrs, mode)
        for dims in all_dims:
            got, want = [], []
            for seed in seeds_for(dims):
                inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype), seed)
                with tf.device(device):
                    got.append(run(inputs))
                want.append(block_cells.oracle(op, inputs, attrs))
            bound = tolerances.bound(
                dtype, block_cells.reduction_length(dims, op, attrs), op.backward
            )
            for name in op.outputs:
                values = [getattr(outputs, name) for outputs in got]
                what = f"{op.name}.{name} {dtype} (B, I, H)={dims} {dict(attrs)}"
                assert all(v.dtype == tf.as_dtype(dtype) for v in values), what
                expected = [outputs[name] for outputs in want]
                try:
                    compare.assert_close(
                        np.stack([v.numpy() for v in values]), np.stack(expected), bound, what
                    )
                except AssertionError as error:
                    wrong.append(str(error))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20])


def check_parity(raw_ops, op, dtype, dims) -> None:
    """Against TensorFlow's own kernel; both may err, so the bound counts twice."""
    for attrs in op.attr_cases:
        inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype), seed=1)
        ours = block_cells.call(raw_ops, op, inputs, attrs)
        stock = block_cells.call(tf.raw_ops, op, inputs, attrs)
        length = block_cells.reduction_length(dims, op, attrs)
        bound = tolerances.parity_bound(dtype, length, op.backward)
        for name in op.outputs:
            what = f"{op.name}.{name} {dtype} {dims} {dict(attrs)}"
            mine, theirs = getattr(ours, name), getattr(stock, name)
            assert mine.dtype == theirs.dtype
            compare.assert_close(mine.numpy(), theirs.numpy(), bound, what)


def check_special_values(raw_ops, op, dtype, device) -> None:
    """A NaN or infinity in any argument gives what the equations give, and stays in its row.

    NaN and infinity are compared by place; so are the numbers of every other row.
    """
    dims = (3, 5, 9)
    for attrs in op.attr_cases:
        for argument, special in block_cells.special_arguments(op):
            inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype), seed=2)
            inputs[argument].flat[1] = special
            with tf.device(device):
                got = block_cells.call(raw_ops, op, inputs, attrs)
            with np.errstate(all="ignore"):
                want = block_cells.oracle(op, inputs, attrs)
            bound = tolerances.bound(
                dtype, block_cells.reduction_length(dims, op, attrs), op.backward
            )
            for name in op.outputs:
                what = f"{op.name}.{name} {argument}={special} {dict(attrs)}"
                compare.assert_close(getattr(got, name).numpy(), want[name], bound, what)


def check_saturation(raw_ops, op, biases, device) -> None:
    """Biases of both signs and of sizes from where exp(-x) vanishes to near the largest float."""
    dims = (3, 4, 9)
    for dtype in ("bfloat16", "float", "double"):
        for scale in (1e2, 1e4, 1e30):
            inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
            for name in biases:
                signs = np.sign(inputs[name].astype(np.float64))
                inputs[name] = (signs * scale).astype(inputs[name].dtype)
            with tf.device(device):
                got = block_cells.call(raw_ops, op, inputs, {})
            want = block_cells.oracle(op, inputs, {})
            bound = tolerances.bound(dtype, block_cells.reduction_length(dims))
            for name in op.outputs:
                value = getattr(got, name).numpy()
                assert np.isfinite(value.astype(np.float64)).all(), name
                compare.assert_close(value, want[name], bound, f"{op.name}.{name} {dtype} {scale}")
