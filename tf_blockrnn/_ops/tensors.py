"""Arguments as tensors: their types and dims, placeholders for omitted inputs, and errors."""

from __future__ import annotations

import functools

import tensorflow as tf

from tf_blockrnn import _tf_private


def refusal(message: str) -> Exception:
    """The error for an invalid argument, of the same type as the errors of TensorFlow's ops."""
    if tf.executing_eagerly():
        return tf.errors.InvalidArgumentError(None, None, message)
    return ValueError(message)


def as_tensor(value: tf.Tensor, dtype: tf.DType | None = None) -> tf.Tensor:
    """An argument as a tensor; numbers and arrays are converted to `dtype`."""
    if isinstance(value, tf.Tensor):  # the check is much cheaper than the conversion
        return value
    return tf.convert_to_tensor(value, None if tf.is_tensor(value) else dtype)


def not_dense(argument: str, value: object) -> str | None:
    """What is wrong with a sparse or ragged tensor, and what to pass; None for all else."""
    dense = f"{argument} must be a dense tensor, got a {type(value).__name__}"
    if isinstance(value, tf.SparseTensor):
        return f"{dense}; pass tf.sparse.to_dense({argument})"
    if isinstance(value, tf.RaggedTensor):
        return f"{dense}; pass {argument}.to_tensor()"
    return None


def integers(argument: str, value: int | tf.Tensor) -> tf.Tensor:
    """An argument that must be of integers.

    Raises:
      TypeError: it is not.
    """
    tensor = as_tensor(value)
    if not tensor.dtype.is_integer:
        raise TypeError(f"{argument} must be of an integer type, got {tensor.dtype.name}")
    return tensor


def known_dim(tensor: tf.Tensor, axis: int) -> int | None:
    """A dim of a tensor of known rank, or None if it is not known.

    It is an int also under `tf.compat.v1.disable_v2_tensorshape`, where dims are objects.
    """
    return tf.compat.dimension_value(tensor.shape[axis])


def dim(tensor: tf.Tensor, axis: int, rank: int) -> int | tf.Tensor:
    """A dim of a tensor that should have that rank, as an int if it is known."""
    known = known_dim(tensor, axis) if tensor.shape.rank == rank else None
    return tf.shape(tensor)[axis] if known is None else known


@functools.lru_cache(maxsize=64)
def _none_eager(dtype: tf.DType, device: str | None) -> tf.Tensor:
    del device  # part of the cache key: the device of the tensor
    return tf.zeros([0], dtype)


def none(dtype: tf.DType) -> tf.Tensor:
    """The tensor that an op takes for an omitted input."""
    if not tf.executing_eagerly():
        return tf.zeros([0], dtype)
    return _none_eager(dtype, _tf_private.eager_device())
