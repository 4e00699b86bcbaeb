"""What the gradients of all op families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context


def known_zero(cotangent: tf.Tensor | None) -> bool:
    """Whether a cotangent is one of those zeros that TensorFlow hands over for an unused output.

    Knowing saves work and changes no result: where this says False the zeros are added up like any
    other numbers. It looks at where the tensor comes from and never at its values, so it costs a
    microsecond and waits for no device.
    """
    if cotangent is None:
        return True
    if isinstance(cotangent, tf.IndexedSlices):
        return False
    if tf.is_symbolic_tensor(cotangent):
        return _made_as_zeros(cotangent)
    # An eager tape takes its zeros from a cache, one tensor per shape, type and device.
    current = context.context()
    key = (tuple(cotangent.shape), cotangent.dtype, current.device_name)
    return current.zeros_cache().get(key) is cotangent


def _made_as_zeros(tensor: tf.Tensor) -> bool:
    op = tensor.op
    if op.type == "Const":
        return not np.any(tf.get_static_value(tensor))
    if op.type == "Fill":
        value = tf.get_static_value(op.inputs[1])
        return value is not None and not np.any(value)
    return op.type == "ZerosLike"


def needed(op: tf.Operation, index: int) -> bool:
    """Whether anyone asks for the gradient of this input; a graph prunes what nobody asks for."""
    return index not in (getattr(op, "skip_input_indices", None) or ())


def columns(matrix: tf.Tensor) -> int | tf.Tensor:
    """The number of columns; a number where it is known, so that slices have static shapes."""
    static = matrix.shape[1] if matrix.shape.rank == 2 else None
    return tf.shape(matrix)[1] if static is None else static


def wide(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor in the type that it is computed in: float32 for half and bfloat16."""
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor


# tf.matmul and tensor[:, n:] cost several times their op in eager mode, hence raw_ops and tf.split.


def weight_gradient(inputs: Sequence[tf.Tensor], d_bar: tf.Tensor) -> tf.Tensor:
    """[a, b]ᵀ · d_bar: the gradient of w in [a, b] · w, given that of the product."""
    return tf.raw_ops.MatMul(a=tf.concat(inputs, axis=1), b=d_bar, transpose_a=True)


def bias_gradient(d_bar: tf.Tensor) -> tf.Tensor:
    """Σ_batch d_bar. TensorFlow sums half in half, which stays at 2048 when it counts ones."""
    return tf.cast(tf.reduce_sum(wide(d_bar), axis=0), d_bar.dtype)


def input_gradients(
    d_bar: tf.Tensor, weights: tf.Tensor, a: tf.Tensor, b: tf.Tensor
) -> list[tf.Tensor]:
    """[d_a, d_b] = d_bar · wᵀ: the gradients of a and b in [a, b] · w, given its own."""
    product = tf.raw_ops.MatMul(a=d_bar, b=weights, transpose_b=True)
    return tf.split(product, [columns(a), columns(b)], axis=1)


def gradient_of(
    function: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tf.Tensor],
    cotangents: Sequence[tf.Tensor],
) -> list[tf.Tensor | None]:
    """The gradient of a function of TensorFlow's ops, by a tape; None for inputs it ignores."""
    inputs = [
        tf.identity(tensor) for tensor in inputs
    ]  # else a tensor given twice is watched as one
    with tf.GradientTape() as tape:
        for tensor in inputs:
            tape.watch(tensor)
        outputs = function(*inputs)
    return tape.gradient(outputs, inputs, output_gradients=list(cotangents))
