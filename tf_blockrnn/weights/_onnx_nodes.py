"""The recurrent nodes of an ONNX model: their weights and attributes, and what they compute."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, check_shape, one_of
from tf_blockrnn.weights._onnx_model import GATES_OF, QUANTIZED, NamedNode, is_read
from tf_blockrnn.weights._onnx_values import NotConstant, attributes_of, named

# The positions of the weights among a node's inputs.
INPUTS = {"W": 1, "R": 2, "B": 3, "P": 7}
STATES = {"initial_h": 5, "initial_c": 6}
_LENGTHS = 4
_QUANTIZATION = {"W": (8, 9), "R": (10, 11)}  # scale and zero point

# The activations of our cells, those of the gates first, and the options of the cells. The gates
# may also have a hard sigmoid, max(0, min(1, alpha · x + beta)).
_ACTIVATIONS = {
    ("LSTM", ("sigmoid", "tanh", "tanh")): ("lstm", {}),
    ("LSTM", ("sigmoid", "relu", "relu")): ("lstm", {"activation": "relu"}),
    ("GRU", ("sigmoid", "tanh")): ("gru", {}),
    ("GRU", ("sigmoid", "relu")): ("gru", {"activation": "relu"}),
    ("RNN", ("tanh",)): ("rnn_tanh", {}),
    ("RNN", ("relu",)): ("rnn_relu", {}),
}
_DEFAULT_ACTIVATIONS = {op_type: names for op_type, names in reversed(_ACTIVATIONS)}
_HARD_SIGMOID = "hardsigmoid"
_ALPHA, _BETA = 0.2, 0.5  # the defaults
_SLOPES = (0.2, 1 / 6)  # known ones; a node has them in float32

# output_sequence, an attribute of the ops' first version only, tells which outputs there are.
_KNOWN_ATTRIBUTES = {
    *("activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size"),
    *("input_forget", "layout", "linear_before_reset", "output_sequence"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxLayer:
    """The weights and attributes of one recurrent ONNX node, which is one layer.

    Args:
      op_type: "LSTM", "GRU" or "RNN".
      arrays: "W", "R" and, if the node has them, "B" and "P".
      attributes: those of the node, by name; strings as str.
      states: "initial_h" and "initial_c", [D, B, H], or [B, D, H] with layout 1, if the node has
        them, with B = 1 for a state that is the same for any batch; None for one that the graph
        computes or takes as an input.
      name: of the node, for error messages.
      notes: what the node has that is not in the arrays and states.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights import OnnxLayer
      >>> layer = OnnxLayer("RNN", {"W": np.ones([1, 4, 3]), "R": np.ones([1, 4, 4])},
      ...                   {"direction": "reverse"})
      >>> layer.op_type, layer.direction
      ('RNN', 'reverse')
    """

    op_type: str
    arrays: dict[str, np.ndarray]
    attributes: dict[str, Any]
    states: dict[str, np.ndarray | None] = dataclasses.field(default_factory=dict)
    name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def direction(self) -> str:
        """ "forward", "reverse" or "bidirectional"."""
        return self.attributes.get("direction", "forward")


# ---- what a node has


def _constant(found: NamedNode, what: str, place: int) -> np.ndarray | None:
    """An input of a node, which must be a constant; None if it is missing."""
    value = dict(enumerate(found.node.input)).get(place)  # it may be "", too
    if not value:
        return None
    try:
        return found.scope.value(value)
    except NotConstant as error:
        node = found.scope.producer(value)
        by = f", which the node {named(node)} computes" if node is not None else ""
        raise UnsupportedError(
            f"{found.name}: {what}, the value {value!r}{by}, is no constant: {error}"
        ) from None


def read_node(found: NamedNode) -> OnnxLayer:
    """The weights and attributes of a node; refuses weights that are not constants."""
    node = found.node
    if not is_read(node):
        raise UnsupportedError(
            f"{found.name}: the op {node.op_type} of the domain {node.domain or 'ai.onnx'!r} is "
            f"not read; {', '.join(GATES_OF)} and {'::'.join(QUANTIZED)} are"
        )
    arrays = {what: _constant(found, what, place) for what, place in INPUTS.items()}
    arrays = {what: array for what, array in arrays.items() if array is not None}
    op_type, notes = node.op_type, []
    if (node.domain, op_type) == QUANTIZED:
        op_type = "LSTM"
        arrays |= _dequantized(found, arrays)
        notes.append(
            f"{found.name}: assumed: its {node.op_type} is computed with float32 inputs and "
            "states; ONNX Runtime quantises them at each step, and its outputs differ by that. The "
            "weights were dequantised; a session in int8 quantises them anew"
        )
    inputs = dict(enumerate(node.input))
    if lengths := inputs.get(_LENGTHS):
        notes.append(
            f"{found.name}: sequence_lens, the value {lengths!r}, is not part of the weights: give "
            "lengths to the layer or session"
        )
    attributes = attributes_of(node)
    states = {
        what: _state(found, value, attributes.get("layout", 0), arrays.get("R"))
        for what, place in STATES.items()
        if (value := inputs.get(place))
    }
    notes += [
        f"{found.name}: {what} is computed by the graph or is its input, and is not converted"
        for what, value in states.items()
        if value is None
    ]
    return OnnxLayer(op_type, arrays, attributes, states, found.name, tuple(notes))


def _dequantized(found: NamedNode, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """W and R of a DynamicQuantizeLSTM, [D, n, 4H] of integers, as an LSTM has them."""
    floats = {}
    for what, (scale_place, zero_place) in _QUANTIZATION.items():
        if what not in arrays:
            raise ValueError(f"{found.name}: {what} is missing")
        array = arrays[what]
        check_shape(f"{found.name}: {what}", array, "[D, n, 4H]", (None, None, None))
        scale = _constant(found, f"{what}_scale", scale_place)
        zero = _constant(found, f"{what}_zero_point", zero_place)
        if scale is None or array.dtype.kind not in "iu":
            raise ValueError(f"{found.name}: {what} must be of integers with a scale")
        directions, _, columns = array.shape

        def fitted(name: str, each: np.ndarray, d: int = directions, n: int = columns):
            if each.size not in (d, d * n):
                raise ValueError(
                    f"{found.name}: {name} must have the shape [D] or [D, 4H] = [{d}] or "
                    f"[{d}, {n}], got {list(each.shape)}"
                )
            return each.astype(np.float32).reshape(d, 1, -1)

        shifted = array.astype(np.float32)
        if zero is not None:
            shifted -= fitted(f"{what}_zero_point", zero)
        floats[what] = (shifted * fitted(f"{what}_scale", scale)).transpose(0, 2, 1)
    return floats


def _state(
    found: NamedNode, value: str, layout: int, recurrent: np.ndarray | None
) -> np.ndarray | None:
    """An initial state, with B = 1 if it is the same for any batch; None if it is no constant."""
    try:
        return found.scope.value(value)
    except NotConstant:
        pass
    batch = 0 if layout else 1
    states = []
    try:
        # Its shape may depend on the batch, and only that: other values are not known.
        for scope in found.scope.trials():
            state = scope.value(value)
            if state.ndim != 3 or not state.size:
                return None
            row = state.take([0], batch)
            if not np.array_equal(np.broadcast_to(row, state.shape), state):
                return state
            states.append(row)
    except NotConstant:
        states = []
    if states:
        return states[0] if all(np.array_equal(states[0], each) for each in states) else None
    number = found.scope.uniform(value)
    if number is None or recurrent is None or recurrent.ndim != 3:
        return None
    shape = [len(recurrent), recurrent.shape[2]]
    shape.insert(batch, 1)
    return np.full(shape, number, recurrent.dtype)


# ---- what a node computes


def cell_of(layer: OnnxLayer, name: str) -> tuple[str, dict[str, Any]]:
    """The cell that a node computes and its options; refuses what none of our cells computes."""
    one_of(f"{name}: op_type", layer.op_type, GATES_OF)
    attributes = layer.attributes
    unknown = sorted(set(attributes) - _KNOWN_ATTRIBUTES)
    if unknown:
        raise UnsupportedError(f"{name}: unknown attributes {', '.join(unknown)}")
    for flag in ("layout", "linear_before_reset"):
        if attributes.get(flag, 0) not in (0, 1):
            raise ValueError(f"{name}: {flag} must be 0 or 1, got {attributes[flag]!r}")
    if "clip" in attributes:
        raise UnsupportedError(
            f"{name}: clip = {attributes['clip']:g} bounds the pre-activations; the "
            "cells here have no such bound (cell_clip bounds the cell state)"
        )
    if attributes.get("input_forget"):
        raise UnsupportedError(f"{name}: input_forget couples two gates, which no cell here does")
    default = _DEFAULT_ACTIVATIONS[layer.op_type]
    given = [str(a).lower() for a in attributes.get("activations", [])] or list(default)
    # Those functions that have parameters take them from the lists in their order.
    alphas, betas = (iter(attributes.get(f"activation_{n}", [])) for n in ("alpha", "beta"))
    parameters = [(next(alphas, _ALPHA), next(betas, _BETA)) for f in given if f == _HARD_SIGMOID]
    if any(beta != _BETA for _, beta in parameters):
        raise UnsupportedError(f"{name}: the beta of HardSigmoid must be 0.5, got {parameters}")
    if not all(alpha > 0 for alpha, _ in parameters):
        raise UnsupportedError(f"{name}: the alpha of HardSigmoid must be above 0")
    slopes, cells = iter(parameters), []
    for n in range(0, len(given), len(default)):
        functions, slope = given[n : n + len(default)], 0.0
        if functions[0] == _HARD_SIGMOID and layer.op_type != "RNN":
            functions[0], slope = "sigmoid", next(slopes)[0]
        cells.append((*_ACTIVATIONS.get((layer.op_type, tuple(functions)), (None, {})), slope))
    cell, options, slope = cells[0]
    if cell is None or any(each != cells[0] for each in cells):
        possible = " or ".join(
            ", ".join(names).title() for op_type, names in _ACTIVATIONS if op_type == layer.op_type
        )
        raise UnsupportedError(
            f"{name}: activations must be {possible.replace('Sigmoid', '(Hard)Sigmoid')} and the "
            f"same in each direction, got {', '.join(map(str, attributes['activations']))}"
        )
    if slope:
        known = (each for each in _SLOPES if np.float32(each) == np.float32(slope))
        options = {**options, "hard_sigmoid": next(known, float(slope))}
    return cell, options


def initial_states(layer: OnnxLayer, name: str) -> dict[str, np.ndarray]:
    """initial_h and initial_c, [D, H], those that are not zero; exporters write zeros for none."""
    found = {}
    for what, value in layer.states.items():
        if value is None or not np.any(value):
            continue
        directions, units = sizes_of(layer, name)
        batch = 0 if layer.attributes.get("layout") else 1
        symbols, shape = ("[B, D, H]" if batch == 0 else "[D, B, H]"), [directions, units]
        shape.insert(batch, None)
        check_shape(f"{name}: {what}", value, symbols, shape)
        row = value.take([0], batch)
        if not np.array_equal(np.broadcast_to(row, value.shape), value):
            raise UnsupportedError(
                f"{name}: {what} differs between the rows of the batch; RecurrentWeights has one "
                "initial state for all rows. Give it as the state of a run instead"
            )
        found[what] = row.squeeze(batch)
    return found


def sizes_of(layer: OnnxLayer, name: str) -> tuple[int, int]:
    """(D, H) of a node, after checking that the shapes of its arrays are consistent."""
    for what, symbols in (("W", "[D, G·H, I]"), ("R", "[D, G·H, H]")):
        if what not in layer.arrays:
            raise ValueError(f"{name}: {what} is missing")
        check_shape(f"{name}: {what}", layer.arrays[what], symbols, (None, None, None))
    one_of(f"{name}: direction", layer.direction, ("forward", "reverse", "bidirectional"))
    directions = 2 if layer.direction == "bidirectional" else 1
    gates = GATES_OF[layer.op_type]
    inputs, units = layer.arrays["W"].shape[2], layer.arrays["R"].shape[2]
    if layer.attributes.get("hidden_size", units) != units:
        raise ValueError(
            f"{name}: R must have hidden_size = {layer.attributes['hidden_size']} columns, "
            f"got {units}"
        )
    expected = {
        "W": ("[D, G·H, I]", (directions, gates * units, inputs)),
        "R": ("[D, G·H, H]", (directions, gates * units, units)),
        "B": ("[D, 2·G·H]", (directions, 2 * gates * units)),
        "P": ("[D, 3·H]", (directions, 3 * units)),
    }
    for what, array in layer.arrays.items():
        one_of(f"{name}: the name of an array", what, expected)
        check_shape(f"{name}: {what}", array, *expected[what])
    return directions, units
