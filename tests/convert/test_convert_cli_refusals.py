"""What `python -m tf_blockrnn convert` refuses; it reports the reason and leaves no file behind."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
import resource
import sys
import zipfile

import keras
import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from helpers.convert_command import converted, damage, make, refused
from helpers.weight_stacks import Stack

GRU = Stack("gru", dtype="float32")


USAGE = {
    "": "the following arguments are required: IN, OUT",
    "in.npz out.h5": r"OUT must end in .keras \(keras\), .pt or .pth \(torch\), .*, got 'out.h5'",
    "in.npz out.npz --to tensorflow": "invalid choice",
    "nothing.npz out.npz --to npz": "nothing.npz: there is no such file",
    "in.npz out.keras --to torch": r"OUT must end in .pt or .pth with --to torch, got 'out.keras'",
    "in.npz nowhere/out.npz --to npz": "nowhere: there is no such folder",
    "in.npz in.npz --to npz": "IN and OUT are the same file",
    "in.npz folder.npz": "OUT must be a file, got the folder 'folder.npz'",
    "in.npz out.npz --to npz --package tf_blockrnn": "--package is for --to keras",
    "in.npz out.npz --to npz --layer gru": "--layer does not apply to weights of tf_blockrnn",
    "in.npz out.npz --to npz --forget-bias 0": "--forget-bias does not apply to",
    "one.onnx out.npz --to npz --cell gru": "--cell does not apply to an ONNX model",
    "one.onnx out.npz --to npz --reset after": "--reset does not apply to an ONNX model",
    "in.npz out.npz --to npz --reset never": "argument --reset: invalid choice: 'never'",
    "one.onnx out.npz --to npz --layer lstm": "has no recurrent node 'lstm'; it has gru_0",
    "dense.keras out.npz --to npz": "the file has no recurrent layer of a known class, but Dense",
    "dense.pt out.npz --to npz": "the file has no recurrent layer",
    "text.txt out.npz --to npz": "its content is none of a Keras model, .* a TensorFlow 1 checkp",
}
FAILURES = {
    "broken.npz out.npz --to npz": "broken.npz: ",
    "broken.keras out.npz --to npz": "broken.keras: ",
    "broken.h5 out.npz --to npz": "broken.h5: ",
    "broken out.npz --to npz --cell GRUCell": "broken: ",
    "broken.pt out.npz --to npz": "broken.pt: the file is not an intact PyTorch file",
    "broken.onnx out.npz --to npz": "broken.onnx: the file is not an ONNX model",
    "cut.pt out.npz --to npz": "cut.pt: the file is not an intact PyTorch file: .* not a zip file",
    "list.pt out.npz --to npz": "list.pt: the file has no state dict, but an object of list",
    "ints.pt out.npz --to npz": "ints.pt: w_x must be of the type float16, .*, got int64",
    "code.pt out.npz --to npz": "code.pt: the file is not a state dict, .*: it names .*print",
    "array.npz out.npz --to npz": "expected an .npz file, got an array of the shape",
    "other.npz out.npz --to npz": "of another program: the array 'format' of",
    "before.npz out.pt --to torch": "before.npz: PyTorch's gru resets after the GEMM",
    "bfloat16.npz out.npy --to cudnn": "an .npy file cannot store bfloat16",
    "torn.onnx out.npz --to npz": "torn.onnx: .*gone.bin",
    "empty.keras out.npz --to npz": "empty.keras: .* not an intact Keras model: .*config.json",
    "empty.pt out.npz --to npz": "empty.pt: the file is not an intact PyTorch file: cannot mmap",
}


class Code:
    """What a pickle of it would run when it is loaded without care."""

    def __reduce__(self):
        return print, ("this must not run",)


@pytest.fixture
def files(convert):
    """One file of each kind that is refused, where `convert` runs."""
    make(GRU)
    make(dataclasses.replace(GRU, reset_after=False), "before.npz")
    make(dataclasses.replace(GRU, dtype=ml_dtypes.bfloat16), "bfloat16.npz")
    converted(convert, "in.npz one.onnx --to onnx")
    # A model whose data, in a file beside it, is gone.
    onnx.save(
        onnx.load("one.onnx"),
        "torn.onnx",
        save_as_external_data=True,
        location="gone.bin",
        size_threshold=0,
    )
    pathlib.Path("gone.bin").unlink()
    zipfile.ZipFile("empty.keras", "w").close()
    pathlib.Path("empty.pt").touch()
    pathlib.Path("folder.npz").mkdir()
    dense = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    dense.save("dense.keras")
    torch.save(torch.nn.Linear(3, 2).state_dict(), "dense.pt")
    pathlib.Path("cut.pt").write_bytes(pathlib.Path("dense.pt").read_bytes()[:-99])
    torch.save([1, 2], "list.pt")
    ints = {name: torch.ones([12, 4], dtype=int) for name in ("weight_ih_l0", "weight_hh_l0")}
    torch.save(ints, "ints.pt")
    pathlib.Path("code.pt").write_bytes(pickle.dumps(Code()))
    for name in ("pt", "onnx", "npz", "keras", "h5"):
        pathlib.Path(f"broken.{name}").write_bytes(b"\x08this is no such file")
    pathlib.Path("broken.index").write_bytes(b"this is no checkpoint")
    pathlib.Path("text.txt").write_text("text")
    with open("array.npz", "wb") as file:
        np.save(file, np.ones([2]))
    np.savez("other.npz", w=np.ones([2]))


def test_usage(convert, files):
    for line, words in USAGE.items():
        refused(convert, line, 2, words)


def test_failures(convert, files):
    for line, words in FAILURES.items():
        refused(convert, line, 1, words)


@pytest.mark.parametrize(
    "path, mark, offset, value, words",
    [
        ("in.npz", b"PK\1\2", 6, 255, "not an intact .npz file: zip file version 25.5"),
        ("in.onnx", b"\x10\x01B\x07gru_0.W", 1, 65, "'gru_0.W' has an unknown data_type, 65"),
        ("in.weights.h5", b"SNOD", 0, 0, "not an intact HDF5 file: "),
        ("in.h5", b"SNOD", 0, 0, "not an intact HDF5 file: "),
        # The size of the type of the attribute.
        ("in.h5", b"model_config\0", 31, 64, "not an intact HDF5 file: "),
        ("in.h5", b'class_name": "GRU"', 0, ord("m"), "not an intact Keras model: class_name"),
        ("in.h5", b'"layer": ', 1, ord("m"), "not an intact Keras model: layer"),
    ],
)
def test_files_that_are_damaged_are_refused(convert, path, mark, offset, value, words):
    make(GRU)
    converted(convert, "in.npz in.onnx --to onnx")
    both = keras.layers.Bidirectional(keras.layers.GRU(4))
    model = keras.Sequential([keras.Input((None, 3)), both])
    model.save("in.h5")
    model.save_weights("in.weights.h5")
    damage(path, mark, offset, value)
    refused(convert, f"{path} out.npz --to npz", 1, f"convert: {path}: .*{words}")


def test_a_failure_leaves_the_old_file(convert):
    make(dataclasses.replace(GRU, reset_after=False))
    pathlib.Path("out.pt").write_text("as it was")
    refused(convert, "in.npz out.pt --to torch", 1, "resets after")
    assert pathlib.Path("out.pt").read_text() == "as it was"


def test_what_cannot_be_finished_is_removed(convert, monkeypatch):
    make(GRU)

    def replace(*paths):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", replace)
    refused(convert, "in.npz out.pt --to torch", 1, "no room")
    assert os.listdir() == ["in.npz"]


@pytest.mark.parametrize("ending", ["keras", "pt", "onnx", "npy", "npz"])
def test_a_full_disk_is_an_error_of_out(convert, ending):
    make(GRU)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        words = f"^convert: out.{ending}: .*(too large|written)"
        refused(convert, f"in.npz out.{ending}", 1, words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_model_that_onnx_refuses_is_not_written(convert, monkeypatch):
    make(GRU)

    def check_model(*arguments, **options):
        raise onnx.checker.ValidationError("no such model")

    monkeypatch.setattr(onnx.checker, "check_model", check_model)
    refused(convert, "in.npz out.onnx --to onnx", 1, "in.npz: no such model")


def test_a_missing_package_is_named(convert, monkeypatch):
    make(GRU)
    monkeypatch.setitem(sys.modules, "onnx", None)
    refused(convert, "in.npz out.onnx --to onnx", 1, "needs the package onnx: it is missing")
    pathlib.Path("in.onnx").write_bytes(b"whatever it is")
    refused(convert, "in.onnx out.npz --to npz", 1, "needs the package onnx: it is missing")
