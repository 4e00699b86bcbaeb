"""Weights from the files of each framework, for the command line.

Each reader finds the recurrent layers in a file by name and gives those that are asked for: one,
or several, which become a stack.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tf_blockrnn.weights._damage import said, whole
from tf_blockrnn.weights._h5 import DAMAGE, H5Layer, layers_of, units_of
from tf_blockrnn.weights.layer import RecurrentWeights, UnsupportedError

_T = TypeVar("_T")


class UsageError(ValueError):
    """What was asked for does not go together, or does not say enough."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What the reader of a file is told beside its name.

    Args:
      layers: names of layers; none where there is but one.
      cell: where the file does not say it: what the reader's framework calls it.
      scope, forget_bias: of a TensorFlow 1 checkpoint.
      cell_clip: of a TensorFlow 1 checkpoint or Keras' HDF5 weights.
      reset: of Keras' HDF5 weights of a gru without biases: "before" or "after" the product.
    """

    layers: tuple[str, ...] = ()
    cell: str | None = None
    scope: str | None = None
    forget_bias: float | None = None
    cell_clip: float | None = None
    reset: str | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a file has.

    Args:
      weights: of the layers asked for.
      layers: their names in the file.
      reverse: whether they go from the last step to the first, and only so.
      notes: what the file says of them, or does not, that is no part of the weights.
    """

    weights: RecurrentWeights
    layers: tuple[str, ...]
    reverse: bool = False
    notes: tuple[str, ...] = ()


def stacked(parts: Sequence[RecurrentWeights]) -> RecurrentWeights:
    """Joins stacks, from the input up, to one."""
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


def _kind(weights: RecurrentWeights) -> str:
    clip = f", cell_clip={weights.cell_clip:g}" if weights.cell_clip else ""
    reset = "" if weights.reset_after is None else f", reset_after={weights.reset_after}"
    return weights.cell + reset + clip


def _chosen(found: Mapping[str, _T], wanted: Sequence[str], what: str = "layer") -> dict[str, _T]:
    """Those that are wanted, in that order; the only one where nothing is."""
    if not found:
        raise UsageError(f"the file has no recurrent {what}")
    names = ", ".join(name or '""' for name in found)
    if not wanted:
        if len(found) > 1:
            raise UsageError(
                f"the file has several recurrent {what}s: {names}. Choose with --layer; several, "
                "with commas between, become a stack"
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


def _read_keras(path: str, question: Question) -> Answer:
    import keras

    from tf_blockrnn import layers  # registers ours
    from tf_blockrnn.weights._keras_layers import check_computes_as_known
    from tf_blockrnn.weights.keras import from_keras

    del layers
    # Of a config Keras takes what it finds for what should be there: hence the AttributeError.
    with whole("Keras model", *DAMAGE, AttributeError):
        try:
            model = keras.models.load_model(path, compile=False)
        except TypeError as error:
            unknown = re.search(r"Could not locate class '(\w+)'", str(error))
            if unknown is None:
                raise
            # Keras adds the whole model's config.
            raise ValueError(
                f"the model has a class that is not known here, {unknown[1]}; save its weights, "
                "model.save_weights('model.weights.h5'), and convert that file"
            ) from None
    chosen = _chosen(dict(_recurrent_layers(model)), question.layers)
    for layer in chosen.values():  # of one that goes backwards the cell alone is read below
        check_computes_as_known(layer)
    backwards = [getattr(layer, "go_backwards", False) for layer in chosen.values()]
    if any(backwards) and len(chosen) > 1:
        # Keras gives the outputs in the order in which it made them, so that the layer above such
        # a layer would read them the other way round.
        raise UnsupportedError("a layer with go_backwards can be no part of a stack")
    notes = [
        f"{name}: merge_mode {layer.merge_mode!r} is no weight and stays behind"
        for name, layer in chosen.items()
        if getattr(layer, "merge_mode", "concat") != "concat"
    ]
    sources = [layer.cell if any(backwards) else layer for layer in chosen.values()]
    return Answer(from_keras(sources), tuple(chosen), any(backwards), tuple(notes))


def _read_h5(path: str, question: Question) -> Answer:
    import h5py

    with h5py.File(path, "r") as file:
        with whole("HDF5 file", *DAMAGE):
            has_model = "model_config" in file.attrs
        if has_model:
            _refuse_useless(question, _KINDS[".keras"])
            return _read_keras(path, question)
        chosen = _chosen(layers_of(file), question.layers)
    parts = [_from_h5(layer, question, name) for name, layer in chosen.items()]
    note = (
        "the file has weights alone: activations, go_backwards and an lstm's clip (--cell-clip) "
        "are not in it"
    )
    return Answer(stacked(parts), tuple(chosen), notes=(note,))


def _from_h5(layer: H5Layer, question: Question, name: str) -> RecurrentWeights:
    from tf_blockrnn.weights.keras import from_keras

    arrays = layer.parts()
    cell = _cell_of_gates(layer.cells[0].arrays, question.cell, name)
    if question.reset and cell != "gru":
        raise UsageError(f"--reset is for a gru, {name} is of the cell {cell}")
    try:
        return from_keras(
            arrays,
            cell=cell,
            reset_after=question.reset == "after" if question.reset else None,
            cell_clip=question.cell_clip or 0.0,
            bidirectional=layer.backward is not None,
        )
    except ValueError as error:
        if "reset_after must be given" in str(error):
            raise UsageError(
                f"{name}: say with --reset whether the gru resets before or after the product, "
                "which the file does not tell without biases"
            ) from None
        raise


def _cell_of_gates(arrays: list[np.ndarray], given: str | None, name: str) -> str:
    gates = arrays[1].shape[1] // units_of(arrays)
    if given is None and gates not in (3, 4):
        raise UsageError(f"{name} has {gates} gate(s): say with --cell which cell it is")
    return given or {3: "gru", 4: "lstm"}[gates]


# ---- PyTorch


def _state_dict(path: str) -> dict[str, Any]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's, torch's and zipfile's own kinds
        # pickle's come with advice of PyTorch's, how to let the file run its code.
        cause = "" if isinstance(error, pickle.UnpicklingError) else f": {said(error)}"
        raise ValueError(
            "the file is no state dict, torch.save(module.state_dict(), ...), that PyTorch loads "
            f"without running code{cause}"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise ValueError(f"the file has no state dict, but {type(found).__name__}")
    return dict(found)


def _read_torch(path: str, question: Question) -> Answer:
    from tf_blockrnn.weights.torch import from_torch

    state = _state_dict(path)
    own = re.compile(r"(.*?)(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)(_l\d+(_reverse)?)?")
    prefixes = {key: match[1] for key in state if (match := own.fullmatch(key))}
    found = {prefix.rstrip("."): prefix for prefix in prefixes.values()}
    chosen = _chosen(found, question.layers)
    parts, notes = [], []
    for name, prefix in chosen.items():
        arrays = state
        if not prefix:  # where the state dict of a whole model has all of its other parts too
            arrays = {key: state[key] for key, above in prefixes.items() if not above}
            if others := [key for key in state if key not in arrays]:
                notes.append(f"the state dict also has what stays behind: {', '.join(others)}")
        try:
            parts.append(from_torch(arrays, cell=question.cell, prefix=prefix))
        except ValueError as error:
            if "cell must be given" in str(error):
                raise UsageError(f"{name}: say with --cell which cell it is: {error}") from None
            raise
    return Answer(stacked(parts), tuple(chosen), notes=tuple(notes))


# ---- ONNX, TensorFlow 1, our own


def _read_onnx(path: str, question: Question) -> Answer:
    import onnx
    from google.protobuf.message import DecodeError

    from tf_blockrnn.weights.onnx import from_layer, onnx_layers

    try:
        model = onnx.load(path)
    except DecodeError as error:
        raise ValueError(f"the file is no ONNX model: {error}") from None
    nodes = _chosen(onnx_layers(model), question.layers, "node")
    reverse = {node.direction == "reverse" for node in nodes.values()}
    if len(reverse) > 1:
        raise UnsupportedError("some nodes go in reverse and some do not: that is no stack here")
    parts = [from_layer(node, name, reverse=True) for name, node in nodes.items()]
    notes = [
        f"{name}: {state} is computed by the graph, or given to it, and stays behind"
        for name, node in nodes.items()
        for state, value in node.states.items()
        if value is None
    ]
    return Answer(stacked(parts), tuple(nodes), reverse.pop(), tuple(notes))


def _read_tf1(path: str, question: Question) -> Answer:
    from tf_blockrnn.weights.tf1 import from_tf1, list_tf1

    if question.layers:
        raise UsageError("a TensorFlow 1 checkpoint has scopes: use --scope, not --layer")
    cell, scope = question.cell, question.scope or ""
    if cell is None:
        held = list_tf1(path)
        below = [c for c in held if f"{c.scope}/".startswith(f"{scope}/".lstrip("/"))]
        listed = "; ".join(f"{c.scope}: {' or '.join(c.cells)}" for c in below or held)
        raise UsageError(
            "say with --cell whose variables to read: "
            + (f"it holds {listed}" if held else "the checkpoint has no cell of a known name")
        )
    weights = from_tf1(
        path,
        cell=cell,
        scope=scope,
        forget_bias=question.forget_bias,
        cell_clip=question.cell_clip or 0.0,
    )
    return Answer(weights, (scope or cell,))


def _read_npz(path: str, question: Question) -> Answer:
    from tf_blockrnn.weights.npz import from_npz

    return Answer(from_npz(path), (pathlib.Path(path).stem,))


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of file: its reader and the options that it has a use for."""

    name: str
    read: Callable[[str, Question], Answer]
    options: frozenset[str]


_TF1 = _Kind(
    "a TensorFlow 1 checkpoint",
    _read_tf1,
    frozenset({"layers", "cell", "scope", "forget_bias", "cell_clip"}),
)
_KINDS = {
    ".keras": _Kind("a Keras model", _read_keras, frozenset({"layers"})),
    ".h5": _Kind(
        "a Keras file of HDF5", _read_h5, frozenset({"layers", "cell", "cell_clip", "reset"})
    ),
    ".pt": _Kind("a PyTorch state dict", _read_torch, frozenset({"layers", "cell"})),
    ".pth": _Kind("a PyTorch state dict", _read_torch, frozenset({"layers", "cell"})),
    ".onnx": _Kind("an ONNX model", _read_onnx, frozenset({"layers"})),
    ".npz": _Kind("weights of tf_blockrnn", _read_npz, frozenset()),
}


def _kind_of(path: str) -> tuple[str, _Kind]:
    """The path, and what kind of file it is."""
    if re.search(r"\.(index|data-\d+-of-\d+)$", path):
        path = path.rpartition(".")[0]
    if os.path.exists(f"{path}.index"):
        return path, _TF1
    if not os.path.exists(path):
        raise UsageError(f"{path}: there is no such file")
    if os.path.isdir(path) and os.path.exists(os.path.join(path, "checkpoint")):
        return path, _TF1
    kind = _KINDS.get(pathlib.Path(path).suffix)
    if kind is None:
        raise UsageError(
            f"{path}: expected {', '.join(_KINDS)} or the prefix of a TensorFlow 1 checkpoint"
        )
    return path, kind


def _refuse_useless(question: Question, kind: _Kind) -> None:
    for field in dataclasses.fields(question):
        given = getattr(question, field.name)
        if given not in (None, ()) and field.name not in kind.options:
            option = field.name.replace("_", "-").replace("layers", "layer")
            raise UsageError(f"--{option} is of no use with {kind.name}")


def read(path: str, question: Question) -> Answer:
    """Reads the weights in a file.

    Raises:
      UsageError: there is no such file, or the question does not fit it.
      UnsupportedError: the layers have what the weights here cannot say.
      Whatever the framework raises of a file that is damaged.
    """
    path, kind = _kind_of(path)
    _refuse_useless(question, kind)
    return kind.read(path, question)
