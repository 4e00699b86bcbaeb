"""The block cell ops against TensorFlow's own, in one process and one alternating run.

One process, because both are kernels of the same runtime: same executor, same thread pool, same
allocator. What differs is the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import op_cases, tidy, timing

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


def measure(
    contenders: dict[str, Any],
    op: str,
    shape: op_cases.Shape,
    plan: timing.Plan,
    note: Callable[[str], None],
) -> list[tidy.Row]:
    """The rows of one op and shape. contenders: the raw ops of ours and of TensorFlow."""
    calls = op_cases.calls_per_chain(op, shape)
    args = op_cases.make_inputs(op, shape)
    chains = {name: op_cases.make_chain(op, raw, args, calls) for name, raw in contenders.items()}
    difference = _difference(chains["ours"](), chains["tf"]())
    if not difference <= _MAX_DIFFERENCE:
        raise RuntimeError(f"{op} {shape}: ours differs from TensorFlow's by {difference:.1e}")
    case = {
        "op": op, "shape": list(shape), "calls_per_function": calls,
        "flops": op_cases.flops(op, shape), "difference": difference,
    }  # fmt: skip
    runners = {name: timing.in_process(chain) for name, chain in chains.items()}
    return tidy.measured(case, runners, plan, note, per=calls)


def run(
    cases: Sequence[tuple[str, op_cases.Shape]], tf: Any, plan: timing.Plan, threads: int
) -> dict[str, Any]:
    """Measures all `cases`; returns the result as it is stored in the JSON."""
    import tf_blockrnn

    contenders = {"ours": tf_blockrnn.raw_ops, "tf": tf.raw_ops}
    result = tidy.new("cells", threads, plan)
    return tidy.collect(result, cases, lambda case, note: measure(contenders, *case, plan, note))
