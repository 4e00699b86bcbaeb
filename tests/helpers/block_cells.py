"""What the tests know of the block ops: dims, attributes, random inputs, oracles.

The signatures are those of the op table. dims are (B, I, H) of a cell, (T, B, I, H) of a sequence;
in expressions over them P is the length of a peephole: H with use_peephole, any without.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from helpers import op_table, run_modes
from helpers.reference import block_ops


@dataclasses.dataclass(frozen=True, eq=False)
class Op:
    """One op, its oracle, and the attributes that a numeric test walks through."""

    name: str
    oracle: Callable
    attr_cases: tuple[Mapping[str, object], ...] = ({},)
    vjp: Callable | None = None  # of a forward op

    @functools.cached_property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        return _dims_of(op_table.OPS[self.name].inputs)

    @functools.cached_property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        outputs = op_table.OPS[self.name].outputs
        return _dims_of(
            {k: op_table.OPS[self.name].inputs.get(v.same_as, v) for k, v in outputs.items()}
        )

    def longest_sum(self, dims: Sequence[int], attrs: Mapping[str, object]) -> int:
        """Terms of the longest sum of a call; a sequence adds those of its steps up."""
        if self.sizes == "BIH":
            return reduction_length(dims, self, attrs)
        t, b, i, h = dims
        return max(t, 1) * (max(i + h, 4 * h, b) if self.backward else i + h)

    @property
    def sizes(self) -> str:
        return "TBIH" if "seq_len_max" in self.inputs else "BIH"

    @property
    def backward(self) -> bool:
        return "Grad" in self.name

    @property
    def stock(self) -> bool:
        """Whether TensorFlow has the op, too."""
        return not self.name.startswith("BlockGRU")

    def shapes(self, dims: Sequence[int]) -> dict:
        """Legal shape of every argument."""
        return {name: evaluate(expr, dims) for name, expr in self.inputs.items()}

    def output_shapes(self, dims: Sequence[int]) -> dict:
        return {name: evaluate(expr, dims) for name, expr in self.outputs.items()}


def _dims_of(arguments: Mapping[str, op_table.Argument]) -> dict[str, tuple[str, ...]]:
    peephole = (("H",), ("?",))
    return {k: ("P",) if v.alternatives == peephole else v.dims for k, v in arguments.items()}


@functools.cache
def evaluate(expressions: tuple[str, ...], dims: Sequence[int]) -> tuple[int, ...]:
    sizes = dict(zip("TBIH"[-len(dims) :], dims, strict=True))
    return op_table.shape(expressions, sizes | {"P": sizes["H"]})


PEEPHOLE_CASES = ({"use_peephole": False}, {"use_peephole": True})

GRU = Op("GRUBlockCell", block_ops.gru_block_cell, vjp=block_ops.gru_block_cell_vjp)
GRU_GRAD = Op("GRUBlockCellGrad", block_ops.gru_block_cell_grad)
LSTM = Op(
    "LSTMBlockCell",
    block_ops.lstm_block_cell,
    (
        {},  # the defaults: forget_bias 1, cell_clip 3, no peephole
        {"use_peephole": True, "forget_bias": 0.5, "cell_clip": 0.25},
        {"use_peephole": True, "cell_clip": 0.0},
        {"use_peephole": False, "forget_bias": -1.5, "cell_clip": -1.0},
    ),
    block_ops.lstm_block_cell_vjp,
)
LSTM_GRAD = Op("LSTMBlockCellGrad", block_ops.lstm_block_cell_grad, PEEPHOLE_CASES)

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


def random_inputs(
    op: Op, dims: Sequence[int], dtype, seed: int = 0, valid: int | None = None
) -> dict[str, np.ndarray]:
    """Random arguments of `op`, in the NumPy type `dtype`, of legal shapes.

    seq_len_max, where there is one, is `valid`, or T.
    """
    inputs = {k: v.astype(dtype) for k, v in _random_numbers(op, tuple(dims), seed).items()}
    if "seq_len_max" in op.inputs:
        inputs = {"seq_len_max": np.int64(dims[0] if valid is None else valid)} | inputs
    return inputs


@functools.lru_cache(maxsize=256)  # each attribute case and each type asks for the same
def _random_numbers(op: Op, dims: tuple[int, ...], seed: int) -> dict[str, np.ndarray]:
    """Every argument has its own stream, so adding one changes no other."""
    inputs = {}
    for position, (name, shape) in enumerate(op.shapes(dims).items()):
        rng = np.random.default_rng([seed, position, *dims])
        if name == "seq_len_max":
            continue
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
    names = [name for name in op.inputs if name != "seq_len_max"]
    return [(name, value) for name in names for value in (np.nan, np.inf, -np.inf)]


def op_cases(ops: Mapping[str, Op] = OPS):
    """(op, attrs) for all ops and all their attribute cases."""
    return [(op, attrs) for op in ops.values() for attrs in op.attr_cases]


def tensors_of(inputs: Mapping) -> dict:
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
