"""The modes in which a test runs a function: eagerly, in a graph, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MODES = ("eager", "graph", "jit")


def in_mode(mode: str, function: Callable, **options) -> Callable:
    """The function itself, or a tf.function around it; options are those of tf.function."""
    import tensorflow as tf

    if mode == "eager":
        return function
    assert mode in MODES, mode
    return tf.function(function, jit_compile=True if mode == "jit" else None, **options)


def fewer(mode: str, cases: Sequence, kept: slice = slice(None, None, 4)) -> Sequence:
    """The cases of a mode: those in `kept` for XLA, which compiles a program for every shape."""
    return cases[kept] if mode == "jit" else cases
