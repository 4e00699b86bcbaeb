"""What a process holds: resident memory, allocated bytes, Python objects, threads."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import pathlib
import resource
from collections.abc import Iterable
from typing import Any

import numpy as np

NAMES = ("resident", "anonymous", "allocated", "objects", "threads")
_PAGE = resource.getpagesize()
_PROCESS = pathlib.Path("/proc/self")


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _allocated_bytes() -> int | None:
    """What malloc has given out in all arenas and by mmap; None without glibc 2.33."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return info.uordblks + info.hblkhd


def now() -> dict[str, int | None]:
    """The figures, after a garbage collection (Linux).

    resident: bytes in memory. anonymous: those that are not pages of files. allocated: by malloc.
    objects: those that Python's garbage collector tracks. threads: all of the process.
    """
    gc.collect()
    pages = [int(word) for word in (_PROCESS / "statm").read_text().split()]
    return {
        "resident": pages[1] * _PAGE,
        "anonymous": (pages[1] - pages[2]) * _PAGE,
        "allocated": _allocated_bytes(),
        "objects": len(gc.get_objects()),
        "threads": len(list((_PROCESS / "task").iterdir())),
    }


def digest(arrays: Iterable[Any]) -> str:
    """A hash of the bits of arrays or tensors."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
