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


def activations(identity: bool):
    """The activation of gates and the one of candidates; `identity` replaces both by x itself."""
    return (np.array, np.array) if identity else (sigmoid, np.tanh)
