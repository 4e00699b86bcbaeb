"""The block cell ops against TensorFlow's own, in one process and one alternating run.

One process, because both are kernels of the same runtime: same executor, same thread pool, same
allocator. What differs is the kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import machine, op_cases, timing
from bench.peers import tensorflow_base
from bench.progress import Progress

# A ratio under this misses the target in the README; under 1 it is only marked.
FLOOR = 0.95
# Both contenders must compute the same thing, or the comparison is meaningless. The bound is loose:
# a chain of 32 float32 cells, summed in another order.
_MAX_DIFFERENCE = 1e-3


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of any output, relative to that output's largest value."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if b.size:
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def _measure(
    op: str, shape: op_cases.Shape, contenders: dict[str, Any], plan: timing.Plan, bar: Progress
) -> dict[str, object]:
    """One row of the result: both contenders on one op and shape."""
    calls = op_cases.calls_per_chain(op, shape)
    args = op_cases.make_inputs(op, shape)
    chains = {name: op_cases.make_chain(op, raw, args, calls) for name, raw in contenders.items()}
    difference = _difference(chains["ours"].function(), chains["tf"].function())
    if not difference <= _MAX_DIFFERENCE:
        raise RuntimeError(f"{op} {shape}: ours differs from TensorFlow's by {difference:.1e}")
    runners = {name: timing.in_process(chain.function) for name, chain in chains.items()}
    samples = timing.alternate(runners, plan, bar.note)
    row: dict[str, object] = {
        "op": op,
        "shape": list(shape),
        "calls_per_function": calls,
        "flops": op_cases.flops(op, shape),
        "difference": difference,
    }
    for name in contenders:
        row[name] = timing.summary(samples[name], per=calls)
    row["ratio"] = row["tf"]["median_ms"] / row["ours"]["median_ms"]
    # A cross-check: the two ratios differ when other processes used the cores.
    row["ratio_of_minima"] = row["tf"]["min_ms"] / row["ours"]["min_ms"]
    return row


def summarise(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Means and losses of each op over its shapes."""
    out = {}
    for op in dict.fromkeys(row["op"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["op"] == op]
        out[op] = {
            "shapes": len(ratios),
            "arithmetic_mean": timing.arithmetic_mean(ratios),
            "geometric_mean": timing.geometric_mean(ratios),
            "lowest": min(ratios),
            "slower": sum(r < 1 for r in ratios),
            "under_floor": sum(r < FLOOR for r in ratios),
        }
    return out


def run(
    ops: Sequence[str],
    shapes: Sequence[op_cases.Shape],
    plan: timing.Plan,
    threads: int,
    null: bool = False,
) -> dict[str, Any]:
    """Measures all `ops` at all `shapes`; returns the result as it is stored in the JSON.

    With `null`, TensorFlow's op replaces ours: the deviation of the ratios from 1 is then the
    noise of the method on this machine. Raises ImportError when the library is not built.
    """
    machine.warn_if_busy()
    stamp = machine.stamp(threads)
    tf = tensorflow_base.start(threads)
    if null:
        ours = tf.raw_ops
    else:
        import tf_blockrnn

        ours = tf_blockrnn.raw_ops
        if hasattr(tf_blockrnn, "build_info"):
            stamp["build_info"] = tf_blockrnn.build_info()
    contenders = {"ours": ours, "tf": tf.raw_ops}
    bar = Progress(len(ops) * len(shapes))
    result: dict[str, Any] = {
        "schema": 1,
        "bench": "cells",
        "null": null,
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        "function_call_ms": op_cases.call_cost_ms(),
        "floor": FLOOR,
        "interrupted": False,
        "rows": [],
    }
    try:
        for op, shape in itertools.product(ops, shapes):
            bar.start(f"{op} {shape}")
            row = _measure(op, shape, contenders, plan, bar)
            result["rows"].append(row)
            bar.done(
                f"ours {row['ours']['median_ms']:.4g} ms,"
                f" TensorFlow {row['tf']['median_ms']:.4g} ms, ratio {row['ratio']:.2f}"
            )
    except KeyboardInterrupt:
        if not result["rows"]:
            raise
        result["interrupted"] = True  # keep minutes of measurements
    result["summary"] = summarise(result["rows"])
    stamp["load_at_end"] = machine.load()
    return result
