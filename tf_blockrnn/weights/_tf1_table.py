"""Checks of a TensorFlow checkpoint before TensorFlow reads it, which trusts the sizes in it.

Both versions of the format are a table of LevelDB: blocks of sorted keys, each with a part of the
one before, and protocol buffers as values. In version 2 it is the file `.index`, whose entries have
the place of each tensor in the files `.data`; in version 1 the values have the elements, too.

Source: `leveldb/doc/table_format.md`, and TensorFlow's `tensor_bundle.proto` and
`saved_tensor_slice.proto`.
"""

from __future__ import annotations

import math
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tf_blockrnn.weights._bounds import check_expansion

_FOOTER, _TRAILER = 48, 5
# The bytes of an element by the number of its type; 0 for strings and other types.
_ITEM_BYTES = {
    **dict.fromkeys((4, 6, 10), 1),
    **dict.fromkeys((5, 14, 17, 19), 2),
    **dict.fromkeys((1, 3, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
# The field of a TensorProto with the elements of a type of weights.
_VALUES = {1: "float_val", 2: "double_val", 14: "half_val", 19: "half_val"}
_REFERENCES = 100  # types of references have numbers above it
_MOST_RANK = 254


def check_checkpoint(path: str, glob: Callable[[str], Sequence[str]]) -> str | None:
    """Refuses a checkpoint that is corrupt or declares more than its files have.

    Args:
      path: the prefix of a checkpoint of version 2, or a file or pattern of files of version 1.
      glob: TensorFlow's, so that the files of a pattern are those that it reads.

    Returns:
      The pattern by which TensorFlow's reader finds these files; None if there are none.

    Raises:
      ValueError: it is refused.
    """
    if os.path.exists(f"{path}.index"):
        _check_bundle(path)
        return path
    if os.path.isfile(path):
        path = re.sub(r"[*?\[\]\\]", r"\\\g<0>", path)
    files = glob(path)
    for one in files:
        _check_slices(one)
    return path if files else None


def check_regular(path: str) -> None:
    """Refuses a device or a pipe, which may have no end."""
    if not os.path.isfile(path):
        raise ValueError(f"{path}: it is not a regular file")


# ---- tables and shapes


class _Bytes:
    """Bytes that are read one number or part after another."""

    def __init__(self, data: bytes):
        self.data, self.place = data, 0

    def __bool__(self) -> bool:
        return self.place < len(self.data)

    def number(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("it has a number of more than 10 bytes")

    def take(self, size: int) -> bytes:
        part = self.data[self.place : self.place + size]
        if len(part) != size:
            raise ValueError("it ends too early")
        self.place += size
        return part


def _block(table: bytes, handle: _Bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    place, size = handle.number(), handle.number()
    if place + size + _TRAILER > len(table) - _FOOTER or size < 4:
        raise ValueError("a block is not in the file")
    if table[place + size]:
        raise ValueError("a block is compressed, which TensorFlow does not write")
    data = table[place : place + size]
    end = size - 4 * (1 + int.from_bytes(data[-4:], "little"))
    if end < 0:
        raise ValueError("a block has more places than fit in it")
    rest, key, whole = _Bytes(data[:end]), b"", {0}
    while rest:
        start = rest.place
        shared, own, length = rest.number(), rest.number(), rest.number()
        if shared > len(key):
            raise ValueError("a key has more of the one before than that has")
        key = key[:shared] + rest.take(own)
        if not shared:
            whole.add(start)
        yield key, rest.take(length)
    # TensorFlow's search begins at these places.
    if any(int.from_bytes(data[n : n + 4], "little") not in whole for n in range(end, size - 4, 4)):
        raise ValueError("a block has places where no key begins")


def _table(path: str) -> Iterator[tuple[bytes, bytes]]:
    check_regular(path)
    data = pathlib.Path(path).read_bytes()
    footer = _Bytes(data[-_FOOTER:])
    footer.number(), footer.number()  # of the index of filters, which is empty
    names = blocks = 0
    last = None
    for _, handle in _block(data, footer):
        place = _Bytes(handle)
        place.number()
        blocks += place.number()
        if blocks > len(data):
            raise ValueError("its blocks overlap")
        for key, value in _block(data, _Bytes(handle)):
            if last is not None and key <= last:
                raise ValueError("its keys are not sorted")
            last = key
            names += len(key)
            check_expansion(names, len(data))
            yield key, value


def _shape(proto: Any) -> list[int]:
    dims = [dim.size for dim in proto.dim]
    # TensorFlow aborts where a product of dims overflows, also beside a dim of zero.
    is_none = proto.unknown_rank or len(dims) > _MOST_RANK or min(dims, default=0) < 0
    if is_none or math.prod(max(n, 1) for n in dims) >= 1 << 62:
        raise ValueError("a tensor has a shape that is none")
    return dims


def _sliced(proto: Any, shape: Sequence[int]) -> list[int]:
    """The shape of a slice of a tensor of a shape."""
    if len(proto.extent) != len(shape):
        raise ValueError("a slice has another rank than its tensor")
    found = []
    for extent, dim in zip(proto.extent, shape, strict=True):
        length = extent.length if extent.HasField("length") else dim
        if min(extent.start, length) < 0 or extent.start + length > dim:
            raise ValueError("a slice is not in its tensor")
        found.append(length)
    return found


# ---- version 2


def _check_bundle(prefix: str) -> None:
    from tensorflow.core.framework.types_pb2 import DataType
    from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

    index, declared = f"{prefix}.index", 0
    entries = _table(index)
    key, header = next(entries, (None, b""))
    if key != b"":
        raise ValueError("it has no header")
    shards = BundleHeaderProto.FromString(header).num_shards
    types = {kind for kind in DataType.values() if 0 < kind < _REFERENCES}
    files: dict[int, int] = {}
    for _, value in entries:
        entry = BundleEntryProto.FromString(value)
        if entry.dtype not in types:  # TensorFlow aborts for others
            raise ValueError(f"a tensor has the type {entry.dtype}, which is none")
        shape, item = _shape(entry.shape), _ITEM_BYTES.get(entry.dtype, 0)
        declared += math.prod(shape) * max(item, 1)
        if entry.slices:
            for one in entry.slices:
                _sliced(one, shape)
            continue
        if entry.shard_id not in files:
            data = f"{prefix}.data-{entry.shard_id:05d}-of-{shards:05d}"
            if not os.path.isfile(data):
                raise ValueError(f"its file {os.path.basename(data)} is missing")
            files[entry.shard_id] = os.path.getsize(data)
        place, size, needed = entry.offset, entry.size, math.prod(shape) * item
        is_there = 0 <= place <= place + size <= files[entry.shard_id]
        if not is_there or (needed != size if item else math.prod(shape) > size):
            raise ValueError(f"a tensor {shape} is not in its file")
    check_expansion(declared, os.path.getsize(index) + sum(files.values()))


# ---- version 1


def _check_slices(path: str) -> None:
    from tensorflow.core.util.saved_tensor_slice_pb2 import SavedTensorSlices

    declared, shapes = 0, {}
    for key, value in _table(path):
        slices = SavedTensorSlices.FromString(value)
        if not key:
            for tensor in slices.meta.tensor:
                shape = _shape(tensor.shape)
                declared += math.prod(shape) * max(_ITEM_BYTES.get(tensor.type, 0), 1)
                shapes[tensor.name] = tensor.type, shape
                for part in tensor.slice:
                    _sliced(part, shape)
            check_expansion(declared, os.path.getsize(path))
            continue
        kind, shape = shapes[slices.data.name]
        if kind in _VALUES:
            held = len(getattr(slices.data.data, _VALUES[kind]))
            if held != math.prod(_sliced(slices.data.slice, shape)):
                raise ValueError(f"a tensor {shape} has more or fewer elements")
