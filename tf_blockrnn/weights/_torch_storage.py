"""Tensors in files of PyTorch: where their elements are, read when they are needed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._bounds import take
from tf_blockrnn.weights._checks import bfloat16

# The types of PyTorch's storages that NumPy has too, and bfloat16.
STORAGES = {
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}


class Storage:
    """A row of elements of one type.

    Args:
      kind: the name of their type.
      size: their number.
      read: returns their bytes.
      order: "<" or ">", that of the bytes of an element.
    """

    def __init__(self, kind: str, size: int, read: Callable[[], bytes], order: str = "<"):
        self.kind, self.size, self.read, self._order = kind, size, read, order

    @property
    def item_bytes(self) -> int:
        return 2 if self.kind == "bfloat16" else np.dtype(self.kind).itemsize

    @functools.cached_property
    def elements(self) -> np.ndarray:
        take(self.size * self.item_bytes)
        data = self.read()
        if len(data) < self.size * self.item_bytes:
            raise ValueError(
                f"the file is incomplete: it has {len(data)} bytes for {self.size} of {self.kind}"
            )
        plain = "u2" if self.kind == "bfloat16" else self.kind
        found = np.frombuffer(data, np.dtype(plain).newbyteorder(self._order), self.size)
        found = found.astype(found.dtype.newbyteorder("="), copy=False)
        return found.view(bfloat16()) if self.kind == "bfloat16" else found


def _sizes(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or not all(type(n) is int and n >= 0 for n in values):
        raise ValueError("a tensor has sizes that are no sizes")
    return tuple(values)


class StoredTensor:
    """A tensor in a storage, which np.asarray reads."""

    def __init__(self, storage: Storage, offset: int, shape: Sequence[int], strides: Sequence[int]):
        (offset,), shape, strides = _sizes([offset]), _sizes(shape), _sizes(strides)
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if math.prod(shape) and offset + last >= storage.size:
            raise ValueError(f"a tensor {list(shape)} is not in its storage of {storage.size}")
        self._storage, self._offset, self.shape, self._strides = storage, offset, shape, strides

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # a new array it is
        storage = self._storage
        take(math.prod(self.shape) * storage.item_bytes)
        steps = [step * storage.item_bytes for step in self._strides]
        rest = storage.elements[self._offset :]
        if not math.prod(self.shape):
            return np.zeros(self.shape, rest.dtype)
        view = np.lib.stride_tricks.as_strided(rest, self.shape, steps, writeable=False)
        return np.array(view, dtype or rest.dtype)
