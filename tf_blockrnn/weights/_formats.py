"""What distinguishes the formats of weights: a table of gate orders, layouts and missing features.

Each converter reads its row of the table. `split` and `join` convert between the array of all gates
of a framework and the array by gate of RecurrentWeights, and `require` refuses weights that the
framework cannot represent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tf_blockrnn.weights._cells import GATES, NORM_CELLS, OPTIONS, PLAIN_CELLS
from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights.layer import RecurrentWeights


@dataclasses.dataclass(frozen=True)
class Format:
    """How a framework stores weights, and which of them it has.

    Args:
      name: of the framework, for errors.
      cells: those that it has.
      orders: its gate orders by cell, with the gate names of RecurrentWeights; a cell that is not
        listed has the order there.
      rows: whether its matrices are those of W·x, [G · H, n], with the gates as blocks of rows,
        and not those of x·W, [n, G · H].
      has: the features that it has, of cell_clip, zoneout_h, zoneout_c, activation (relu in the
        place of tanh), hard_sigmoid, peepholes, projection and "h0 and c0".
      hard_sigmoid: the slope of its hard sigmoid; 0 for any.
      reset_after: of a gru; None if it has both forms.
      uniform: "directions" if the layers of a stack all have one or all have two; "sizes" if they
        also have one size.
      most_outputs: how much a projection's P may exceed H, with "sizes".
      hints: the message for a feature that it lacks, by its name; "norms" is layer normalisation.
    """

    name: str
    cells: Sequence[str] = PLAIN_CELLS
    orders: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: bool = False
    has: Sequence[str] = ()
    hard_sigmoid: float = 0.0
    reset_after: bool | None = None
    uniform: str = ""
    most_outputs: int = 0
    hints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def split(self, cell: str, array: np.ndarray) -> np.ndarray:
        """[G, n, H] or [G, H] of an array of all gates, whose shape has been checked."""
        order = self.orders.get(cell, GATES[cell])
        if self.rows:
            units = array.shape[0] // len(order)
            by_gate = array.reshape(len(order), units, *array.shape[1:]).swapaxes(1, -1)
        else:
            units = array.shape[-1] // len(order)
            by_gate = np.moveaxis(array.reshape(*array.shape[:-1], len(order), units), -2, 0)
        return reorder(by_gate, order, GATES[cell])

    def join(self, cell: str, by_gate: np.ndarray) -> np.ndarray:
        """The new array of all gates of [G, n, H] or [G, H]."""
        by_gate = reorder(by_gate, GATES[cell], self.orders.get(cell, GATES[cell]))
        if self.rows:
            by_gate = np.ascontiguousarray(by_gate.swapaxes(1, -1))
            return by_gate.reshape(by_gate.shape[0] * by_gate.shape[1], *by_gate.shape[2:])
        return np.concatenate(list(by_gate), axis=-1)

    def require(self, weights: RecurrentWeights) -> None:
        """Refuses weights with a feature that the framework lacks, and reports where it is."""
        if not isinstance(weights, RecurrentWeights):
            raise TypeError(f"weights must be RecurrentWeights, got {type(weights).__name__}")
        if weights.cell not in self.cells:
            its = " and ".join(self.cells)
            if weights.cell in NORM_CELLS and not set(NORM_CELLS).intersection(self.cells):
                its = f"no recurrent layers with layer normalisation{self._hint('norms')}"
            raise UnsupportedError(f"{self.name} cannot represent {weights.cell}: it has {its}")
        if self.reset_after is not None and weights.reset_after not in (None, self.reset_after):
            own, other = ("after", "before") if self.reset_after else ("before", "after")
            raise UnsupportedError(
                f"{self.name}'s gru resets {own} the GEMM with w_h (reset_after="
                f"{self.reset_after}); these weights reset {other} it, which computes another "
                "candidate from the same numbers"
            )
        for option in ("cell_clip", "zoneout_h", "zoneout_c", "hard_sigmoid"):
            value = getattr(weights, option)
            if value and option not in self.has:
                raise UnsupportedError(
                    f"{self.name} has no {option}, here it is {value:g}{self._hint(option)}"
                )
        if weights.activation != OPTIONS["activation"].default and "activation" not in self.has:
            raise UnsupportedError(
                f"{self.name} has no activation but tanh, here it is {weights.activation}"
                f"{self._hint('activation')}"
            )
        if self.hard_sigmoid and weights.hard_sigmoid not in (0.0, self.hard_sigmoid):
            raise UnsupportedError(
                f"the hard sigmoid of {self.name} has the slope {self.hard_sigmoid:g}, here it is "
                f"{weights.hard_sigmoid:g}"
            )
        if self.uniform and weights.directions is None:
            raise UnsupportedError(
                f"{self.name} has all layers in one direction or all in both, here they are mixed"
            )
        self._require_directions(weights)

    def _require_directions(self, weights: RecurrentWeights) -> None:
        first = weights.layers[0].forward
        for number, direction_name, one in weights.named_directions():
            where = f"layer {number}, {direction_name}"
            features = {
                "peepholes": one.peepholes is not None,
                "projection": one.w_p is not None,
                "h0 and c0": one.h0 is not None or one.c0 is not None,
            }
            for what, is_there in features.items():
                if is_there and what not in self.has:
                    raise UnsupportedError(
                        f"{self.name} has no {what}, {where} has{self._hint(what)}"
                    )
            if self.uniform != "sizes":
                continue
            if (one.units, one.output_size) != (first.units, first.output_size):
                raise UnsupportedError(
                    f"{self.name} has one size for all layers: layer 0 has H, P = {first.units}, "
                    f"{first.output_size}, {where} has {one.units}, {one.output_size}"
                )
            if (one.w_p is None) != (first.w_p is None):
                raise UnsupportedError(
                    f"{self.name} has a projection in all layers or in none, layer 0 and {where} "
                    "differ"
                )
        width, most = first.output_size, first.units + self.most_outputs
        if self.uniform == "sizes" and first.w_p is not None and not 0 < width <= most:
            raise UnsupportedError(
                f"{self.name} has projections with P in 1..{most} for H = {first.units}, here P, "
                f"H = {width}, {first.units}"
            )

    def _hint(self, feature: str) -> str:
        hints = {"h0 and c0": _WITHOUT_STATES, **self.hints}
        return f"; {hints[feature]}" if feature in hints else ""


_WITHOUT_STATES = (
    "dataclasses.replace(direction, h0=None, c0=None) leaves them out, to be given as the initial "
    "state of each call"
)


def reorder(array: np.ndarray, order: Sequence[str], gates: Sequence[str]) -> np.ndarray:
    """A new array with the blocks along the first axis in another gate order."""
    if sorted(order) != sorted(gates) or len(array) != len(order):
        raise ValueError(f"cannot reorder {len(array)} gates {list(order)} to {list(gates)}")
    return np.stack([array[list(order).index(gate)] for gate in gates])


def first_of_one_kind(parts: Sequence[RecurrentWeights]) -> RecurrentWeights:
    """The first one; refuses parts of a stack that differ in the cell or in an option."""
    kinds = [", ".join([part.cell, *_options(part)]) for part in parts]
    if other := next((kind for kind in kinds if kind != kinds[0]), None):
        raise UnsupportedError(
            f"the layers of a stack must be of one kind, got {kinds[0]} and {other}"
        )
    return parts[0]


def _options(weights: RecurrentWeights) -> list[str]:
    """Those that are not the default, as text."""
    given = {name: getattr(weights, name) for name in OPTIONS}
    return [f"{name}={value}" for name, value in given.items() if value != OPTIONS[name].default]


# The slope of Keras 3's hard sigmoid; before, it was 0.2.
KERAS_HARD_SIGMOID = 1 / 6
# Keras calls a gru's gates z, r, h.
_KERAS_ORDERS = {"gru": "urc", "layer_norm_gru": "urc"}
_OURS = 'tf_blockrnn.layers.LSTM has (package="tf_blockrnn")'
_NORMED = 'tf_blockrnn.layers.LayerNormLSTM and LayerNormGRU have (package="tf_blockrnn")'
KERAS = Format(
    "Keras",
    orders=_KERAS_ORDERS,
    has=("activation", "hard_sigmoid"),
    hard_sigmoid=KERAS_HARD_SIGMOID,
    hints={"norms": _NORMED, "cell_clip": _OURS, "peepholes": _OURS, "projection": _OURS},
)
OUR_LAYERS = Format(
    "tf_blockrnn.layers",
    tuple(GATES),
    orders=_KERAS_ORDERS,
    has=(
        *("cell_clip", "zoneout_h", "zoneout_c", "activation", "hard_sigmoid"),
        *("peepholes", "projection"),
    ),
    hard_sigmoid=KERAS_HARD_SIGMOID,
)
# What set_weights of our layers takes.
_LAYERS_HAVE = "to_keras_layers returns layers, which have"
OUR_ARRAYS = Format(
    "an array of a layer",
    tuple(GATES),
    orders=_KERAS_ORDERS,
    has=("peepholes", "projection"),
    hints=dict.fromkeys(
        ("cell_clip", "zoneout_h", "zoneout_c", "activation", "hard_sigmoid"), _LAYERS_HAVE
    ),
)
# PyTorch calls the gates i, f, g, o and r, z, n.
TORCH = Format(
    "PyTorch", rows=True, has=("projection",), reset_after=True, uniform="sizes", most_outputs=-1
)
CUDNN = Format("cuDNN", rows=True, has=("projection",), reset_after=True, uniform="sizes")
# haste calls them i, g, f, o and z, r, h.
HASTE = Format("haste", NORM_CELLS, orders={"layer_norm_lstm": "icfo", "layer_norm_gru": "urc"})
ADDONS = Format("TensorFlow Addons", ("layer_norm_lstm",))
ONNX = Format(
    "ONNX",
    orders={"lstm": "iofc", "gru": "urc"},
    rows=True,
    has=("activation", "hard_sigmoid", "peepholes", "h0 and c0"),
    hints={"cell_clip": "its clip bounds the pre-activations, not the cell state"},
)


def cudnn_network(weights: RecurrentWeights) -> dict[str, str | int]:
    """The arguments of from_cudnn for params of these weights, refused if cuDNN lacks a feature."""
    CUDNN.require(weights)
    first = weights.layers[0].forward
    return {
        "rnn_mode": weights.cell,
        "num_units": first.units,
        "input_size": first.input_size,
        "num_layers": weights.num_layers,
        "direction": "unidirectional" if weights.directions == 1 else "bidirectional",
        "num_proj": 0 if first.w_p is None else first.output_size,
    }
