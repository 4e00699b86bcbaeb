"""Refuses what keeps a state from call to call, which an ONNX file cannot.

tf2onnx freezes variables to the values that they have, and drops what assigns them without a word:
a stateful layer would start each call from the state of that moment.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from types import ModuleType
from typing import Any

import tensorflow as tf

_FLOATS = {tf.float16, tf.bfloat16, tf.float32, tf.float64}
_ASSIGNS = {"AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"}


def refuse_in(tf_loader: ModuleType, ops: Collection[str]) -> None:
    """Wraps the function of the module `tf2onnx.tf_loader` that freezes a function's variables.

    It then raises NotImplementedError for one that has any of the ops and assigns a variable.
    """
    freeze = tf_loader.from_function

    @functools.wraps(freeze)
    def refuse_or_freeze(func: Any, *args: Any, **kwargs: Any) -> Any:
        scopes = _assigning(func.graph.as_graph_def(), ops)
        if scopes:
            raise NotImplementedError(
                f"A stateful model cannot be exported to ONNX: {', '.join(scopes)} keeps a state "
                "from call to call, and an ONNX file has none. Export a model whose layers are not "
                "stateful, which takes the states as inputs (initial_state=) and returns them "
                "(return_state=True); or use tf_blockrnn.to_litert, whose files have states."
            )
        return freeze(func, *args, **kwargs)

    tf_loader.from_function = refuse_or_freeze


def _assigning(graph: Any, ops: Collection[str]) -> list[str]:
    """The scopes that assign variables of floats, where the graph has any of the ops.

    Other variables are counters and those of random generators.
    """
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    if not any(node.op in ops for node in nodes):
        return []
    found = (node for node in nodes if node.op in _ASSIGNS and node.attr["dtype"].type in _FLOATS)
    return list(dict.fromkeys(node.name.rpartition("/")[0] or node.name for node in found))
