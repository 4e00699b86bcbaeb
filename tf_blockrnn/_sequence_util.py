"""What the functions over whole sequences and their gradients share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.eager import record

from tf_blockrnn import _gradient_util as util


@functools.cache
def _none_eager(dtype: tf.DType) -> tf.Tensor:
    return tf.zeros([0], dtype)


def none(dtype: tf.DType) -> tf.Tensor:
    """What an op takes for an input that is left out."""
    return _none_eager(dtype) if tf.executing_eagerly() else tf.zeros([0], dtype)


def is_training() -> bool:
    """Whether to keep what a gradient needs. A graph drops by itself what nobody uses."""
    return not tf.executing_eagerly() or record.could_possibly_record()


def dim(argument: str, tensor: tf.Tensor, axis: int, rank: int) -> int | tf.Tensor:
    """A dim of an argument of that rank, as a number where it is known.

    Raises:
      tf.errors.InvalidArgumentError: it is of another rank.
    """
    if tensor.shape.rank not in (None, rank):
        raise tf.errors.InvalidArgumentError(
            None, None, f"{argument} must have {rank} dims, got shape {tensor.shape.as_list()}"
        )
    known = tensor.shape[axis] if tensor.shape.rank == rank else None
    return tf.shape(tensor)[axis] if known is None else known


def zero_state(op: str, x: tf.Tensor, time_major: bool, units: int | tf.Tensor) -> tf.Tensor:
    """Zeros for each row of x and each unit."""
    return tf.zeros([dim(f"{op}: x", x, 1 if time_major else 0, 3), units], x.dtype)


def or_left_out(given: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    """An input that may be None."""
    return none(dtype) if given is None else given


class Steps(NamedTuple):
    """Which steps count, as the ops take it."""

    mask: tf.Tensor
    sequence_lengths: tf.Tensor


def steps(op: str, mask: tf.Tensor | None, sequence_lengths: tf.Tensor | None) -> Steps:
    """What a function is given, as an op takes it.

    Raises:
      tf.errors.InvalidArgumentError: sequence_lengths are no integers.
    """
    mask = none(tf.bool) if mask is None else tf.cast(mask, tf.bool)
    if sequence_lengths is None:
        return Steps(mask, none(tf.int32))
    lengths = tf.convert_to_tensor(sequence_lengths)
    if not lengths.dtype.is_integer:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"{op}: sequence_lengths must be of an integer type, got {lengths.dtype.name}",
        )
    if lengths.dtype not in (tf.int32, tf.int64):
        lengths = tf.cast(lengths, tf.int64)
    return Steps(mask, lengths)


def or_none(cotangent: tf.Tensor) -> tf.Tensor:
    """A cotangent, or what stands for one that is zeros."""
    return none(cotangent.dtype) if util.known_zero(cotangent) else tf.convert_to_tensor(cotangent)


def check_training(op: tf.Operation) -> None:
    """A gradient needs what only a forward call for training keeps."""
    if not op.get_attr("is_training"):
        raise ValueError(f"{op.type}: a gradient needs is_training=True in the forward call")


def all_zero(gates: Sequence[tf.Tensor | None]) -> bool:
    """Whether nothing comes from the gates saved for the gradient, as nearly always.

    Else they were read, as a second derivative does, and the fused op takes none of it.
    """
    return all(util.known_zero(gate) or util.eager_zeros(gate) for gate in gates)
