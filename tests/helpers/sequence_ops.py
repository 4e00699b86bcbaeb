"""What the tests know of the six whole-sequence ops: arguments, dims, attributes, random inputs.

Written from the op contracts, as block_cells.py is for the cells. The dims are expressions over T
(steps), B, I, H and P (length of a peephole). seq_len_max is not among them: an int64 scalar, 0..T.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from helpers import block_cells, run_modes
from helpers.reference import block_ops

_BH = ("B", "H")
_TBH = ("T", "B", "H")


@dataclasses.dataclass(frozen=True)
class Op:
    """One op; `inputs` has seq_len_max first, which has no dims. dims = (T, B, I, H)."""

    name: str
    inputs: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    oracle: Callable
    attr_cases: tuple[Mapping[str, object], ...] = ({},)
    backward: bool = False
    # TensorFlow has the op, too.
    stock: bool = True

    def shapes(self, dims: Sequence[int]) -> dict:
        return {name: evaluate(expr, dims) for name, expr in self.inputs.items()}

    def output_shapes(self, dims: Sequence[int]) -> dict:
        return {name: evaluate(expr, dims) for name, expr in self.outputs.items()}


@functools.cache
def evaluate(expressions: tuple[str, ...], dims: Sequence[int]) -> tuple[int, ...]:
    cell = dims[1:]
    return tuple(dims[0] if e == "T" else block_cells.evaluate((e,), cell)[0] for e in expressions)


_LSTM_INPUTS = {
    "seq_len_max": (),
    "x": ("T", "B", "I"),
    **{k: v for k, v in block_cells.LSTM.inputs.items() if k != "x"},
}
_LSTM_OUTPUTS = {name: _TBH for name in block_cells.LSTM.outputs}
_LSTM_GRAD_INPUTS = {**_LSTM_INPUTS, **_LSTM_OUTPUTS, "cs_grad": _TBH, "h_grad": _TBH}
_GRU_INPUTS = {
    "seq_len_max": (),
    "x": ("T", "B", "I"),
    **{k: v for k, v in block_cells.GRU.inputs.items() if k != "x"},
}
_GRU_OUTPUTS = {name: _TBH for name in block_cells.GRU.outputs}
_PEEPHOLE_CASES = ({"use_peephole": False}, {"use_peephole": True})


def _gradients(inputs: Mapping) -> dict:
    return {f"{name}_grad": dims for name, dims in inputs.items() if name != "seq_len_max"}


LSTM = Op(
    "BlockLSTM",
    _LSTM_INPUTS,
    _LSTM_OUTPUTS,
    block_ops.block_lstm,
    (
        {},  # the defaults: forget_bias 1, cell_clip 3, no peephole
        {"use_peephole": True, "forget_bias": 0.5, "cell_clip": 0.25},
        {"use_peephole": True, "forget_bias": -1.5, "cell_clip": 0.0},
    ),
)
LSTM_GRAD = Op(
    "BlockLSTMGrad",
    _LSTM_GRAD_INPUTS,
    _gradients(_LSTM_INPUTS),
    block_ops.block_lstm_grad,
    _PEEPHOLE_CASES,
    backward=True,
)
LSTM_V2 = Op(
    "BlockLSTMV2",
    _LSTM_INPUTS,
    _LSTM_OUTPUTS,
    functools.partial(block_ops.block_lstm, order="ifco", forget_bias=0.0, cell_clip=0.0),
    ({}, {"use_peephole": True, "cell_clip": 0.25}),
)
LSTM_GRAD_V2 = Op(
    "BlockLSTMGradV2",
    _LSTM_GRAD_INPUTS,
    _gradients(_LSTM_INPUTS),
    functools.partial(block_ops.block_lstm_grad, order="ifco"),
    _PEEPHOLE_CASES,
    backward=True,
)
GRU = Op("BlockGRU", _GRU_INPUTS, _GRU_OUTPUTS, block_ops.block_gru, stock=False)
GRU_GRAD = Op(
    "BlockGRUGrad",
    {**_GRU_INPUTS, **_GRU_OUTPUTS, "h_grad": _TBH},
    _gradients(_GRU_INPUTS),
    block_ops.block_gru_grad,
    backward=True,
    stock=False,
)
LSTM_OPS = (LSTM, LSTM_GRAD, LSTM_V2, LSTM_GRAD_V2)
GRU_OPS = (GRU, GRU_GRAD)
OPS = {op.name: op for op in (*LSTM_OPS, *GRU_OPS)}
FORWARD_OPS = tuple(op for op in OPS.values() if not op.backward)
VJPS = {
    "BlockLSTM": block_ops.block_lstm_vjp,
    "BlockLSTMV2": functools.partial(
        block_ops.block_lstm_vjp, order="ifco", forget_bias=0.0, cell_clip=0.0
    ),
    "BlockGRU": block_ops.block_gru_vjp,
}

# ((T, B, I, H), seq_len_max). Ones, primes, a vector's width less or more one, few rows with many
# units and many rows with few, sizes past one block of a blocked GEMM.
ODD_CASES = (
    ((1, 1, 1, 1), 1),
    ((2, 1, 1, 17), 2),
    ((5, 1, 17, 1), 4),
    ((3, 7, 1, 1), 3),
    ((4, 3, 5, 7), 3),
    ((7, 2, 8, 8), 7),
    ((3, 5, 7, 9), 2),
    ((6, 7, 17, 15), 6),
    ((3, 16, 16, 16), 3),
    ((5, 9, 15, 33), 5),
    ((4, 17, 33, 31), 3),
    ((2, 65, 70, 63), 2),
    ((3, 1, 130, 257), 3),
    ((2, 130, 65, 64), 1),
    ((40, 3, 4, 5), 37),
)
# (T, B, I, H): every dim 0 alone, and together.
EMPTY_DIMS = (
    (0, 3, 4, 5),
    (4, 0, 3, 5),
    (4, 3, 0, 5),
    (4, 3, 5, 0),
    (0, 0, 3, 5),
    (0, 3, 0, 5),
    (4, 3, 0, 0),
    (4, 0, 0, 5),
    (0, 0, 0, 0),
    (3, 65, 0, 33),
    (3, 65, 33, 0),
    (3, 0, 64, 65),
)

_SIGMOIDS = {"r", "u", "i", "f", "o"}
_TANHS = {"c", "ci", "co"}


def random_inputs(op: Op, dims: Sequence[int], dtype, seed: int = 0, valid: int | None = None):
    """Random arguments of `op`, in the NumPy type `dtype`; seq_len_max is `valid`, or T."""
    numbers = _random_numbers(op.name, tuple(dims), seed)
    inputs = {"seq_len_max": np.int64(dims[0] if valid is None else valid)}
    return inputs | {k: v.astype(dtype) for k, v in numbers.items()}


@functools.lru_cache(maxsize=256)  # each attribute case, type and length asks for the same
def _random_numbers(op_name: str, dims: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    inputs = {}
    for position, (name, shape) in enumerate(OPS[op_name].shapes(dims).items()):
        if name == "seq_len_max":
            continue
        rng = np.random.default_rng([seed, position, *dims])
        if name in _SIGMOIDS:
            value = rng.uniform(0.02, 0.98, shape)
        elif name in _TANHS:
            value = rng.uniform(-0.95, 0.95, shape)
        elif len(shape) == 2 and name.startswith("w"):
            # Keeps the pre-activations near 1, whatever the size, and gradients from exploding.
            value = rng.normal(size=shape) / np.sqrt(max(shape[0], 1))
        else:
            value = rng.normal(size=shape)
        inputs[name] = value
    return inputs


def longest_sum(op: Op, dims: Sequence[int]) -> int:
    """The longest sum of a call: over I + H, times T; for a Grad also 4H·T, and T·B for weights."""
    t, b, i, h = dims
    return max(t, 1) * (max(i + h, 4 * h, b) if op.backward else i + h)


def oracle(op: Op, inputs: Mapping[str, np.ndarray], attrs: Mapping[str, object]) -> dict:
    """The outputs by name, float64."""
    # Float attributes reach a kernel as float32.
    attrs = {k: float(np.float32(v)) if type(v) is float else v for k, v in attrs.items()}
    return dict(zip(op.outputs, op.oracle(**inputs, **attrs), strict=True))


def is_legal(op: Op, shapes: Mapping, attrs: Mapping[str, object], valid: int = 0) -> bool:
    """Whether the contract accepts arguments of these shapes and this seq_len_max.

    x gives T, B and I, h_prev gives H; all else follows.
    """
    if len(shapes["x"]) != 3 or len(shapes["h_prev"]) != 2:
        return False
    dims = (*shapes["x"], shapes["h_prev"][1])
    for name, expressions in op.inputs.items():
        if expressions == ("P",) and not attrs.get("use_peephole", False):
            if len(shapes[name]) != 1:
                return False
        elif tuple(shapes[name]) != evaluate(expressions, dims):
            return False
    return 0 <= valid <= dims[0]


def op_cases():
    """(op, attrs) for all six ops and all their attribute cases."""
    return [(op, attrs) for op in OPS.values() for attrs in op.attr_cases]


def tensors_of(inputs: Mapping) -> dict:
    """Tensors of the arguments; seq_len_max is an int64."""
    import tensorflow as tf

    # convert_to_tensor finds its way to the same, which takes twice as long.
    return {k: v if tf.is_tensor(v) else tf.constant(v) for k, v in inputs.items()}


def caller(raw_ops, op: Op, attrs: Mapping[str, object], mode: str = "eager") -> Callable:
    """A function of the arguments by name: the op in one of run_modes.MODES."""
    function = getattr(raw_ops, op.name)
    run = run_modes.in_mode(mode, lambda arguments: function(**arguments, **attrs))
    return lambda inputs: run(tensors_of(inputs))


def call(raw_ops, op: Op, inputs: Mapping, attrs: Mapping[str, object], mode: str = "eager"):
    """Calls the op of `raw_ops` (ours or TensorFlow's) once."""
    return caller(raw_ops, op, attrs, mode)(inputs)
