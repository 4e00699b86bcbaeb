"""The description of recurrent layers' weights that every converter reads or returns.

With x·W (rows of a matrix are its inputs), `∘` elementwise and h', cs' of the previous step:

    lstm:      i, f, o = σ(x · w_x + h' · w_h + b_x + b_h)    c likewise with tanh
               cs = f ∘ cs' + i ∘ c        h = o ∘ tanh(cs), then h = w_p · h with a projection
               peepholes, with the rows wci, wcf, wco, add wci ∘ cs' to i, wcf ∘ cs' to f and
               wco ∘ cs to o, before σ
    gru:       r, u = σ(x · w_x + h' · w_h + b_x + b_h)
               c = tanh(x · w_x + b_x + r ∘ (h' · w_h + b_h))    with reset_after, or
               c = tanh(x · w_x + b_x + (r ∘ h') · w_h + b_h)    without
               h = u ∘ h' + (1 − u) ∘ c
    rnn_tanh:  h = tanh(x · w_x + h' · w_h + b_x + b_h)    rnn_relu likewise

    layer_norm_lstm:
               i, f, o = σ(norm_x(x · w_x) + norm_h(h' · w_h) + b_x + b_h)    c likewise with tanh
               cs = norm_c(f ∘ cs' + i ∘ c)    h = o ∘ tanh(cs)    or, with norm_output_only,
               cs = f ∘ cs' + i ∘ c            h = o ∘ tanh(norm_c(cs))
    layer_norm_gru:
               r, u = σ(norm_x(x · w_x) + b_x + norm_h(h' · w_h) + b_h)
               c = tanh(norm_x(x · w_x) + b_x + r ∘ (norm_h(h' · w_h) + b_h))
               h = u ∘ h' + (1 − u) ∘ c
    norm(s) =  gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta, where mean and variance are those
               of a row: of all gates' elements in norm_x and norm_h, of all units in norm_c

A forget bias that a framework adds in the cell is part of b_x here. Zoneout of a state s is its
mean at inference, z ∘ s' + (1 − z) ∘ s with the rate z; an lstm's h is made of the cs before that.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

# The gate orders of all arrays in this package's descriptions of weights.
GATES = {
    "lstm": ("i", "f", "c", "o"),
    "gru": ("r", "u", "c"),
    "rnn_tanh": ("h",),
    "rnn_relu": ("h",),
    "layer_norm_lstm": ("i", "f", "c", "o"),
    "layer_norm_gru": ("r", "u", "c"),
}
# The cells with layer normalisation, which few frameworks have, and the others.
NORM_CELLS = ("layer_norm_lstm", "layer_norm_gru")
PLAIN_CELLS = tuple(cell for cell in GATES if cell not in NORM_CELLS)

_DIRECTIONS = ("forward", "backward")
# The types that the ops and the frameworks have.
_TYPES = ("float16", "bfloat16", "float32", "float64")


class UnsupportedError(ValueError):
    """The target of a conversion, or RecurrentWeights, cannot represent the source.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=False)
      >>> try:
      ...     weights.to_torch(gru)
      ... except weights.UnsupportedError as error:
      ...     print(str(error).partition(";")[0])
      PyTorch's gru resets after the GEMM with w_h (reset_after=True)
    """


def _frozen_array(name: str, value: np.ndarray) -> np.ndarray:
    array = np.array(value, order="C", copy=True)
    if array.dtype.name not in _TYPES:
        raise ValueError(f"{name} must be of the type {', '.join(_TYPES)}, got {array.dtype.name}")
    # Files of NumPy and HDF5 may have the other byte order.
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.flags.writeable = False
    return array


def _converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The array in another type; refuses finite values that become infinite there."""
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    lost = np.isfinite(array) & ~np.isfinite(result)
    if lost.any():
        raise ValueError(
            f"{name} has values out of {np.dtype(dtype).name}'s range, such as {array[lost][0]:g}"
        )
    return result


def is_exact_in(dtype: np.dtype, target: np.dtype) -> bool:
    """Whether a type represents all values of another one.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights import layer
      >>> layer.is_exact_in(np.float16, np.float32), layer.is_exact_in(np.float64, np.float32)
      (True, False)
    """
    return bool(np.can_cast(dtype, target, "safe"))


def _same_bits(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    if one is None or other is None:
        return one is other
    same_kind = one.dtype == other.dtype and one.shape == other.shape
    return same_kind and one.tobytes() == other.tobytes()


@dataclasses.dataclass(frozen=True, eq=False)
class DirectionWeights:
    """The weights of one layer direction; G gates, I inputs, H units, P outputs.

    P is H without a projection. The arrays are copied and read-only. Two descriptions are equal if
    all their arrays are equal, bit for bit.

    Args:
      w_x: weights of the input, [G, I, H].
      w_h: weights of the state, [G, P, H].
      b_x: biases added to the input GEMM, [G, H], or None.
      b_h: biases added to the recurrent GEMM, [G, H], or None.
      peepholes: the rows wci, wcf, wco, [3, H], or None: the weights from the old cell state to the
        gates i and f, and from the new one to o.
      w_p: projection of the output, [P, H], or None.
      norm_x: gamma and beta of the norm of the input GEMM, [2, G, H], or None.
      norm_h: gamma and beta of the norm of the recurrent GEMM, [2, G, H], or None.
      norm_c: gamma and beta of the norm of the cell state, [2, H], or None.

    Raises:
      ValueError: a shape or type does not match the others, or the type is none of float16,
        bfloat16, float32 and float64.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> one.input_size, one.units, one.b_x
      (5, 4, None)
    """

    w_x: np.ndarray
    w_h: np.ndarray
    b_x: np.ndarray | None = None
    b_h: np.ndarray | None = None
    peepholes: np.ndarray | None = None
    w_p: np.ndarray | None = None
    norm_x: np.ndarray | None = None
    norm_h: np.ndarray | None = None
    norm_c: np.ndarray | None = None

    def __post_init__(self):
        for name, value in self._fields():
            if value is not None:
                object.__setattr__(self, name, _frozen_array(name, value))
        if self.w_x is None or self.w_h is None:
            raise ValueError("w_x and w_h must be arrays, got None")
        if self.w_x.ndim != 3:
            raise ValueError(f"w_x must have the shape [G, I, H], got {list(self.w_x.shape)}")
        self._check_shapes()
        self._check_types()

    def _fields(self) -> Iterator[tuple[str, np.ndarray | None]]:
        for field in dataclasses.fields(self):
            yield field.name, getattr(self, field.name)

    def _check_shapes(self) -> None:
        gates, _, units = self.w_x.shape
        width = units
        if self.w_p is not None:
            if self.w_p.ndim != 2:
                raise ValueError(f"w_p must have the shape [P, H], got {list(self.w_p.shape)}")
            width = self.w_p.shape[0]
        expected = {
            "w_h": ("[G, P, H]", (gates, width, units)),
            "b_x": ("[G, H]", (gates, units)),
            "b_h": ("[G, H]", (gates, units)),
            "peepholes": ("[3, H]", (3, units)),
            "w_p": ("[P, H]", (width, units)),
            "norm_x": ("[2, G, H]", (2, gates, units)),
            "norm_h": ("[2, G, H]", (2, gates, units)),
            "norm_c": ("[2, H]", (2, units)),
        }
        for name, (symbols, shape) in expected.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"{name} must have the shape {symbols} = {list(shape)} beside w_x "
                    f"[G, I, H] = {list(self.w_x.shape)}, got {list(array.shape)}"
                )

    def _check_types(self) -> None:
        for name, array in self._fields():
            if array is not None and array.dtype != self.w_x.dtype:
                raise ValueError(
                    f"{name} must be of w_x's type {self.w_x.dtype.name}, got {array.dtype.name}"
                )

    @property
    def gates(self) -> int:
        """G, the number of gates: 4 for an LSTM, 3 for a GRU, 1 for the others."""
        return self.w_x.shape[0]

    @property
    def input_size(self) -> int:
        """I, the width of the input."""
        return self.w_x.shape[1]

    @property
    def units(self) -> int:
        """H, the number of units."""
        return self.w_x.shape[2]

    @property
    def output_size(self) -> int:
        """P, the width of the output: that of the projection, or H."""
        return self.w_h.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The type of all arrays."""
        return self.w_x.dtype

    @property
    def has_bias(self) -> bool:
        """Whether there is any bias."""
        return not (self.b_x is None and self.b_h is None)

    @property
    def bias(self) -> np.ndarray | None:
        """b_x + b_h, [G, H]; if only one exists, that one unchanged; None if neither does."""
        if self.b_x is None or self.b_h is None:
            return self.b_h if self.b_x is None else self.b_x
        return self.b_x + self.b_h

    def astype(self, dtype: np.dtype) -> DirectionWeights:
        """The same weights in another type, rounded if it is narrower.

        Raises:
          ValueError: a finite value is out of the type's range.
        """
        return DirectionWeights(
            *(
                None if array is None else _converted(name, array, dtype)
                for name, array in self._fields()
            )
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DirectionWeights):
            return NotImplemented
        return all(_same_bits(array, getattr(other, name)) for name, array in self._fields())

    __hash__ = None


@dataclasses.dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer.

    Args:
      forward: the direction from the first step to the last.
      backward: the direction from the last step to the first, or None. The layer's output is the
        concatenation of the forward output and the backward one.

    Raises:
      ValueError: the two directions differ in a size or in their type.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> layer = weights.LayerWeights(forward=one, backward=one)
      >>> layer.directions, layer.output_size
      (2, 6)
    """

    forward: DirectionWeights
    backward: DirectionWeights | None = None

    def __post_init__(self):
        if self.backward is None:
            return
        for name, one, other in zip(
            ("I", "H", "P", "number of gates", "type"),
            *((d.input_size, d.units, d.output_size, d.gates, d.dtype.name) for d in self),
            strict=True,
        ):
            if one != other:
                raise ValueError(
                    f"backward must have the {name} of forward, which is {one}, got {other}"
                )

    def __iter__(self) -> Iterator[DirectionWeights]:
        """Forward, then backward if there is one."""
        yield self.forward
        if self.backward is not None:
            yield self.backward

    @property
    def directions(self) -> int:
        """D, 1 or 2."""
        return 1 if self.backward is None else 2

    @property
    def output_size(self) -> int:
        """D · P, the width of the layer's output."""
        return self.directions * self.forward.output_size

    __hash__ = None


@dataclasses.dataclass(frozen=True)
class RecurrentWeights:
    """The weights of a stack of recurrent layers of one kind.

    Args:
      cell: "lstm", "gru", "rnn_tanh", "rnn_relu", "layer_norm_lstm" or "layer_norm_gru".
      layers: the layers, from the input up. They may differ in size and direction. Those with layer
        normalisation have all their norms: norm_x, norm_h and, for layer_norm_lstm, norm_c.
      reset_after: only for gru, and required there: whether the reset gate acts after the GEMM
        with w_h.
      cell_clip: only for lstm: bound of the cell state; 0 for none.
      zoneout_state: not for rnn_tanh and rnn_relu: rate of zoneout of h in all layers, 0..1.
      zoneout: only for lstm: rate of zoneout of the cell state in all layers, 0..1.
      epsilon: only for the cells with layer normalisation, and required there: what is added to
        the variances, above 0.
      norm_output_only: only for layer_norm_lstm, and required there: whether the output alone reads
        the normalised cell state (haste, Ba et al. 2016), or the next step too (TensorFlow Addons).

    Raises:
      ValueError: an argument or an array does not match the cell, or a layer the one below it.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> gru.gates, gru.num_layers, gru.directions
      (('r', 'u', 'c'), 1, 1)
    """

    cell: str
    layers: Sequence[LayerWeights]
    reset_after: bool | None = None
    cell_clip: float = 0.0
    zoneout_state: float = 0.0
    zoneout: float = 0.0
    epsilon: float | None = None
    norm_output_only: bool | None = None

    def __post_init__(self):
        object.__setattr__(self, "layers", tuple(self.layers))
        if self.cell not in GATES:
            raise ValueError(f"cell must be one of {', '.join(GATES)}, got {self.cell!r}")
        if self.cell == "gru" and self.reset_after is None:
            raise ValueError("a gru needs reset_after, True or False")
        if self.cell != "gru" and self.reset_after is not None:
            raise ValueError(f"reset_after is for gru, {self.cell} has no reset gate")
        if self.reset_after is not None:
            object.__setattr__(self, "reset_after", bool(self.reset_after))
        clip = float(self.cell_clip)
        # Not `clip < 0`, so that a NaN is refused too.
        if not clip >= 0:
            raise ValueError(f"cell_clip must be 0 for none or above 0, got {clip}")
        if clip and self.cell != "lstm":
            raise ValueError(f"cell_clip is for lstm, {self.cell} has no cell state")
        object.__setattr__(self, "cell_clip", clip)
        self._check_zoneout()
        self._check_norm_arguments()
        self._check_layers()

    def _check_zoneout(self) -> None:
        for name, cells in (("zoneout_state", ("lstm", "gru")), ("zoneout", ("lstm",))):
            rate = float(getattr(self, name))
            if not 0 <= rate <= 1:
                raise ValueError(f"{name} must be a rate in 0..1, got {rate}")
            if rate and self.cell not in cells:
                raise ValueError(f"{name} is for {' and '.join(cells)}, not for {self.cell}")
            object.__setattr__(self, name, rate)

    def require_no_zoneout(self, target: str) -> None:
        """Refuses weights with zoneout.

        Args:
          target: what has none, to begin the message with.

        Raises:
          UnsupportedError: a rate is above 0.

        Example:
          >>> import numpy as np
          >>> from tf_blockrnn import weights
          >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
          >>> layers = [weights.LayerWeights(one)]
          >>> weights.RecurrentWeights("lstm", layers, zoneout=0.1).require_no_zoneout("PyTorch")
          Traceback (most recent call last):
          ...
          tf_blockrnn.weights.layer.UnsupportedError: PyTorch has no zoneout, here it is 0.1
        """
        for name in ("zoneout_state", "zoneout"):
            if rate := getattr(self, name):
                raise UnsupportedError(f"{target} has no {name}, here it is {rate:g}")

    def _check_norm_arguments(self) -> None:
        if self.cell not in NORM_CELLS and self.epsilon is not None:
            raise ValueError(f"epsilon is for {' and '.join(NORM_CELLS)}, {self.cell} has no norms")
        if self.cell in NORM_CELLS:
            if self.epsilon is None:
                raise ValueError(f"a {self.cell} needs epsilon, a number above 0")
            object.__setattr__(self, "epsilon", float(self.epsilon))
            if not 0 < self.epsilon < math.inf:  # a NaN neither
                raise ValueError(f"epsilon must be a finite number above 0, got {self.epsilon}")
        if self.cell != "layer_norm_lstm" and self.norm_output_only is not None:
            raise ValueError(
                f"norm_output_only is for layer_norm_lstm, {self.cell} has no norm of a cell state"
            )
        if self.cell == "layer_norm_lstm":
            if self.norm_output_only is None:
                raise ValueError("a layer_norm_lstm needs norm_output_only, True or False")
            object.__setattr__(self, "norm_output_only", bool(self.norm_output_only))

    def _check_layers(self) -> None:
        if not self.layers:
            raise ValueError("layers must not be empty")
        for number, direction_name, direction in self.named_directions():
            where = f"layer {number}, {direction_name}"
            if direction.gates != len(self.gates):
                raise ValueError(
                    f"{where}: w_x must have {len(self.gates)} gates for {self.cell}, "
                    f"got {direction.gates}"
                )
            if self.cell != "lstm" and direction.peepholes is not None:
                raise ValueError(f"{where}: peepholes are for lstm, not for {self.cell}")
            if self.cell != "lstm" and direction.w_p is not None:
                raise ValueError(f"{where}: a projection w_p is for lstm, not for {self.cell}")
            self._check_norms(where, direction)
            if direction.dtype != self.dtype:
                raise ValueError(
                    f"{where}: all layers must be of the first one's type {self.dtype.name}, "
                    f"got {direction.dtype.name}"
                )
        for number in range(1, len(self.layers)):
            below, here = self.layers[number - 1].output_size, self.layers[number].forward
            if here.input_size != below:
                raise ValueError(
                    f"layer {number}: I must be the width of layer {number - 1}'s output, {below}, "
                    f"got {here.input_size}"
                )

    def _check_norms(self, where: str, direction: DirectionWeights) -> None:
        needed = {
            "norm_x": self.cell in NORM_CELLS,
            "norm_h": self.cell in NORM_CELLS,
            "norm_c": self.cell == "layer_norm_lstm",
        }
        for name, is_needed in needed.items():
            if is_needed != (getattr(direction, name) is not None):
                verb = "needs" if is_needed else "has no"
                raise ValueError(f"{where}: {self.cell} {verb} {name}")

    def named_directions(self) -> Iterator[tuple[int, str, DirectionWeights]]:
        """Each (number of the layer, "forward" or "backward", its weights), from the input up."""
        for number, layer in enumerate(self.layers):
            for name, direction in zip(_DIRECTIONS, layer, strict=False):
                yield number, name, direction

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of the gates, in the order of all arrays."""
        return GATES[self.cell]

    @property
    def num_layers(self) -> int:
        """L, the number of layers."""
        return len(self.layers)

    @property
    def directions(self) -> int | None:
        """D, 1 or 2; None if the layers differ."""
        found = {layer.directions for layer in self.layers}
        return found.pop() if len(found) == 1 else None

    @property
    def input_size(self) -> int:
        """I, the width of the first layer's input."""
        return self.layers[0].forward.input_size

    @property
    def dtype(self) -> np.dtype:
        """The type of all arrays."""
        return self.layers[0].forward.dtype

    def astype(self, dtype: np.dtype) -> RecurrentWeights:
        """The same weights in another type, rounded if it is narrower.

        Raises:
          ValueError: a finite value is out of the type's range.

        Example:
          >>> import numpy as np
          >>> from tf_blockrnn import weights
          >>> one = weights.DirectionWeights(np.full([1, 1, 1], 1e6), np.ones([1, 1, 1]))
          >>> rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
          >>> rnn.astype("float32").dtype.name
          'float32'
          >>> rnn.astype("float16")
          Traceback (most recent call last):
          ...
          ValueError: w_x has values out of float16's range, such as 1e+06
        """
        layers = [LayerWeights(*(d.astype(dtype) for d in layer)) for layer in self.layers]
        return dataclasses.replace(self, layers=layers)

    __hash__ = None


def reorder(array: np.ndarray, order: Sequence[str], gates: Sequence[str]) -> np.ndarray:
    """Reorders the blocks along the first axis from one gate order to another.

    Args:
      array: [G, ...], its blocks in the gate order `order`.
      order: the names of the gates in `array`.
      gates: the same names, in the order of the result.

    Returns:
      A new array, [G, ...].

    Raises:
      ValueError: `gates` is not a permutation of `order`, or has another length than the array.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights import layer
      >>> layer.reorder(np.array([[1.0], [2.0], [3.0]]), "urc", "ruc").ravel().tolist()
      [2.0, 1.0, 3.0]
    """
    if sorted(order) != sorted(gates) or len(array) != len(order):
        raise ValueError(f"cannot reorder {len(array)} gates {list(order)} to {list(gates)}")
    return np.stack([array[list(order).index(gate)] for gate in gates])
