"""Arrays as the C interface takes them: dense, of float32, with their addresses.

A step takes few microseconds, so what is called for each one avoids NumPy's slower functions:
`array.ctypes.data` takes 0.7 µs, the address of a ctypes object on the same memory 0.15 µs.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import check_shape

FLOAT32 = np.dtype(np.float32)
_ndarray = np.ndarray
_object_at = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address(array: np.ndarray) -> int:
    """Where the elements of a dense array are."""
    try:
        return _addressof(_object_at(array))
    except (TypeError, ValueError):  # it is read-only or empty
        return array.ctypes.data


def dense(where: str, value: Any) -> tuple[np.ndarray, int]:
    """Numbers as a dense array of float32, and its address; the array itself where it is one.

    Args:
      where: the function and the argument, for the error.
      value: an array of a real floating or integer type, or what NumPy makes one of.

    Raises:
      TypeError: it is of another type.
      ValueError: NumPy makes no array of it.
    """
    if type(value) is _ndarray and value.dtype is FLOAT32 and value.flags.c_contiguous:
        try:
            at = _addressof(_object_at(value))
        except (TypeError, ValueError):
            at = value.ctypes.data
        if not at % 4:
            return value, at
    array = _converted(where, value)
    return array, array.ctypes.data


def numbers(where: str, value: Any, kinds: str, expected: str) -> np.ndarray:
    """An array of a type of these kinds.

    Raises:
      TypeError: it is of another type.
      ValueError: NumPy makes no array of it, such as lists of different lengths.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{where} must be {expected}, got {type(value).__name__}: {error}") from None
    # NumPy takes an empty list for one of floats.
    if array.dtype.kind in kinds or (not array.size and isinstance(value, (list, tuple))):
        return array
    if "f" in kinds and array.dtype.name == "bfloat16":
        return array
    raise TypeError(f"{where} must be {expected}, got the type {array.dtype}")


def whole_number(where: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer argument.

    Raises:
      TypeError: it is of another type, a bool too.
      ValueError: it is out of the range.
    """
    bounds = f"an integer of at least {least}" if most is None else f"an integer in {least}..{most}"
    expected = f"{where} must be {bounds}, got {value!r}"
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(expected)
    if number < least or (most is not None and number > most):
        raise ValueError(expected)
    return number


def _converted(where: str, value: Any) -> np.ndarray:
    array = numbers(where, value, "fiu", "an array of a real floating or integer type")
    # Out of float32's range: infinity.
    with np.errstate(over="ignore"):
        return np.array(array, FLOAT32, order="C")


def writable(where: str, value: Any, symbols: str, shape: Sequence[int]) -> tuple[np.ndarray, int]:
    """An array that results are written to, and its address.

    Raises:
      TypeError: it is not an array of float32.
      ValueError: it is not dense, aligned and writable, or of another shape.
    """
    if type(value) is _ndarray and value.dtype is FLOAT32 and value.shape == shape:
        try:
            at = _addressof(_object_at(value))
            if not at % 4:
                return value, at
        except (TypeError, ValueError):  # it is not dense or not writable, or empty
            pass
    if type(value) is not _ndarray or value.dtype != FLOAT32:
        given = f"one of {value.dtype}" if isinstance(value, _ndarray) else type(value).__name__
        raise TypeError(f"{where} must be a NumPy array of float32, got {given}")
    check_shape(where, value, symbols, shape)
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise ValueError(
            f"{where} must be C-contiguous, aligned and writable, got the strides "
            f"{list(value.strides)}, aligned={flags.aligned}, writeable={flags.writeable}"
        )
    return value, address(value)


def overlap(one_at: int, one_bytes: int, other_at: int, other_bytes: int) -> bool:
    """Whether two dense arrays have an element in common."""
    if not (one_bytes and other_bytes):
        return False
    return one_at < other_at + other_bytes and other_at < one_at + one_bytes


def refuse_overlap(where: str, out: np.ndarray, name: str, value: Any) -> None:
    """Raises ValueError if an array that is written shares memory with one that is given."""
    if isinstance(value, _ndarray) and np.shares_memory(out, value):
        raise overlap_error(where, name)


def overlap_error(where: str, name: str) -> ValueError:
    """The error for an array that is written and shares memory with another one."""
    return ValueError(f"{where} must not share memory with {name}, got arrays that do")
