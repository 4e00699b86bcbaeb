"""The cost of a call beside its op: one sequence called in every way that TensorFlow offers.

A tf.function runs on a thread of TensorFlow's executor, which the caller wakes and waits for. An op
inside a graph does not have this cost: its time is what each of ten more ops in a graph adds. They
run sequentially, each starting from the final state of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench import data, machine, timing
from bench.peers import ours, tensorflow_base
from bench.progress import Progress
from bench.provenance import measured
from bench.shapes import Case
from bench.tables import dims, markdown_table, number, text_table

CELLS = ("lstm", "gru")
OP = "op in a graph"
_MORE_OPS = 10
_ONE, _MANY = "graph of one", "graph of many"
_EMPTY = "empty function"
# The columns of a table.
_COLUMNS = (OP, "eager, tensors", "eager", "concrete function", "tf.function", _EMPTY)


def _call_modes(tf: Any, library: Any, case: Case) -> dict[str, Callable[[], object]]:
    """The contenders of a row."""
    arrays = data.make(case)
    x = tf.constant(arrays.x)
    tensors = [tf.constant(value) for value in ours.function_weights(case.cell, arrays)]
    weights = [tf.Variable(value) for value in tensors]
    function = getattr(library, case.cell)

    def chain(x: Any, ops: int, given: Sequence[Any] = weights) -> list[Any]:
        state, outputs = None, []
        for _ in range(ops):
            h, state = function(x, *given, initial_state=state, time_major=True)
            outputs.append(h)  # all are returned, since outputs that are not used are not written
        return outputs

    def graph(ops: int) -> Callable[[], object]:
        return tf.function(lambda: chain(x, ops)).get_concrete_function()

    compiled = tf.function(lambda x: chain(x, 1))
    concrete = compiled.get_concrete_function(x)
    return {
        "eager, tensors": lambda: chain(x, 1, tensors),
        "eager": lambda: chain(x, 1),
        "concrete function": lambda: concrete(x),
        "tf.function": lambda: compiled(x),
        _EMPTY: tensorflow_base.empty(tf),
        _ONE: graph(1),
        _MANY: graph(1 + _MORE_OPS),
    }


def _row(samples: dict[str, list[list[float]]], case: Case) -> dict[str, Any]:
    modes = {name: timing.summary(rounds) for name, rounds in samples.items()}
    one, many = (modes.pop(name)["median_ms"] for name in (_ONE, _MANY))
    modes[OP] = {"median_ms": (many - one) / _MORE_OPS}
    return {"cell": case.cell, "shape": list(case.shape), "ways": modes}


def run(
    shapes: Sequence[tuple[int, int, int, int]], plan: timing.Plan, threads: int
) -> dict[str, Any]:
    """Measures inference at all `shapes`; returns the result as it is stored in the JSON."""
    machine.warn_if_busy()
    stamp = machine.stamp(threads)
    tf = tensorflow_base.start(threads)
    import tf_blockrnn

    cases = [Case(cell, "infer", *shape) for cell in CELLS for shape in shapes]
    bar, rows, interrupted = Progress(len(cases)), [], False
    try:
        for case in cases:
            bar.start(f"{case.cell} {case.shape}")
            modes = _call_modes(tf, tf_blockrnn, case)
            runners = {name: timing.in_process(mode) for name, mode in modes.items()}
            rows.append(_row(timing.alternate(runners, plan, bar.note), case))
            bar.done(", ".join(f"{name} {text}" for name, text in _times(rows[-1]).items()))
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True  # keep minutes of measurements
    stamp["load_at_end"] = machine.load()
    return {
        "schema": 1,
        "bench": "calls",
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        "interrupted": interrupted,
        "rows": rows,
    }


def _times(row: dict[str, Any]) -> dict[str, str]:
    """The median µs of each column."""
    return {name: number(1e3 * row["ways"][name]["median_ms"]) for name in _COLUMNS}


def _table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    head = ["B, T, I, H", *(f"{name}, µs" for name in _COLUMNS)]
    return head, [
        [f"{row['cell'].upper()} {dims(row['shape'])}", *_times(row).values()]
        for row in result["rows"]
    ]


def text(result: dict[str, Any]) -> str:
    """The result as text."""
    return text_table(*_table(result))


def markdown(result: dict[str, Any]) -> str:
    """The same for a page."""
    return "\n\n".join([markdown_table(*_table(result)), measured(result)])
