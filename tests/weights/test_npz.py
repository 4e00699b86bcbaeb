"""The .npz files of weights: their versions, and files that are not whole."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from unittest import mock

import numpy as np
import pytest
from helpers import weight_stacks
from helpers.convert_command import damage, make
from helpers.weight_stacks import Stack

from tf_blockrnn import weights
from tf_blockrnn.weights import npz

GRU = Stack("gru", dtype="float32")
NORMED = Stack("layer_norm_lstm", layers=2, directions=2, norm_output_only=True)


def held(stack: Stack) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    npz.to_npz(weight_stacks.random_weights(stack), file)
    file.seek(0)
    return dict(np.load(file))


@pytest.mark.parametrize(
    ("stack", "version"),
    [
        (Stack("lstm", peepholes=True, cell_clip=1.0), 1),
        (Stack("gru"), 1),
        (Stack("lstm", zoneout_c=0.25), 2),
        (Stack("gru", zoneout_h=0.25), 2),
        (Stack("layer_norm_gru"), 2),
        (NORMED, 2),
        (Stack("gru", activation="relu"), 3),
        (Stack("lstm", zoneout_c=0.25, hard_sigmoid=0.2), 3),
    ],
    ids=str,
)
def test_older_readers_refuse_what_they_would_drop(stack, version):
    """They read the version before anything else, and know 1 alone."""
    assert held(stack)["version"] == version


@pytest.mark.parametrize(
    ("stack", "change", "words"),
    [
        (
            GRU,
            {"format": np.array("another")},
            "format must be 'tf_blockrnn.weights', got 'another'",
        ),
        (
            GRU,
            {"version": np.array(4)},
            "version must be 1 or 2 or 3, got 4: it was written by another",
        ),
        (GRU, {"layers.0.forward.w_h": None}, "incomplete: layers.0.forward.w_h is missing"),
        (
            GRU,
            {"layers.1.forward.b_x": np.ones([3, 4], "f4")},
            "incomplete: layers.1.forward.w_x is missing",
        ),
        (GRU, {"layers.0.sideways.w_x": np.ones([3, 3, 4])}, "name, 'layers.0.sideways.w_x'"),
        (GRU, {"zoneout": np.array(0.5)}, "an array of an unknown name, 'zoneout'"),
        (GRU, {"cell": np.array("lstm")}, "reset_after is for gru"),
        (GRU, {"cell": np.array(3)}, "the file's cell must be one str, got an array of int64"),
        (GRU, {"dtype": np.array("int8")}, "the file's dtype must be one of float16, .* 'int8'"),
        (GRU, {"reset_after": np.array("no")}, "the file's reset_after must be one bool"),
        (
            GRU,
            {"layers.0.forward.w_h": np.ones([3, 4, 4])},
            "w_h must be of the type float32, got float64",
        ),
        (NORMED, {"epsilon": None}, "a layer_norm_lstm needs epsilon"),
        (NORMED, {"norm_output_only": None}, "needs norm_output_only"),
        (
            NORMED,
            {"layers.1.backward.norm_h": None},
            "layer 1, backward: layer_norm_lstm needs norm_h",
        ),
    ],
)
def test_files_that_are_not_whole_are_refused(stack, change, words):
    arrays = {name: array for name, array in (held(stack) | change).items() if array is not None}
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    with pytest.raises(ValueError, match=words):
        npz.from_npz(file)


@pytest.mark.parametrize(
    "mark, offset, value, words",
    [
        # An entry of the directory of a zip file: the version that it needs, its flags, its method.
        (b"PK\1\2", 6, 255, "zip file version 25.5"),
        (b"PK\1\2", 8, 1, "is encrypted"),
        (b"PK\1\2", 10, 99, "compression method is not supported"),
        (b"PK\5\6", 0, 0, "is not a zip file"),
        # Of an array so large that it is not read at once, so that no checksum is looked at before.
        (b", 40, 200), }", 12, ord(" "), "EOF in multi-line"),
    ],
)
def test_files_that_are_damaged_are_refused(tmp_path, mark, offset, value, words):
    path = tmp_path / "in.npz"
    make(dataclasses.replace(GRU, inputs=40, units=200), path)
    damage(path, mark, offset, value)
    with pytest.raises(ValueError, match=f"the file is not an intact .npz file: .*{words}"):
        npz.from_npz(path)


def with_member(path, name: str, content: bytes) -> None:
    """Gives an .npz file a member instead of the one of that name, if it has one."""
    with zipfile.ZipFile(path) as file:
        members = {one: file.read(one) for one in file.namelist()} | {name: content}
    with zipfile.ZipFile(path, "w") as file:
        for one, data in members.items():
            file.writestr(one, data)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("-" * 9000 + "1", ""),
        ("'descr': '<f4', 'fortran_order': False, 'shape': (%s, 0)" % ("9" * 4200), "too large"),
        ("'descr': '<f4', 'fortran_order': False, 'shape': (True, True)", "an integer"),
        ("'descr': '\\ud800', 'fortran_order': False, 'shape': ()", "surrogates not allowed"),
    ],
    ids=lambda one: one[:60],
)
def test_headers_that_describe_no_array_are_refused(header, words, tmp_path):
    path = tmp_path / "in.npz"
    make(GRU, path)
    text = header.encode() if header[0] == "-" else f"{{{header}}}".encode()
    values = bytes(4 if "True" in header else 0)
    content = b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + values
    with_member(path, "layers.0.forward.w_x.npy", content)
    for read in (npz.from_npz, weights.read):
        with pytest.raises(ValueError, match=f"not an intact .npz file: .*{words}"):
            read(path)


def test_memory_that_runs_out_is_no_damage(tmp_path, monkeypatch):
    make(GRU, tmp_path / "in.npz")
    monkeypatch.setattr(np.lib.format, "read_array", mock.Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        weights.read(tmp_path / "in.npz")


def test_bytes_behind_an_array_are_refused(tmp_path):
    """A header with a smaller dimension would shift the values, and no checksum be compared."""
    path = tmp_path / "in.npz"
    make(Stack("lstm", dtype="float32", inputs=500, units=30), path)
    damage(path, b"(4, 500, 30)", 4, ord("4"))
    with pytest.raises(ValueError, match="w_x.npy has 240000 bytes for an array of 192000"):
        npz.from_npz(path)
    make(GRU, path)
    with zipfile.ZipFile(path) as file:
        content = file.read("layers.0.forward.w_x.npy")
    with_member(path, "layers.0.forward.w_x.npy", content + bytes(60))
    with pytest.raises(ValueError, match="w_x.npy has 204 bytes for an array of 144"):
        npz.from_npz(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("layers.00.forward.w_x.npy", "an array of an unknown name, 'layers.00.forward.w_x'"),
        ("layers.\u0660.forward.w_x.npy", "an array of an unknown name"),
        ("layers.0.forward.w_x", "not an intact .npz file: it has two arrays of one name"),
    ],
)
def test_two_names_of_one_array_are_refused(name, words, tmp_path):
    path = tmp_path / "in.npz"
    make(GRU, path)
    with zipfile.ZipFile(path) as file:
        content = file.read("layers.0.forward.w_x.npy")
    with_member(path, name, content)
    with pytest.raises(ValueError, match=words):
        npz.from_npz(path)


def test_files_of_anything_else_are_refused(tmp_path):
    path = tmp_path / "in.npz"
    path.touch()
    with pytest.raises(ValueError, match="not an intact .npz file: No data left"):
        npz.from_npz(path)
    make(GRU, path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("layers.0.forward.peepholes.npy", b"\xff")
    with pytest.raises(ValueError, match="incomplete: layers.0.forward.peepholes is not an array"):
        npz.from_npz(path)
    damage(path, b"PK\1\2", 10, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="not an intact .npz file: .*while decompressing"):
        npz.from_npz(path)
