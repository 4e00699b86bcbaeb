"""What sessions in bfloat16 and int8 must compute: the GEMMs of docs/low_precision.md, in NumPy.

The page has the only definition of them, and the cells are those of weight_stacks; neither shares
anything with the engine.

A state of the engine that differs by a rounding of float32 may be quantised to another integer. So
each step is computed from the h that the engine has before it, which is quantised as there. What a
step quantises of its own, r ∘ h of a GRU and o ∘ tanh(cs) before a projection, may be too close to
a tie to be decided: the oracle reports such rows, and they are not compared.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from helpers import children, markdown, weight_stacks

PAGE = children.ROOT / "docs" / "low_precision.md"

# Errors in float32 of what is quantised within a step, relative to itself and to the largest value
# of its row: those of two activations and of a cell state of some ten steps.
_UNSURE, _UNSURE_OF_LARGEST = 1e-6, 1e-7


@functools.cache
def page() -> SimpleNamespace:
    """The functions of the page's first example."""
    code = markdown.python_blocks(PAGE.read_text(encoding="utf-8"))[0]
    return SimpleNamespace(**markdown.run_for_names(code, "<example 1 of low_precision.md>"))


class Gemm:
    """A GEMM of a precision; collects the rows of operands that are too close to a tie.

    Args:
      precision: "bfloat16" or "int8".
      rounds_rows: for bfloat16, whether the engine rounds rows too.
    """

    def __init__(self, precision: str, rounds_rows: bool):
        self._precision, self._rounds_rows = precision, rounds_rows
        self._undecided: np.ndarray | None = None

    def __call__(self, a: np.ndarray, w: np.ndarray) -> np.ndarray:
        a = np.asarray(a)
        rows = (self._near_tie(a) & (a != a.astype(np.float32))).any(axis=1)
        self._undecided = rows if self._undecided is None else self._undecided | rows
        if self._precision == "int8":
            return page().int8_gemm(a, w)
        return page().bfloat16_gemm(a, w, self._rounds_rows)

    def _near_tie(self, a: np.ndarray) -> np.ndarray:
        """The elements that may be rounded to another value in float32."""
        largest = np.abs(a).max(axis=1, keepdims=True, initial=0)
        error = _UNSURE * np.abs(a) + _UNSURE_OF_LARGEST * largest
        if self._precision == "int8":
            to_integers = 127 / np.maximum(largest, 1e-30)
            return np.rint((a - error) * to_integers) != np.rint((a + error) * to_integers)
        if not self._rounds_rows:
            return np.zeros(a.shape, bool)
        return page().bfloat16(a - error) != page().bfloat16(a + error)

    def take_undecided(self) -> np.ndarray:
        """The rows, [B], of the operands since the last call."""
        rows, self._undecided = self._undecided, None
        return rows


class Computed(NamedTuple):
    """What a layer direction computes.

    Args:
      outputs: [B, T, P]; zeros past the length of a row.
      runs: [B, T], whether a step is within the length.
      decided: [B, T], whether it is and its outputs are decided.
      h: the state after the last step of each row, [B, P], as in the outputs that were given.
      c: the same of the cell state, [B, H].
    """

    outputs: np.ndarray
    runs: np.ndarray
    decided: np.ndarray
    h: np.ndarray
    c: np.ndarray


def direction(
    weights,
    one,
    x: np.ndarray,
    outputs: np.ndarray,
    lengths: np.ndarray,
    state: tuple[np.ndarray, np.ndarray],
    backwards: bool,
    gemm: Gemm,
) -> Computed:
    """Computes every step of x, [B, T, I], from the outputs, [B, T, P], that the engine has.

    Args:
      weights: what the cell is.
      one: the weights of the direction.
      x: its input.
      outputs: its outputs in the engine.
      lengths: [B].
      state: (h, c) before the first step.
      backwards: whether it begins with the last step of each row.
      gemm: what multiplies.
    """
    h, c = (part.astype(np.float64) for part in state)
    runs = np.arange(x.shape[1]) < np.asarray(lengths)[:, None]
    want, decided = np.zeros(outputs.shape), runs.copy()
    for t in range(x.shape[1])[:: -1 if backwards else 1]:
        now = runs[:, t, None]
        new_h, new_c = weight_stacks.step(weights, one, x[:, t], h, c, gemm)
        want[:, t] = np.where(now, new_h, 0)
        decided[:, t] &= ~gemm.take_undecided()
        h, c = np.where(now, outputs[:, t], h), np.where(now, new_c, c)
    return Computed(want, runs, decided, h, c)
