"""Bounds of what a file can make its reader allocate: in proportion to the size of the file.

A file may declare more than it has: sizes that its reader trusts, members of an archive that
overlap, one array under many names. `check_expansion` is for what a format declares before it is
read. `bounded` is for all arrays that are made of a file, whatever the format: each is taken from
what the file may have before its memory is allocated.
"""

from __future__ import annotations

import contextlib
import contextvars
import glob
import itertools
import math
import os
import zipfile
from collections.abc import Iterable, Iterator

# The largest ratio of deflate, the compression of zip archives and HDF5.
_MOST_EXPANSION = 1032
# What any file may have: constants that an ONNX model computes have no bytes in it.
_LEAST_BOUND = 1 << 28
# Text and pickles, of which Python's objects are tens of times as large: of any file, and for each
# byte of it. Models of Keras may have matrices in their configs.
_MOST_TEXT, _MOST_TEXT_PER_BYTE = 1 << 22, 8
# Those of a NumPy array; the product of millions of numbers takes hours.
MOST_DIMS = 64

# What the file that is being read may still have, in bytes; None outside of files.
_left: contextvars.ContextVar[int | None] = contextvars.ContextVar("_left", default=None)


def check_expansion(declared: int, size: int) -> None:
    """Refuses a file that declares more bytes than its own, of the size, can be when decompressed.

    So what a reader allocates is bounded by what was sent. HDF5 returns zeros for what a file
    declares and does not have, and the members of an archive may overlap.
    """
    if declared > _MOST_EXPANSION * size:
        raise ValueError(
            f"the file has {size} bytes and declares arrays of {declared}, more than "
            f"{_MOST_EXPANSION} times as many, which is the most that compression achieves"
        )


@contextlib.contextmanager
def bounded(path: str) -> Iterator[None]:
    """Bounds the arrays that are made in this context to what the file can have.

    The path may also be a folder, or the prefix of the files of a TensorFlow checkpoint.
    """
    inner = f"{glob.escape(path)}{'/' if os.path.isdir(path) else '.'}*"
    paths = [path] if os.path.isfile(path) else glob.glob(inner)
    size = sum(map(os.path.getsize, paths))
    token = _left.set(max(_LEAST_BOUND, _MOST_EXPANSION * size))
    try:
        yield
    finally:
        _left.reset(token)


def allow(size: int) -> None:
    """Adds what the file that is being read has in another file beside it."""
    left = _left.get()
    if left is not None:
        _left.set(left + _MOST_EXPANSION * size)


def take(nbytes: int, what: str = "arrays") -> None:
    """Counts an array or text that is about to be made; refuses one that no file can have."""
    left = _left.get()
    if left is None:
        return
    if nbytes > left:
        raise ValueError(
            f"the file makes {what} of more than {_MOST_EXPANSION} times its size: the next one "
            f"has {nbytes} bytes"
        )
    _left.set(left - nbytes)


def check_text(name: str, size: int, file_size: int) -> None:
    """Refuses text, as JSON, that is larger than that of any model in a file of this size."""
    most = max(_MOST_TEXT, _MOST_TEXT_PER_BYTE * file_size)
    if size > most:
        raise ValueError(
            f"{name} has {size} bytes, more than {most}, the most in a file of {file_size} bytes"
        )


def product(dims: Iterable[int]) -> int:
    """The number of elements of an array; refuses dims that none has."""
    dims = list(itertools.islice(dims, MOST_DIMS + 1))
    if len(dims) > MOST_DIMS:
        raise ValueError(f"the file has an array of more than {MOST_DIMS} dimensions")
    return math.prod(map(int, dims))


# ---- archives


def _size_of(archive: zipfile.ZipFile) -> int:
    return archive.fp.seek(0, os.SEEK_END)


def check_members(archive: zipfile.ZipFile) -> None:
    """Refuses an archive that declares more than it can have, or two members of one name.

    It must have as many members as its end says: a length in the directory that is damaged hides
    the entries behind it.
    """
    members = archive.infolist()
    archive.fp.seek(-22 - len(archive.comment), os.SEEK_END)
    end = archive.fp.read(12)
    # 0xffff stands for a number of more bits in another record.
    if end[:4] != b"PK\5\6" or int.from_bytes(end[10:], "little") not in (len(members), 0xFFFF):
        raise zipfile.BadZipFile(f"its directory of {len(members)} members is damaged")
    check_expansion(sum(info.file_size for info in members), _size_of(archive))
    names = set()
    for info in members:
        if info.filename in names:
            raise zipfile.BadZipFile(f"it has two members {info.filename!r}")
        names.add(info.filename)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"{info.filename}: its compression method is not supported")


@contextlib.contextmanager
def open_archive(path: str) -> Iterator[zipfile.ZipFile]:
    """A zip archive, open for reading, whose members are bounded by its size."""
    with zipfile.ZipFile(path) as archive:
        check_members(archive)
        yield archive


def member_text(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member that is text or a pickle."""
    check_text(name, archive.getinfo(name).file_size, _size_of(archive))
    return archive.read(name)
