"""The selections of parameters: what they leave out would be tested nowhere."""

from __future__ import annotations

import itertools

import pytest
from helpers.covering import in_turn, pairwise


@pytest.mark.parametrize("sizes", [(3, 2), (2, 3, 4), (5, 3, 3, 2), (4, 4, 4, 4, 4), (1, 1, 3)])
def test_every_pair_occurs(sizes):
    factors = [[f"{factor}.{k}" for k in range(size)] for factor, size in enumerate(sizes)]
    rows = pairwise(*factors)
    assert all(value in factor for row in rows for value, factor in zip(row, factors, strict=True))
    for i, j in itertools.combinations(range(len(factors)), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(factors[i], factors[j]))


def test_in_turn():
    assert in_turn("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    assert in_turn("abc", [1, 2], first=1) == [("a", 2), ("b", 1), ("c", 2)]
