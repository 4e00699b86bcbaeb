"""Inspection of recurrent layers of Keras, tf_keras and this package: their cells and weights.

A layer is an object, or its config in a file. `KerasLayer` is what both have in common, so neither
Keras nor tf_keras is imported here.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, short, stack_per_direction
from tf_blockrnn.weights._formats import first_of_one_kind
from tf_blockrnn.weights._keras_arrays import parse, to_direction
from tf_blockrnn.weights.layer import LayerWeights, RecurrentWeights

# The frameworks whose classes compute as known here, by the first part of a class's module.
FRAMEWORKS = ("keras", "tf_keras", "tf_blockrnn")

CUDNN = ("CuDNNLSTM", "CuDNNGRU")
MERGE_MODES = ("concat", "sum", "ave", "mul", None)
# The layers that have one cell of the same name, and all recurrent layers.
CELL_LAYERS = ("GRU", "LSTM", "SimpleRNN", "LayerNormGRU", "LayerNormLSTM")
LAYERS = (*CELL_LAYERS, *CUDNN, "RNN", "Bidirectional")
# A CuDNNLSTM and CuDNNGRU has no cell: it is its own.
_CELL_KINDS = {
    **dict.fromkeys(("LSTMCell", "ExtendedLSTMCell", "CuDNNLSTM"), "lstm"),
    **dict.fromkeys(("GRUCell", "ExtendedGRUCell", "CuDNNGRU"), "gru"),
    "SimpleRNNCell": "rnn_tanh",
    "LayerNormLSTMCell": "layer_norm_lstm",
    "LayerNormGRUCell": "layer_norm_gru",
}
# The layers and cells whose outputs are computed from their cells' weights by our equations.
KNOWN = (*LAYERS, *_CELL_KINDS, "StackedRNNCells")


class Tensor(NamedTuple):
    """An output of a layer's call."""

    layer: KerasLayer | None  # None if it is not known
    call: int | None = None  # the number of the call; None for any
    output: int = 0


class Call(NamedTuple):
    """A symbolic call of a layer.

    Args:
      layer: the one that was called.
      first: the tensors in the first argument, which is the sequences of a recurrent layer.
      inputs: the tensors in all arguments but masks and resets.
      masks: the tensors that are masks; Keras 3's objects record those of the layers below too.
      resets: the tensors that say where sequences begin, of this package's layers.
      training: whether the argument training is True.
    """

    layer: KerasLayer
    first: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    masks: tuple[Tensor, ...] = ()
    training: bool = False
    resets: tuple[Tensor, ...] = ()


def without_masks(
    given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """The arguments of a call without masks and resets, and the masks.

    By position masks are Keras 3's third.
    """
    masks = [one for name, one in named.items() if name.endswith("mask")]
    others = {
        name: one for name, one in named.items() if not name.endswith("mask") and name != "resets"
    }
    return [*given[:2], *given[3:]], others, [*given[2:3], *masks]


class KerasLayer(abc.ABC):
    """A layer, cell, model or operation.

    Attributes:
      name: its name.
      class_name: the name of its class.
      kind: the name of the class of a framework that it is of, or that its class derives from; ""
        if there is none.
      is_own: whether its class is the framework's, not derived from it.
      has_cells: whether it is of another program's class and has recurrent cells of its own.
      calls: those in the graph of its model.
      inputs, outputs: the tensors of a model with a graph, else empty.
    """

    name: str
    class_name: str
    kind: str
    is_own: bool
    has_cells: bool
    calls: Sequence[Call]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    @abc.abstractmethod
    def get(self, attribute: str, default: Any = None) -> Any:
        """An attribute that has a plain value."""

    @abc.abstractmethod
    def inner(self, attribute: str) -> KerasLayer | None:
        """The layer or cell that is the attribute: cell, layer, forward_layer, backward_layer."""

    @abc.abstractmethod
    def all_inner(self, attribute: str) -> Sequence[KerasLayer]:
        """The layers or cells that are in the attribute: layers, cells."""

    @abc.abstractmethod
    def activation(self, argument: str) -> str:
        """The name of an activation of the framework, or a description of another function."""

    @property
    @abc.abstractmethod
    def hard_sigmoid(self) -> float:
        """The slope of the framework's hard_sigmoid."""

    @abc.abstractmethod
    def arrays(self, cell: str) -> list[np.ndarray]:
        """The weights of a cell as `get_weights()` returns them; `cell` as in RecurrentWeights."""

    @abc.abstractmethod
    def check_computes_as_known(self) -> None:
        """Refuses a subclass that may use the weights of its base in another computation."""


def recurrent_layers(layer: KerasLayer, prefix: str = "") -> Iterator[tuple[str, KerasLayer]]:
    """All recurrent layers in a layer or model, by their paths of names.

    Those that have cells are among them, so that no other layer is taken for the only one.
    """
    wrapped = layer.inner("layer")
    for one in layer.all_inner("layers") or ([wrapped] if wrapped else []):
        name = prefix + one.name
        if one.kind in LAYERS or one.has_cells:
            yield name, one
        else:
            yield from recurrent_layers(one, name + "/")


# ---- cells


def _read_activation(cell: KerasLayer, argument: str, *known: str) -> str:
    found = cell.activation(argument)
    if found not in known:
        raise UnsupportedError(
            f"{cell.name}: {argument} must be {' or '.join(known)}, got {found}, with which the "
            "weights have another meaning. Run the model in its own framework, or convert all of "
            "it for LiteRT or ONNX Runtime"
        )
    return found


def _options_of(cell: KerasLayer, kind: str) -> tuple[str, dict[str, Any]]:
    """The cell and its options in RecurrentWeights; refuses activations that those have not."""
    if cell.kind in CUDNN:
        return kind, {"reset_after": True} if kind == "gru" else {}
    if kind == "rnn_tanh":
        return f"rnn_{_read_activation(cell, 'activation', 'tanh', 'relu')}", {}
    if kind.startswith("layer_norm"):
        _read_activation(cell, "activation", "tanh")
        _read_activation(cell, "recurrent_activation", "sigmoid")
        options = {"epsilon": cell.get("norm_epsilon")}
        if kind == "layer_norm_lstm":
            options["norm_output_only"] = cell.get("norm_output_only")
        return kind, options
    gates = _read_activation(cell, "recurrent_activation", "sigmoid", "hard_sigmoid")
    options = {
        "activation": _read_activation(cell, "activation", "tanh", "relu"),
        "hard_sigmoid": cell.hard_sigmoid if gates == "hard_sigmoid" else 0.0,
        "zoneout_h": cell.get("zoneout_h", 0.0),
    }
    if kind == "gru":
        return kind, {"reset_after": bool(cell.get("reset_after", False)), **options}
    clip, zoneout = cell.get("cell_clip") or 0.0, cell.get("zoneout_c", 0.0)
    return kind, {"cell_clip": clip, "zoneout_c": zoneout, **options}


def _weights_of(cell: KerasLayer) -> RecurrentWeights:
    """The weights of a cell, as a layer of one direction."""
    kind, options = _options_of(cell, _CELL_KINDS[cell.kind])
    arrays = parse(cell.arrays(kind), kind)
    direction = to_direction(arrays, kind, options.get("reset_after"))
    has_bias = arrays.bias is not None
    units, use_bias = cell.get("units", direction.units), cell.get("use_bias", has_bias)
    if units != direction.units or bool(use_bias) != has_bias:
        raise ValueError(
            f"{cell.name}: it has units={short(repr(units))} and use_bias={bool(use_bias)}, but "
            f"arrays of {direction.units} units {'with a' if has_bias else 'without'} bias"
        )
    return RecurrentWeights(kind, [LayerWeights(direction)], **options)


def _flat(cell: KerasLayer, layer: KerasLayer | None = None) -> list[KerasLayer]:
    """The cells in a cell, which may be that of a layer."""
    known = cell.kind in _CELL_KINDS or cell.kind == "StackedRNNCells"
    if layer is not None and not known:
        raise UnsupportedError(
            f"{layer.name}: its cell is of the class {cell.class_name}, and it is not known what "
            "that computes. Run the model in Keras, or give the layer a cell of Keras or "
            "tf_blockrnn.layers; the arrays alone can be read from a file of HDF5 weights"
        )
    cell.check_computes_as_known()
    if cell.kind == "StackedRNNCells":
        return [one for inner in cell.all_inner("cells") for one in _flat(inner, layer)]
    if cell.kind not in _CELL_KINDS:
        of_model = cell.kind in ("Sequential", "Functional", "Model")
        hint = "; pass the recurrent ones of its layers" if of_model else ""
        raise TypeError(
            "expected a layer or cell of Keras' or tf_blockrnn's GRU, LSTM or SimpleRNN, of "
            "tf_blockrnn's LayerNormLSTM or LayerNormGRU, Bidirectional, "
            f"a list of them or lists of arrays, got {cell.class_name}{hint}"
        )
    return [cell]


def _cells_of_rnn(layer: KerasLayer) -> list[KerasLayer]:
    layer.check_computes_as_known()
    if layer.kind not in LAYERS or layer.kind == "Bidirectional":
        raise TypeError(f"{layer.name} must be a recurrent layer, got {layer.class_name}")
    if layer.get("time_major"):
        raise UnsupportedError(
            f"{layer.name}: layers with time_major=True are not supported; its arrays are those of "
            "the same layer without it, and can be read by get_weights() or from HDF5 weights"
        )
    return _flat(layer.inner("cell"), layer)


# ---- layers


def cells_of(layer: KerasLayer) -> list[list[KerasLayer]]:
    """The cells of each layer of a stack, forward, then backward if there are two directions.

    Refuses properties that RecurrentWeights cannot represent, except go_backwards.
    """
    if layer.kind == "Bidirectional":
        layer.check_computes_as_known()
        forward, backward = layer.inner("forward_layer"), layer.inner("backward_layer")
        if forward.get("go_backwards"):
            raise UnsupportedError(f"{layer.name}: its forward layer has go_backwards")
        both = [_cells_of_rnn(one) for one in (forward, backward)]
        if any(len(cells) > 1 for cells in both):
            raise stack_per_direction(layer.name)
        return [[cells[0] for cells in both]]
    cells = _cells_of_rnn(layer) if layer.kind in LAYERS else _flat(layer)
    return [[cell] for cell in cells]


def of_one_cell(layers: Sequence[KerasLayer]) -> bool:
    """Whether all layers are LSTMs, or GRUs, and so on."""
    cells = (cell for layer in layers for cells in cells_of(layer) for cell in cells)
    return len({_CELL_KINDS[cell.kind] for cell in cells}) == 1


def from_layers(sources: Sequence[KerasLayer]) -> RecurrentWeights:
    """The weights of layers and cells that are known to be a stack, without their direction."""
    parts, layers = [], []
    for number, source in enumerate(sources):
        mode = source.get("merge_mode", "concat")
        if mode not in MERGE_MODES:
            raise UnsupportedError(f"{source.name}: there is no merge_mode {mode!r}")
        if mode != "concat" and number + 1 < len(sources):
            raise UnsupportedError(
                f"{source.name}: below another layer its merge_mode must be 'concat', got {mode!r}"
            )
        for cells in cells_of(source):
            found = [_weights_of(cell) for cell in cells]
            layers.append(LayerWeights(*(one.layers[0].forward for one in found)))
            parts += found
    return dataclasses.replace(first_of_one_kind(parts), layers=layers)


def notes_of(layers: Iterable[tuple[str, KerasLayer]]) -> tuple[str, ...]:
    """What is not part of the weights of layers, given with their names."""
    notes = []
    for name, layer in layers:
        mode = layer.get("merge_mode", "concat")
        if mode != "concat":
            notes.append(f"{name}: merge_mode {mode!r} is not a weight and is not converted")
        if any(len(call.inputs) > 1 for call in layer.calls):
            notes.append(
                f"{name}: its initial state is computed by the model or is its input, and is not "
                "converted"
            )
        if any(call.resets for call in layer.calls):
            notes.append(
                f"{name}: its resets are an input of the model and not converted: give resets= to "
                "the session"
            )
        if layer.get("stateful"):
            notes.append(
                f"{name}: stateful=True is not a weight and is not converted: pass the state of "
                "the previous call"
            )
    return tuple(notes)
