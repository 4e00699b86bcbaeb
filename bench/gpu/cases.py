"""What is measured on a GPU, as data, and the least time that it can take there."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

CELLS = {"lstm": 4, "gru": 3}  # gates
KINDS = ("infer", "train")
# float32 with TensorFlow's and PyTorch's TF32 switched off, and on.
DTYPES = {"float": 4, "tf32": 4, "bfloat16": 2}  # bytes of an element
BATCHES = (1, 8, 32, 128)
STEPS = (50, 500)
UNITS = (64, 256, 512, 1024, 2048)
LAYERS = (1,)
DIRECTIONS = (1,)


@dataclasses.dataclass(frozen=True)
class Case:
    """Layers of one direction or two; as many inputs as units."""

    cell: str
    kind: str
    dtype: str
    batch: int
    steps: int
    units: int
    layers: int = 1
    directions: int = 1

    @property
    def gates(self) -> int:
        return CELLS[self.cell]

    @property
    def layer_directions(self) -> int:
        return self.layers * self.directions

    def recurrent_bytes(self) -> int:
        return self.gates * self.units**2 * DTYPES[self.dtype]

    def product_flops(self) -> float:
        """Of all rows of one step with one matrix of weights of the state."""
        return 2.0 * self.batch * self.gates * self.units**2

    def input_products(self) -> int:
        """Such GEMMs, as large, that those with the weights of all inputs make up."""
        return self.directions * (1 + (self.layers - 1) * self.directions)


def all_cases(
    cells: Sequence[str] = tuple(CELLS),
    kinds: Sequence[str] = KINDS,
    dtypes: Sequence[str] = tuple(DTYPES),
    batches: Sequence[int] = BATCHES,
    steps: Sequence[int] = STEPS,
    units: Sequence[int] = UNITS,
    layers: Sequence[int] = LAYERS,
    directions: Sequence[int] = DIRECTIONS,
) -> Iterator[Case]:
    for values in itertools.product(
        cells, kinds, dtypes, batches, steps, units, layers, directions
    ):
        yield Case(*values)


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU's peaks, by its vendor's papers and its own clock."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float
    shared_bytes: int  # of a multiprocessor

    def product_rate(self, dtype: str) -> float:
        """FLOP/s; two for each multiplication with its addition."""
        per_clock = _PER_CLOCK.get(self.capability, _PER_CLOCK[(9, 0)])
        return 2.0 * per_clock[dtype] * self.multiprocessors * self.clock_hz

    def weights_rate(self, size: int) -> float:
        """Bytes/s at which `size` bytes of weights can be read again each step."""
        if size <= self.multiprocessors * self.shared_bytes:
            return _SHARED_BYTES_PER_CLOCK * self.multiprocessors * self.clock_hz
        return _L2_BYTES_PER_CLOCK * self.clock_hz


# Multiplications with additions of a multiprocessor, per clock; but for float, on tensor cores.
_PER_CLOCK = {
    (8, 0): {"float": 64, "tf32": 512, "bfloat16": 1024},
    (9, 0): {"float": 128, "tf32": 1024, "bfloat16": 2048},
}
_SHARED_BYTES_PER_CLOCK = 128  # of a multiprocessor
_L2_BYTES_PER_CLOCK = 5120  # of the whole GPU, as the A100's paper has it


def step_floor(case: Case, gpu: Gpu) -> float:
    """Minimum seconds of a step's GEMMs with the recurrent weights, of all layer directions: one
    with the state, and in training one with its gradient. The weights have to be read, and
    multiplied."""
    reading = case.recurrent_bytes() / gpu.weights_rate(case.recurrent_bytes())
    product = max(reading, case.product_flops() / gpu.product_rate(case.dtype))
    return case.layer_directions * product * (2 if case.kind == "train" else 1)


def floor(case: Case, gpu: Gpu) -> float:
    """Minimum seconds of a call: all steps and large GEMMs of its layers. Layers that run
    concurrently share the device, so it is the same for them."""
    product = case.steps * case.product_flops() / gpu.product_rate(case.dtype)
    # Of the inputs; in training also the gradients of the inputs and of both matrices.
    large = case.input_products()
    if case.kind == "train":
        large = 3 * large + case.layer_directions
    return case.steps * step_floor(case, gpu) + large * product
