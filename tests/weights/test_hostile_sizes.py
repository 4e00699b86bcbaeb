"""Files that would take hours, or many times the memory that files of their size may take.

Each is read in a process with that memory, and a minute of CPU time.
"""

from __future__ import annotations

import json
import zipfile

import h5py
import numpy as np
import onnx
import pytest
from helpers.children import PROGRAMS, assert_ok, run_python
from helpers.tf1_tables import bundle, entry, field, shape
from onnx import TensorProto, helper

NUMBER = b"\x8a\x08" + (2**62).to_bytes(8, "little")
LONG = b"X" + (20_000).to_bytes(4, "little") + b"a" * 20_000


def archive(path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("m/data.pkl", pickled)
        file.writestr("m/data/0", bytes(4))


def dicts(path):
    archive(path, b"\x80\2" + b"}" * 30_000_000 + b".", zipfile.ZIP_DEFLATED)


def tensor(numbers: bytes) -> bytes:
    storage = b"(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK\1tQ"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(%bK\0(%bt(%bt\x89}tR" % (storage, numbers, numbers)
    return b"\x80\2}X\x0c\0\0\0weight_ih_l0" + made + b"s."


def dims_of_torch(path):
    archive(path, tensor(NUMBER + b"q\1" + b"h\1" * 300_000))


def numbers_of_torch(path):
    number = b"\x8b" + (1_000_000).to_bytes(4, "little") + b"\x55" * 1_000_000
    archive(path, tensor(number + b"q\1" + b"h\1" * 60))


def keys_of_torch(path):
    """A tuple of 2^60 items, of 60 tuples in one another."""
    key = b")" + b"q\1h\1\x86" * 60
    archive(path, b"\x80\2}" + key + b"Ns.")


def paths_of_torch(path):
    state = b"}X\x0c\0\0\0weight_ih_l0Ns"
    archive(path, b"\x80\2}" + LONG + b"q\1" + b"}h\1" * 90_000 + state + b"s" * 90_001 + b".")


def keras_group(file):
    """The group for the arrays of the layer of a model."""
    file.attrs["keras_version"] = "2.11.0"
    config = {"class_name": "GRU", "config": {"name": "gru", "units": 3}}
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": [config]}}
    file.attrs["model_config"] = json.dumps(config)
    return file.create_group("model_weights/gru")


def names_of_keras(path):
    """Of a recurrent kernel each, of which all others may be beside it."""
    names = [f"{number}/recurrent_kernel".encode() for number in range(40_000)]
    with h5py.File(path, "w", libver="latest") as file:
        group = keras_group(file)
        for number in range(20):
            group.attrs[f"weight_names{number}"] = np.array(names[number::20])


def path_of_keras(path):
    """Of as many parts as characters: the paths to all of them have a square of those."""
    with h5py.File(path, "w") as file:
        names = np.array(["a/" * 120_000, "recurrent_kernel"], object)
        keras_group(file).attrs.create("weight_names", names, dtype=h5py.string_dtype())


def texts_of_keras(path):
    """Names that are all one text, in several attributes."""
    text, number = "x" * 400_000, 250
    with h5py.File(path, "w") as file:
        group, kind = keras_group(file), h5py.string_dtype()
        for one in range(26):
            names = np.array(["other!"] * number, object)
            group.attrs.create(f"weight_names{one}", [text] if not one else names, dtype=kind)
    data = bytearray(path.read_bytes())
    place = data.index(len(text).to_bytes(4, "little"), data.index(b"weight_names0\0"))
    reference = data[place : place + 16]  # its length, heap and number there
    for one in range(1, 26):
        start = data.index((6).to_bytes(4, "little"), data.index(b"weight_names%d\0" % one))
        data[start : start + 16 * number] = reference * number
    path.write_bytes(data)


def dims_of_onnx(path):
    numbers = np.full(300_000, 2**62)
    dims = helper.make_tensor("dims", TensorProto.INT64, [len(numbers)], numbers.tobytes(), True)
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["W"]),
        helper.make_node("LSTM", ["x", "W", "W"], ["y"], hidden_size=3),
    ]
    graph = helper.make_graph(nodes, "g", [], [], [dims])
    onnx.save(helper.make_model(graph), path)


def dims_of_tensorflow(path):
    made = entry(field(2, field(1, 2**62)) * 300_000, 0, 4)
    path.with_suffix(".index").write_bytes(bundle([(b"a", made), (b"b", entry(shape(1), 0, 4))]))
    path.with_suffix(".data-00000-of-00001").write_bytes(bytes(8))


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (dicts, "m.pt", "data.pkl has 30000003 bytes, more than 4194304"),
        (dims_of_torch, "m.pt", "a tensor has sizes that are no sizes"),
        (numbers_of_torch, "m.pt", "a tensor has sizes that are no sizes"),
        (keys_of_torch, "m.pt", "its keys are <builtins.tuple>"),
        (paths_of_torch, "m.pt", "the paths to the layers of the file are too long"),
        (names_of_keras, "m.h5", "which arrays of the file are its own is not known"),
        (path_of_keras, "m.h5", "weight_names has a name of more than 4096 characters"),
        (texts_of_keras, "m.h5", "the file makes texts of more than 1032 times its size"),
        (dims_of_onnx, "m.onnx", "an array of more than 64 dimensions"),
        (dims_of_tensorflow, "m.index", "a tensor has a shape that is none"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_files_that_would_take_hours_or_memory(make, name, words, tmp_path):
    path = tmp_path / name
    make(path)
    options = {"cell": "LSTMCell"} if make is dims_of_tensorflow else {}
    arguments = [str(PROGRAMS / "read_limited.py"), str(path), json.dumps(options)]
    error = assert_ok(run_python(arguments), "the reader")
    assert words in error
