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


@dataclasses.dataclass(frozen=True)
class Arrays:
    """All float32. Gate orders: LSTM i, f, g, o; GRU r, u, c. The initial state is zero."""

    x: np.ndarray  # [T, B, I]
    weights: tuple[Weights, ...]  # layer by layer, each direction of it
    cotangent: np.ndarray  # [T, B, D * H]   the loss is sum(h * cotangent)

    # Of the first layer direction, for peers that run only one.
    @property
    def w(self) -> np.ndarray:
        return self.weights[0].w

    @property
    def r(self) -> np.ndarray:
        return self.weights[0].r

    @property
    def b(self) -> np.ndarray:
        return self.weights[0].b


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


def gates_beside(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """[gates, rows, H] → [rows, gates * H], the gates in `order`."""
    return np.ascontiguousarray(np.concatenate([array[gate] for gate in order], axis=-1))


def gates_below(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """[gates, rows, H] → [gates * H, rows], the gates in `order`: weights as [out, in]."""
    return np.ascontiguousarray(np.concatenate([array[gate].T for gate in order], axis=0))


def bias(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """[gates, H] → [gates * H], the gates in `order`."""
    return np.ascontiguousarray(array[list(order)].reshape(-1))
