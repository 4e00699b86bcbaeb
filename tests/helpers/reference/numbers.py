"""What the cells share: conversion to float64, and the activations."""

from __future__ import annotations

import numpy as np


def f64(*arrays):
    return tuple(np.asarray(a).astype(np.float64) for a in arrays)


def sigmoid(x):
    """1 / (1 + exp(-x)), by the branch whose exponential does not overflow."""
    x = np.asarray(x, np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def hard_sigmoid(x, slope: float):
    """The piecewise linear function through (0, 1/2) with values in 0..1; a NaN stays."""
    return np.clip(slope * np.asarray(x, np.float64) + 0.5, 0.0, 1.0)


def relu(x):
    return np.maximum(x, 0.0)


def activations(identity: bool):
    """The activation of gates and the one of candidates; `identity` replaces both by x itself."""
    return (np.array, np.array) if identity else (sigmoid, np.tanh)
