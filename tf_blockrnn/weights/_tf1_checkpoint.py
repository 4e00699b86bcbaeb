"""The variables that the cells of TensorFlow 1 save, and their search in a checkpoint.

This is the table at the top of tf1.py as data, with the functions that find and check variables.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._cells import GATES
from tf_blockrnn.weights.layer import UnsupportedError


@dataclasses.dataclass(frozen=True)
class Cell:
    """The names of a cell's variables, and the features of the cell."""

    cell: str  # the cell of RecurrentWeights
    form: str  # the form of the variables: a key of MARKS
    scope: str  # the default name of its scope
    forget_bias: float = 0.0
    has: tuple[str, ...] = ()  # of peepholes, projection and cell_clip
    cudnn: bool = False


_BLOCK_CELL_HAS = ("peepholes", "cell_clip")
CELLS = {
    "BasicRNNCell": Cell("rnn_tanh", "joined", "basic_rnn_cell"),
    "GRUCell": Cell("gru", "gru", "gru_cell"),
    "GRUBlockCell": Cell("gru", "gru_block", "gru_cell"),
    "GRUBlockCellV2": Cell("gru", "gru", "gru_cell"),
    "BasicLSTMCell": Cell("lstm", "joined", "basic_lstm_cell", 1.0),
    "LSTMCell": Cell("lstm", "joined", "lstm_cell", 1.0, ("projection", *_BLOCK_CELL_HAS)),
    "LSTMBlockCell": Cell("lstm", "joined", "lstm_cell", 1.0, _BLOCK_CELL_HAS),
    "LSTMBlockFusedCell": Cell("lstm", "joined", "lstm_fused_cell", 1.0, _BLOCK_CELL_HAS),
    "CudnnLSTM": Cell("lstm", "joined", "cudnn_compatible_lstm_cell", cudnn=True),
    "CudnnGRU": Cell("gru", "gru_cudnn", "cudnn_compatible_gru_cell", cudnn=True),
    "CudnnRNNTanh": Cell("rnn_tanh", "joined", "basic_rnn_cell", cudnn=True),
    "CudnnRNNRelu": Cell("rnn_relu", "joined", "basic_rnn_cell", cudnn=True),
}

# The variables that each form must have; the first one identifies a scope.
INPUT, HIDDEN = "candidate/input_projection/", "candidate/hidden_projection/"
MARKS = {
    "joined": ("kernel", "bias"),
    "gru": ("candidate/kernel", "gates/kernel", "gates/bias", "candidate/bias"),
    "gru_block": ("w_c", "w_ru", "b_ru", "b_c"),
    "gru_cudnn": (
        f"{INPUT}kernel",
        f"{HIDDEN}kernel",
        "gates/kernel",
        "gates/bias",
        f"{INPUT}bias",
        f"{HIDDEN}bias",
    ),
}
PEEPHOLES = ("w_i_diag", "w_f_diag", "w_o_diag")
PROJECTION = "projection/kernel"
# The biases that the Cudnn layers of early releases save in addition.
_CUDNN_BIASES = ("bias_cudnn_0", "bias_cudnn_1", "bias_cudnn 0", "bias_cudnn 1")

# Other cells of tf.contrib, some of which have variables of the same names and fitting shapes.
_OTHER_CELLS = {
    *("attention_cell_wrapper", "bidirectional_grid_lstm_cell", "cfn_cell", "conv_lstm_cell"),
    *("conv_1d_lstm_cell", "conv_2d_lstm_cell", "conv_3d_lstm_cell"),
    *("coupled_input_forget_gate_lstm_cell", "glstm_cell", "grid_lstm_cell", "highway_wrapper"),
    *("ind_rnn_cell", "indrnn_cell", "indy_gru_cell", "indy_lstm_cell", "intersection_rnn_cell"),
    *("layer_norm_basic_lstm_cell", "layer_norm_lstm_cell", "minimal_rnn_cell", "nas_cell"),
    *("ntm_cell", "phased_lstm_cell", "sru_cell", "time_freq_lstm_cell", "ugrnn_cell"),
    *("weight_norm_lstm_cell",),
}


class Checkpoint:
    """The variables of a checkpoint by their names in later releases."""

    def __init__(self, source: Any):
        if isinstance(source, (str, os.PathLike)):
            import tensorflow as tf

            source = tf.train.load_checkpoint(os.fspath(source))
        if not hasattr(source, "get_variable_to_shape_map"):
            raise TypeError(
                "from_tf1: expected the path of a checkpoint or the result of "
                f"tf.train.load_checkpoint, got {type(source).__name__}"
            )
        self.reader = source
        self.shapes = {
            name: tuple(shape) for name, shape in source.get_variable_to_shape_map().items()
        }
        self._names = {_later_name(name): name for name in self.shapes}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[self._names[name]]

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self.reader.get_tensor(self._names[name]))

    def read_if_there(self, name: str) -> np.ndarray | None:
        return self.read(name) if name in self else None


def _later_name(name: str) -> str:
    scope, _, leaf = name.rpartition("/")
    leaf = {"weights": "kernel", "biases": "bias"}.get(leaf, leaf)
    return f"{scope}/{leaf}" if scope else leaf


def join(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


class Sizes(NamedTuple):
    inputs: int  # I
    outputs: int  # P
    units: int  # H


def _shapes_of(form: str, gates: int, sizes: Sizes) -> list[tuple[int, ...]]:
    """The shapes of the variables in MARKS."""
    inputs, width, units = sizes
    gates_of_gru = [(inputs + units, 2 * units), (2 * units,)]
    if form == "joined":
        return [(inputs + width, gates * units), (gates * units,)]
    if form == "gru_cudnn":
        return [(inputs, units), (units, units), *gates_of_gru, (units,), (units,)]
    return [(inputs + units, units), *gates_of_gru, (units,)]


def _unknown(checkpoint: Checkpoint, scope: str, cell: Cell) -> list[str]:
    """The variables in a scope that such a cell does not have, except those of optimizers."""
    known = [*MARKS[cell.form], *PEEPHOLES, PROJECTION, *_CUDNN_BIASES]
    if not scope:  # the scope of all variables of the model
        return []
    below = [name.removeprefix(f"{scope}/") for name in checkpoint if name.startswith(f"{scope}/")]
    # An optimizer and a moving average save variables below those of the cell.
    return [own for own in below if not any(own == k or own.startswith(f"{k}/") for k in known)]


def sizes_of(checkpoint: Checkpoint, scope: str, cell: Cell) -> Sizes | None:
    """The sizes given by the shapes of the variables in this scope; None if another cell's."""
    marks = [join(scope, mark) for mark in MARKS[cell.form]]
    projection = join(scope, PROJECTION)
    peephole = any(join(scope, name) in checkpoint for name in PEEPHOLES)
    if any(mark not in checkpoint for mark in marks):
        return None
    if _unknown(checkpoint, scope, cell):
        return None
    if peephole and "peepholes" not in cell.has:
        return None
    if projection in checkpoint and "projection" not in cell.has:
        return None
    shapes = [checkpoint.shape(mark) for mark in marks]
    if any(len(shape) not in (1, 2) for shape in shapes):
        return None
    if cell.form == "gru_block":  # in either order
        shapes[:2] = sorted(shapes[:2], key=lambda shape: shape[-1])
    # The bias of all gates, or of the candidate, comes last.
    gates = len(GATES[cell.cell]) if cell.form == "joined" else 1
    units = shapes[-1][0] // gates
    width = checkpoint.shape(projection)[-1] if projection in checkpoint else units
    inputs = shapes[0][0] - (0 if cell.form == "gru_cudnn" else width)
    sizes = Sizes(inputs, width, units)
    return sizes if inputs > 0 and shapes == _shapes_of(cell.form, gates, sizes) else None


class _Place(NamedTuple):
    """The position of a cell in a network, given by the name of its scope."""

    group: str  # the name without the number of the layer and the direction
    layer: int
    backward: bool
    stack_per_direction: bool  # fw and bw come before the layer's number


def _place(scope: str) -> _Place:
    parts = scope.split("/")
    cells = [n for n, part in enumerate(parts) if re.fullmatch(r"cell_\d+", part)]
    direction_parts = [n for n, part in enumerate(parts) if part in ("fw", "bw")]
    layer = int(parts[cells[-1]].removeprefix("cell_")) if cells else 0
    backward = bool(direction_parts) and parts[direction_parts[-1]] == "bw"
    outside = bool(cells and direction_parts) and direction_parts[-1] < cells[-1]
    for n in cells[-1:] + direction_parts[-1:]:
        parts[n] = "*"
    return _Place("/".join(parts), layer, backward, outside)


def is_named(scope: str, cell: Cell) -> bool:
    """Whether the scope has TensorFlow's name for such a cell, possibly with a number."""
    return bool(re.fullmatch(cell.scope + r"(_\d+)?", scope.rpartition("/")[2]))


def other_cell_of(scope: str, cell: Cell) -> str | None:
    """The name of another kind of cell that the scope has; None if it has none."""
    name = re.sub(r"_\d+$", "", scope.rpartition("/")[2])
    known = _OTHER_CELLS | {one.scope for one in CELLS.values()}
    return name if name in known and name != cell.scope else None


def fitting(checkpoint: Checkpoint, scope: str, cell: Cell) -> list[str]:
    """The scopes below this one with the name and the variables of such a cell.

    The variables alone do not identify a cell: a dense layer has a kernel and a bias too, and the
    kernel of a cell with three gates may have the shape of an LSTM's.
    """
    mark = "/" + MARKS[cell.form][0]
    below = [name.removesuffix(mark) for name in sorted(checkpoint) if name.endswith(mark)]
    return [
        own
        for own in below
        if own.startswith(f"{scope}/" if scope else "")
        and is_named(own, cell)
        and sizes_of(checkpoint, own, cell)
    ]


def candidates(checkpoint: Checkpoint, scope: str, cell: Cell) -> list[str]:
    """The scopes to read such cells from: this one, or those below it.

    Raises:
      UnsupportedError: this one has the name of another kind of cell.
    """
    if sizes_of(checkpoint, scope, cell):
        if other := other_cell_of(scope, cell):
            raise UnsupportedError(
                f"the scope {scope!r} has the name of another kind of cell, {other}"
            )
        return [scope]
    return fitting(checkpoint, scope, cell)


def layers_of(scopes: list[str], name: str) -> list[list[str]]:
    """The scopes below one, as [layer][direction]; refuses scopes that do not form one stack."""
    places = {scope: _place(scope) for scope in scopes}
    groups = sorted({place.group for place in places.values()})
    if len(groups) > 1:
        raise ValueError(
            f"there is more than one {name}: scope must choose one of {', '.join(groups)}"
        )
    found = {(place.layer, place.backward): scope for scope, place in places.items()}
    numbers = 1 + max(layer for layer, _ in found)
    both = {backward for _, backward in found} == {False, True}
    if both and numbers > 1 and any(place.stack_per_direction for place in places.values()):
        raise UnsupportedError(
            f"{groups[0]} has a stack for each direction, and their outputs are merged only at the "
            "end; a stack here merges the directions of each layer. Give the scope of one direction"
        )
    directions = sorted({backward for _, backward in found})
    layers = [[(n, backward) for backward in directions] for n in range(numbers)]
    missing = [where for layer in layers for where in layer if where not in found]
    if missing:
        n, backward = missing[0]
        raise ValueError(
            f"{groups[0]} has no {name} in layer {n}, {'backward' if backward else 'forward'}"
        )
    return [[found[where] for where in layer] for layer in layers]
