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
# The field of a TensorProto with the elements of a type of weights, and their bytes there.
_VALUES = {1: (5, 4), 2: (6, 8), 14: (13, 0), 19: (13, 0)}
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


# ---- protocol buffers and tables


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


def _fields(data: bytes) -> dict[int, list[Any]]:
    """The values of each field of a message: int, or bytes."""
    found: dict[int, list[Any]] = {}
    rest = _Bytes(data)
    while rest:
        tag = rest.number()
        sizes = {1: 8, 5: 4}
        if tag & 7 == 0:
            value: Any = rest.number()
        elif tag & 7 == 2:
            value = rest.take(rest.number())
        else:
            value = rest.take(sizes[tag & 7])
        found.setdefault(tag >> 3, []).append(value)
    return found


def _last(fields: dict[int, list[Any]], number: int, default: Any = 0) -> Any:
    return fields.get(number, [default])[-1]


def _block(table: bytes, handle: _Bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    place, size = handle.number(), handle.number()
    if place + size + _TRAILER > len(table) - _FOOTER or size < 4:
        raise ValueError("a block is not in the file")
    if table[place + size]:
        raise ValueError("a block is compressed, which TensorFlow does not write")
    data = table[place : place + size]
    end = size - 4 * (1 + int.from_bytes(data[-4:], "little"))
    starts = range(end, size - 4, 4)
    if end < 0 or any(int.from_bytes(data[n : n + 4], "little") > end for n in starts):
        raise ValueError("a block has places that are not in it")
    rest, key = _Bytes(data[:end]), b""
    while rest:
        shared, own, length = rest.number(), rest.number(), rest.number()
        if shared > len(key):
            raise ValueError("a key has more of the one before than that has")
        key = key[:shared] + rest.take(own)
        yield key, rest.take(length)


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


def _shape(data: bytes) -> list[int]:
    fields = _fields(data)
    dims = fields.get(2, [])
    if _last(fields, 3) or len(dims) > _MOST_RANK:
        raise ValueError("a tensor has a shape that is none")
    dims = [_last(_fields(one), 1) for one in dims]
    # TensorFlow aborts where a product of dims overflows, also beside a dim of zero.
    if math.prod(max(n, 1) for n in dims) >= 1 << 62:
        raise ValueError("a tensor has a shape that is none")
    return dims


def _sliced(data: bytes, shape: Sequence[int]) -> list[int]:
    """The shape of a slice of a tensor of a shape."""
    extents = [_fields(one) for one in _fields(data).get(1, [])]
    if len(extents) != len(shape):
        raise ValueError("a slice has another rank than its tensor")
    found = []
    for extent, dim in zip(extents, shape, strict=True):
        start, length = _last(extent, 1), _last(extent, 2, dim)
        if start + length > dim:
            raise ValueError("a slice is not in its tensor")
        found.append(length)
    return found


# ---- version 2


def _check_bundle(prefix: str) -> None:
    index, declared = f"{prefix}.index", 0
    entries = _table(index)
    key, header = next(entries, (None, b""))
    if key != b"":
        raise ValueError("it has no header")
    shards = _last(_fields(header), 1)
    files: dict[int, int] = {}
    for _, value in entries:
        fields = _fields(value)
        shape = _shape(_last(fields, 2, b""))
        shard, place, size = (_last(fields, number) for number in (3, 4, 5))
        item = _ITEM_BYTES.get(_last(fields, 1), 0)
        declared += math.prod(shape) * max(item, 1)
        if slices := fields.get(7):
            for one in slices:
                _sliced(one, shape)
            continue
        if shard not in files:
            data = f"{prefix}.data-{shard:05d}-of-{shards:05d}"
            if not os.path.isfile(data):
                raise ValueError(f"its file {os.path.basename(data)} is missing")
            files[shard] = os.path.getsize(data)
        needed = math.prod(shape) * item
        if place + size > files[shard] or (needed != size if item else math.prod(shape) > size):
            raise ValueError(f"a tensor {shape} is not in its file")
    check_expansion(declared, os.path.getsize(index) + sum(files.values()))


# ---- version 1


def _check_slices(path: str) -> None:
    declared, shapes = 0, {}
    for key, value in _table(path):
        fields = _fields(value)
        if not key:
            for one in _fields(_last(fields, 1, b"")).get(1, []):
                tensor = _fields(one)
                shape, kind = _shape(_last(tensor, 2, b"")), _last(tensor, 3)
                declared += math.prod(shape) * max(_ITEM_BYTES.get(kind, 0), 1)
                shapes[_last(tensor, 1, b"")] = kind, shape
                for part in tensor.get(4, []):
                    _sliced(part, shape)
            check_expansion(declared, os.path.getsize(path))
            continue
        found = _fields(_last(fields, 2, b""))
        kind, shape = shapes[_last(found, 1, b"")]
        if kind in _VALUES:
            field, item = _VALUES[kind]
            values = _fields(_last(found, 3, b"")).get(field, [])
            parts = [one for one in values if isinstance(one, bytes)]
            held = len(values) - len(parts)
            # An element of two bytes is a number of protocol buffers, whose last byte is below 128.
            held += sum(
                len(one) // item if item else sum(byte < 128 for byte in one) for one in parts
            )
            if held < math.prod(_sliced(_last(found, 2, b""), shape)):
                raise ValueError(f"a tensor {shape} has not all elements")
