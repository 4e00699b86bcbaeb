"""The modes in which a test runs a function: eagerly, in a graph, compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MODES = ("eager", "graph", "jit")
TRACED = ("graph", "jit")


def in_mode(mode: str, function: Callable, **options) -> Callable:
    """The function itself, or a tf.function around it; options are those of tf.function."""
    import tensorflow as tf

    if mode == "eager":
        return function
    assert mode in MODES, mode
    return tf.function(function, jit_compile=True if mode == "jit" else None, **options)


def fewer(
    mode: str,
    cases: Sequence,
    kept: slice = slice(None, None, 4),
    modes: Sequence[str] = ("jit",),
) -> Sequence:
    """The cases of a mode: in those of `modes`, which make a program for every shape, `kept`."""
    return cases[kept] if mode in modes else cases


def shared(dtype: str, cases: Sequence) -> Sequence:
    """The cases of a type: float has all, half and bfloat16 one half each, as has double."""
    first = {"half": 0, "bfloat16": 1, "double": 1}
    return cases[first[dtype] :: 2] if dtype in first else cases
