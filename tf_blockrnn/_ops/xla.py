"""What concerns the ops in a graph that XLA compiles."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tf_blockrnn import _loader


def in_xla() -> bool:
    """Whether the graph that is being built, or one around it, is compiled by XLA."""
    graph = tf.compat.v1.get_default_graph()
    return control_flow_util.GraphOrParentsInXlaContext(graph)


def why_not_here() -> str | None:
    """The reason why XLA cannot compile the ops in the graph that is being built, or None."""
    missing = _loader.missing_xla()
    if missing and not tf.executing_eagerly() and in_xla():
        return f"it is in a function that XLA compiles, and {missing}"
    return None
