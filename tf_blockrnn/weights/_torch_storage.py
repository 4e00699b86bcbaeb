"""Tensors in files of PyTorch: where their elements are, read when they are needed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._bounds import MOST_DIMS, take
from tf_blockrnn.weights._checks import UnsupportedError, bfloat16

# The types of PyTorch's storages in NumPy. Those that only PyTorch has are bytes without a type:
# in files of one storage after another their sizes are needed to find the next ones.
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
    "QInt8Storage": "V1",
    "QUInt8Storage": "V1",
    "QUInt4x2Storage": "V1",
    "QUInt2x4Storage": "V1",
    "QInt32Storage": "V4",
    "UntypedStorage": "V1",
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
    if not isinstance(values, (tuple, list)) or len(values) > MOST_DIMS:
        raise ValueError("a tensor has sizes that are no sizes")
    # The sizes of PyTorch have 63 bits, and products of larger ones could take forever.
    if not all(type(n) is int and 0 <= n < 1 << 63 for n in values):
        raise ValueError("a tensor has sizes that are no sizes")
    return tuple(values)


class StoredTensor:
    """A tensor in a storage, which np.asarray checks and reads.

    Args:
      storage: where its elements are.
      offset, shape, strides: its place there, in elements.
      metadata: what is to be done with the elements, {"neg": True} or {"conj": True}.
    """

    __slots__ = ("_metadata", "_offset", "_shape", "_storage", "_strides")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        shape: Sequence[int],
        strides: Sequence[int],
        metadata: Any = None,
    ):
        self._storage, self._metadata = storage, metadata
        self._offset, self._shape, self._strides = offset, shape, strides

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        del copy  # a new array it is
        storage, metadata = self._storage, self._metadata or {}
        (offset,), shape, strides = map(_sizes, ([self._offset], self._shape, self._strides))
        if not isinstance(metadata, dict) or not metadata.keys() <= {"neg", "conj"}:
            raise UnsupportedError(
                "a tensor has metadata of another device: save the state dict of the module after "
                "module.cpu()"
            )
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        size = math.prod(shape)
        if size and offset + last >= storage.size:
            raise ValueError(f"a tensor {list(shape)} is not in its storage of {storage.size}")
        take(size * storage.item_bytes)
        steps = [step * storage.item_bytes for step in strides]
        rest = storage.elements[offset:]
        if not size:
            return np.zeros(shape, rest.dtype)
        view = np.lib.stride_tricks.as_strided(rest, shape, steps, writeable=False)
        found = np.array(view, dtype or rest.dtype)
        for name, function in (("neg", np.negative), ("conj", np.conjugate)):
            if metadata.get(name):
                function(found, out=found)
        return found
