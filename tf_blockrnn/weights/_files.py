"""Readers of weights from the files of each framework, for the command line.

Each reader finds the recurrent layers in a file by name and returns the selected ones: one layer,
or several, which become a stack.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import pickle
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tf_blockrnn.weights._damage import first_line, intact
from tf_blockrnn.weights._file_kinds import kind_of
from tf_blockrnn.weights._h5 import DAMAGE, H5Layer, layers_of, units_of
from tf_blockrnn.weights.layer import RecurrentWeights, UnsupportedError

_T = TypeVar("_T")


class UsageError(ValueError):
    """The options contradict each other, or are not sufficient."""


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options for the reader of a file.

    Args:
      layers: names of layers; empty if the file has only one.
      cell: the framework's name of the cell, if the file does not record it.
      scope, forget_bias: for a TensorFlow 1 checkpoint.
      cell_clip: for a TensorFlow 1 checkpoint or Keras' HDF5 weights.
      reset: for Keras' HDF5 weights of a gru without biases: "before" or "after" the GEMM.
    """

    layers: tuple[str, ...] = ()
    cell: str | None = None
    scope: str | None = None
    forget_bias: float | None = None
    cell_clip: float | None = None
    reset: str | None = None


@dataclasses.dataclass(frozen=True)
class FileContents:
    """The contents of a file.

    Args:
      weights: those of the selected layers.
      layers: their names in the file.
      reverse: whether they are layers of one direction from the last step to the first.
      notes: properties of the layers, in the file or missing there, that are not part of weights.
    """

    weights: RecurrentWeights
    layers: tuple[str, ...]
    reverse: bool = False
    notes: tuple[str, ...] = ()


def stacked(parts: Sequence[RecurrentWeights]) -> RecurrentWeights:
    """Joins stacks, from the input up, into one.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._files import stacked
      >>> one = weights.DirectionWeights(np.ones([1, 4, 4]), np.ones([1, 4, 4]))
      >>> rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
      >>> stacked([rnn, rnn]).num_layers
      2
    """
    first = parts[0]
    for part in parts:
        if (part.cell, part.reset_after, part.cell_clip) != (
            first.cell,
            first.reset_after,
            first.cell_clip,
        ):
            raise UnsupportedError(
                f"the layers of a stack must be of one kind, got {_kind(first)} and {_kind(part)}"
            )
    layers = [layer for part in parts for layer in part.layers]
    return dataclasses.replace(first, layers=layers)


def _assumed_order(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """A note for files that do not record how layers are connected."""
    if len(chosen) < 2:
        return ()
    return (
        f"assumed: {', '.join(chosen)} feed one another in this order, and nothing is between them",
    )


def _kind(weights: RecurrentWeights) -> str:
    clip = f", cell_clip={weights.cell_clip:g}" if weights.cell_clip else ""
    reset = "" if weights.reset_after is None else f", reset_after={weights.reset_after}"
    return weights.cell + reset + clip


def _chosen(found: Mapping[str, _T], wanted: Sequence[str], what: str = "layer") -> dict[str, _T]:
    """The selected layers, in that order; the only layer if none is selected."""
    if not found:
        raise UsageError(f"the file has no recurrent {what}")
    names = ", ".join(name or '""' for name in found)
    if not wanted:
        if len(found) > 1:
            raise UsageError(
                f"the file has several recurrent {what}s: {names}. Select with --layer; several, "
                "separated by commas, become a stack"
            )
        return dict(found)
    for name in wanted:
        if name not in found:
            raise UsageError(f"the file has no recurrent {what} {name!r}; it has {names}")
        if list(wanted).count(name) > 1:
            raise UsageError(f"--layer has {name!r} more than once")
    return {name: found[name] for name in wanted}


# ---- Keras


def _recurrent_layers(layer: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    import keras

    for inner in getattr(layer, "layers", None) or [getattr(layer, "layer", None)]:
        if inner is None or inner is layer:
            continue
        name = prefix + inner.name
        if isinstance(inner, (keras.layers.RNN, keras.layers.Bidirectional)):
            yield name, inner
        else:
            yield from _recurrent_layers(inner, name + "/")


@contextlib.contextmanager
def _with_ending(path: str, ending: str) -> Iterator[str]:
    """The path, or one with the ending by which Keras recognizes a file.

    A copy of an HDF5 model of Keras 2 has a config that Keras 3 can read.
    """
    before = after = ""
    if ending == ".h5":
        from tf_blockrnn.weights._keras_2_layers import for_keras_3

        before = _model_config(path)
        after = for_keras_3(before)
    changed = bool(before) and json.loads(before) != json.loads(after)
    if path.endswith(ending) and not changed:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        named = os.path.join(folder, f"model{ending}")
        if changed:
            import h5py

            shutil.copyfile(path, named)
            with h5py.File(named, "r+") as file:
                file.attrs["model_config"] = after
        else:
            os.symlink(os.path.abspath(path), named)
        yield named


def _model_config(path: str) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        config = file.attrs["model_config"]
    return config.decode() if isinstance(config, bytes) else str(config)


def _read_keras(path: str, options: ReadOptions, ending: str = ".keras") -> FileContents:
    import keras

    from tf_blockrnn import layers  # registers ours
    from tf_blockrnn.weights._keras_2_layers import CUSTOM_OBJECTS
    from tf_blockrnn.weights._keras_graph import check_stack, has_initial_state
    from tf_blockrnn.weights._keras_layers import check_computes_as_known, from_layers

    del layers
    # Keras does not check the types in a config: hence the AttributeError.
    with intact("Keras model", *DAMAGE, AttributeError), _with_ending(path, ending) as named:
        try:
            with keras.saving.custom_object_scope(CUSTOM_OBJECTS):
                model = keras.models.load_model(named, compile=False)
        except UnsupportedError:
            raise
        except (TypeError, ValueError) as error:
            unknown = re.search(
                r"Could not locate class '(\w+)'|Unknown layer: '(\w+)'", str(error)
            )
            if unknown is None:
                raise
            # Keras adds the whole model's config.
            raise ValueError(
                f"the model has an unknown class, {unknown[1] or unknown[2]}; save its weights, "
                "model.save_weights('model.weights.h5'), and convert that file"
            ) from None
    chosen = _chosen(dict(_recurrent_layers(model)), options.layers)
    for layer in chosen.values():  # of a layer that goes backwards only the cell is read below
        check_computes_as_known(layer)
    check_stack(list(chosen.values()), model)
    backwards = [getattr(layer, "go_backwards", False) for layer in chosen.values()]
    if any(backwards) and len(chosen) > 1:
        # Keras returns the outputs in the order of processing, so the layer above such a layer
        # would read them in reverse order.
        raise UnsupportedError("a layer with go_backwards cannot be part of a stack")
    notes = [
        f"{name}: merge_mode {layer.merge_mode!r} is not a weight and is not converted"
        for name, layer in chosen.items()
        if getattr(layer, "merge_mode", "concat") != "concat"
    ]
    notes += [
        f"{name}: its initial state is computed by the model or is its input, and is not converted"
        for name, layer in chosen.items()
        if has_initial_state(layer)
    ]
    sources = [layer.cell if any(backwards) else layer for layer in chosen.values()]
    return FileContents(from_layers(sources), tuple(chosen), any(backwards), tuple(notes))


def _read_h5(path: str, options: ReadOptions) -> FileContents:
    import h5py

    with h5py.File(path, "r") as file:
        with intact("HDF5 file", *DAMAGE):
            has_model = "model_config" in file.attrs
        if has_model:
            _refuse_unused(options, _KINDS["keras"])
            return _read_keras(path, options, ending=".h5")
        chosen = _chosen(layers_of(file), options.layers)
    parts = [_from_h5(layer, options, name) for name, layer in chosen.items()]
    notes = (
        "the file has only weights: activations, go_backwards and an lstm's clip (--cell-clip) "
        "are not in it",
        "assumed: layers of Keras' own classes with their default activations in Keras 3, tanh and "
        "sigmoid; before 2.3 the default recurrent_activation of Keras' LSTM and GRU was another",
        *_assumed_order(chosen),
    )
    return FileContents(stacked(parts), tuple(chosen), notes=notes)


def _from_h5(layer: H5Layer, options: ReadOptions, name: str) -> RecurrentWeights:
    from tf_blockrnn.weights.keras import from_keras

    arrays = layer.parts()
    cell = _cell_of_gates(layer.cells[0].arrays, options.cell, name)
    if options.reset and cell != "gru":
        raise UsageError(f"--reset is for a gru, {name} is of the cell {cell}")
    try:
        return from_keras(
            arrays,
            cell=cell,
            reset_after=options.reset == "after" if options.reset else None,
            cell_clip=options.cell_clip or 0.0,
            bidirectional=layer.backward is not None,
        )
    except ValueError as error:
        if "reset_after must be given" in str(error):
            raise UsageError(
                f"{name}: specify with --reset whether the gru resets before or after the GEMM, "
                "which a file without biases does not record"
            ) from None
        raise


def _cell_of_gates(arrays: list[np.ndarray], given: str | None, name: str) -> str:
    gates = arrays[1].shape[1] // units_of(arrays)
    if given is None and gates not in (3, 4):
        raise UsageError(f"{name} has {gates} gate(s): specify its cell with --cell")
    return given or {3: "gru", 4: "lstm"}[gates]


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


def _read_torch(path: str, options: ReadOptions) -> FileContents:
    from tf_blockrnn.weights.torch import from_torch

    state = _state_dict(path)
    own = re.compile(r"(.*?)(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)(_l\d+(_reverse)?)?")
    prefixes = {key: match[1] for key in state if (match := own.fullmatch(key))}
    found = {prefix.rstrip("."): prefix for prefix in prefixes.values()}
    chosen = _chosen(found, options.layers)
    parts, notes = [], []
    for name, prefix in chosen.items():
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
    notes += [
        "assumed: modules of PyTorch's own classes, whose weights are all that a state dict has",
        *_assumed_order(chosen),
    ]
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
    chosen = _chosen(named_nodes(model), options.layers, "node")
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
    "keras": _Kind("a Keras model", _read_keras, frozenset({"layers"})),
    "h5": _Kind("a Keras HDF5 file", _read_h5, frozenset({"layers", "cell", "cell_clip", "reset"})),
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


def _refuse_unused(options: ReadOptions, kind: _Kind) -> None:
    for field in dataclasses.fields(options):
        given = getattr(options, field.name)
        if given not in (None, ()) and field.name not in kind.options:
            option = field.name.replace("_", "-").replace("layers", "layer")
            raise UsageError(f"--{option} does not apply to {kind.name}")


def read(path: str, options: ReadOptions) -> FileContents:
    """Reads the weights in a file.

    Raises:
      UsageError: there is no such file, or an option does not apply to it.
      UnsupportedError: RecurrentWeights cannot represent the layers.
      Any error that the framework raises for a corrupt file.
    """
    path, kind = _kind_of(path)
    _refuse_unused(options, kind)
    return kind.read(path, options)
