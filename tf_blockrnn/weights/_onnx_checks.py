"""Checks of a recurrent ONNX node: which cell it is, and whether its arrays are consistent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tf_blockrnn.weights.layer import UnsupportedError

if TYPE_CHECKING:
    from tf_blockrnn.weights._onnx_nodes import OnnxLayer

# ONNX's gate orders, with our gate names.
ORDER = {"LSTM": "iofc", "GRU": "urc", "RNN": "h"}

# The activations of our cells, those of the gates first.
_ACTIVATIONS = {
    ("LSTM", ("sigmoid", "tanh", "tanh")): "lstm",
    ("GRU", ("sigmoid", "tanh")): "gru",
    ("RNN", ("tanh",)): "rnn_tanh",
    ("RNN", ("relu",)): "rnn_relu",
}
_DEFAULT_ACTIVATIONS = {op_type: names for op_type, names in reversed(_ACTIVATIONS)}

_KNOWN_ATTRIBUTES = {
    "activation_alpha",  # sigmoid, tanh and relu have no parameters
    "activation_beta",
    "activations",
    "clip",
    "direction",
    "hidden_size",
    "input_forget",
    "layout",
    "linear_before_reset",
    "output_sequence",  # of the first version of the ops: which outputs to return
}


def cell_of(layer: OnnxLayer, name: str) -> str:
    """The cell that a node computes; refuses nodes that none of our cells computes."""
    attributes = layer.attributes
    unknown = sorted(set(attributes) - _KNOWN_ATTRIBUTES)
    if unknown:
        raise UnsupportedError(f"{name}: unknown attributes {', '.join(unknown)}")
    if attributes.get("clip"):
        raise UnsupportedError(
            f"{name}: clip = {attributes['clip']:g} bounds the pre-activations; the "
            "cells here have no such bound (cell_clip bounds the cell state)"
        )
    if attributes.get("input_forget"):
        raise UnsupportedError(f"{name}: input_forget couples two gates, which no cell here does")
    default = _DEFAULT_ACTIVATIONS[layer.op_type]
    given = [a.lower() for a in attributes.get("activations", [])] or list(default)
    cells = {
        _ACTIVATIONS.get((layer.op_type, tuple(given[n : n + len(default)])))
        for n in range(0, len(given), len(default))
    }
    if len(cells) != 1 or None in cells:
        possible = " or ".join(
            ", ".join(names).title() for op_type, names in _ACTIVATIONS if op_type == layer.op_type
        )
        raise UnsupportedError(
            f"{name}: activations must be {possible} in each direction, got "
            f"{', '.join(attributes['activations'])}"
        )
    return cells.pop()


def refuse_learned_states(layer: OnnxLayer, name: str) -> None:
    """Refuses initial states that are parameters; exporters write zeros if there are none."""
    for what, value in layer.states.items():
        if value is not None and np.any(value):
            raise UnsupportedError(
                f"{name}: {what} is not zero: RecurrentWeights cannot represent a learned initial "
                "state"
            )


def sizes_of(layer: OnnxLayer, name: str) -> tuple[int, int]:
    """(D, H) of a node, after checking that the shapes of its arrays are consistent.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights._onnx_checks import sizes_of
      >>> from tf_blockrnn.weights import OnnxLayer
      >>> layer = OnnxLayer("RNN", {"W": np.ones([1, 4, 3]), "R": np.ones([1, 4, 4])}, {})
      >>> sizes_of(layer, "rnn_0")
      (1, 4)
    """
    for what in ("W", "R"):
        if what not in layer.arrays:
            raise ValueError(f"{name}: {what} is missing")
        if layer.arrays[what].ndim != 3:
            raise ValueError(
                f"{name}: {what} must have three dims, got {list(layer.arrays[what].shape)}"
            )
    if layer.direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(
            f'{name}: direction must be "forward", "reverse" or "bidirectional", '
            f"got {layer.direction!r}"
        )
    directions = 2 if layer.direction == "bidirectional" else 1
    gates = len(ORDER[layer.op_type])
    inputs, units = layer.arrays["W"].shape[2], layer.arrays["R"].shape[2]
    if layer.attributes.get("hidden_size", units) != units:
        raise ValueError(
            f"{name}: R must have hidden_size = {layer.attributes['hidden_size']} columns, "
            f"got {units}"
        )
    expected = {
        "W": ("[D, G·H, I]", [directions, gates * units, inputs]),
        "R": ("[D, G·H, H]", [directions, gates * units, units]),
        "B": ("[D, 2·G·H]", [directions, 2 * gates * units]),
        "P": ("[D, 3·H]", [directions, 3 * units]),
    }
    for what, array in layer.arrays.items():
        symbols, shape = expected[what]
        if list(array.shape) != shape:
            raise ValueError(
                f"{name}: {what} must have the shape {symbols} = {shape}, got {list(array.shape)}"
            )
    return directions, units
