"""What the tests know of the four block-cell ops: arguments, dims, attributes, random inputs.

Written from the op contracts, not from the code under test. The dims are expressions over B
(batch), I (input size), H (units) and P (length of a peephole: H with use_peephole, free without).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from helpers import run_modes
from helpers.reference import block_ops

_BH = ("B", "H")


@dataclasses.dataclass(frozen=True)
class Op:
    """One op: name, dims of every argument and output by name, attrs, its oracle."""

    name: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    oracle: Callable
    # Every combination of attributes that a numeric test walks through.
    attr_cases: tuple[Mapping[str, object], ...] = ({},)
    backward: bool = False

    def shapes(self, dims: Sequence[int]) -> dict:
        """Legal shape of every argument for dims = (B, I, H)."""
        return {name: evaluate(expr, dims) for name, expr in self.inputs.items()}

    def output_shapes(self, dims: Sequence[int]) -> dict:
        return {name: evaluate(expr, dims) for name, expr in self.outputs.items()}


@functools.cache
def evaluate(expressions: tuple[str, ...], dims: Sequence[int]) -> tuple[int, ...]:
    b, i, h = dims
    values = {"B": b, "I": i, "H": h, "P": h, "I+H": i + h, "2H": 2 * h, "4H": 4 * h}
    return tuple(values[e] for e in expressions)


_GRU_INPUTS = {
    "x": ("B", "I"),
    "h_prev": _BH,
    "w_ru": ("I+H", "2H"),
    "w_c": ("I+H", "H"),
    "b_ru": ("2H",),
    "b_c": ("H",),
}
_LSTM_INPUTS = {
    "x": ("B", "I"),
    "cs_prev": _BH,
    "h_prev": _BH,
    "w": ("I+H", "4H"),
    "wci": ("P",),
    "wcf": ("P",),
    "wco": ("P",),
    "b": ("4H",),
}
_PEEPHOLE_CASES = ({"use_peephole": False}, {"use_peephole": True})

GRU = Op(
    "GRUBlockCell",
    _GRU_INPUTS,
    {"r": _BH, "u": _BH, "c": _BH, "h": _BH},
    block_ops.gru_block_cell,
)
GRU_GRAD = Op(
    "GRUBlockCellGrad",
    {**_GRU_INPUTS, "r": _BH, "u": _BH, "c": _BH, "d_h": _BH},
    {"d_x": ("B", "I"), "d_h_prev": _BH, "d_c_bar": _BH, "d_r_bar_u_bar": ("B", "2H")},
    block_ops.gru_block_cell_grad,
    backward=True,
)
LSTM = Op(
    "LSTMBlockCell",
    _LSTM_INPUTS,
    {name: _BH for name in ("i", "cs", "f", "o", "ci", "co", "h")},
    block_ops.lstm_block_cell,
    (
        {},  # the defaults: forget_bias 1, cell_clip 3, no peephole
        {"use_peephole": True, "forget_bias": 0.5, "cell_clip": 0.25},
        {"use_peephole": True, "cell_clip": 0.0},
        {"use_peephole": False, "forget_bias": -1.5, "cell_clip": -1.0},
    ),
)
LSTM_GRAD = Op(
    "LSTMBlockCellGrad",
    {
        **_LSTM_INPUTS,
        **{name: _BH for name in ("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad")},
    },
    {
        "cs_prev_grad": _BH,
        "dicfo": ("B", "4H"),
        "wci_grad": ("P",),
        "wcf_grad": ("P",),
        "wco_grad": ("P",),
    },
    block_ops.lstm_block_cell_grad,
    _PEEPHOLE_CASES,
    backward=True,
)

OPS = {op.name: op for op in (GRU, GRU_GRAD, LSTM, LSTM_GRAD)}
DTYPES = ("half", "bfloat16", "float", "double")

# (B, I, H). Ones, primes, a vector's width (4, 8, 16 or 32 numbers) less or more one, I = H and
# I != H both ways, and sizes past one block of a blocked GEMM.
ODD_DIMS = (
    (1, 1, 1),
    (1, 1, 17),
    (1, 17, 1),
    (7, 1, 1),
    (1, 7, 17),
    (2, 3, 5),
    (3, 5, 7),
    (4, 8, 8),
    (5, 7, 9),
    (7, 17, 15),
    (8, 16, 16),
    (9, 15, 17),
    (15, 31, 33),
    (17, 33, 31),
    (33, 9, 3),
    (2, 64, 96),
    (65, 130, 63),
    (130, 65, 129),
    (1, 257, 300),
)
# With few rows and with many, which a blocked GEMM treats differently.
EMPTY_DIMS = (
    (0, 3, 5),
    (3, 0, 5),
    (3, 5, 0),
    (0, 0, 5),
    (0, 5, 0),
    (3, 0, 0),
    (0, 0, 0),
    (65, 0, 33),
    (65, 33, 0),
    (65, 0, 0),
    (0, 64, 65),
)

# Residuals of a Grad op that come out of σ and of tanh. The others are any number.
_SIGMOIDS = {"r", "u", "i", "f", "o"}
_TANHS = {"c", "ci", "co"}


def random_inputs(op: Op, dims: Sequence[int], dtype, seed: int = 0) -> dict[str, np.ndarray]:
    """Random arguments of `op`, in the NumPy type `dtype`, of legal shapes."""
    return {k: v.astype(dtype) for k, v in _random_numbers(op.name, tuple(dims), seed).items()}


@functools.lru_cache(maxsize=256)  # each attribute case and each type asks for the same
def _random_numbers(op_name: str, dims: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    """Every argument has its own stream, so adding one changes no other."""
    inputs = {}
    for position, (name, shape) in enumerate(OPS[op_name].shapes(dims).items()):
        rng = np.random.default_rng([seed, position, *dims])
        if name in _SIGMOIDS:
            value = rng.uniform(0.02, 0.98, shape)
        elif name in _TANHS:
            value = rng.uniform(-0.95, 0.95, shape)
        elif len(shape) == 2 and name.startswith("w"):
            # Keeps the pre-activations near 1, whatever the size.
            value = rng.normal(size=shape) / np.sqrt(max(shape[0], 1))
        else:
            value = rng.normal(size=shape)
        inputs[name] = value
    return inputs


def numpy_type(dtype: str):
    """The NumPy type of one of DTYPES."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"half": "float16", "float": "float32", "double": "float64"}[dtype])


def reduction_length(dims: Sequence[int], op: Op | None = None, attrs: Mapping | None = None):
    """The longest sum of a call: over I + H, 2H for a Grad, B for the peephole gradients."""
    b, i, h = dims
    longest = i + h
    if op is not None and op.backward:
        longest = max(longest, 2 * h, b if (attrs or {}).get("use_peephole") else 0)
    return longest


def oracle(op: Op, inputs: Mapping[str, np.ndarray], attrs: Mapping[str, object]) -> dict:
    """The outputs by name, float64."""
    # Float attributes reach a kernel as float32.
    attrs = {k: float(np.float32(v)) if type(v) is float else v for k, v in attrs.items()}
    return dict(zip(op.outputs, op.oracle(**inputs, **attrs), strict=True))


def special_arguments(op: Op) -> list[tuple[str, float]]:
    """(argument, NaN or infinity) for every argument.

    What the equations do not read (x and the biases in a Grad op, the peepholes without
    use_peephole) the oracle does not read either: then nothing may come of it.
    """
    return [(name, value) for name in op.inputs for value in (np.nan, np.inf, -np.inf)]


def is_legal(op: Op, shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, object]) -> bool:
    """Whether the contract accepts arguments of these shapes.

    x gives B and I, h_prev gives H; all else follows. A peephole that is not used is any vector.
    """
    if len(shapes["x"]) != 2 or len(shapes["h_prev"]) != 2:
        return False
    dims = (*shapes["x"], shapes["h_prev"][1])
    for name, expressions in op.inputs.items():
        if expressions == ("P",) and not attrs.get("use_peephole", False):
            if len(shapes[name]) != 1:
                return False
        elif tuple(shapes[name]) != evaluate(expressions, dims):
            return False
    return True


def op_cases():
    """(op, attrs) for all four ops and all their attribute cases."""
    return [(op, attrs) for op in OPS.values() for attrs in op.attr_cases]


def caller(raw_ops, op: Op, attrs: Mapping[str, object], mode: str = "eager") -> Callable:
    """A function of the arguments by name: the op in one of run_modes.MODES."""
    import tensorflow as tf

    function = getattr(raw_ops, op.name)
    run = run_modes.in_mode(mode, lambda arguments: function(**arguments, **attrs))
    return lambda inputs: run({k: tf.convert_to_tensor(v) for k, v in inputs.items()})


def call(raw_ops, op: Op, inputs: Mapping, attrs: Mapping[str, object], mode: str = "eager"):
    """Calls the op of `raw_ops` (ours or TensorFlow's) once."""
    return caller(raw_ops, op, attrs, mode)(inputs)
