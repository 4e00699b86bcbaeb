"""Whether the ops can be in the graph that is being built, as far as XLA is concerned."""

from __future__ import annotations

import tensorflow as tf
from tensorflow.python.ops import control_flow_util

from tf_blockrnn import _loader


def why_not_here() -> str | None:
    """The reason why XLA cannot compile the ops in the graph that is being built, or None."""
    missing = _loader.missing_xla()
    if not missing or tf.executing_eagerly():
        return None
    # TensorFlow's own question, also for the functions inside a compiled one.
    if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
        return f"it is in a function that XLA compiles, and {missing}"
    return None
