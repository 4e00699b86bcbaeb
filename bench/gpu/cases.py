"""What is measured on a GPU, as data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

NAMED = ("cells", "kinds", "dtypes")
# The values of each field of a case that are measured unless others are asked for.
GRID: dict[str, Sequence[Any]] = {
    "cells": ("lstm", "gru"),
    "kinds": ("infer", "train"),
    # float32 with TensorFlow's and PyTorch's TF32 switched off, and on.
    "dtypes": ("float", "tf32", "half", "bfloat16"),
    "batches": (1, 8, 32, 128),
    "steps": (50, 500),
    "units": (64, 256, 512, 1024, 2048),
    "layers": (1,),
    "directions": (1,),
}
STEP_BY_STEP = "step by step"
# How ours runs the steps, by the field that a case has: whether persistent kernels may, and the
# multiply-adds from which on a step's GEMM is cuBLAS' (0: the engine's own limit).
PATHS = {
    "": (True, 0), STEP_BY_STEP: (False, 0), "cuBLAS": (False, 1), "StepKernel": (False, 1 << 62),
}  # fmt: skip
_GATES = {"lstm": 4, "gru": 3}


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
    path: str = ""  # of PATHS

    def fields(self) -> dict[str, Any]:
        """The fields of a row of a result; the shape is B, T, H."""
        fields = dataclasses.asdict(self)
        return fields | {"shape": [fields.pop(name) for name in ("batch", "steps", "units")]}

    @property
    def layer_directions(self) -> int:
        return self.layers * self.directions

    @property
    def multiply_adds(self) -> int:
        """Of all GEMMs; a backward pass has twice those of a forward pass."""
        depths = 2 * self.units + (self.layers - 1) * (self.directions + 1) * self.units
        forward = self.directions * depths * _GATES[self.cell] * self.units
        return forward * self.steps * self.batch * (3 if self.kind == "train" else 1)


def all_cases(**others: Sequence[Any]) -> list[Case]:
    """Those of GRID, or of other values than its own."""
    return [Case(*values) for values in itertools.product(*(GRID | others).values())]


def _train(dtype: str, batch: int, units: int, cell: str = "lstm", **others: object) -> Case:
    return Case(cell, "train", dtype, batch, 100, units, **others)


# For some two minutes; what is most worth knowing comes first.
QUARTER = (
    _train("float", 32, 512),
    _train("float", 32, 512, path=STEP_BY_STEP),
    _train("half", 32, 512),
    _train("bfloat16", 32, 1024),
    _train("float", 32, 1024),
    _train("float", 8, 128),
    Case("lstm", "infer", "float", 1, 100, 256),
    Case("lstm", "infer", "bfloat16", 1, 100, 1024),
    _train("float", 32, 256, "gru"),
    _train("tf32", 32, 1024),
    _train("float", 128, 1024),
    _train("float", 32, 256),
    _train("bfloat16", 128, 512, "gru"),
    _train("float", 32, 1024, path=STEP_BY_STEP),
    _train("float", 8, 128, path=STEP_BY_STEP),
    _train("float", 32, 512, directions=2),
    _train("half", 32, 512, directions=2),
    Case("lstm", "infer", "float", 1, 100, 256, directions=2),
    _train("float", 32, 512, layers=2),
)
PRESETS = {"quarter": QUARTER}

# Multiply-adds of a multiprocessor per clock, by compute capability: of float32, and on tensor
# cores of TF32 and of 16 bits.
_PER_CLOCK = {(8, 0): (64, 512, 1024), (9, 0): (128, 1024, 2048)}
_PRECISION = {"float": 0, "tf32": 1, "half": 2, "bfloat16": 2}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The device of a result."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_hz: float  # the highest

    def shortest_seconds(self, case: Case) -> float | None:
        """What a case's multiply-adds take at the least; None for a GPU that is not known here."""
        if self.capability not in _PER_CLOCK:
            return None
        per_clock = _PER_CLOCK[self.capability][_PRECISION[case.dtype]]
        return case.multiply_adds / (per_clock * self.multiprocessors * self.clock_hz)
