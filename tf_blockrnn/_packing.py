"""Packing of sequences of many lengths into rows, and back; needs NumPy alone."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_blockrnn._types import PackedSequences

if TYPE_CHECKING:
    import tensorflow as tf


# What to do instead with a symbolic tensor.
_PACK_BEFORE = (
    "its length is unknown: pack before the tf.function, or use pack_dataset in a tf.data pipeline"
)


def pack_sequences(
    sequences: Sequence[np.ndarray | tf.Tensor] | tf.RaggedTensor,
    steps: int,
    *,
    index: np.ndarray | None = None,
) -> PackedSequences:
    """Packs sequences one after another into rows of `steps` steps, with resets where each begins.

    The longest sequence comes first, and each goes to the first row that has room for it (first-fit
    decreasing), so that rows are nearly full and neighbouring rows have pieces of similar lengths.
    The result depends on the lengths alone. An empty sequence, an empty list too, takes no step.

    Args:
      sequences: arrays or eager tensors [T_i, ...], of one dtype and equal dims after the first; or
        a tf.RaggedTensor, ragged in its second dim alone.
      steps: T, the number of steps in a row; no sequence may be longer.
      index: that of other sequences of the same lengths, to place these in the same way: the
        targets, with the index of the inputs. None places them anew.

    Returns:
      PackedSequences(x, resets, lengths, index), of NumPy arrays. A function takes `x`, `resets`
      and `lengths`; a layer takes `x`, `resets` and, where the padding matters, the mask
      `np.arange(steps) < lengths[:, None]`; `unpack_sequences` takes the outputs and `index`.

    Raises:
      ValueError: there are no sequences, or one is longer than `steps`, is a scalar or a list of
        steps of unequal dims, or has another dtype or other dims than the first; or `index` is of
        other lengths, or of rows of more steps.
      TypeError: `sequences` cannot be iterated, a sequence is a symbolic tensor or an array of
        Python objects (a tensor of strings, too), or `steps` is no integer.

    Example:
      >>> import numpy as np, tf_blockrnn
      >>> packed = tf_blockrnn.pack_sequences([[1, 1], [2, 2, 2, 2], [3, 3, 3], [4]], steps=6)
      >>> print(packed.x)
      [[2 2 2 2 1 1]
       [3 3 3 4 0 0]]
      >>> print(packed.resets.astype(int), packed.lengths)
      [[1 0 0 0 1 0]
       [1 0 0 1 0 0]] [6 4]
      >>> row, start, length = packed.index.T
      >>> print(row, start, length)
      [0 0 1 1] [4 0 0 3] [2 4 3 1]
    """
    steps = positive("pack_sequences: steps", steps)
    arrays = _arrays(sequences)
    lengths = np.array([len(array) for array in arrays], np.int64)
    if index is None:
        index = first_fit("pack_sequences: sequence {}", lengths, steps)
    else:
        index = _as_index("pack_sequences", index)
        _check_fit(index, lengths, steps)
    resets, used = resets_and_lengths(index, steps)
    dtype = np.result_type(*{array.dtype for array in arrays})
    x = np.zeros([*resets.shape, *arrays[0].shape[1:]], dtype)
    for array, (row, start, length) in zip(arrays, index.tolist(), strict=True):
        x[row, start : start + length] = array
    return PackedSequences(x, resets, used, index)


def unpack_sequences(
    packed: np.ndarray | tf.Tensor, index: np.ndarray
) -> list[np.ndarray] | list[tf.Tensor]:
    """Returns the sequences that `pack_sequences` has packed, in their original order.

    Args:
      packed: `x` of PackedSequences, or what was computed from it for each step: [B, T, ...], an
        array or a tensor, differentiable, also in a tf.function.
      index: `index` of PackedSequences; in a tf.function a NumPy array, too.

    Returns:
      The list of [T_i, ...]: views of an array, or tensors.

    Raises:
      ValueError: `packed` has less than two dims, or fewer rows or steps than `index` names; an
        InvalidArgumentError where that is known only when a graph runs.
      TypeError: `packed` is no array and no dense tensor, such as a list or dict of outputs, or a
        symbolic one of Keras; or `index` is not an array, or a symbolic tensor.

    Example:
      >>> import numpy as np, tf_blockrnn
      >>> packed = tf_blockrnn.pack_sequences([[1, 1], [2, 2, 2, 2], [3, 3, 3], [4]], steps=6)
      >>> outputs = 10 * packed.x
      >>> print(*tf_blockrnn.unpack_sequences(outputs, packed.index))
      [10 10] [20 20 20 20] [30 30 30] [40]
    """
    index = _as_index("unpack_sequences", index)
    is_composite = hasattr(packed, "row_splits") or hasattr(packed, "dense_shape")
    is_several = isinstance(packed, list) and any(hasattr(part, "shape") for part in packed)
    if isinstance(packed, tuple) or is_several or is_composite:
        raise TypeError(
            "unpack_sequences: packed must be an array or a dense tensor, got a "
            f"{type(packed).__name__}{' of arrays' if is_several else ''}; pass x of "
            "PackedSequences or the outputs alone"
        )
    tf = sys.modules.get("tensorflow")
    is_tensor = tf is not None and tf.is_tensor(packed)
    if not is_tensor:
        packed = _as_array("unpack_sequences: packed", packed, "unpack what the model returns")
    dims = list(packed.shape) if not is_tensor or packed.shape.rank is not None else None
    _check_within(dims, index)
    if dims is not None and (not is_tensor or 0 in dims):  # gather_nd refuses elements of size 0
        return [packed[row, start : start + length] for row, start, length in index.tolist()]
    if not len(index):
        return []
    known = dims is not None and None not in dims[:2]
    indices = places(index) if known else _checked_places(packed, index)
    # One gather of all: a slice for each sequence would have a gradient as large as `packed`.
    return tf.split(tf.gather_nd(packed, indices), index[:, 2])


def _checked_places(packed: tf.Tensor, index: np.ndarray) -> tf.Tensor:
    """`places`, with an error when the graph runs if a tensor has fewer rows or steps.

    A gather under XLA would take others instead, and one on a GPU zeros.
    """
    import tensorflow as tf

    row, start, length = index.T
    needed = [int(row.max()) + 1, int((start + length).max())]
    found = tf.zeros(tf.shape(packed)[:2], tf.bool)
    found = tf.strided_slice(found, [0, 0], needed, name="unpack_sequences_packed")
    found = tf.ensure_shape(found, needed)  # its error names the node before
    # What nothing reads is pruned, so the indices read it: zeros.
    return places(index) + tf.cast(tf.reduce_any(found), tf.int32)


def positive(argument: str, value: int) -> int:
    """An argument of a function that must be an integer above 0."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(
            f"{argument} must be an integer, got a value of type {type(value).__name__}"
        )
    if number < 1:
        raise ValueError(f"{argument} must be above 0, got {number}")
    return number


def first_fit(name: str, lengths: np.ndarray, steps: int) -> np.ndarray:
    """The index of sequences of these lengths, by first-fit decreasing.

    `name`, with the number of a sequence in place of {}, is what an error calls it.
    """
    too_long = np.flatnonzero(lengths > steps)
    if too_long.size:
        first = too_long[0]
        raise ValueError(
            f"{name.format(first)} has {lengths[first]} steps, more than the {steps} of a row; "
            "split it or pass a larger steps"
        )
    # A binary tree whose leaves are the rows, as many as there may be: a node has the largest room
    # of a row below it, so that the first row with enough room is found from the root.
    leaves = 1 << (len(lengths) - 1).bit_length()
    room = [steps] * (2 * leaves)
    index = np.empty([len(lengths), 3], np.int32)
    order = np.argsort(-lengths, kind="stable")
    for number, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < length:
                node += 1
        index[number] = node - leaves, steps - room[node], length
        room[node] -= length
        while node > 1:
            node //= 2
            largest = max(room[2 * node], room[2 * node + 1])
            if room[node] == largest:
                break
            room[node] = largest
    return index


def resets_and_lengths(index: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Where sequences begin, [B, T], and how many steps of each row are used, [B]."""
    row, start, length = index.T
    batch = int(row.max()) + 1
    resets, used = np.zeros([batch, steps], bool), np.zeros(batch, np.int32)
    begins = length > 0
    resets[row[begins], start[begins]] = True
    np.maximum.at(used, row, start + length)
    return resets, used


def places(index: np.ndarray) -> np.ndarray:
    """The row and the step of each step of all sequences, [sum of T_i, 2]."""
    row, start, length = index.T
    # What is to be added to the number of a step among all to get its number in its row.
    offset = start - (np.cumsum(length) - length)
    step = np.arange(length.sum()) + np.repeat(offset, length)
    return np.stack([np.repeat(row, length), step], axis=1).astype(np.int32)


def _arrays(sequences: Any) -> list[np.ndarray]:
    """The sequences as arrays of one dtype, with equal dims after the first."""
    if hasattr(sequences, "row_splits"):
        arrays = _of_ragged(sequences)
    elif isinstance(sequences, (str, bytes, Mapping)) or not isinstance(sequences, Iterable):
        raise TypeError(
            "pack_sequences: sequences must be a list of arrays [T, ...] or a tf.RaggedTensor, got "
            f"a value of type {type(sequences).__name__}"
        )
    else:
        if _is_symbolic(sequences):
            raise TypeError(f"pack_sequences: sequences is a symbolic tensor; {_PACK_BEFORE}")
        sequences = list(sequences)
        arrays = [_array(number, sequence) for number, sequence in enumerate(sequences)]
        # An empty list is of whatever the others are of.
        untyped = [isinstance(s, (list, tuple)) and not len(s) for s in sequences]
        typed = [array for array, is_empty in zip(arrays, untyped, strict=True) if not is_empty]
        for number in np.flatnonzero(untyped) if typed else ():
            arrays[number] = np.atleast_1d(typed[0])[:0]
    if not arrays:
        raise ValueError("pack_sequences: there are no sequences, so the shape of x is unknown")
    for number, array in enumerate(arrays):
        if array.ndim == 0:
            raise ValueError(
                f"pack_sequences: sequence {number} must have shape [T, ...], got a scalar"
            )
        for what, got, first in (
            # The type alone: texts differ in their longest element.
            ("dtype", array.dtype.type.__name__, arrays[0].dtype.type.__name__),
            ("dims after the first,", list(array.shape[1:]), list(arrays[0].shape[1:])),
        ):
            if got != first:
                raise ValueError(
                    f"pack_sequences: sequence {number} must have the {what} {first}, as "
                    f"sequence 0 has, got {got}"
                )
    return arrays


def _of_ragged(ragged: tf.RaggedTensor) -> list[np.ndarray]:
    values = ragged.values
    if hasattr(values, "row_splits"):
        if not values.shape[1:].is_fully_defined():
            raise ValueError(
                "pack_sequences: sequences must be ragged in their second dim alone, which is that "
                f"of the steps, got a ragged tensor of shape {ragged.shape}"
            )
        values = values.to_tensor()  # of uniform rows
    values, splits = _array(0, values), np.asarray(ragged.row_splits).tolist()
    return [values[begin:end] for begin, end in itertools.pairwise(splits)]


def _array(number: int, sequence: Any) -> np.ndarray:
    array = _as_array(f"pack_sequences: sequence {number}", sequence, _PACK_BEFORE)
    if array.dtype == object:
        raise TypeError(
            f"pack_sequences: sequence {number} must be an array of numbers or of text, "
            "got one of Python objects"
        )
    return array


def _as_index(owner: str, index: Any) -> np.ndarray:
    if isinstance(index, PackedSequences):
        raise TypeError(f"{owner}: index must be an array, got a PackedSequences; pass its index")
    array = _as_array(f"{owner}: index", index, "pass the NumPy array")
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype.kind not in "iu":
        raise ValueError(
            f"{owner}: index must be PackedSequences.index, integers of shape [N, 3], got "
            f"{array.dtype} of shape {list(array.shape)}"
        )
    numbers = array.astype(np.int32)
    wrong = array[numbers != array]
    if wrong.size:
        raise ValueError(f"{owner}: index must have numbers that int32 has, got {wrong[0]}")
    return numbers


def _as_array(name: str, value: Any, instead: str) -> np.ndarray:
    """The value as an array; `instead`: what to do with a symbolic tensor."""
    if _is_symbolic(value):
        raise TypeError(f"{name} is a symbolic tensor; {instead}")
    try:
        array = np.asarray(value)
    except ValueError as error:  # of NumPy
        raise ValueError(f"{name} must have equal dims in all its parts: {error}") from error
    if array.dtype == object and array.ndim == 0:
        raise TypeError(f"{name} must be an array, got a value of type {type(value).__name__}")
    return array


def _is_symbolic(value: Any) -> bool:
    """Whether it is a tensor of a graph or of a Keras model, which has no values."""
    tf, keras = sys.modules.get("tensorflow"), sys.modules.get("keras")
    if keras is not None and isinstance(value, keras.KerasTensor):
        return True
    return tf is not None and tf.is_symbolic_tensor(value)


def _check_fit(index: np.ndarray, lengths: np.ndarray, steps: int) -> None:
    """Refuses an index that is not of sequences of these lengths in rows of `steps`."""
    if len(index) != len(lengths):
        raise ValueError(
            f"pack_sequences: index is of {len(index)} sequences, but there are {len(lengths)}"
        )
    wrong = np.flatnonzero(index[:, 2] != lengths)
    if wrong.size:
        first = wrong[0]
        raise ValueError(
            f"pack_sequences: sequence {first} has {lengths[first]} steps, but "
            f"{index[first, 2]} in index"
        )
    _check_bounds("pack_sequences", index, None, steps)
    used = index[index[:, 2] > 0]
    row, start, length = used[np.lexsort((used[:, 1], used[:, 0]))].T
    overlaps = (row[1:] == row[:-1]) & (start[1:] < start[:-1] + length[:-1])
    if overlaps.any():
        raise ValueError(
            f"pack_sequences: sequences overlap in row {row[1:][overlaps][0]} of index"
        )


def _check_within(dims: list[int | None] | None, index: np.ndarray) -> None:
    """Refuses an index of more rows or steps than there are; a tensor's may be unknown."""
    dims = [None, None] if dims is None else dims
    if len(dims) < 2:
        raise ValueError(f"unpack_sequences: packed must have shape [B, T, ...], got {dims}")
    _check_bounds("unpack_sequences", index, *dims[:2])


def _check_bounds(owner: str, index: np.ndarray, batch: int | None, steps: int | None) -> None:
    row, start, length = index.T
    steps = np.iinfo(np.int32).max if steps is None else steps
    outside = (index < 0).any(axis=1) | (length > np.int64(steps) - start)
    if batch is not None:
        outside |= row >= batch
    if outside.any():
        number = np.flatnonzero(outside)[0]
        rows = "" if batch is None else f" in {batch} rows"
        raise ValueError(
            f"{owner}: sequence {number} has row {row[number]}, start {start[number]} and length "
            f"{length[number]} in index, which is not within {steps} steps{rows}"
        )
