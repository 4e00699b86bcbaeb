"""The interface of an adapter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from bench.data import Arrays
from bench.shapes import Case


@dataclasses.dataclass
class Outcome:
    """The results of one call, for the check that all peers compute the same."""

    h: np.ndarray  # [T, B, D * H]; zeros past the length of a row
    x_grad: np.ndarray | None = None  # [T, B, I], of a training call


@dataclasses.dataclass
class Prepared:
    """A case ready to run: weights in the peer's layout, graph traced."""

    call: Callable[[], object]  # one inference or training call; returns when it is finished
    outcome: Callable[[], Outcome]  # runs the same computation and returns its results


class Peer(Protocol):
    """An adapter. Its constructor imports the library and sets the threads; it may have gemm()."""

    def __init__(self, option: str, threads: int) -> None: ...

    def prepare(self, case: Case, arrays: Arrays) -> Prepared: ...


def square(size: int) -> np.ndarray:
    """Two matrices for measuring the GEMM peak."""
    return np.random.default_rng(3).standard_normal((2, size, size), dtype=np.float32)
