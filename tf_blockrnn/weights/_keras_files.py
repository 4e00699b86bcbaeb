"""The files of complete Keras models: the config, and the arrays of each recurrent cell.

A `.keras` file is a zip archive of config.json, metadata.json and model.weights.h5. The arrays of
that are numbered, in groups by the attributes and classes of layers: `layers/gru_1/cell/vars/0`.

An HDF5 model has the config as an attribute and in `model_weights` a group for each layer of the
model, by name, with the names of its arrays in the order of its weights as the attribute
`weight_names`. The names are those of variables, such as `forward_gru_1/gru_cell/kernel:0`; a
model that is a layer has those of all its layers, first the trainable ones.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._bounds import check_text, member_text, open_archive
from tf_blockrnn.weights._checks import intact
from tf_blockrnn.weights._h5 import DAMAGE, open_h5, plain_path, read_array
from tf_blockrnn.weights._h5_checks import attribute
from tf_blockrnn.weights._keras_arrays import NORMS, norms_of
from tf_blockrnn.weights._keras_config import ConfigLayer
from tf_blockrnn.weights._keras_layers import KNOWN, LAYERS, recurrent_layers

_LONGEST_PATH = 4096  # of an array, in characters


def version_of(text: Any) -> tuple[int, int]:
    """(major, minor) of a Keras' version, such as "2.2.4-tf"; (0, 0) if there is none."""
    text = text.decode() if isinstance(text, bytes) else str(text)
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@contextlib.contextmanager
def keras_model(path: str) -> Iterator[ConfigLayer]:
    """The model in a .keras or HDF5 file, whose arrays can be read until the context ends."""
    import h5py

    # Whatever the types in a config are, they are not checked.
    damage = (*DAMAGE, AttributeError, TypeError, IndexError, zipfile.BadZipFile)
    with contextlib.ExitStack() as stack, intact("Keras model", *damage):
        if h5py.is_hdf5(path):
            file = stack.enter_context(open_h5(path))
            version = version_of(attribute(file, "keras_version", ""))
            config = attribute(file, "model_config", "")
            check_text("model_config", len(config), os.path.getsize(path))
            model = ConfigLayer(json.loads(config), "", version)
            _add_named_arrays(model, file["model_weights"])
        else:
            archive = stack.enter_context(open_archive(path))
            config = json.loads(member_text(archive, "config.json"))
            version = version_of(json.loads(member_text(archive, "metadata.json"))["keras_version"])
            model = ConfigLayer(config, "", version)
            # Since Python 3.12 the CRC of an open member is not checked after the first seek.
            weights = io.BytesIO(archive.read("model.weights.h5"))
            _add_numbered_arrays(model, stack.enter_context(open_h5(path, weights)))
        yield model


# ---- .keras


def _add_numbered_arrays(model: ConfigLayer, file: Any) -> None:
    groups: dict[str, Any] = {}

    def visit(path: str, one: Any) -> None:
        if not hasattr(one, "shape"):
            groups[plain_path(path)] = one

    file.visititems(visit)

    for _, layer in recurrent_layers(model):
        for one in layer.cells():
            one.read = functools.partial(_read_numbered, groups, one.place)
    _mark_numbered(model, groups)


def _mark_numbered(model: ConfigLayer, groups: Mapping[str, Any]) -> None:
    """Marks the layers that have cells in the file and not in their config."""
    known = {layer.place for _, layer in recurrent_layers(model)}
    others = {one.place: one for one in _others(model)}
    for path, group in groups.items():
        above = list(itertools.accumulate(path.split("/"), "{}/{}".format))
        around = [others[place] for place in above if place in others]
        if around and known.isdisjoint(above) and _is_cell(path, group):
            around[-1].has_cells = True


def _is_cell(path: str, group: Any) -> bool:
    """Whether a group has arrays with the shapes of a recurrent cell."""
    if not path.endswith("/vars"):
        return False
    shapes = [group[number].shape for number in ("0", "1") if number in group]
    if [len(shape or ()) for shape in shapes] != [2, 2]:
        return False
    (_, columns), (units, recurrent_columns) = shapes
    # One gate has the shapes of other pairs of matrices, too, but Keras' attribute for a cell.
    gates = (1, 3, 4) if path.endswith("cell/vars") else (3, 4)
    return columns == recurrent_columns and columns in [n * units for n in gates]


def _read_numbered(groups: Mapping[str, Any], place: str, cell: str) -> list[np.ndarray]:
    found = []
    for path in (place, *(f"{place}/{NORMS[norm]}" for norm in norms_of(cell))):
        group = groups.get(f"{path}/vars", {})
        if not group:
            raise ValueError(f"the file has no arrays at {path}")
        found += [read_array(group[str(number)]) for number in range(len(group))]
    return found


# ---- HDF5


def _names(group: Any, name: str) -> list[str]:
    """The names in an attribute, or in several with numbers behind it if they are too many."""
    if name in group.attrs:
        found = list(attribute(group, name))
    else:
        keys = sorted(
            (key for key in group.attrs if re.fullmatch(rf"{name}\d+", key)),
            key=lambda key: int(key.removeprefix(name)),
        )
        found = [one for key in keys for one in attribute(group, key)]
    names = [one.decode() if isinstance(one, bytes) else str(one) for one in found]
    if max(map(len, names), default=0) > _LONGEST_PATH:
        raise ValueError(f"the attribute {name} has a name of more than {_LONGEST_PATH} characters")
    if len(set(names)) < len(names):
        raise ValueError(f"the attribute {name} has one name twice")
    return names


def _cells_by_path(names: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Of each recurrent cell the parts of its path, and the names of its arrays.

    Keras 2 before 2.3 numbered the arrays of the cells of a stack: `rnn/kernel_1:0`.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        if match := re.fullmatch(r"(.*/)?recurrent_kernel((?:_\d+)?(?::0)?)", name):
            found[match[1] or "", match[2]] = []
    for name in names:
        ending = re.search(r"(_\d+)?(:0)?$", name)[0]
        for path in itertools.accumulate(re.findall("[^/]*/", name), initial=""):
            if (path, ending) in found:
                found[path, ending].append(name)
    return [(path.split("/"), own) for (path, _), own in found.items()]


def _add_named_arrays(model: ConfigLayer, weights: Any) -> None:
    layers = {layer.name: layer for layer in model.all_inner("layers")}
    marked: list[ConfigLayer] = []
    nameless = False
    for name, group in weights.items():
        stored = _cells_by_path(_names(group, "weight_names"))
        # Convolutions have such names too.
        paths = [
            path for path, own in stored if all(one in group and group[one].ndim < 3 for one in own)
        ]
        if name in layers:
            _assign(group, stored, _layers_in(layers[name]))
            marked += _with_more(layers[name], paths)
        else:
            nameless = nameless or bool(paths)
    for one in (*marked, *(_nameless(_others(model)) if nameless else ())):
        one.has_cells = True


def _layers_in(layer: ConfigLayer) -> list[ConfigLayer]:
    return [layer] if layer.kind in LAYERS else [one for _, one in recurrent_layers(layer)]


def _others(layer: ConfigLayer) -> list[ConfigLayer]:
    """The layers in this one, or it itself, that may have cells of their own.

    Those are neither models nor of a known class.
    """
    known = (*KNOWN, "TimeDistributed")
    found = (layer, *layer.parts())
    return [one for one in found if one.kind not in known and not one.all_inner("layers")]


def _nameless(layers: Sequence[ConfigLayer]) -> list[ConfigLayer]:
    """The layers whose config has no name: a class of another program may have dropped it."""
    return [one for one in layers if "name" not in one.config]


def _with_more(layer: ConfigLayer, paths: Sequence[list[str]]) -> list[ConfigLayer]:
    """The layers in this one that have more of the cells at these paths than their config."""

    def has_more(one: ConfigLayer, number: int) -> bool:
        return number > sum(len(list(known.cells())) for known in _layers_in(one))

    if not has_more(layer, len(paths)):
        return []
    others, numbers = _others(layer), Counter(part for path in paths for part in set(path))
    named = [
        one for one in others if has_more(one, len(paths) if one is layer else numbers[one.name])
    ]
    # Of a layer that was built in another one the paths have other names.
    return named or _nameless(others) or others


def _assign(
    group: Any, stored: list[tuple[list[str], list[str]]], layers: Sequence[ConfigLayer]
) -> None:
    """Adds the arrays in a group to the cells of the recurrent layers that it is of."""
    wanted = [list(layer.cells()) for layer in layers]
    # Some names are not those of the layers; then their order is, but frozen layers are last.
    ordered = len(stored) == sum(map(len, wanted))
    ordered = ordered and len({layer.get("trainable", True) for layer in layers}) == 1
    first = 0
    for layer, cells in zip(layers, wanted, strict=True):
        found = [(path, names) for path, names in stored if layer.name in path]
        if len(found) != len(cells) and ordered:
            found = stored[first : first + len(cells)]
        if layer.kind == "Bidirectional":
            found.sort(key=lambda one: any(part.startswith("backward_") for part in one[0]))
        first += len(cells)
        if len(found) == len(cells):
            for cell, (_, names) in zip(cells, found, strict=True):
                cell.read = functools.partial(_read_named, group, names)


def _read_named(group: Any, names: Sequence[str], cell: str) -> list[np.ndarray]:
    del cell
    return [read_array(group[name]) for name in names]
