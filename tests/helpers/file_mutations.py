"""Files of weights and their mutations, for programs/fuzz_files_child.py: the same for one seed.

A sample is a model as files, by their names; one of them is the path that is read. A mutation of a
zip archive is of its bytes, of its directory, or of a member that is stored with the right checksum
again, so that its reader gets it.
"""

from __future__ import annotations

import functools
import io
import pathlib
import random
import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

FILES = pathlib.Path(__file__).resolve().parents[1] / "weights" / "files"


class Sample(NamedTuple):
    """A model's files, which of them is read, and with which options."""

    files: dict[str, bytes]
    path: str
    options: dict[str, Any] = {}


# Of samples that cannot be read without.
_OPTIONS = {
    "torch_0.pth": {"cell": "rnn_relu"},
    "torch_two_states.pt": {"layer": "ema"},
    "onnx_torch_if.onnx": {"layer": "/GRU"},
    "onnx_ours_h0.onnx": {"layer": "lstm_0,lstm_1"},
    "keras_2.0.9_weights.h5": {"recurrent_activation": "hard_sigmoid"},
}
FORMATS = {
    "h5": (".h5",),
    "keras": (".keras",),
    "torch": (".pt", ".pth", ".ckpt", ".pt2"),
    "safetensors": (".safetensors",),
    "onnx": (".onnx",),
    "npz": (),
    "tf1": (),
}


@functools.cache
def samples(kind: str) -> list[Sample]:
    """Those of a format: the files that the frameworks wrote, and those that are made here."""
    found = [
        Sample({one.name: one.read_bytes()}, one.name, _OPTIONS.get(one.name, {}))
        for one in sorted(FILES.iterdir())
        if one.suffix in FORMATS[kind]
    ]
    with tempfile.TemporaryDirectory() as folder:
        return found + [
            Sample({one.name: one.read_bytes() for one in place.iterdir()}, path, options)
            for place, path, options in _MADE.get(kind, lambda folder: ())(pathlib.Path(folder))
        ]


def _npz(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, dict[str, Any]]]:
    from helpers.weight_stacks import Stack, random_weights
    from tf_blockrnn import weights

    for cell in ("gru", "lstm", "layer_norm_lstm"):
        place = folder / cell
        place.mkdir()
        weights.to_npz(random_weights(Stack(cell, dtype="float32")), place / "m.npz")
        yield place, "m.npz", {}


def _tf1(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, dict[str, Any]]]:
    import tensorflow as tf

    names = ["rnn/lstm_cell/kernel", "rnn/lstm_cell/bias"]
    tensors = [tf.ones([5, 12]), tf.ones([12])]
    for version in (1, 2):
        place = folder / str(version)
        place.mkdir()
        if version == 1:
            tf.raw_ops.Save(filename=str(place / "m"), tensor_names=names, data=tensors)
        else:
            tf.raw_ops.SaveV2(
                prefix=str(place / "m"),
                tensor_names=names,
                shape_and_slices=["", ""],
                tensors=tensors,
            )
        yield place, "m", {"cell": "LSTMCell"}


def _onnx(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, dict[str, Any]]]:
    import onnx

    model = onnx.load(FILES / "onnx_torch_14_two_layers.onnx")
    external = {"save_as_external_data": True, "location": "m.bin", "size_threshold": 0}
    onnx.save(model, folder / "m.onnx", **external)
    yield folder, "m.onnx", {}


def _haste(folder: pathlib.Path) -> Iterator[tuple[pathlib.Path, str, dict[str, Any]]]:
    import numpy as np
    import safetensors.numpy

    shapes = {"kernel": (5, 9), "recurrent_kernel": (3, 9), "bias": (9,), "recurrent_bias": (9,)}
    state = {name: np.ones(shape, "f4") for name, shape in (*shapes.items(), ("gamma", (2, 9)))}
    safetensors.numpy.save_file(state, folder / "haste.safetensors")
    yield folder, "haste.safetensors", {}


_MADE: dict[str, Callable[[pathlib.Path], Any]] = {
    "npz": _npz,
    "tf1": _tf1,
    "onnx": _onnx,
    "safetensors": _haste,
}


# ---- mutations of bytes

_NUMBERS = (0, 1, 127, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_MARKS = re.compile(
    rb"HDF\r|OHDR|TREE|HEAP|SNOD|GCOL|FRHP|PK..|NUMPY|[\x0a\x12\x1a\x22\x2a\x32\x3a]"
)
_TOKEN = re.compile(rb'-?\d+|"[^"\\]*"|\btrue\b|\bfalse\b|\bnull\b')
_VALUES = (
    *(b"0", b"-1", b"1e999", b"18446744073709551616", b"9" * 5000, b'""', b'"GRU"', b"null"),
    *(b"[]", b"{}", b"true", b"[" * 5000, b'{"a":' * 5000, b'"\\ud800"', b"NaN", b'"layers"'),
)


def _place(data: bytes, pick: random.Random) -> int:
    """Anywhere; in half of the cases where a structure seems to begin, or near an end."""
    near = min(len(data), 64)
    kind = pick.randrange(6)
    if kind == 0:
        return pick.randrange(near)
    if kind == 1:
        return len(data) - 1 - pick.randrange(near)
    if kind == 2 and (found := [match.end() for match in _MARKS.finditer(data)]):
        return min(pick.choice(found) + pick.randrange(8), len(data) - 1)
    return pick.randrange(len(data))


def _cut(data: bytes, pick: random.Random, other: bytes) -> bytes:
    del other
    return data[: pick.choice((0, 1, 8, 64, len(data) // 2, len(data) - 1, _place(data, pick)))]


def _flip(data: bytes, pick: random.Random, other: bytes) -> bytes:
    del other
    changed = bytearray(data)
    for _ in range(pick.choice((1, 1, 2, 8))):
        changed[_place(data, pick)] ^= 1 << pick.randrange(8)
    return bytes(changed)


def _byte(data: bytes, pick: random.Random, other: bytes) -> bytes:
    del other
    place = _place(data, pick)
    return data[:place] + bytes([pick.choice((0, 1, 127, 128, 255))]) + data[place + 1 :]


def _number(data: bytes, pick: random.Random, other: bytes) -> bytes:
    del other
    size, place = pick.choice((2, 4, 8)), _place(data, pick)
    value = pick.choice(_NUMBERS) % 256**size
    return (
        data[:place] + value.to_bytes(size, pick.choice(("little", "big"))) + data[place + size :]
    )


def _splice(data: bytes, pick: random.Random, other: bytes) -> bytes:
    place = _place(data, pick)
    return data[:place] + other[min(place, len(other)) if pick.randrange(2) else len(other) // 2 :]


def _repeat(data: bytes, pick: random.Random, other: bytes) -> bytes:
    del other
    first, last = sorted((_place(data, pick), _place(data, pick)))
    return data[:last] + data[first:last] * pick.choice((0, 1, 1, 50)) + data[last:]


def _token(data: bytes, pick: random.Random, other: bytes) -> bytes:
    """Another value in what is text."""
    del other
    found = list(_TOKEN.finditer(data))
    if not found:
        return data[1:]
    one = pick.choice(found)
    return data[: one.start()] + pick.choice(_VALUES) + data[one.end() :]


_OF_BYTES = (_cut, _flip, _byte, _number, _number, _splice, _repeat, _token)


# ---- mutations of archives


def _members(data: bytes) -> dict[str, bytes] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return {name: file.read(name) for name in file.namelist()}
    except Exception:  # of an archive that is mutated already
        return None


def _archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, data in members:
            file.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def bomb(size: int = 1 << 28) -> tuple[bytes, int, int]:
    """A deflate stream of that many zeros, and its sizes and checksum."""
    part = 1 << 22
    packer = zlib.compressobj(9, wbits=-15)
    packer.compress(bytes(part))
    packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(part)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (size // part) + b"\3\0", size, 0


def _lie(data: bytes, pick: random.Random) -> bytes:
    """Another number in an entry of the directory, or in a header of a member."""
    mark, fields = pick.choice(
        ((b"PK\1\2", (8, 10, 16, 20, 24, 28, 30, 42)), (b"PK\3\4", (6, 8, 14, 18, 22, 26, 28)))
    )
    found = [match.start() for match in re.finditer(re.escape(mark), data)]
    place = pick.choice(found) + pick.choice(fields)
    value = pick.choice((0, 1, 8, 12, 14, 2**16 - 1, 2**31, 2**32 - 2, 2**32 - 1))
    return data[:place] + struct.pack("<I", value) + data[place + 4 :]


def _of_archive(data: bytes, pick: random.Random, other: bytes) -> bytes:
    members = _members(data)
    if not members:
        return _flip(data, pick, other)
    names, kind = list(members), pick.randrange(12)
    name = pick.choice(names)
    listed = list(members.items())
    if kind == 0:
        return _archive([*listed, (name, pick.choice((b"", members[pick.choice(names)])))])
    if kind == 1:
        new = pick.choice((f"../../{name}", f"/{name}", f"{name}/x", "\udc80", "x" * 60000, ""))
        new = new.encode("utf-8", "replace").decode()
        return _archive([(new if one == name else one, value) for one, value in listed])
    if kind == 2:
        return _archive([one for one in listed if one[0] != name])
    if kind == 3:
        return _archive([(one, data if one == name else value) for one, value in listed])
    if kind == 4:
        method = pick.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        return _archive(listed, method)
    if kind == 5:
        method = zipfile.ZIP_DEFLATED
        return _archive([(one, bytes(1 << 24) if one == name else v) for one, v in listed], method)
    if kind in (6, 7):
        return _lie(data, pick)
    foreign = _members(other) or {"": other}
    changed = pick.choice(_OF_BYTES)(members[name] or b"\0", pick, pick.choice([*foreign.values()]))
    return _archive([(one, changed if one == name else value) for one, value in listed])


def mutated(sample: Sample, others: list[Sample], pick: random.Random) -> Sample:
    """The sample with another content of one of its files."""
    name = pick.choice(list(sample.files))
    data = sample.files[name]
    other = pick.choice(list(pick.choice(others).files.values()))
    for _ in range(pick.choice((1, 1, 1, 3))):
        archive = data.startswith(b"PK") and pick.randrange(4)
        change = _of_archive if archive else pick.choice(_OF_BYTES)
        data = change(data or b"\0", pick, other)
    return sample._replace(files={**sample.files, name: data})


def cases(kind: str, seed: int, first: int, number: int) -> Iterator[tuple[int, Sample]]:
    """Cases of a format by number, which with the seed determines each."""
    known = samples(kind)
    for case in range(first, first + number):
        pick = random.Random(f"{kind} {seed} {case}")
        yield case, mutated(known[case % len(known)], known, pick)
