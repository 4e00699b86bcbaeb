"""Checks of HDF5 files before libhdf5 reads them, which does so in this process.

First the structures that it would not end with, then what the file refers to and how much it
declares, and of each array that is read whether its bytes are in the file.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._bounds import check_expansion, take

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_PART = 1 << 24
_LEAST_COLLECTION = 4096
_NO_BLOCK = 1
# In one attribute: all may be one and the same in the file, and are counted when they are read.
_MOST_TEXTS = 1 << 8
_MOST_GROUPS = 100
_GROUP_KEY, _CHUNK_KEY = 8, 16  # the bytes of a key in a B-tree, of a chunk 8 more for each dim
# The filters of chunks by their numbers in HDF5, and how h5py sets them; none expands more than
# deflate. Not lzf, of which Python has no decoder; Keras' writers have no filters at all.
_FILTERS = {1: "set_deflate", 2: "set_shuffle", 3: "set_fletcher32"}
_DEFLATE, _, _FLETCHER32 = _FILTERS


# ---- structures


class _Node(NamedTuple):
    """The header of a node of a B-tree."""

    kind: int  # 0 for the names of a group, 1 for the chunks of a dataset
    level: int
    entries: int
    right: int  # the place of its sibling


def superblock_at(file: IO[bytes]) -> int | None:
    """Where HDF5 begins: there may be a block of the user's, of 512 bytes or 2^n times as many."""
    end = file.seek(0, os.SEEK_END)
    place = 0
    while place < end:
        file.seek(place)
        if file.read(len(_SIGNATURE)) == _SIGNATURE:
            return place
        place = max(512, 2 * place)
    return None


class Structures:
    """Refuses structures that are circles, or have parts outside of them.

    libhdf5 loops or recurses forever over them. They are found by their signatures. Data may have
    those by chance, so what cannot be such a structure, or what libhdf5 refuses itself, is not
    refused here. Source: the HDF5 file format specification.
    """

    def __init__(self, file: IO[bytes]):
        self._file, self._end = file, file.seek(0, os.SEEK_END)
        found = superblock_at(file)
        self._base = found or 0  # of all addresses
        version, *sizes = self._bytes(self._base + 8, 7) or b"\0"
        if found is not None and (sizes[4:] if version < 2 else sizes[:2]) != [8, 8]:
            raise ValueError("its addresses and sizes must have 8 bytes")
        self._nodes: dict[int, _Node] = {}
        most = self._end // 16
        for place, check in self._found():
            most -= check(place)
            if most < 0:
                raise ValueError("its collections of texts, heaps or B-trees overlap")
        self._check_siblings()
        self.check_trees(0, _GROUP_KEY)

    def _found(self) -> Iterator[tuple[int, Callable[[int], int]]]:
        """The places of signatures, and what checks those and returns the number of their parts."""
        checks = {
            b"GCOL\x01": self._check_collection,
            b"HEAP\0": self._check_heap,
            b"FRHP\0": self._check_fractal_heap,
            b"TREE": self._add_node,
        }
        for start in range(0, self._end, _PART):
            part = self._bytes(start, _PART + 4)
            for signature, check in checks.items():
                place = part.find(signature, 0, _PART + len(signature) - 1)
                while place >= 0:
                    yield start + place, check
                    place = part.find(signature, place + 1, _PART + len(signature) - 1)

    def _bytes(self, place: int, size: int) -> bytes:
        self._file.seek(place)
        return self._file.read(size)

    def _numbers(self, place: int, number: int) -> tuple[int, ...]:
        """Those of 8 bytes at a place; zeros behind the end of the file."""
        found = self._bytes(place, 8 * number)
        return struct.unpack(f"<{number}Q", found.ljust(8 * number, b"\0"))

    def _check_collection(self, start: int) -> int:
        """Of texts, whose objects must end in it and have a size; libhdf5 loops over -16.

        The objects are an index, of which 0 is free space, a count, 4 bytes, the size and the
        bytes, padded to 8; free space has its own header in its size.
        """
        (size,) = self._numbers(start + 8, 1)
        if not _LEAST_COLLECTION <= size <= self._end - start:
            return 0
        place = number = 0
        own = 16  # the header of the collection
        while (place := place + own) + 16 <= size:
            index, own = self._numbers(start + place, 2)
            if index & 0xFFFF:
                own = 16 + (own + 7) // 8 * 8
            number += 1
            if own == 0 or own > size - place:
                raise ValueError("a collection of texts has an object that is not in it")
        return number

    def _check_heap(self, start: int) -> int:
        """Of the names in a group: the list of its free blocks, of 16 bytes or more, must end."""
        size, free, address = self._numbers(start + 8, 3)
        if not size <= self._end - self._base - address:
            return 0
        number = 0
        while free != _NO_BLOCK and 0 < free <= size - 16:
            number += 1
            if number > size // 16:
                raise ValueError("a heap of names has a list of free blocks in a circle")
            (free,) = self._numbers(self._base + address + free, 1)
        return number

    def _check_fractal_heap(self, start: int) -> int:
        """Of links or attributes: it may have filters, any number of which may decompress."""
        header = self._bytes(start, 156)
        is_heap = len(header) == 156 and header[154] in (1, 2) and 0 < header[155] <= 32
        if header[7:9] != b"\0\0" and is_heap:  # the size, version and number of filters
            raise ValueError("a heap of links or attributes has filters, which are not supported")
        return 0

    def _add_node(self, place: int) -> int:
        header = self._bytes(place + 4, 20)
        if len(header) < 20 or header[0] > 1:
            return 0
        kind, level, entries, _, right = struct.unpack("<BBHQQ", header)
        self._nodes[place] = _Node(kind, level, entries, self._base + right)
        return 1 + (entries if level else 0)

    def _check_siblings(self) -> None:
        done: set[int] = set()
        for place in self._nodes:
            chain = set()
            while place in self._nodes and place not in done:
                done.add(place)
                chain.add(place)
                place = self._nodes[place].right
            if place in chain:
                raise ValueError("a B-tree has siblings in a circle")

    def check_trees(self, kind: int, key: int) -> None:
        """Refuses B-trees whose nodes are not below one another, or are often below others."""
        nodes = {place: node for place, node in self._nodes.items() if node.kind == kind}
        sizes: dict[int, int] = {}  # the nodes of the tree below each
        for place in sorted(nodes, key=lambda place: nodes[place].level):
            level, entries = nodes[place].level, nodes[place].entries
            sizes[place] = 1
            words = self._numbers(place + 24, (key + 8) // 8 * entries) if level else ()
            for child in words[key // 8 :: key // 8 + 1]:
                below = self._base + child
                if below in nodes and nodes[below].level >= level:
                    raise ValueError("a B-tree has a node that is not below its parent")
                sizes[place] += sizes.get(below, 0)
            if sizes[place] > len(nodes):
                raise ValueError("a B-tree has nodes with several parents")


# ---- objects


def check_objects(file: Any, size: int, structures: Structures) -> None:
    """Refuses links to other files, and more groups in one another or values than a file may have.

    libhdf5 recurses into each group, and looks up all groups around it.
    """
    from h5py import h5l

    declared, ranks = 0, set()

    def check(name: bytes, link: Any) -> None:
        nonlocal declared
        take(len(name), "paths")  # all paths may begin with the same long names
        if link.type not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
            raise ValueError(f"{text(name)} is a link to another file, which is not read")
        if name.count(b"/") >= _MOST_GROUPS:
            raise ValueError(f"it has groups in more than {_MOST_GROUPS} others")
        one = file[name] if link.type == h5l.TYPE_HARD else None
        if not hasattr(one, "shape"):
            return
        if one.external or one.is_virtual:
            raise ValueError(f"{text(name)} has its values in another file, which is not read")
        # A chunk is decompressed at once, also where the array is smaller.
        shapes = (one.shape or (), one.chunks or ())
        declared += max(map(math.prod, shapes)) * one.id.get_type().get_size()
        ranks.add(len(one.chunks or ()))

    def visit(name: bytes, link: Any) -> Exception | None:
        try:
            return check(name, link)
        except Exception as error:  # which h5py would make a SystemError
            return error

    found = file.id.links.visit(visit, info=True)  # the first result that is not None
    if found is not None:
        raise found
    check_expansion(declared, size)
    for rank in ranks - {0}:
        structures.check_trees(1, _CHUNK_KEY + 8 * rank)


# ---- values


def values_of(dataset: Any) -> np.ndarray:
    """The values of a dataset of numbers, all of which must be in the file."""
    if dataset.chunks and dataset.size:
        return _from_chunks(dataset)
    if dataset.id.get_storage_size() != dataset.size * dataset.id.get_type().get_size():
        raise ValueError(f"{text(dataset.name)} does not have the bytes of its shape in the file")
    return dataset[()]


def _from_chunks(dataset: Any) -> np.ndarray:
    """A dataset in chunks, each of which must have its size when its filters are undone.

    libhdf5 does not check that, and reads behind shorter ones. The checked chunks are read from a
    copy in memory: a property of the original, which h5py does not show, may exempt those at the
    edges from the filters.
    """
    import h5py

    name, properties = text(dataset.name), dataset.id.get_create_plist()
    filters = [properties.get_filter(number)[0] for number in range(properties.get_nfilters())]
    if len(set(filters)) < len(filters) or not _FILTERS.keys() >= set(filters):
        raise ValueError(
            f"{name} must have no filters but gzip, shuffle and fletcher32, each once, got those "
            f"of the numbers {filters[:10]}; `h5repack -f NONE` removes them"
        )
    made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk(dataset.chunks)
    for one in filters:
        getattr(made, _FILTERS[one])()
    kind, space = dataset.id.get_type().copy(), dataset.id.get_space()
    size = math.prod(dataset.chunks) * kind.get_size()
    stored: list[int] = []  # the sizes in the file; read_direct_chunk overruns a buffer, too
    dataset.id.chunk_iter(lambda one: stored.append(one.size))
    sizes = range(2 * size + 64) if filters else [size]  # deflate makes nothing twice as large
    if not all(one in sizes for one in stored):
        raise ValueError(f"{name} has a chunk that does not have its {size} bytes")
    counts = (-(-n // own) for n, own in zip(dataset.shape, dataset.chunks, strict=True))
    if len(stored) < math.prod(counts):
        raise ValueError(f"{name} has chunks that are not in the file")
    buffer = np.empty(sizes[-1], np.uint8)
    with h5py.File("chunks", "w", driver="core", backing_store=False) as file:
        checked = h5py.h5d.create(file.id, b"chunks", kind, space, made)
        for slices in dataset.iter_chunks():
            start = tuple(one.start for one in slices)
            mask, data = dataset.id.read_direct_chunk(start, out=buffer)
            if _expanded_size(data, filters, mask, size) != size:
                raise ValueError(f"{name} has a chunk that does not have its {size} bytes")
            checked.write_direct_chunk(start, data, mask)
        return h5py.Dataset(checked)[()]


def _expanded_size(data: Any, filters: Sequence[int], mask: int, most: int) -> int:
    """The size of a chunk without its filters, of which the mask has those that it has not."""
    for number, one in reversed(list(enumerate(filters))):
        if mask >> number & 1:
            continue
        if one == _DEFLATE:
            data = zlib.decompressobj().decompress(data, most + 5)  # and a checksum of 4
        elif one == _FLETCHER32:
            data = data[:-4]
    return len(data)


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
