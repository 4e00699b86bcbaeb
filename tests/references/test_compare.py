"""The comparison itself: a bound that lets a wrong element through makes every test worthless."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import block_cells, compare, tolerances
from helpers.reference import block_ops


@pytest.fixture(scope="module")
def gradient():
    """The gradient of an LSTM's weights, 4,960 elements, as it is and as bfloat16 rounds it."""
    inputs = block_cells.random_inputs(block_cells.LSTM, (31, 42, 20), np.float64)
    cotangents = [None] * 6 + [np.random.default_rng(1).normal(size=(31, 20))]
    want = block_ops.lstm_block_cell_vjp(**inputs, cotangents=cotangents)[3]
    assert want.size == 4960
    return want, want.astype(block_cells.numpy_type("bfloat16")).astype(np.float64)


BOUND = tolerances.composed_bound("bfloat16", 62)


@pytest.mark.parametrize("fault", ["a zero", "the value of the element before"])
def test_one_wrong_element_among_thousands_is_seen(gradient, fault):
    """Of every seventh element. The norm alone sees almost none of them.

    What is less than 16% of the usual size is lost in what bfloat16 may round off.
    """
    want, got = gradient
    compare.assert_close(got, want, BOUND)
    seen, by_norm, sizes = [], [], []
    for at in range(0, want.size, 7):
        wrong = got.copy()
        wrong.flat[at] = 0.0 if fault == "a zero" else got.flat[at - 1]
        try:
            compare.assert_close(wrong, want, BOUND)
            seen.append(False)
        except AssertionError:
            seen.append(True)
        by_norm.append(compare.relative_error(wrong, want) > BOUND)
        sizes.append(abs(wrong.flat[at] - want.flat[at]))
    seen, sizes = np.array(seen), np.array(sizes)
    assert np.mean(by_norm) < 0.02 and seen.mean() > 0.75
    assert seen[sizes > np.median(sizes)].all()
    if fault == "a zero":
        limit = tolerances.element_factor(want.size) * BOUND * np.sqrt(np.mean(want**2))
        assert seen[sizes > limit].all()


def test_specials_are_compared_by_place():
    want = np.array([1.0, np.nan, np.inf, -np.inf])
    compare.assert_close(want, want, 0.0)
    for wrong in ([1.0, 1.0, np.inf, -np.inf], [1.0, np.nan, -np.inf, -np.inf], [np.nan] * 4):
        with pytest.raises(AssertionError):
            compare.assert_close(np.array(wrong), want, 1.0)


def test_nothing_is_expected_of_empty_arrays_but_their_shape():
    compare.assert_close(np.zeros((0, 3)), np.zeros((0, 3)), 0.0)
    with pytest.raises(AssertionError):
        compare.assert_close(np.zeros((0, 3)), np.zeros((3, 0)), 0.0)
