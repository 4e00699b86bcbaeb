"""Whether the graph that is being built is compiled by XLA, and whether the ops can be in it."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tf_blockrnn import _loader


def is_compiling() -> bool:
    """Whether the graph that is being built, or one around it, is compiled by XLA."""
    if tf.executing_eagerly():
        return False
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def why_not_here() -> str | None:
    """The reason why XLA cannot compile the ops in the graph that is being built, or None."""
    missing = _loader.missing_xla()
    if missing and is_compiling():
        return f"it is in a function that XLA compiles, and {missing}"
    return None
