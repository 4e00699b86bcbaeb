"""The parts of our time at each shape that missed its target, as a Markdown table.

A call takes at least as long as an empty tf.function, and its GEMMs at least as long as they take
at the GEMM peak. The fastest peer's time over the sum of both is the highest ratio that any op
could reach on that machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import report, timing
from bench.provenance import measured
from bench.tables import KINDS, markdown_table, number

# Our contender in each bench.
_OURS = {"sequences": "ours", "stacks": "ours_cudnn"}


def _parts(ours: str, row: dict[str, Any], result: dict[str, Any]) -> dict[str, float]:
    """Our time in ms, its two lower bounds, and the ratios reached and reachable."""
    gemms = 1e-6 * row["flops"] / result["peak_gflops"]
    call = result["empty_call_ms"]
    fastest = row["peers"][row["fastest"]]["median_ms"]
    return {
        "ours": row["peers"][ours]["median_ms"],
        "call": call,
        "gemms": gemms,
        "ratio": row["ratios"][ours],
        "highest": fastest / (call + gemms),
    }


def _line(name: str, row: dict[str, Any], parts: dict[str, float]) -> list[str]:
    rest = parts["ours"] - parts["call"] - parts["gemms"]
    fastest = row["peers"][row["fastest"]]["median_ms"]
    return [
        f"{name}, {report.label(row)}",
        *(number(parts[key]) for key in ("ours", "call", "gemms")),
        number(max(rest, 0.0)),
        f"{row['fastest']} {number(fastest)}",
        f"{parts['ratio']:.2f}",
        f"{parts['highest']:.2f}",
    ]


def _mean(name: str, parts: Sequence[dict[str, float]], target: float) -> str:
    reached, highest = (
        timing.geometric_mean([part[key] for part in parts]) for key in ("ratio", "highest")
    )
    return f"{name}: {reached:.2f} reached, {highest:.2f} the highest possible, {target} wanted"


def markdown(result: dict[str, Any]) -> str:
    """The rows of our function or stack below their targets, and all means."""
    ours = _OURS[result["bench"]]
    lines, means = [], []
    for (cell, kind), rows in report.groups(result).items():
        name, target = f"{cell.upper()} {KINDS[kind]}", report.TARGETS[kind]
        parts = {id(row): _parts(ours, row, result) for row in rows if ours in row["ratios"]}
        means.append(_mean(name, list(parts.values()), target["mean"]))
        lines += [
            _line(name, row, parts[id(row)])
            for row in rows
            if id(row) in parts and row["ratios"][ours] < target["each"]
        ]
    head = [
        "B, T, I, H", "ours ms", "of it the call", "GEMMs at peak", "all else",
        "fastest peer, ms", "ratio", "highest possible",
    ]  # fmt: skip
    return "\n\n".join([
        markdown_table(head, lines),
        f"Geometric means over all shapes: {'; '.join(means)}.",
        measured(result),
    ])  # fmt: skip
