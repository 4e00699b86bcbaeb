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

    An lstm or gru with activation="relu" has relu in place of each tanh, and with hard_sigmoid = a
    it has clip(a · v + 0.5, 0, 1) in place of each σ(v).

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

h' and cs' of the first step are h0 and c0, or zero where there is none, unless a call has a state.

A forget bias that a framework adds in the cell is part of b_x here. Zoneout of a state s is its
mean at inference, z ∘ s' + (1 − z) ∘ s with the rate z; an lstm's h is made from cs before that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tf_blockrnn.weights._cells import CELLS_WITH, GATES, OPTIONS, check_option, require_cell
from tf_blockrnn.weights._checks import check_shape, converted, frozen, one_of, same_bits

_DIRECTIONS = ("forward", "backward")


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
      h0: the state of every row before its first step, [P], or None for zeros.
      c0: likewise the cell state of an lstm or a layer_norm_lstm, [H], or None for zeros.

    Raises:
      ValueError: a shape does not match the others.
      TypeError: an array is missing, its type is none of float16, bfloat16, float32 and float64,
        or not that of w_x.

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
    h0: np.ndarray | None = None
    c0: np.ndarray | None = None

    def __post_init__(self):
        if self.w_x is None or self.w_h is None:
            raise TypeError("w_x and w_h must be arrays, got None")
        for name, value in self.arrays.items():
            object.__setattr__(self, name, frozen(name, value))
        self._check_shapes()
        for name, array in self.arrays.items():
            if array.dtype != self.w_x.dtype:
                raise TypeError(
                    f"{name} must be of w_x's type {self.w_x.dtype.name}, got {array.dtype.name}"
                )

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that are not None, by name."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: array for name, array in found.items() if array is not None}

    def _check_shapes(self) -> None:
        if self.w_x.ndim == 2:
            raise ValueError(
                "w_x must have the shape [G, I, H], a matrix for each gate, got "
                f"{list(self.w_x.shape)}; weights.from_keras and weights.from_torch take the "
                "matrices of layers"
            )
        check_shape("w_x", self.w_x, "[G, I, H]", (None, None, None))
        gates, _, units = self.w_x.shape
        beside = f" beside w_x [G, I, H] = {list(self.w_x.shape)}"
        width = units
        if self.w_p is not None:
            check_shape("w_p", self.w_p, "[P, H]", (None, units), beside)
            width = len(self.w_p)
        expected = {
            "w_h": ("[G, P, H]", (gates, width, units)),
            "b_x": ("[G, H]", (gates, units)),
            "b_h": ("[G, H]", (gates, units)),
            "peepholes": ("[3, H]", (3, units)),
            "norm_x": ("[2, G, H]", (2, gates, units)),
            "norm_h": ("[2, G, H]", (2, gates, units)),
            "norm_c": ("[2, H]", (2, units)),
            "h0": ("[P]", (width,)),
            "c0": ("[H]", (units,)),
        }
        for name, (symbols, shape) in expected.items():
            if (array := getattr(self, name)) is not None:
                check_shape(name, array, symbols, shape, beside)

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

    @property
    def biases(self) -> tuple[np.ndarray, np.ndarray]:
        """b_x and b_h, [G, H]; zeros for one that does not exist."""
        zeros = np.zeros([self.gates, self.units], self.dtype)
        return tuple(zeros if bias is None else bias for bias in (self.b_x, self.b_h))

    def astype(self, dtype: np.dtype) -> DirectionWeights:
        """The same weights in another type, rounded if it is narrower.

        Raises:
          ValueError: a finite value is out of the type's range.
        """
        return DirectionWeights(
            **{name: converted(name, array, dtype) for name, array in self.arrays.items()}
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DirectionWeights):
            return NotImplemented
        mine, theirs = self.arrays, other.arrays
        return mine.keys() == theirs.keys() and all(
            same_bits(array, theirs[name]) for name, array in mine.items()
        )

    __hash__ = None


@dataclasses.dataclass(frozen=True)
class LayerWeights:
    """The weights of one layer.

    Args:
      forward: the direction from the first step to the last.
      backward: the direction from the last step to the first, or None. The layer's output is the
        concatenation of the forward output and the backward one.

    Raises:
      ValueError: the two directions differ in a size.
      TypeError: a direction is no DirectionWeights, or they differ in their type.

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
        for name, one in zip(_DIRECTIONS, self, strict=False):
            if not isinstance(one, DirectionWeights):
                raise TypeError(f"{name} must be a DirectionWeights, got {type(one).__name__}")
        if self.backward is None:
            return
        for name, one, other in zip(
            ("type", "I", "H", "P", "number of gates"),
            *((d.dtype.name, d.input_size, d.units, d.output_size, d.gates) for d in self),
            strict=True,
        ):
            if one != other:
                error = TypeError if name == "type" else ValueError
                raise error(
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
      cell_clip: only for lstm: bound of the cell state, 1e-30 or more; 0 or infinity for none.
      zoneout_h: not for rnn_tanh and rnn_relu: rate of zoneout of h in all layers, 0..1.
      zoneout_c: only for lstm: rate of zoneout of the cell state in all layers, 0..1.
      epsilon: only for the cells with layer normalisation, and required there: what is added to
        the variances, 1e-30..1e30.
      norm_output_only: only for layer_norm_lstm, and required there: whether the output alone reads
        the normalised cell state (haste, Ba et al. 2016), or the next step too (TensorFlow Addons).
      activation: only for lstm and gru: "tanh", or "relu" in its place.
      hard_sigmoid: only for lstm and gru: 0 for gates with sigmoid, else the slope of their hard
        sigmoid, 1e-30..1e30: 0.2 in Keras before version 3, 1/6 in Keras 3.

    Raises:
      ValueError: an argument or an array does not match the cell, or a layer the one below it.
      TypeError: an argument is of another type, or the layers are of several.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> gru.gates, gru.num_layers, gru.directions, gru.astype("float16").dtype.name
      (('r', 'u', 'c'), 1, 1, 'float16')
    """

    cell: str
    layers: Sequence[LayerWeights]
    reset_after: bool | None = None
    cell_clip: float = 0.0
    zoneout_h: float = 0.0
    zoneout_c: float = 0.0
    epsilon: float | None = None
    norm_output_only: bool | None = None
    activation: str = "tanh"
    hard_sigmoid: float = 0.0

    def __post_init__(self):
        if not isinstance(self.layers, Iterable):
            raise TypeError(
                f"layers must be a list of LayerWeights, got {type(self.layers).__name__}"
            )
        object.__setattr__(self, "layers", tuple(self.layers))
        one_of("cell", self.cell, GATES)
        for name in OPTIONS:
            value = check_option(name, getattr(self, name), self.cell)
            object.__setattr__(self, name, value)
        if not self.layers:
            raise ValueError("layers must not be empty")
        for layer in self.layers:
            if not isinstance(layer, LayerWeights):
                raise TypeError(f"layers must be of LayerWeights, got {type(layer).__name__}")
        for number, direction_name, direction in self.named_directions():
            self._check_direction(f"layer {number}, {direction_name}", direction)
        for number in range(1, len(self.layers)):
            below, here = self.layers[number - 1].output_size, self.layers[number].forward
            if here.input_size != below:
                raise ValueError(
                    f"layer {number}: I must be the width of layer {number - 1}'s output, {below}, "
                    f"got {here.input_size}"
                )

    def _check_direction(self, where: str, direction: DirectionWeights) -> None:
        if direction.gates != len(self.gates):
            raise ValueError(
                f"{where}: w_x must have {len(self.gates)} gates for {self.cell}, "
                f"got {direction.gates}"
            )
        for name, cells in CELLS_WITH.items():
            if getattr(direction, name) is not None:
                require_cell(f"{where}: {name}", cells, self.cell)
            elif name.startswith("norm") and self.cell in cells:
                raise ValueError(f"{where}: {self.cell} needs {name}")
        if direction.dtype != self.dtype:
            raise TypeError(
                f"{where}: all layers must be of the first one's type {self.dtype.name}, "
                f"got {direction.dtype.name}"
            )

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
        """
        layers = [LayerWeights(*(d.astype(dtype) for d in layer)) for layer in self.layers]
        return dataclasses.replace(self, layers=layers)

    __hash__ = None
