"""Weights and inputs of a sequence case, the same for every peer, in one canonical layout.

Each peer converts them to its own layout, so all compute the same numbers and the bench can check
that they do (reset before and after the GEMM are two different GRUs, compared separately).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from bench.shapes import GATES, Case


@dataclasses.dataclass(frozen=True)
class Weights:
    """The weights of one layer direction; I is its input size."""

    w: np.ndarray  # [gates, I, H]   input weights
    r: np.ndarray  # [gates, H, H]   recurrent weights
    b: np.ndarray  # [gates, H]      one bias; a peer with two takes zeros for the recurrent one

    def beside(self, order: tuple[int, ...]) -> list[np.ndarray]:
        """[I, gates * H], [H, gates * H] and [gates * H], the gates in `order`."""
        return [
            np.concatenate([part[gate] for gate in order], axis=-1)
            for part in (self.w, self.r, self.b)
        ]

    def below(self, order: tuple[int, ...]) -> list[np.ndarray]:
        """The same with weights as [out, in]."""
        return [np.ascontiguousarray(part.T) for part in self.beside(order)]


@dataclasses.dataclass(frozen=True)
class Arrays:
    """All float32. Gate orders: LSTM i, f, g, o; GRU r, u, c. The initial state is zero."""

    x: np.ndarray  # [T, B, I]
    weights: tuple[Weights, ...]  # layer by layer, each direction of it
    cotangent: np.ndarray  # [T, B, D * H]   the loss is sum(h * cotangent)

    @property
    def first(self) -> Weights:
        """Of the first layer direction, for peers that run only one."""
        return self.weights[0]


def make(case: Case) -> Arrays:
    """The arrays of `case`, from a fixed seed."""
    rng = np.random.default_rng(7)
    gates, units = GATES[case.cell], case.units
    bound = 1.0 / np.sqrt(case.units)

    def uniform(*dims: int) -> np.ndarray:
        return rng.uniform(-bound, bound, dims).astype(np.float32)

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims, dtype=np.float32)

    arrays = Arrays(
        x=normal(case.steps, case.batch, case.inputs),
        weights=tuple(
            Weights(
                uniform(gates, inputs, units), uniform(gates, units, units), uniform(gates, units)
            )
            for inputs in case.input_sizes()
            for _ in range(case.directions)
        ),
        cotangent=normal(case.steps, case.batch, case.directions * units),
    )
    if case.as_layer:
        # The outputs at steps of padding differ between libraries: no peer may depend on them.
        arrays.cotangent[~case.valid()] = 0
    return arrays
