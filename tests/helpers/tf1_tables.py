"""Index files of TensorFlow's checkpoints with any entries, and the right checksums."""

from __future__ import annotations

import os
import pathlib
import tempfile

_MAGIC = bytes.fromhex("57fb808b247547db")


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C that TensorFlow writes behind records, as behind the blocks of a table."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "record")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(data)
        return pathlib.Path(path).read_bytes()[-4:]


def number(value: int) -> bytes:
    value, parts = value % 2**64, []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def field(place: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, int):
        return number(place << 3) + number(value)
    return number(place << 3 | 2) + number(len(value)) + value


def shape(*dims: int) -> bytes:
    return b"".join(field(2, field(1, dim)) for dim in dims)


def entry(dims: bytes, place: int, size: int, kind: int = 1, more: bytes = b"") -> bytes:
    """A BundleEntryProto."""
    return field(1, kind) + field(2, dims) + field(4, place) + field(5, size) + more


def table(entries: list[tuple[bytes, bytes]], restart: int = 0) -> bytes:
    """A table of one block, in which a search begins at this place."""
    out = b""

    def block(pairs: list[tuple[bytes, bytes]], restart: int = 0) -> bytes:
        nonlocal out
        parts = (b"\0" + number(len(k)) + number(len(v)) + k + v for k, v in pairs)
        data = b"".join(parts) + restart.to_bytes(4, "little") + b"\1\0\0\0"
        handle = number(len(out)) + number(len(data))
        out += data + b"\0" + _checksum(data + b"\0")
        return handle

    handle = block(entries, restart)
    footer = block([]) + block([(entries[-1][0] + b"~", handle)])
    return out + footer.ljust(40, b"\0") + _MAGIC


def bundle(entries: list[tuple[bytes, bytes]], restart: int = 0) -> bytes:
    """The .index of one file of data."""
    return table([(b"", field(1, 1) + field(3, field(1, 1))), *entries], restart)
