"""RecurrentWeights as an .npz file of NumPy, without loss.

An .npz file with these arrays:

    format                   the text "tf_blockrnn.weights"
    version                  the version of the format: 3 with initial states, another activation or
                             a hard sigmoid, 2 for the cells with layer normalisation and with
                             zoneout, else 1; a reader of an earlier version refuses what it does
                             not know
    cell                     the text "lstm", "gru", "rnn_tanh", "rnn_relu", "layer_norm_lstm" or
                             "layer_norm_gru"
    dtype                    the name of the arrays' type; NumPy does not store bfloat16's
    reset_after              bool; only for a gru
    cell_clip                float64; only with a clip
    zoneout_h, zoneout_c     float64; only with zoneout
    epsilon                  float64; only with layer normalisation
    norm_output_only         bool; only for a layer_norm_lstm
    activation               the text "relu"; only where it is in the place of tanh
    hard_sigmoid             float64, the slope; only with a hard sigmoid
    layers.0.forward.w_x     each array of each layer direction, under its name in
    layers.0.backward.b_h    DirectionWeights; arrays that are None are left out

A reader refuses arrays of other names: they may be options that change what the cell computes.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

from tf_blockrnn.weights._bounds import check_members
from tf_blockrnn.weights._cells import NORM_CELLS, OPTIONS
from tf_blockrnn.weights._checks import (
    TYPES,
    bfloat16,
    intact,
    one_of,
    wrong_source,
)
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

_FORMAT = "tf_blockrnn.weights"
_VERSIONS = (1, 2, 3)
_ARRAYS = tuple(field.name for field in dataclasses.fields(DirectionWeights))
_NAME = re.compile(rf"layers\.(0|[1-9][0-9]*)\.(forward|backward)\.({'|'.join(_ARRAYS)})")

# The types of the values that every file has.
_HEADER = {"format": str, "version": int, "cell": str, "dtype": str}
# The kinds of NumPy's types of single values.
_KINDS = {str: "U", int: "iu", bool: "b", float: "f"}

# What NumPy raises for a corrupt file in addition to ValueError: RuntimeError for zip
# features that Python does not support, the last four for the header of an array.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError),
    *(tokenize.TokenError, OverflowError, TypeError, UnicodeError),
)


def to_npz(weights: RecurrentWeights, file: str | os.PathLike | IO[bytes]) -> None:
    """Writes weights to an .npz file, bit for bit.

    Args:
      weights: any weights.
      file: its path, or a file open for writing. ".npz" is appended to a path without it.

    Example:
      >>> import io, numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> file = io.BytesIO()
      >>> weights.to_npz(gru, file)
      >>> weights.from_npz(io.BytesIO(file.getvalue())) == gru
      True
    """
    if not isinstance(weights, RecurrentWeights):
        raise TypeError(f"weights must be RecurrentWeights, got {type(weights).__name__}")
    arrays = {
        "format": np.array(_FORMAT),
        "version": np.array(_version(weights)),
        "cell": np.array(weights.cell),
        "dtype": np.array(weights.dtype.name),
    }
    for name, option in OPTIONS.items():
        if getattr(weights, name) != option.default:
            arrays[name] = np.array(getattr(weights, name))
    for number, direction_name, direction in weights.named_directions():
        for name, array in direction.arrays.items():
            arrays[f"layers.{number}.{direction_name}.{name}"] = array
    np.savez(file, **arrays)


def _version(weights: RecurrentWeights) -> int:
    """The first version of the format that has all of these weights."""
    directions = [one for _, _, one in weights.named_directions()]
    if any(one.h0 is not None or one.c0 is not None for one in directions):
        return 3
    if weights.activation != "tanh" or weights.hard_sigmoid:
        return 3
    return 2 if weights.cell in NORM_CELLS or weights.zoneout_h or weights.zoneout_c else 1


def from_npz(file: str | os.PathLike | IO[bytes]) -> RecurrentWeights:
    """Reads weights written by `to_npz`.

    Args:
      file: its path, or a file open for reading.

    Returns:
      The weights, bit for bit.

    Raises:
      ModuleNotFoundError: the weights are of bfloat16, and ml_dtypes is not installed.

    Example:
      >>> import io
      >>> from tf_blockrnn import weights
      >>> weights.from_npz(io.BytesIO(b"text"))
      Traceback (most recent call last):
      ...
      ValueError: ...
    """
    if not isinstance(file, (str, os.PathLike)) and not hasattr(file, "read"):
        raise wrong_source("from_npz", "a path or an open file", file)
    arrays = _arrays(file)
    cell, dtype = _header(arrays)
    found: dict[int, dict[str, dict[str, np.ndarray]]] = {}
    for key, array in arrays.items():
        if match := _NAME.fullmatch(key):
            number, direction_name, name = match.groups()
            if dtype.name == "bfloat16" and array.dtype == "V2":
                array = array.view(dtype)  # NumPy reads it as bytes without a type
            if array.dtype.name != dtype.name:
                raise ValueError(f"{key} must be of the type {dtype.name}, got {array.dtype.name}")
            layer = found.setdefault(int(number), {})
            layer.setdefault(direction_name, {})[name] = array
        elif key not in _HEADER and key not in OPTIONS:
            raise ValueError(f"the file has an array of an unknown name, {key!r}")
    layers = []
    for n in range(1 + max(found, default=-1)):
        both = {"forward": {}, **found.get(n, {})}
        made = {name: _direction(parts, f"layers.{n}.{name}") for name, parts in both.items()}
        layers.append(LayerWeights(**made))
    options = {
        name: _value(arrays, name, option.kind)
        for name, option in OPTIONS.items()
        if name in arrays
    }
    return RecurrentWeights(cell, layers, **options)


def _arrays(file: str | os.PathLike | IO[bytes]) -> dict[str, np.ndarray]:
    # MemoryError is that of an .npy file that declares more than it has.
    with intact(".npz file", *_DAMAGE, MemoryError):
        found = np.load(file)  # without pickles, which could run code
    with intact(".npz file", *_DAMAGE):
        if not isinstance(found, Mapping):
            shape = list(found.shape)
            raise ValueError(f"expected an .npz file, got an array of the shape {shape}")
        with found:
            _check_sizes(found.zip)
            arrays = dict(found)
        if len(arrays) < len(found.files):  # one is of a member without .npy
            raise zipfile.BadZipFile("it has two arrays of one name")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # a member without a header is bytes
            raise ValueError(f"the file is incomplete: {name} is not an array")
    return arrays


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuses a file that declares more than it can have, or arrays that do not fill their members.

    So each member is read to its end, where zipfile compares its checksum.
    """
    check_members(archive)
    headers = {(1, 0): np.lib.format.read_array_header_1_0}
    for info in archive.infolist():
        with archive.open(info) as member:
            try:
                version = np.lib.format.read_magic(member)
            except ValueError:  # no array
                continue
            # The header of version 3 has the form of that of 2.
            read_header = headers.get(version, np.lib.format.read_array_header_2_0)
            with intact(".npz file", MemoryError):  # that of Python's parser for deep nesting
                shape, _, dtype = read_header(member)
            declared, held = math.prod(shape) * dtype.itemsize, info.file_size - member.tell()
        if declared != held and not dtype.hasobject:
            raise zipfile.BadZipFile(f"{info.filename} has {held} bytes for an array of {declared}")


def _listed(names: Iterable[str], most: int = 6) -> str:
    shown = list(map(repr, names))
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return (", ".join(shown[:most]) or "no array") + more


def _value(arrays: dict[str, np.ndarray], name: str, kind: type) -> Any:
    array = arrays[name]
    if array.shape or array.dtype.kind not in _KINDS[kind]:
        raise ValueError(
            f"the file's {name} must be one {kind.__name__}, got an array of {array.dtype} of the "
            f"shape {list(array.shape)}"
        )
    return kind(array)


def _header(arrays: dict[str, np.ndarray]) -> tuple[str, np.dtype]:
    """The cell, and the type of the arrays."""
    found = {}
    for name, kind in _HEADER.items():
        if name not in arrays:
            raise ValueError(
                f"it is an .npz file of another program: the array {name!r} of weights.to_npz is "
                f"missing, it has {_listed(arrays)}. weights.from_torch takes a dict of arrays by "
                "PyTorch's names, weights.from_keras lists of arrays in Keras' order"
            )
        found[name] = _value(arrays, name, kind)
    if found["format"] != _FORMAT:
        raise ValueError(f"the file's format must be {_FORMAT!r}, got {found['format']!r}")
    if found["version"] not in _VERSIONS:
        raise ValueError(
            f"the file's version must be {' or '.join(map(str, _VERSIONS))}, got "
            f"{found['version']}: it was written by another release of tf_blockrnn"
        )
    dtype = one_of("the file's dtype", found["dtype"], TYPES)
    return found["cell"], bfloat16() if dtype == "bfloat16" else np.dtype(dtype)


def _direction(arrays: dict[str, np.ndarray], where: str) -> DirectionWeights:
    missing = [name for name in ("w_x", "w_h") if name not in arrays]
    if missing:
        raise ValueError(f"the file is incomplete: {where}.{missing[0]} is missing")
    return DirectionWeights(**arrays)
