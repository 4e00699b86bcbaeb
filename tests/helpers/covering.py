"""Selections from a product of parameters, for tests that need not run all of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any


def pairwise(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Rows with one value of each factor, in which every pair of values of two factors occurs.

    Most defects need two values to meet (a cell and a type, a mask and a direction), not all of
    them. The rows are the same in every run.
    """
    values = [list(factor) for factor in factors]
    missing = {
        ((i, a), (j, b))
        for i, j in itertools.combinations(range(len(values)), 2)
        for a in range(len(values[i]))
        for b in range(len(values[j]))
    }
    rows = []
    for pair in sorted(missing):
        if pair not in missing:
            continue
        row = dict(pair)
        for factor in range(len(values)):
            if factor not in row:
                row[factor] = _best(factor, len(values[factor]), row, missing, first=len(rows))
        missing -= set(itertools.combinations(sorted(row.items()), 2))
        rows.append(tuple(values[factor][row[factor]] for factor in range(len(values))))
    return rows


def _best(factor: int, count: int, row: dict[int, int], missing: set, first: int) -> int:
    """The value that adds the most missing pairs to a row; of equal ones the next after `first`."""

    def added(value: int) -> int:
        return sum(tuple(sorted([(factor, value), other])) in missing for other in row.items())

    return max(((first + k) % count for k in range(count)), key=added)


def in_turn(values: Iterable[Any], others: Sequence[Any], first: int = 0) -> list[tuple[Any, Any]]:
    """Each of the values once, with one of the others: one after the other, from `first` on.

    Tests that begin with different ones give the same value different partners.
    """
    return [(value, others[(first + k) % len(others)]) for k, value in enumerate(values)]
