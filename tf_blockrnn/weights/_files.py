"""The kinds of files, for the command line and sessions: what recognizes, reads and writes them.

A reader finds the recurrent layers in a file by name and returns the selected ones: one layer, or
several, which become a stack.
"""

from __future__ import annotations

import os
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import NamedTuple

from tf_blockrnn.weights._bounds import bounded
from tf_blockrnn.weights._checks import UnsupportedError, first_line, short
from tf_blockrnn.weights._file_format import FileContents, Job, ReadOptions, UsageError, Written
from tf_blockrnn.weights._file_keras import has_model, read_h5, read_keras, write_keras
from tf_blockrnn.weights._file_numpy import read_npz, write_cudnn, write_npz
from tf_blockrnn.weights._file_onnx import is_onnx, read_onnx, write_onnx
from tf_blockrnn.weights._file_tf1 import read_tf1
from tf_blockrnn.weights._file_torch import read_safetensors, read_torch, write_torch
from tf_blockrnn.weights._h5_checks import superblock_at

# A TensorFlow checkpoint is a table of LevelDB, which ends with this number.
_TABLE = bytes.fromhex("57fb808b247547db")
# The beginning of files that PyTorch wrote before 1.6: the pickle of a number.
_OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


_MOST_MESSAGE = 4000  # characters, behind the path


class _Source(NamedTuple):
    """A kind of file to read: its reader, the fields of ReadOptions that apply, and its endings."""

    name: str
    read: Callable[[str, ReadOptions], FileContents]
    options: tuple[str, ...]
    endings: tuple[str, ...] = ()


_TF1_OPTIONS = ("layers", "cell", "scope", "forget_bias", "cell_clip")
_SOURCES = {
    "keras": _Source("a Keras model", read_keras, ("layers",), (".keras",)),
    "h5": _Source(
        "a Keras HDF5 file",
        read_h5,
        ("layers", "cell", "cell_clip", "reset", "recurrent_activation"),
        (".h5", ".hdf5"),
    ),
    "torch": _Source("a PyTorch file", read_torch, ("layers", "cell"), (".pt", ".pth", ".pt2")),
    "safetensors": _Source(
        "a safetensors file", read_safetensors, ("layers", "cell"), (".safetensors",)
    ),
    "onnx": _Source("an ONNX model", read_onnx, ("layers",), (".onnx",)),
    "npz": _Source("weights of tf_blockrnn", read_npz, (), (".npz",)),
    "tf1": _Source("a TensorFlow 1 checkpoint", read_tf1, _TF1_OPTIONS),
}


class Target(NamedTuple):
    """A kind of file to write: its name, its writer and its endings."""

    name: str
    write: Callable[[Job], Written]
    endings: tuple[str, ...]
    records_reverse: bool = False


TARGETS = {
    "keras": Target("a Keras model", write_keras, (".keras",), records_reverse=True),
    "torch": Target("a PyTorch state dict", write_torch, (".pt", ".pth")),
    "onnx": Target("an ONNX model", write_onnx, (".onnx",), records_reverse=True),
    "cudnn": Target("cuDNN", write_cudnn, (".npy",)),
    "npz": Target("an .npz file", write_npz, (".npz",)),
}


def _of_zip(path: str) -> str | None:
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    if "config.json" in names:
        return "keras"
    if {name.rpartition("/")[2] for name in names} & {"data.pkl", "archive_format"}:
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def _by_content(path: str) -> str | None:
    """The key in _SOURCES of a file by its content; None if it is none of them."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(len(_OLD_TORCH))
        if start.startswith(b"PK"):
            return _of_zip(path)
        if start == _OLD_TORCH:
            return "torch"
        # A safetensors file begins with the size of its header, which is JSON.
        if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8:
            return "safetensors"
        if superblock_at(file) is not None:
            return "keras" if has_model(path) else "h5"
        file.seek(max(0, size - len(_TABLE)))
        if file.read() == _TABLE:
            return "tf1"
    return "onnx" if is_onnx(path) else None


def _by_ending(path: str) -> str | None:
    """As _by_content, for content of no known kind, so that a reader reports what is wrong."""
    ending = pathlib.Path(path).suffix
    return next((key for key, kind in _SOURCES.items() if ending in kind.endings), None)


def _of_operations(path: str) -> str | None:
    """What a file or folder is that has operations and constants, but no layers."""
    if os.path.isdir(path):
        is_saved = any(os.path.exists(f"{path}/saved_model.pb{end}") for end in ("", "txt"))
        return "a SavedModel" if is_saved else None
    with open(path, "rb") as file:
        if file.read(8)[4:] == b"TFL3":
            return "a TensorFlow Lite model"
    if re.fullmatch(r"saved_model\.pb(txt)?", os.path.basename(path)):
        return "a SavedModel"
    return "a TensorFlow graph" if pathlib.Path(path).suffix in (".pb", ".pbtxt") else None


def _recognized(path: str) -> tuple[str, _Source]:
    """The path, of a checkpoint without its ending, and the kind of the file."""
    if re.search(r"\.(index|data-\d+-of-\d+)$", path):
        path = path.rpartition(".")[0]
    if os.path.exists(f"{path}.index"):
        return path, _SOURCES["tf1"]
    if not os.path.exists(path):
        raise UsageError(f"{path}: there is no such file")
    is_folder = os.path.isdir(path)
    if not is_folder and not os.path.isfile(path):  # a device or a pipe may have no end
        raise UsageError(f"{path}: it is not a regular file")
    if is_folder and os.path.exists(os.path.join(path, "checkpoint")):
        return path, _SOURCES["tf1"]
    key = None if is_folder else _by_content(path)
    if key is None and (kind := _of_operations(path)):
        raise UsageError(
            f"{path}: it is {kind}, which has operations and no layers: pass the model that it was "
            "exported from, or the .keras file of that"
        )
    if is_folder:
        raise UsageError(f"{path}: it is a folder without a TensorFlow 1 checkpoint")
    key = key or _by_ending(path)
    if key is None:
        names = dict.fromkeys(source.name for source in _SOURCES.values())
        raise UsageError(f"{path}: its content is none of {', '.join(names)}")
    return path, _SOURCES[key]


def read(path: str, options: ReadOptions) -> FileContents:
    """Reads the weights in a file.

    Whatever else a parser raises for a corrupt file becomes a ValueError here.

    Raises:
      UsageError: there is no such file, or an option does not apply to it.
      ValueError: the content is corrupt, or has no weights; with the path, as all of these.
      UnsupportedError: RecurrentWeights cannot represent the weights.
      OSError: the operating system refuses to read it.
      ModuleNotFoundError: a package that the format needs is missing.
      MemoryError: there is not enough memory for the weights.
    """
    expected = "a file of weights"
    try:
        path, source = _recognized(path)
        expected = source.name
        options.require(expected, source.options)
        with bounded(path):
            return source.read(path, options)
    except Exception as error:
        of_file = _of_file(path, expected, error)
        if of_file is error:
            raise
        raise of_file from error


def _of_file(path: str, expected: str, error: Exception) -> Exception:
    """What to raise for an error of a reader."""
    of_system = isinstance(error, OSError) and error.errno and error.filename is not None
    if of_system or isinstance(error, (ImportError, MemoryError)):
        return error
    text = str(error)
    # A wrong type in a file is a wrong value of the file. Our own errors say what must be.
    known = isinstance(error, ValueError) or (isinstance(error, TypeError) and "must be" in text)
    if not known or isinstance(error, UnicodeError):
        text = f"{type(error).__name__}: {first_line(error)}"
        text = f"its content is corrupt, or not that of {expected}: {text}"
    kinds = UsageError, UnsupportedError, ValueError
    kind = next((one for one in kinds if isinstance(error, one)), ValueError)
    text = text.removeprefix(f"{path}: ")
    return kind(f"{path}: {short(text, _MOST_MESSAGE)}")


def write(to: str, job: Job) -> Written:
    """Writes a file of a kind in TARGETS."""
    target = TARGETS[to]
    if job.reverse and not target.records_reverse:
        raise UnsupportedError(
            f"{target.name} does not record that layers of one direction go from the last step to "
            "the first"
        )
    return target.write(job)
