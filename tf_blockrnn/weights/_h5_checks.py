"""Checks of HDF5 files before their arrays are read: what they refer to, and how much they declare.

libhdf5 parses the files in this process. What it does not check itself, and could not end with, is
checked here before it is called.
"""

from __future__ import annotations

import math
import os
from typing import IO, Any

import numpy as np

from tf_blockrnn.weights._bounds import check_expansion, take

_HEAP = b"GCOL\x01"
_LEAST_HEAP = 4096
_PART = 1 << 24
# In one attribute: all may be one and the same in the file, and are counted when they are read.
_MOST_TEXTS = 1 << 8
_MOST_GROUPS = 100


def check_heaps(file: IO[bytes]) -> None:
    """Refuses collections of texts with an object that does not end in them, or has no size.

    libhdf5 loops forever over one of the size -16. The objects are an index, of which 0 is free
    space, a count, 4 bytes, the size and the bytes, padded to 8; free space has its own header in
    its size. Source: the HDF5 file format specification, "Global Heap".
    """
    end = file.seek(0, os.SEEK_END)
    start, most = 0, end // 16
    while start < end:
        file.seek(start)
        part = file.read(_PART + len(_HEAP) - 1)
        place = part.find(_HEAP)
        while place >= 0:
            most -= _check_heap(file, start + place, end)
            if most < 0:
                raise ValueError("its collections of texts overlap")
            place = part.find(_HEAP, place + 1)
        start += _PART
    file.seek(0)


def _check_heap(file: IO[bytes], start: int, end: int) -> int:
    """The number of objects in a collection."""
    file.seek(start + 8)
    size = int.from_bytes(file.read(8), "little")
    if not _LEAST_HEAP <= size <= end - start:  # which libhdf5 refuses, or no heap at all
        return 0
    place = number = 0
    own = 16  # the header of the collection
    while (place := place + own) + 16 <= size:
        file.seek(start + place)
        header = file.read(16)
        own = int.from_bytes(header[8:], "little")
        if header[:2] != b"\0\0":
            own = 16 + (own + 7) // 8 * 8
        number += 1
        if own == 0 or own > size - place:
            raise ValueError("a collection of texts has an object that is not in it")
    return number


def check_links(file: Any) -> None:
    """Refuses links that h5py would follow into other files, and groups that are too deep.

    libhdf5 recurses into each, and looks up all groups around it.
    """
    from h5py import h5l

    def visit(name: bytes, link: Any) -> str | None:
        try:
            take(len(name), "paths")  # all paths may begin with the same long names
        except ValueError as error:  # which h5py would make a SystemError
            return str(error)
        if link.type not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
            return f"{text(name)} is a link to another file, which is not read"
        if name.count(b"/") >= _MOST_GROUPS:
            return f"it has groups in more than {_MOST_GROUPS} others"
        return None

    found = file.id.links.visit(visit, info=True)  # the first result that is not None
    if found is not None:
        raise ValueError(found)


def check_datasets(file: Any, size: int) -> None:
    """Refuses datasets that are in other files, or larger than the file can have."""
    declared = 0

    def visit(path: str, one: Any) -> None:
        nonlocal declared
        if not hasattr(one, "shape"):
            return
        if one.external or one.is_virtual:
            raise ValueError(f"{path} has its values in another file, which is not read")
        # A chunk is decompressed at once, also where the array is smaller.
        shapes = (one.shape or (), one.chunks or ())
        declared += max(map(math.prod, shapes)) * one.dtype.itemsize

    file.visititems(visit)
    check_expansion(declared, size)


def text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def attribute(one: Any, name: str, default: Any = None) -> Any:
    """An attribute of a group or dataset; refuses one that is larger than the file can have."""
    if name not in one.attrs:
        return default
    found = one.attrs.get_id(name)
    number = math.prod(found.shape or ())
    check_expansion(number * found.dtype.itemsize, one.file.id.get_filesize())
    take(number * found.dtype.itemsize)
    if found.dtype.hasobject and number > _MOST_TEXTS:
        raise ValueError(f"the attribute {name} has {number} texts, more than {_MOST_TEXTS}")
    value = one.attrs[name]
    if found.dtype.hasobject:
        texts = [value] if isinstance(value, (str, bytes)) else np.ravel(value)
        take(sum(len(each) for each in texts if isinstance(each, (str, bytes))), "texts")
    return value
