"""One step of the Elman cell, after its GEMMs: h = tanh(h_bar) or max(h_bar, 0), and back."""

from __future__ import annotations

import numpy as np

from .numbers import activations


def forward(h_bar, *, relu=False, identity=False) -> np.ndarray:
    return np.maximum(h_bar, 0.0) if relu else activations(identity)[1](h_bar)


def backward(h, d_h, *, relu=False) -> np.ndarray:
    """d_h_bar, from h as it was saved."""
    return np.where(h > 0, d_h, 0.0) if relu else d_h * (1.0 - h * h)
