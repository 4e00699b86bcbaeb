"""How two arrays are compared; the bounds themselves stand in tolerances.py."""

from __future__ import annotations

import numpy as np


def relative_error(got, want) -> float:
    """|got - want| / |want| in the L2 norm; |got| where want is zero, 0 where both are empty."""
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    difference = np.linalg.norm((got - want).ravel())
    scale = np.linalg.norm(want.ravel())
    return float(difference / scale) if scale > 0 else float(difference)


def assert_close(got, want, bound: float, what: str = "") -> None:
    """Same shape, NaN and infinities at the same places, everything else within `bound`."""
    got = np.asarray(got, np.float64)
    want = np.asarray(want, np.float64)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    special = ~np.isfinite(want) | ~np.isfinite(got)
    if special.any():
        np.testing.assert_array_equal(got[special], want[special], err_msg=what)
        got, want = got[~special], want[~special]
    error = relative_error(got, want)
    assert error <= bound, f"{what}: relative error {error:.3g} is above {bound:.3g}"


def bits(value) -> bytes:
    """The very bits, with type and shape, so that equal bytes mean equal results."""
    array = np.ascontiguousarray(np.asarray(value))
    return f"{array.dtype.name}{array.shape}".encode() + array.tobytes()
