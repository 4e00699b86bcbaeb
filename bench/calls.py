"""The cost of a call beside its op: one sequence called in every way that TensorFlow offers.

A tf.function runs on a thread of TensorFlow's executor, which the caller wakes and waits for. An op
inside a graph does not have this cost: its time is what each of ten more ops in a graph adds. They
run sequentially, each starting from the final state of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import data, tidy, timing
from bench.peers import keras_layers, ours, tensorflow_base
from bench.shapes import LAYERS, Case

OP = "op in a graph"
_MORE_OPS = 10
_ONE, _MANY = "graph of one", "graph of many"


def _ways(tf: Any, case: Case) -> dict[str, Callable[[], object]]:
    """The contenders of a case."""
    import tf_blockrnn
    from tf_blockrnn import layers

    arrays = data.make(case)
    x, batch_major = tf.constant(arrays.x), tf.constant(arrays.x.swapaxes(0, 1))
    tensors = [tf.constant(value) for value in ours.function_weights(case.cell, arrays)]
    weights = [tf.Variable(value) for value in tensors]
    function = getattr(tf_blockrnn, case.cell)
    layer = getattr(layers, LAYERS[case.cell])(case.units, return_sequences=True)
    keras_layers.set_weights(layer, case, arrays)

    def chain(x: Any, ops: int, given: Sequence[Any] = weights) -> list[Any]:
        state, outputs = None, []
        for _ in range(ops):
            h, state = function(x, *given, initial_state=state, time_major=True)
            outputs.append(h)  # all are returned, since outputs that are not used are not written
        return outputs

    np.testing.assert_allclose(
        layer(batch_major), chain(x, 1)[0].numpy().swapaxes(0, 1), rtol=1e-4, atol=1e-5
    )

    def graph(ops: int) -> Callable[[], object]:
        return tf.function(lambda: chain(x, ops)).get_concrete_function()

    compiled, compiled_layer = tf.function(lambda x: chain(x, 1)), tf.function(layer)
    concrete = compiled.get_concrete_function(x)
    return {
        "eager, tensors": lambda: chain(x, 1, tensors),
        "eager": lambda: chain(x, 1),
        "eager, layer": lambda: layer(batch_major),
        "concrete function": lambda: concrete(x),
        "tf.function": lambda: compiled(x),
        "tf.function, layer": lambda: compiled_layer(batch_major),
        "empty function": tensorflow_base.empty(tf),
        _ONE: graph(1),
        _MANY: graph(1 + _MORE_OPS),
    }


def measure(tf: Any, case: Case, plan: timing.Plan, note: Callable[[str], None]) -> list[tidy.Row]:
    """The rows of one case."""
    runners = {name: timing.in_process(way) for name, way in _ways(tf, case).items()}
    rows = {row["contender"]: row for row in tidy.measured(case.fields(), runners, plan, note)}
    one, many = (rows.pop(name)["median"] for name in (_ONE, _MANY))
    op = {**case.fields(), "contender": OP, "unit": "ms", "median": (many - one) / _MORE_OPS}
    return [op, *rows.values()]
