"""What is measured on a GPU, as data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

CELLS = ("lstm", "gru")
KINDS = ("infer", "train")
# float32 with TensorFlow's and PyTorch's TF32 switched off, and on.
DTYPES = ("float", "tf32", "bfloat16")
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
    def layer_directions(self) -> int:
        return self.layers * self.directions


def all_cases(
    cells: Sequence[str] = CELLS,
    kinds: Sequence[str] = KINDS,
    dtypes: Sequence[str] = DTYPES,
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
    """The device of a result."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float
