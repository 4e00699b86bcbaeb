"""Recognizes the format of a file by its content."""

from __future__ import annotations

import os
import zipfile
from typing import IO

_HDF5 = b"\x89HDF\r\n\x1a\n"
# A TensorFlow checkpoint is a table of LevelDB, which ends with this number.
_TABLE = bytes.fromhex("57fb808b247547db")
# The beginning of files that PyTorch wrote before 1.6: the pickle of a number.
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# The wire types of the fields of ONNX's ModelProto by their numbers: 0 is an integer, 2 a message
# or a string. Field 7 is the graph.
_ONNX_FIELDS = {1: 0, 5: 0, **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), 2)}


def _varint(file: IO[bytes]) -> int | None:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def _is_onnx(file: IO[bytes], size: int) -> bool:
    """Whether the file has the fields of a ModelProto and nothing else, its graph among them."""
    file.seek(0)
    fields = set()
    while file.tell() < size:
        key = _varint(file)
        if key is None or _ONNX_FIELDS.get(key >> 3) != key & 7:
            return False
        value = _varint(file)
        if value is None or (key & 7 == 2 and file.tell() + value > size):
            return False
        if key & 7 == 2:
            file.seek(value, os.SEEK_CUR)
        fields.add(key >> 3)
    return 7 in fields


def _of_zip(path: str) -> str | None:
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    if "config.json" in names:
        return "keras"
    if any(name.rpartition("/")[2] == "data.pkl" for name in names):
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def kind_of(path: str) -> str | None:
    """The format of a file: "h5", "keras", "npz", "onnx", "tf1", "torch", or None if unknown.

    Example:
      >>> import os, tempfile
      >>> import numpy as np
      >>> from tf_blockrnn.weights._file_kinds import kind_of
      >>> path = os.path.join(tempfile.mkdtemp(), "weights.bin")
      >>> with open(path, "wb") as file:
      ...     np.savez(file, one=np.ones([2]))
      >>> kind_of(path)
      'npz'
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(len(_OLD_TORCH))
        if start.startswith(b"PK"):
            return _of_zip(path)
        if start == _OLD_TORCH:
            return "torch"
        # HDF5 allows a block of the user's before its signature, of 512 bytes or a multiple.
        place = 0
        while place < min(size, 1 << 20):
            file.seek(place)
            if file.read(len(_HDF5)) == _HDF5:
                return "h5"
            place = max(512, 2 * place)
        file.seek(max(0, size - len(_TABLE)))
        if file.read() == _TABLE:
            return "tf1"
        return "onnx" if _is_onnx(file, size) else None
