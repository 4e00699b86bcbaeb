"""The comparison itself: a bound that lets a wrong element through makes every test worthless."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import block_cells, compare, tolerances
from helpers.reference import block_ops


@pytest.mark.parametrize("change", ["x", "w", "b", "cs_prev"])
def test_the_comparison_sees_one_wrong_element(change):
    """A bound that lets a wrong element through would make every other test worthless."""
    dims = (65, 130, 63)
    inputs = block_cells.random_inputs(block_cells.LSTM, dims, np.float64)
    want = block_cells.oracle(block_cells.LSTM, inputs, {})
    inputs[change].flat[0] += 0.1
    wrong = block_cells.oracle(block_cells.LSTM, inputs, {})
    bound = tolerances.bound("float", block_cells.reduction_length(dims))
    with pytest.raises(AssertionError):
        for name in want:
            compare.assert_close(wrong[name], want[name], bound)


@pytest.fixture(scope="module")
def gradient():
    """The gradient of an LSTM's weights, 4,960 elements, as it is and as bfloat16 rounds it."""
    inputs = block_cells.random_inputs(block_cells.LSTM, (31, 42, 20), np.float64)
    cotangents = [None] * 6 + [np.random.default_rng(1).normal(size=(31, 20))]
    want = block_ops.lstm_block_cell_vjp(**inputs, cotangents=cotangents)[3]
    assert want.size == 4960
    return want, want.astype(block_cells.numpy_type("bfloat16")).astype(np.float64)


BOUND = tolerances.composed_bound("bfloat16", 62)


def _is_seen(got, want) -> bool:
    try:
        compare.assert_close(got, want, BOUND)
    except AssertionError:
        return True
    return False


def _faults(got, want, fault):
    """Of every seventh element: whether the comparison sees the fault at it, and how large it is.

    The norm alone sees almost none: of 4,960 elements one must be 4.4 times as large as usual.
    """
    seen, by_norm, sizes = [], [], []
    for at in range(0, want.size, 7):
        wrong = got.copy()
        wrong.flat[at] = fault(at)
        seen.append(_is_seen(wrong, want))
        by_norm.append(compare.relative_error(wrong, want) > BOUND)
        sizes.append(abs(wrong.flat[at] - want.flat[at]))
    assert np.mean(by_norm) < 0.02
    return np.array(seen), np.array(sizes)


def test_one_zero_among_thousands_is_seen(gradient):
    want, got = gradient
    assert not _is_seen(got, want)
    seen, sizes = _faults(got, want, lambda at: 0.0)
    limit = tolerances.element_factor(want.size) * BOUND * np.sqrt(np.mean(want**2))
    assert seen[sizes > limit].all()
    assert seen[sizes > np.median(sizes)].all()
    # What is less than 16% of the usual size is lost in what bfloat16 may round off.
    assert seen.mean() > 0.75


def test_another_elements_value_is_seen(gradient):
    """As an index that is one too large would give."""
    want, got = gradient
    seen, sizes = _faults(got, want, lambda at: got.flat[at - 1])
    assert seen[sizes > np.median(sizes)].all()
    assert seen.mean() > 0.75


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
