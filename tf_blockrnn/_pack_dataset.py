"""Packing of sequences of many lengths into rows, in a tf.data pipeline."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from tf_blockrnn import _packing


def pack_dataset(dataset: tf.data.Dataset, steps: int, *, window: int = 1000) -> tf.data.Dataset:
    """Packs the elements of a dataset into rows of `steps` steps, as `pack_sequences` does.

    Shuffle the elements before, and shuffle and batch the rows after: within a window the rows with
    the longest elements come first.

    Args:
      dataset: of sequences [T_i, ...] of any T_i, or of tuples or dicts of them, nested or not,
        those of an element of the same length, such as inputs and targets. All dims after the first
        are known.
      steps: T, the number of steps in a row; no sequence may be longer.
      window: how many elements are packed at once. The more, the fewer rows have room left.

    Returns:
      A dataset of (x, resets, length), one row each: x [T, ...], zeros after the last sequence, in
      the structure of the elements of `dataset`; resets, bool [T], True where a sequence begins;
      and length, an int32 scalar, the number of steps that are used.

    Raises:
      ValueError: a component of the elements is no sequence, or has unknown dims after the first;
        or `steps` or `window` is not above 0.
      TypeError: `dataset` is no tf.data.Dataset, or `steps` or `window` no integer.
      tf.errors.InvalidArgumentError: (while iterating) a sequence is longer than `steps`, or those
        of an element have different lengths.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> data = tf.data.Dataset.range(1, 5).map(lambda n: tf.fill([n], n))
      >>> for x, resets, length in tf_blockrnn.pack_dataset(data, steps=6):
      ...     print(x.numpy(), tf.cast(resets, tf.int32).numpy(), length.numpy())
      [4 4 4 4 2 2] [1 0 0 0 1 0] 6
      [3 3 3 1 0 0] [1 0 0 1 0 0] 4
    """
    if not isinstance(dataset, tf.data.Dataset):
        got = f"got a value of type {type(dataset).__name__}"
        raise TypeError(f"pack_dataset: dataset must be a tf.data.Dataset, {got}")
    steps = _packing.positive("pack_dataset: steps", steps)
    window = _packing.positive("pack_dataset: window", window)
    for number, spec in enumerate(tf.nest.flatten(dataset.element_spec)):
        _check(number, spec)
    place = functools.partial(_place, steps)
    is_tuple = type(dataset.element_spec) is tuple  # whose parts `map` passes one by one

    def pack(*elements: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
        elements = elements if is_tuple else elements[0]
        ragged = [_as_ragged(component) for component in tf.nest.flatten(elements)]
        lengths = tf.stack([component.row_lengths() for component in ragged])
        places, resets, used = tf.numpy_function(place, [lengths], [tf.int32, tf.bool, tf.int32])
        places.set_shape([None, 2])
        resets.set_shape([None, steps])
        used.set_shape([None])

        def packed(component: tf.RaggedTensor) -> tf.Tensor:
            dims = component.values.shape[1:]
            x = tf.scatter_nd(places, component.values, [tf.size(used), steps, *dims])
            return tf.ensure_shape(x, [None, steps, *dims])

        x = tf.nest.pack_sequence_as(elements, [packed(component) for component in ragged])
        return x, resets, used

    return dataset.ragged_batch(window).map(pack).unbatch()


def _check(number: int, spec: Any) -> None:
    """Refuses a component of elements that is not [T, ...] with known dims after the first."""
    is_dense = isinstance(spec, tf.TensorSpec)
    if not is_dense and not isinstance(spec, tf.RaggedTensorSpec):
        wrong = "be a dense or ragged tensor of shape [T, ...]"
        mend = "tf.sparse.to_dense in dataset.map makes a sparse one dense"
    elif spec.shape.rank is None:
        wrong = "have a known number of dims"
        mend = (
            "tf.ensure_shape(x, [None]) in dataset.map sets it, or [None, I] for steps of I numbers"
        )
    elif spec.shape.rank == 0:
        wrong = "be a sequence, of shape [T, ...]"
        mend = (
            "what belongs to a whole sequence, such as a label, can be repeated for each of its "
            "steps"
        )
    elif not spec.shape[1:].is_fully_defined():
        wrong = "have known dims after the first"
        mend = "if an element is a batch of sequences, pass dataset.unbatch()"
        if is_dense:
            mend += "; if a dim of each step is unknown, tf.ensure_shape in dataset.map sets it"
    else:
        return
    raise ValueError(
        f"pack_dataset: component {number} of the elements must {wrong}, got {spec}; {mend}"
    )


def _as_ragged(component: tf.Tensor | tf.RaggedTensor) -> tf.RaggedTensor:
    """A component of a batch, of ragged_rank 1.

    It is dense if the dataset knows that all are of one length, and has later dims that are ragged,
    but uniform, if its elements have.
    """
    if not isinstance(component, tf.RaggedTensor):
        return tf.RaggedTensor.from_tensor(component)
    if isinstance(component.values, tf.RaggedTensor):
        dims = component.values.shape[1:]
        return component.with_values(component.values.to_tensor(shape=[None, *dims]))
    return component


def _place(steps: int, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, resets and used steps for elements whose components have these lengths, [K, N]."""
    differing = np.flatnonzero((lengths != lengths[0]).any(axis=0))
    if differing.size:
        number = differing[0]
        raise ValueError(
            f"pack_dataset: the components of element {number} of a window must have the same "
            f"number of steps, got {lengths[:, number].tolist()}"
        )
    index = _packing.first_fit("pack_dataset: element {} of a window", lengths[0], steps)
    return _packing.places(index), *_packing.resets_and_lengths(index, steps)
