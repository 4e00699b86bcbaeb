"""The kernels of an op that TensorFlow's executor runs."""

from __future__ import annotations


def of(op: str) -> list:
    """Their definitions, without XLA's lowerings, which are there once it has compiled anything."""
    from tensorflow.python.framework import kernels

    found = kernels.get_registered_kernels_for_op(op).kernel
    return [kernel for kernel in found if not kernel.device_type.startswith("XLA_")]
