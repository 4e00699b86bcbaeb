"""Whether the graph that is being built is compiled by XLA, and whether the ops can be in it."""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn import _loader, _tf_private


def is_compiling() -> bool:
    """Whether the graph that is being built, or one around it, is compiled by XLA."""
    return not tf.executing_eagerly() and _tf_private.in_xla_graph()


def why_not_compiled() -> str | None:
    """The reason why XLA compiles no function with the ops in it, or None."""
    missing = _loader.missing_xla()
    return f"it is in a function that XLA compiles, and {missing}" if missing else None


def why_not_here() -> str | None:
    """The reason why XLA cannot compile the ops in the graph that is being built, or None."""
    reason = why_not_compiled()
    return reason if reason and is_compiling() else None
