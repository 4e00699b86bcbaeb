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

from tf_blockrnn.weights._checks import (
    UnsupportedError,
    intact,
    stack_per_direction,
    wrong_source,
)
from tf_blockrnn.weights._tf1_table import check_checkpoint, check_regular


class Variable(NamedTuple):
    """A variable of a cell: the matrices or the bias in it, and the gates of its columns.

    Args:
      name: below the scope of the cell.
      fields: of DirectionWeights, one below the other, or "bias" for b_x + b_h.
      gates: by the names of RecurrentWeights.
      early: the prefix of the names of the two biases that the Cudnn layers of early releases save
        in addition.
    """

    name: str
    fields: tuple[str, ...]
    gates: str
    early: str = ""


def _pair(kernel: str, bias: str, gates: str, early: str = "") -> tuple[Variable, Variable]:
    """The kernel of x and h, and the bias, of some gates."""
    return Variable(kernel, ("w_x", "w_h"), gates), Variable(bias, ("bias",), gates, early)


_INPUT, _HIDDEN = "candidate/input_projection/", "candidate/hidden_projection/"
# The variables of each form of cells; the first one identifies a scope.
FORMS = {
    "rnn": _pair("kernel", "bias", "h", "bias_cudnn_"),
    "lstm": _pair("kernel", "bias", "icfo", "bias_cudnn_"),
    "gru": (
        *_pair("gates/kernel", "gates/bias", "ru"),
        *_pair("candidate/kernel", "candidate/bias", "c"),
    ),
    "gru_block": (*_pair("w_ru", "b_ru", "ru"), *_pair("w_c", "b_c", "c")),
    "gru_cudnn": (
        *_pair("gates/kernel", "gates/bias", "ru", "bias_cudnn "),
        Variable(f"{_INPUT}kernel", ("w_x",), "c"),
        Variable(f"{_INPUT}bias", ("b_x",), "c"),
        Variable(f"{_HIDDEN}kernel", ("w_h",), "c"),
        Variable(f"{_HIDDEN}bias", ("b_h",), "c"),
    ),
}
PEEPHOLES = ("w_i_diag", "w_f_diag", "w_o_diag")
PROJECTION = "projection/kernel"


@dataclasses.dataclass(frozen=True)
class Cell:
    """The variables of a cell, and its features."""

    cell: str  # the cell of RecurrentWeights
    form: str  # a key of FORMS
    scope: str  # the default name of its scope
    forget_bias: float = 0.0
    has: tuple[str, ...] = ()  # of peepholes, projection and cell_clip
    cudnn: bool = False


_BLOCK_CELL_HAS = ("peepholes", "cell_clip")
CELLS = {
    "BasicRNNCell": Cell("rnn_tanh", "rnn", "basic_rnn_cell"),
    "GRUCell": Cell("gru", "gru", "gru_cell"),
    "GRUBlockCell": Cell("gru", "gru_block", "gru_cell"),
    "GRUBlockCellV2": Cell("gru", "gru", "gru_cell"),
    "BasicLSTMCell": Cell("lstm", "lstm", "basic_lstm_cell", 1.0),
    "LSTMCell": Cell("lstm", "lstm", "lstm_cell", 1.0, ("projection", *_BLOCK_CELL_HAS)),
    "LSTMBlockCell": Cell("lstm", "lstm", "lstm_cell", 1.0, _BLOCK_CELL_HAS),
    "LSTMBlockFusedCell": Cell("lstm", "lstm", "lstm_fused_cell", 1.0, _BLOCK_CELL_HAS),
    "CudnnLSTM": Cell("lstm", "lstm", "cudnn_compatible_lstm_cell", cudnn=True),
    "CudnnGRU": Cell("gru", "gru_cudnn", "cudnn_compatible_gru_cell", cudnn=True),
    "CudnnRNNTanh": Cell("rnn_tanh", "rnn", "basic_rnn_cell", cudnn=True),
    "CudnnRNNRelu": Cell("rnn_relu", "rnn", "basic_rnn_cell", cudnn=True),
}

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


def _reader(path: str) -> Any:
    """TensorFlow's reader of the checkpoint at a path, or of the latest one in a folder."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    of_folder = os.path.isdir(path) and not os.path.exists(f"{path}.index")
    latest = _latest(path) if of_folder else path
    # TensorFlow looks for an index by the path as a pattern, and reads that of the path itself.
    if latest and re.search(r"[\[\\]", latest) and os.path.exists(f"{latest}.index"):
        raise UnsupportedError(f"{latest}.index: TensorFlow finds none with [ or \\ in its path")
    with intact("TensorFlow checkpoint", LookupError, ValueError, DecodeError):
        pattern = latest and check_checkpoint(latest, tf.io.gfile.glob)
    if pattern:
        # Not load_checkpoint: where there is a folder of this name, that reads the one in there.
        return tf.compat.v1.train.NewCheckpointReader(pattern)
    if of_folder:
        raise ValueError(f"{path}: the folder has no checkpoint that is complete")
    raise tf.errors.NotFoundError(None, None, f"{path}: there is no such checkpoint")


def _latest(folder: str) -> str | None:
    """The path of the checkpoint that the file `checkpoint` in a folder names."""
    import tensorflow as tf

    if os.path.exists(name := os.path.join(folder, "checkpoint")):
        check_regular(name)
    state = tf.train.get_checkpoint_state(folder)
    if state is None:
        return None
    latest = state.model_checkpoint_path
    if os.path.realpath(os.path.dirname(latest)) != os.path.realpath(folder):
        raise ValueError(f"{folder}: the folder names a checkpoint that is not in it, {latest}")
    return latest


class Checkpoint:
    """The variables of a checkpoint by their names in later releases."""

    def __init__(self, source: Any):
        if isinstance(source, (str, os.PathLike)):
            source = _reader(os.fspath(source))
        if not hasattr(source, "get_variable_to_shape_map"):
            kinds = "the path of a checkpoint or the result of tf.train.load_checkpoint"
            raise wrong_source("from_tf1", kinds, source)
        self.reader = source
        self.shapes = {
            name: tuple(shape) for name, shape in source.get_variable_to_shape_map().items()
        }
        # Where a scope has both names, the earlier one is of another variable.
        self._names = {
            name if (later := _later_name(name)) in self.shapes else later: name
            for name in self.shapes
        }

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
    return join(scope, leaf)


def join(scope: str, name: str) -> str:
    return f"{scope}/{name}" if scope else name


def variables_of(checkpoint: Checkpoint, scope: str, cell: Cell) -> dict[Variable, str] | None:
    """The variables in this scope by their names in the checkpoint; None if one is missing."""
    found = {variable: join(scope, variable.name) for variable in FORMS[cell.form]}
    if any(name not in checkpoint for name in found.values()):
        return None
    if cell.form == "gru_block":
        gates, _, candidate, _ = found
        wide, narrow = (checkpoint.shape(found[variable]) for variable in (gates, candidate))
        if wide[-1:] < narrow[-1:]:  # the two have each other's name
            found |= {gates: found[candidate], candidate: found[gates]}
    return found


def _has_others(checkpoint: Checkpoint, scope: str, cell: Cell) -> bool:
    """Whether a scope has variables that such a cell does not have, except those of optimizers."""
    if not scope:  # the scope of all variables of the model
        return False
    known = [PROJECTION, *PEEPHOLES, *(variable.name for variable in FORMS[cell.form])]
    known += [f"bias_cudnn{mark}{n}" for mark in "_ " for n in (0, 1)]
    below = [name.removeprefix(f"{scope}/") for name in checkpoint if name.startswith(f"{scope}/")]
    # An optimizer and a moving average save variables below those of the cell.
    return any(not any(own == k or own.startswith(f"{k}/") for k in known) for own in below)


def sizes_of(checkpoint: Checkpoint, scope: str, cell: Cell) -> tuple[int, int] | None:
    """(I, H) given by the shapes of the variables in this scope; None if another cell's."""
    variables = variables_of(checkpoint, scope, cell)
    if variables is None or _has_others(checkpoint, scope, cell):
        return None
    projection = join(scope, PROJECTION)
    if "peepholes" not in cell.has and any(join(scope, name) in checkpoint for name in PEEPHOLES):
        return None
    if "projection" not in cell.has and projection in checkpoint:
        return None
    shapes = {variable: checkpoint.shape(name) for variable, name in variables.items()}
    if any(len(shape) not in (1, 2) for shape in shapes.values()):
        return None
    first, *_, last = shapes  # a kernel of x and h, and a bias
    units = shapes[last][0] // len(last.gates)
    width = units
    if projection in checkpoint:
        width = (0, *checkpoint.shape(projection))[-1]
    rows = {"w_x": shapes[first][0] - width, "w_h": width}
    for variable, shape in shapes.items():
        columns, is_bias = len(variable.gates) * units, variable.fields[0] not in rows
        height = sum(rows.get(field, 0) for field in variable.fields)
        if shape != ((columns,) if is_bias else (height, columns)):
            return None
    return (rows["w_x"], units) if rows["w_x"] > 0 else None


_LAYER = re.compile("cell_(0|[1-9][0-9]*)")


class _Place(NamedTuple):
    """The position of a cell in a network, given by the name of its scope."""

    group: str  # the name without the number of the layer and the direction
    layer: int
    backward: bool
    stack_per_direction: bool  # fw and bw come before the layer's number


def _place(scope: str) -> _Place:
    parts = scope.split("/")
    cells = [n for n, part in enumerate(parts) if _LAYER.fullmatch(part)]
    direction_parts = [n for n, part in enumerate(parts) if part in ("fw", "bw")]
    layer = int(parts[cells[-1]].removeprefix("cell_")) if cells else 0
    backward = bool(direction_parts) and parts[direction_parts[-1]] == "bw"
    outside = bool(cells and direction_parts) and direction_parts[-1] < cells[-1]
    for n in cells[-1:] + direction_parts[-1:]:
        parts[n] = "*"
    return _Place("/".join(parts), layer, backward, outside)


def _name(scope: str) -> str:
    """The name of a scope, without the number at its end."""
    return re.sub(r"_[0-9]+\Z", "", scope.rpartition("/")[2])


def fitting(checkpoint: Checkpoint, scope: str, cell: Cell) -> list[str]:
    """The scopes below this one with the name and the variables of such a cell.

    The variables alone do not identify a cell: a dense layer has a kernel and a bias too, and the
    kernel of a cell with three gates may have the shape of an LSTM's.
    """
    mark = f"/{FORMS[cell.form][0].name}"
    below = [name.removesuffix(mark) for name in sorted(checkpoint) if name.endswith(mark)]
    return [
        own
        for own in below
        if own.startswith(f"{scope}/" if scope else "")
        and _name(own) == cell.scope
        and sizes_of(checkpoint, own, cell)
    ]


def candidates(checkpoint: Checkpoint, scope: str, cell: Cell) -> list[str]:
    """The scopes to read such cells from: this one, or those below it.

    Refuses this one if it has the name of another kind of cell.
    """
    if sizes_of(checkpoint, scope, cell):
        name = _name(scope)
        if name != cell.scope and name in _OTHER_CELLS | {one.scope for one in CELLS.values()}:
            raise UnsupportedError(
                f"the scope {scope!r} has the name of another kind of cell, {name}"
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
    if len(found) < len(scopes):
        raise ValueError(f"{groups[0]} has two {name} for one layer and direction")
    numbers = 1 + max(layer for layer, _ in found)
    both = {backward for _, backward in found} == {False, True}
    if both and numbers > 1 and any(place.stack_per_direction for place in places.values()):
        error = stack_per_direction(groups[0])
        raise UnsupportedError(f"{error}. Give the scope of one direction")
    directions = sorted({backward for _, backward in found})
    wanted = ((n, backward) for n in range(numbers) for backward in directions)
    if missing := next((where for where in wanted if where not in found), None):
        n, backward = missing
        raise ValueError(
            f"{groups[0]} has no {name} in layer {n}, {'backward' if backward else 'forward'}"
        )
    return [[found[n, backward] for backward in directions] for n in range(numbers)]
