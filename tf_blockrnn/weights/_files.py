"""Readers of weights from the files of each framework, for the command line.

Each reader finds the recurrent layers in a file by name and returns the selected ones: one layer,
or several, which become a stack.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
import re
from collections.abc import Callable, Mapping
from typing import Any

from tf_blockrnn.weights._damage import first_line
from tf_blockrnn.weights._file_kinds import kind_of
from tf_blockrnn.weights._file_options import (
    FileContents,
    ReadOptions,
    UsageError,
    assumed_order,
    refuse_unused,
    select,
    stacked,
)
from tf_blockrnn.weights._keras_files import MODEL_OPTIONS, read_h5, read_keras
from tf_blockrnn.weights.layer import RecurrentWeights, UnsupportedError

# ---- PyTorch


def _state_dict(path: str) -> dict[str, Any]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # errors of pickle, torch and zipfile
        # Those of pickle contain PyTorch's advice how to let the file run code.
        cause = "" if isinstance(error, pickle.UnpicklingError) else f": {first_line(error)}"
        raise ValueError(
            "the file is not a state dict, torch.save(module.state_dict(), ...), that PyTorch can "
            f"load without running code{cause}"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise ValueError(f"the file has no state dict, but an object of {type(found).__name__}")
    return dict(found)


def _is_of_haste(state: Mapping[str, Any], prefix: str) -> bool:
    """Whether haste's layer with layer normalisation has its weights below the prefix."""
    return all(f"{prefix}{name}" in state for name in ("kernel", "recurrent_kernel", "gamma"))


def _read_haste(state: Mapping[str, Any], prefix: str, options: ReadOptions) -> RecurrentWeights:
    from tf_blockrnn.weights.haste import NAMES, from_haste

    # The state dict of a model also has the keys of its other parts.
    weights = from_haste(
        {name: state[f"{prefix}{name}"] for name in NAMES if f"{prefix}{name}" in state}
    )
    if options.cell not in (None, weights.cell):
        raise UsageError(f"--cell is {options.cell}, the weights are of haste's {weights.cell}")
    return weights


def _read_torch(path: str, options: ReadOptions) -> FileContents:
    from tf_blockrnn.weights.torch import from_torch

    state = _state_dict(path)
    own = re.compile(
        r"(.*?)((weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)(_l\d+(_reverse)?)?|gamma)"
    )
    prefixes = {
        key: match[1]
        for key in state
        if (match := own.fullmatch(key)) and (match[3] or _is_of_haste(state, match[1]))
    }
    found = {prefix.rstrip("."): prefix for prefix in prefixes.values()}
    chosen = select(found, options.layers)
    parts, notes = [], []
    for name, prefix in chosen.items():
        if _is_of_haste(state, prefix):
            parts.append(_read_haste(state, prefix, options))
            notes.append(f"assumed: {name or 'the module'} is of haste_pytorch, by its names")
            continue
        arrays = state
        if not prefix:  # the state dict of a model also has the keys of its other parts
            arrays = {key: state[key] for key, above in prefixes.items() if not above}
            if others := [key for key in state if key not in arrays]:
                notes.append(f"not converted from the state dict: {', '.join(others)}")
        try:
            parts.append(from_torch(arrays, cell=options.cell, prefix=prefix))
        except ValueError as error:
            if "cell must be given" in str(error):
                raise UsageError(f"{name}: specify its cell with --cell: {error}") from None
            raise
    if not all(_is_of_haste(state, prefix) for prefix in chosen.values()):
        notes.append(
            "assumed: modules of PyTorch's own classes, whose weights are all that a state dict has"
        )
    notes += assumed_order(chosen)
    return FileContents(stacked(parts), tuple(chosen), notes=tuple(notes))


# ---- ONNX, TensorFlow 1, our own


def _read_onnx(path: str, options: ReadOptions) -> FileContents:
    import onnx
    from google.protobuf.message import DecodeError

    from tf_blockrnn.weights._onnx_graph import check_stack
    from tf_blockrnn.weights._onnx_nodes import named_nodes, read_node
    from tf_blockrnn.weights.onnx import from_onnx

    try:
        model = onnx.load(path)
    except DecodeError as error:
        raise ValueError(f"the file is not an ONNX model: {error}") from None
    chosen = select(named_nodes(model), options.layers, "node")
    check_stack(model, list(chosen.values()))
    nodes = {name: read_node(found) for name, found in chosen.items()}
    reverse = {node.direction == "reverse" for node in nodes.values()}
    if len(reverse) > 1:
        raise UnsupportedError("the nodes of a stack must all be reverse or all forward")
    parts = [from_onnx(node, reverse=True) for node in nodes.values()]
    notes = [
        f"{name}: {state} is computed by the graph or is its input, and is not converted"
        for name, node in nodes.items()
        for state, value in node.states.items()
        if value is None
    ]
    return FileContents(stacked(parts), tuple(nodes), reverse.pop(), tuple(notes))


def _read_tf1(path: str, options: ReadOptions) -> FileContents:
    from tf_blockrnn.weights._tf1_checkpoint import CELLS
    from tf_blockrnn.weights.tf1 import from_tf1, list_tf1

    if options.layers:
        raise UsageError("a TensorFlow 1 checkpoint has scopes: use --scope, not --layer")
    cell, scope = options.cell, options.scope or ""
    if cell is None:
        held = list_tf1(path)
        below = [c for c in held if f"{c.scope}/".startswith(f"{scope}/".lstrip("/"))]
        listed = "; ".join(f"{c.scope}: {' or '.join(c.cells)}" for c in below or held)
        raise UsageError(
            "specify with --cell whose variables to read: "
            + (f"it holds {listed}" if held else "the checkpoint has no cell of a known name")
        )
    weights = from_tf1(
        path,
        cell=cell,
        scope=scope,
        forget_bias=options.forget_bias,
        cell_clip=options.cell_clip or 0.0,
    )
    return FileContents(weights, (scope or cell,), notes=_assumptions_of_tf1(CELLS[cell], options))


def _assumptions_of_tf1(cell: Any, options: ReadOptions) -> tuple[str, ...]:
    """What a checkpoint does not record, and what is taken for it."""
    notes = []
    if cell.cell == "lstm":
        given = options.forget_bias
        notes.append(
            f"assumed: forget_bias={cell.forget_bias:g}, TensorFlow's default (--forget-bias)"
            if given is None
            else f"given: forget_bias={given:g}"
        )
    if cell.cell_clip and not options.cell_clip:
        notes.append(
            "assumed: no cell_clip (--cell-clip); the LSTM block cells of early releases clip at 3"
        )
    elif cell.cell_clip:
        notes.append(f"given: cell_clip={options.cell_clip:g}")
    if cell.cell == "lstm" and cell.projection:
        notes.append("assumed: no proj_clip, which would bound the projection")
    notes.append(
        f"assumed: the default activation, {'relu' if cell.cell == 'rnn_relu' else 'tanh'}; no "
        "wrapper that changes inputs or outputs; the directions and the order of the layers as "
        "the scopes name them"
    )
    return tuple(notes)


def _read_npz(path: str, options: ReadOptions) -> FileContents:
    from tf_blockrnn.weights.npz import from_npz

    return FileContents(from_npz(path), (pathlib.Path(path).stem,))


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of file: its reader and the options that apply to it."""

    name: str
    read: Callable[[str, ReadOptions], FileContents]
    options: frozenset[str]


_KINDS = {
    "keras": _Kind("a Keras model", read_keras, MODEL_OPTIONS),
    "h5": _Kind("a Keras HDF5 file", read_h5, frozenset({"layers", "cell", "cell_clip", "reset"})),
    "torch": _Kind("a PyTorch state dict", _read_torch, frozenset({"layers", "cell"})),
    "onnx": _Kind("an ONNX model", _read_onnx, frozenset({"layers"})),
    "npz": _Kind("weights of tf_blockrnn", _read_npz, frozenset()),
    "tf1": _Kind(
        "a TensorFlow 1 checkpoint",
        _read_tf1,
        frozenset({"layers", "cell", "scope", "forget_bias", "cell_clip"}),
    ),
}
# Decides only if the content is of no known format, so that the reader reports what is wrong.
_BY_ENDING = {
    ".keras": "keras",
    ".h5": "h5",
    ".hdf5": "h5",
    ".pt": "torch",
    ".pth": "torch",
    ".onnx": "onnx",
    ".npz": "npz",
}


def _kind_of(path: str) -> tuple[str, _Kind]:
    """The path, and the kind of the file."""
    if re.search(r"\.(index|data-\d+-of-\d+)$", path):
        path = path.rpartition(".")[0]
    if os.path.exists(f"{path}.index"):
        return path, _KINDS["tf1"]
    if not os.path.exists(path):
        raise UsageError(f"{path}: there is no such file")
    if os.path.isdir(path):
        if os.path.exists(os.path.join(path, "checkpoint")):
            return path, _KINDS["tf1"]
        raise UsageError(f"{path}: it is a folder without a TensorFlow 1 checkpoint")
    kind = kind_of(path) or _BY_ENDING.get(pathlib.Path(path).suffix)
    if kind is None:
        raise UsageError(
            f"{path}: its content is none of {', '.join(kind.name for kind in _KINDS.values())}"
        )
    return path, _KINDS[kind]


def read(path: str, options: ReadOptions) -> FileContents:
    """Reads the weights in a file.

    Raises:
      UsageError: there is no such file, or an option does not apply to it.
      UnsupportedError: RecurrentWeights cannot represent the layers.
      Any error that the framework raises for a corrupt file.
    """
    path, kind = _kind_of(path)
    refuse_unused(options, kind.name, kind.options)
    return kind.read(path, options)
