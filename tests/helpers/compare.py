"""How two arrays are compared; the bounds themselves are defined in tolerances.py."""

from __future__ import annotations

import hashlib

import numpy as np

from helpers import tolerances


class Observed:
    """What assert_close has seen since it was reset."""

    share = 0.0  # the largest norm of errors over its bound


observed = Observed()


def relative_error(got, want) -> float:
    """|got - want| / |want| in the L2 norm; |got| where want is zero, 0 where both are empty."""
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    difference = np.linalg.norm((got - want).ravel())
    scale = np.linalg.norm(want.ravel())
    return float(difference / scale) if scale > 0 else float(difference)


def element_errors(got, want) -> np.ndarray:
    """|got - want| of each element, relative to tolerances.element_scale; finite arrays."""
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    return np.abs(got - want) / tolerances.element_scale(want)


def assert_close(got, want, bound: float, what: str = "", element_slack: float = 1.0) -> None:
    """Same shape, NaN and infinities at the same places, everything else within `bound`.

    The norm of the errors is within `bound`, and the largest of them within element_factor
    times `bound`: a norm over thousands of elements lets one of them be wholly wrong.
    element_slack: a factor of that, with a reason in tolerances.py.
    """
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    special = ~np.isfinite(want) | ~np.isfinite(got)
    if special.any():
        np.testing.assert_array_equal(got[special], want[special], err_msg=what)
        got, want = got[~special], want[~special]
    error = relative_error(got, want)
    observed.share = max(observed.share, error / max(bound, 1e-300))
    assert error <= bound, f"{what}: relative error {error:.3g} is above {bound:.3g}"
    if want.size:
        errors = element_errors(got, want)
        limit = tolerances.element_factor(want.size) * bound * element_slack
        at = np.argmax(errors)
        assert errors.flat[at] <= limit, (
            f"{what}: element {np.unravel_index(at, errors.shape)} is {got.flat[at]:.9g} and not "
            f"{want.flat[at]:.9g}, an error of {errors.flat[at]:.3g}, which is above {limit:.3g}"
        )


def bits(value) -> bytes:
    """The very bits, with type and shape, so that equal bytes mean equal results."""
    # Of a tensor first: np.asarray fails for a scalar of bfloat16.
    array = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
    return f"{array.dtype.name}{array.shape}".encode() + array.tobytes()


def digest(values) -> str:
    """A hash of the bits of several arrays or tensors."""
    return hashlib.sha256(b"".join(map(bits, values))).hexdigest()
