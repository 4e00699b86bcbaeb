"""What lets this package be imported again in one process."""

from __future__ import annotations

import sys

from tensorflow.python.framework import ops


def forget() -> None:
    """Takes the gradients of modules that are gone out of TensorFlow, which takes one per op.

    A module is gone where its import failed, or where somebody dropped it from sys.modules to
    import it again. Functions of old modules that are still in use get the new gradients: the ops
    are the same, as is the library.
    """
    registry = ops.gradient_registry
    for op in list(registry.list()):
        gradient = registry.lookup(op)
        module = getattr(gradient, "__module__", None) or ""  # None: an op without a gradient
        if module.partition(".")[0] != __package__:
            continue
        # A module that is imported again has the name of the old one, but other globals.
        if gradient.__globals__ is not getattr(sys.modules.get(module), "__dict__", None):
            del registry._registry[op]  # there is no public way
