"""The recurrent layers in Keras' HDF5 weight files, which have paths and arrays, but no classes.

Keras 3 numbers the arrays of a cell, and names the groups above it after attributes:

    layers/lstm/cell/vars/0                            a layer of one cell
    layers/rnn/cell/cells/lstm_cell_1/vars/0           the second cell of a stack
    layers/bidirectional/backward_layer/cell/vars/0    one direction of two

Keras 2 names the arrays, and names the groups after layers, with the name of a top layer twice:

    lstm/lstm/lstm_cell/kernel:0
    bidirectional/bidirectional/backward_lstm/lstm_cell_2/kernel:0

Two paths are treated as parts of one layer only if they have these forms: two layers mistaken for
two directions of one layer would silently become another network.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._bounds import take
from tf_blockrnn.weights._checks import (
    UnsupportedError,
    bfloat16,
    intact,
    stack_per_direction,
)
from tf_blockrnn.weights._formats import KERAS_HARD_SIGMOID
from tf_blockrnn.weights._h5_checks import (
    Structures,
    attribute,
    check_objects,
    text,
    values_of,
)

# What is raised for a corrupt file in addition to OSError without a number and ValueError.
DAMAGE = (KeyError, RuntimeError, zlib.error)

_MOST_NAME = 1000  # characters of a layer's name that are of use
_KERAS_2_ARRAYS = ("kernel", "recurrent_kernel", "bias")
_KERAS_3_CELL = re.compile(
    r"(?P<cell>(?:(?P<layer>.+)/)?cell(?:/cells/(?P<name>[^/]+(?:/cells/[^/]+)*))?)/vars"
)
# The path of a cell that contains another one, such as a residual cell.
_IN_A_CELL = re.compile(r"/cell(/cells/[^/]+)*$")
_KERAS_2_CELL = re.compile(
    r"(?P<cell>(?P<layer>.+?)(?:/(?P<name>(?:lstm|gru|simple_rnn)_cell(?:_\d+)?))?)"
)


@contextlib.contextmanager
def open_h5(path: str, member: IO[bytes] | None = None) -> Iterator[Any]:
    """An h5py.File of the file, or of the member of the archive at the path.

    Raises:
      ValueError: it is not intact, refers to another file, or declares more than it can have.
    """
    import h5py

    with contextlib.ExitStack() as stack, intact("HDF5 file", *DAMAGE):
        structures = Structures(member or stack.enter_context(open(path, "rb")))
        file = stack.enter_context(h5py.File(member or path, "r"))
        check_objects(file, os.path.getsize(path), structures)
        yield file


def read_array(dataset: Any) -> np.ndarray:
    """A dataset of an `open_h5`; HDF5 has no bfloat16."""
    # The values of an object may be larger than what the file declares.
    if dataset.dtype.hasobject or dataset.shape is None:
        raise ValueError(f"{text(dataset.name)} must have numbers, got {dataset.dtype}")
    take(dataset.nbytes)
    array = values_of(dataset)
    return array.view(bfloat16()) if attribute(dataset, "dtype") == "bfloat16" else array


def plain_path(path: str) -> str:
    """A path as Keras 3 writes it.

    TensorFlow 2.12 and 2.13 wrote `_layer_checkpoint_dependencies` for `layers`, and some releases
    on Windows a backslash for each slash.
    """
    return path.replace("\\", "/").replace("_layer_checkpoint_dependencies", "layers")


class _Group(NamedTuple):
    """A group of the file: its own arrays, and the layer name that Keras 3 adds."""

    arrays: dict[str, np.ndarray]
    name: str | None


@dataclasses.dataclass(frozen=True)
class _Cell:
    """The arrays of one cell; `name` identifies it within its layer."""

    name: str
    arrays: list[np.ndarray]
    others: list[str]  # further arrays, which no supported cell has

    @property
    def is_recurrent(self) -> bool:
        """Whether the shapes are those of a recurrent cell."""
        arrays = self.arrays
        if len(arrays) < 2 or arrays[0].ndim != 2 or arrays[1].ndim != 2:
            return False
        columns = arrays[1].shape[1]
        return arrays[0].shape[1] == columns and not columns % units_of(arrays)


@dataclasses.dataclass(frozen=True)
class H5Layer:
    """A layer in the file: the cells of one direction, or of both.

    `keras_3` is whether it is in the form of Keras 3, which tf_keras has too since 2.12, and
    `hard_sigmoid` the slope of hard_sigmoid, or None if it is not known which of them wrote it.
    """

    path: str
    keras_3: bool
    hard_sigmoid: float | None
    cells: list[_Cell]
    backward: list[_Cell] | None = None

    def parts(self) -> list[list[np.ndarray]]:
        """The arrays of each layer of the stack; of two directions the forward ones first."""
        cells = [*self.cells, *(self.backward or ())]
        for cell in cells:
            if not cell.is_recurrent or cell.others:
                shapes = ", ".join(str(list(array.shape)) for array in cell.arrays) or "no arrays"
                also = f" and also has {', '.join(cell.others)}" if cell.others else ""
                raise UnsupportedError(
                    f"{self.path}: the cell {cell.name or 'of the layer'} has {shapes}{also}, "
                    "which is not an lstm, gru or simple RNN"
                )
        if self.backward is None:
            return [cell.arrays for cell in self._in_order()]
        if len(cells) > 2:
            raise stack_per_direction(self.path)
        return [[array for cell in cells for array in cell.arrays]]

    def _in_order(self) -> list[_Cell]:
        if len(self.cells) == 1:
            return self.cells
        found = {}
        for cell in self.cells:
            base, number = re.fullmatch(r"(.*?)(?:_(\d+))?", cell.name).groups()
            found[base, int(number or 0)] = cell
        bases = {base for base, _ in found}
        if not self.keras_3 or len(bases) > 1 or {n for _, n in found} != set(range(len(found))):
            names = ", ".join(sorted(cell.name or '""' for cell in self.cells))
            raise UnsupportedError(
                f"{self.path}: the layer has several cells, {names}, whose order the file does not "
                "record; a file of the complete model does"
            )
        return [found[key] for key in sorted(found)]


def units_of(arrays: list[np.ndarray]) -> int:
    """H: the rows of the recurrent kernel, or the columns of the projection [P, H], which is the
    last array if there is one.
    """
    last, recurrent = arrays[-1], arrays[1]
    # The two biases of a gru are a matrix too, but have the columns of all gates.
    projected = len(arrays) > 2 and last.ndim == 2 and last.shape[1] != recurrent.shape[1]
    return (last.shape[1] if projected else len(recurrent)) or 1


def _groups(file: Any) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}

    def visit(path: str, value: Any) -> None:
        path = plain_path(path)
        if path.split("/")[0] in ("optimizer", "optimizer_weights"):
            return
        if not hasattr(value, "shape"):
            name = attribute(value, "name")
            groups[path] = _Group({}, name[:_MOST_NAME] if isinstance(name, str) else None)
            return
        parent, _, leaf = path.rpartition("/")
        if parent:
            groups[parent].arrays[leaf.removesuffix(":0")] = read_array(value)

    file.visititems(visit)
    return groups


def _arrays_below(groups: dict[str, _Group], path: str) -> list[str]:
    """The arrays of a cell's sublayers, such as a normalization."""
    return [
        f"{below.removeprefix(path + '/')}/{name}"
        for below, group in groups.items()
        for name in group.arrays
        # The seed generator of a dropout has a state, but no weights.
        if below.startswith(f"{path}/") and "/seed_generator" not in below
    ]


def _cell_at(groups: dict[str, _Group], path: str) -> tuple[str, bool, _Cell] | None:
    """The path of the layer, whether Keras 3 wrote it, and the cell; None if there is none."""
    arrays = groups[path].arrays
    if match := _KERAS_3_CELL.fullmatch(path):
        numbers = [name for name in map(str, range(len(arrays))) if name in arrays]
        others = [name for name in arrays if name not in numbers]
        below = _arrays_below(groups, match["cell"])
        others += [name for name in below if not re.match(r"vars/|cells/", name)]
        if _IN_A_CELL.search(match["layer"] or ""):
            others.append("a cell around it")
        cell = _Cell(match["name"] or "", [arrays[name] for name in numbers], others)
        return match["layer"] or "", True, cell
    if {"kernel", "recurrent_kernel"} <= set(arrays):
        match = _KERAS_2_CELL.fullmatch(path)
        others = [name for name in arrays if name not in _KERAS_2_ARRAYS]
        others += _arrays_below(groups, path)
        ordered = [arrays[name] for name in _KERAS_2_ARRAYS if name in arrays]
        return match["layer"], False, _Cell(match["name"] or "", ordered, others)
    return None


def _stacks(groups: dict[str, _Group]) -> dict[str, H5Layer]:
    """All layers of one direction by their paths, including those below a Bidirectional."""
    found: dict[str, H5Layer] = {}
    # tf_keras does not add names, nor did the first releases of Keras 3.
    named = any(group.name is not None for group in groups.values())
    for path in groups:
        if at := _cell_at(groups, path):
            layer, keras_3, cell = at
            slope = 0.2 if not keras_3 else KERAS_HARD_SIGMOID if named else None
            found.setdefault(layer, H5Layer(layer, keras_3, slope, [])).cells.append(cell)
    stacks = {}
    for path, layer in found.items():
        # The group of a stack itself is among those of its cells and has no arrays.
        cells = [c for c in layer.cells if c.name or c.arrays]
        if any(cell.is_recurrent for cell in cells):
            stacks[path] = dataclasses.replace(layer, cells=cells)
    return stacks


def _backward_of(layer: H5Layer, groups: dict[str, _Group]) -> str | None:
    """The path of the backward direction if the layer is the forward one of a Bidirectional."""
    parent, _, own = layer.path.rpartition("/")
    if not layer.keras_3:
        # A single name above the layer is that of a model, whose layers may have any names.
        paired = own.startswith("forward_") and "/" in parent
        return f"{parent}/backward_{own.removeprefix('forward_')}" if paired else None
    if not parent or own != "forward_layer":
        return None
    # Bidirectional renames it; other layers may have attributes with the same names.
    group = groups.get(f"{layer.path}/vars")
    if group and group.name is not None and not group.name.startswith("forward_"):
        return None
    return f"{parent}/backward_layer"


def _short(path: str) -> str:
    """The path without the parts that are not names of layers."""
    parts = [part for part in path.split("/") if part not in ("layers", "model_weights")]
    # Keras 2 has the name of the layer twice.
    return "/".join(part for n, part in enumerate(parts) if n == 0 or part != parts[n - 1])


def layers_of(file: Any) -> dict[str, H5Layer]:
    """The recurrent layers of an open h5py.File by name, or by path if a name is not unique."""
    groups = _groups(file)
    found = _stacks(groups)
    for path, layer in list(found.items()):
        if (partner := _backward_of(layer, groups)) in found:
            parent = path.rpartition("/")[0]
            forward, backward = found.pop(path), found.pop(partner)
            found[parent] = dataclasses.replace(forward, path=parent, backward=backward.cells)
    names = collections.Counter(_short(path) for path in found)
    named = {_short(p) if names[_short(p)] == 1 else p: layer for p, layer in found.items()}
    return dict(sorted(named.items()))
