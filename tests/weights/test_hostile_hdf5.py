"""HDF5 files whose structures or chunks contradict themselves, and what users may choose in them.

libhdf5 overflows its stack over some, or has no end; those are read in a process of their own.
"""

from __future__ import annotations

import ctypes
import zlib

import h5py
import numpy as np
import pytest
from helpers.children import PROGRAMS, assert_ok, run_python

from tf_blockrnn import weights

KERNEL = np.arange(60, dtype="f4").reshape(5, 12)
GROUP = "layers/lstm/cell/vars"
UNFILTERED_EDGES = 2  # of H5Pset_chunk_opts
pytestmark = pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.weights.h5"


def lstm(path, add=lambda group: group.create_dataset("0", data=KERNEL), **options) -> bytearray:
    """The bytes of a file of weights, whose kernel is added by a function of the group."""
    with h5py.File(path, "w", **options) as file:
        group = file.create_group(GROUP)
        group["1"], group["2"] = np.ones((3, 12), "f4"), np.ones(12, "f4")
        add(group)
    return bytearray(path.read_bytes())


def chunk(group, data, filters=0, mask=0, rows=5, options=0):
    """The kernel in chunks of 5 rows, all with the same data."""
    library, made = ctypes.CDLL(h5py.h5p.__file__), h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    made.set_chunk((5, 12))
    for _ in range(filters):
        made.set_deflate(9)
    if options:
        assert library.H5Pset_chunk_opts(ctypes.c_int64(made.id), options) == 0
    space = h5py.h5s.create_simple((rows, 12))
    one = h5py.h5d.create(group.id, b"0", h5py.h5t.IEEE_F32LE, space, made)
    for start in range(0, rows, 5):
        one.write_direct_chunk((start, 0), data, mask)


def kernel_of(path):
    w_x = weights.read(path).layers[0].forward.w_x  # [G, I, H]
    return w_x.transpose(1, 0, 2).reshape(w_x.shape[1], -1)


SHORT, WRONG = KERNEL.tobytes()[:40], "a chunk that does not have its 240 bytes"


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (SHORT, {}, WRONG),
        (SHORT, {"filters": 1, "mask": 1}, WRONG),
        (zlib.compress(SHORT), {"filters": 1}, WRONG),
        (zlib.compress(b""), {"filters": 1}, WRONG),
        (zlib.compress(KERNEL.tobytes() * 2), {"filters": 1}, WRONG),
        (
            zlib.compress(zlib.compress(KERNEL.tobytes())),
            {"filters": 2},
            "each once, got those of the numbers .1, 1.",
        ),
        (bytes(1000), {}, WRONG),
        (bytes(1000), {"filters": 1, "mask": 1}, WRONG),
        (KERNEL.tobytes(), {"filters": 1}, "while decompressing"),
    ],
)
def test_chunks_of_another_size(data, options, words, path):
    lstm(path, lambda group: chunk(group, data, **options))
    with pytest.raises(ValueError, match=words):
        weights.read(path)


def test_chunks_at_an_edge_have_filters_too(path):
    """libhdf5 has an option that they have none, and then takes the bytes as they are."""
    data = zlib.compress(KERNEL.tobytes())

    def add(group):
        chunk(group, data, filters=1, rows=7, options=UNFILTERED_EDGES)

    lstm(path, add, libver="latest")
    assert np.array_equal(kernel_of(path), np.vstack([KERNEL, KERNEL[:2]]))


def large(group):
    """More chunks than a node of a B-tree has."""
    data = np.random.default_rng(0).random((100, 12)).astype(">f4")
    group.create_dataset("0", data=data, chunks=(1, 9), compression="gzip")


def growing(group):
    group.create_dataset("0", data=KERNEL, chunks=(20, 50), maxshape=(None, None), shuffle=True)


def all_filters(group):
    options = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    group.create_dataset("0", data=KERNEL, chunks=(2, 5), **options)


def with_others(group):
    """Links that were removed, names that are signatures, and values that nothing reads."""
    for number in range(600):
        group.file[f"others/{number:09}"] = 1
    for number in range(0, 600, 3):
        del group.file[f"others/{number:09}"]
    group.file.create_dataset("optimizer/never_written", (2, 3))
    for name in ("TREE", "HEAP", "FRHP", "GCOL"):
        group.file[f"optimizer/{name}"] = np.frombuffer(name.encode() * 9, "u1")
    group["0"] = KERNEL


@pytest.mark.parametrize("add", [large, growing, all_filters, with_others])
@pytest.mark.parametrize("options", [{}, {"userblock_size": 1024}, {"libver": "latest"}])
def test_what_users_choose_is_read(add, options, path):
    lstm(path, add, **options)
    with h5py.File(path) as file:
        assert np.array_equal(kernel_of(path), file[f"{GROUP}/0"][()])


def test_other_filters_are_refused(path):
    lstm(path, lambda group: group.create_dataset("0", data=KERNEL, compression="lzf"))
    with pytest.raises(ValueError, match="no filters but gzip, shuffle and fletcher32"):
        weights.read(path)


# ---- circles


def put(data, place, *numbers):
    for number in numbers:
        data[place : place + 8] = number.to_bytes(8, "little")
        place += 8


def own_child(data, node, key, base):
    data[node + 5 : node + 8] = b"\1\1\0"  # level 1, one entry
    put(data, node + 24 + key, node - base)


def own_sibling(data, node, key, base):
    put(data, node + 16, node - base)


def children_twice(data, node, key, base):
    """30 nodes, of which each has the next one twice: 2^30 paths."""
    template, place = bytes(data[node : node + 24 + 3 * key + 16]), len(data)
    for level in range(30):
        below = node if level == 29 else len(data)
        data += template
        if level:
            for number in (0, 1):
                put(data, below + 24 + key + number * (key + 8), place - base)
            data[below + 5 : below + 8] = bytes([level, 2, 0])
        place = below


def free_block(data, node, key, base):
    heap = data.index(b"HEAP")
    free, segment = (int.from_bytes(data[heap + n : heap + n + 8], "little") for n in (16, 24))
    put(data, base + segment + free, free)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (own_child, "a node that is not below its parent"),
        (own_sibling, "siblings in a circle"),
        (children_twice, "nodes with several parents"),
        (free_block, "a list of free blocks in a circle"),
    ],
)
@pytest.mark.parametrize(("kind", "key", "base"), [(0, 8, 0), (0, 8, 512), (1, 32, 0)])
def test_structures_in_circles(change, words, kind, key, base, path):
    data = lstm(path, lambda group: chunk(group, KERNEL.tobytes()), userblock_size=base)
    change(data, data.index(b"TREE" + bytes([kind])), key, base)
    path.write_bytes(data)
    arguments = [str(PROGRAMS / "read_limited.py"), str(path), "{}"]
    assert words in assert_ok(run_python(arguments), "the reader")


def test_compressed_heaps_are_refused(path):
    library = ctypes.CDLL(h5py.h5p.__file__)
    made = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    for call, *arguments in (("deflate", 9), ("deflate", 9), ("link_phase_change", 0, 0)):
        assert getattr(library, f"H5Pset_{call}")(ctypes.c_int64(made.id), *arguments) == 0
    with h5py.File(path, "w", libver="latest") as file:
        h5py.h5g.create(file.id, b"layers", gcpl=made)
        file[f"{GROUP}/0"] = KERNEL
    with pytest.raises(ValueError, match="a heap of links or attributes has filters"):
        weights.read(path)


def test_addresses_of_4_bytes_are_refused(path):
    library = ctypes.CDLL(h5py.h5p.__file__)
    made = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    sizes = map(ctypes.c_size_t, (4, 4))
    assert library.H5Pset_sizes(ctypes.c_int64(made.id), *sizes) == 0
    h5py.h5f.create(bytes(path), fcpl=made).close()
    with pytest.raises(ValueError, match="must have 8 bytes"):
        weights.read(path)


# ---- values that are not there


@pytest.mark.parametrize("rows", [2, 7])
def test_arrays_of_another_size_than_their_bytes(rows, path):
    shape, other = (b"".join(n.to_bytes(8, "little") for n in (m, 12)) for m in (5, rows))
    data = lstm(path)
    assert data.count(shape) == 2  # as it is, and the largest one
    path.write_bytes(data.replace(shape, other))
    with pytest.raises(ValueError, match="does not have the bytes of its shape"):
        weights.read(path)


@pytest.mark.parametrize("options", [{}, {"chunks": (5, 12)}])
def test_values_that_were_never_written(options, path):
    lstm(path, lambda group: group.create_dataset("0", (5, 12), "f4", **options))
    with pytest.raises(ValueError, match="bytes of its shape|chunks that are not in the file"):
        weights.read(path)


def test_two_chunks_at_one_place(path):
    data = lstm(path, lambda group: chunk(group, KERNEL.tobytes(), rows=10))
    second = data.index(b"TREE\1") + 24 + 40  # its key: size, mask and where it begins
    assert data[second + 8] == 5
    data[second + 8] = 0
    path.write_bytes(data)
    with pytest.raises(ValueError, match="not an intact HDF5 file: .*not allocated"):
        weights.read(path)


@pytest.mark.parametrize("kind", [h5py.h5t.UNIX_D32LE, None])
def test_values_that_are_no_numbers(kind, path):
    def add(group):
        if kind is None:
            group["0"] = h5py.Empty("f4")
        else:
            h5py.h5d.create(group.id, b"0", kind, h5py.h5s.create_simple((5, 12)))

    lstm(path, add)
    with pytest.raises(ValueError, match="must have numbers|No NumPy equivalent"):
        weights.read(path)


@pytest.mark.parametrize("names", ["12", "023", "0129", "013", ["0", "1", "00"], ["0", "1", "٢"]])
def test_arrays_of_other_numbers(names, path):
    arrays = [KERNEL[:3], -KERNEL[:3], KERNEL[0], KERNEL[0]]
    with h5py.File(path, "w") as file:
        for name, array in zip(names, arrays, strict=False):
            file[f"{GROUP}/{name}"] = array
    with pytest.raises(ValueError, match="also has|no recurrent|no layer"):
        weights.read(path)
