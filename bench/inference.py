"""Inference with weights that no longer change: whole Python calls, NumPy in and NumPy out.

The cases and the processes are those of sequences.py; this module adds the ratios within each
precision of the weights, and those of frozen Keras models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from bench import sequences, timing
from bench.peers import PEERS, is_ours
from bench.shapes import Case

SESSIONS = {
    "float32": "ours_session",
    "bfloat16": "ours_session_bfloat16",
    "int8": "ours_session_int8",
}
MODEL, FROZEN = "ours_model", "ours_frozen"
# Targets: the fastest peer's time over ours, at each shape and on geometric mean; the microseconds
# of a step at the shape; a frozen model's time over that of the same one not frozen.
TARGETS = {"float32": {"each": 1.0, "mean": 1.3}, "int8": {"each": 1.0}}
STEP_SHAPE, STEP_TARGET_US = (1, 1, 128, 128), 8.0
FROZEN_TARGET = 0.8


def compare(row: dict[str, Any]) -> None:
    """Adds to a row our ratio to the fastest peer of each precision, above 1 we are faster.

    And the time of a frozen model over that of the same one not frozen.
    """
    times = sequences.medians(row)
    row["session_ratios"] = {}
    for precision, ours in SESSIONS.items():
        others = [
            ms
            for name, ms in times.items()
            if PEERS[name].precision == precision and not is_ours(name)
        ]
        if others and ours in times:
            row["session_ratios"][precision] = min(others) / times[ours]
    if MODEL in times and FROZEN in times:
        row["frozen_share"] = times[FROZEN] / times[MODEL]


def groups(result: dict[str, Any], models: bool = False) -> dict[str, list[dict[str, Any]]]:
    """The rows by cell, those of sessions or those of models."""
    out: dict[str, list[dict[str, Any]]] = {}
    for row in result["rows"]:
        if bool(row.get("variant")) == models:
            out.setdefault(row["cell"], []).append(row)
    return out


def step_us(result: dict[str, Any], cell: str) -> float | None:
    """The microseconds of a float32 step at STEP_SHAPE, if it was measured."""
    for row in groups(result).get(cell, ()):
        if tuple(row["shape"]) == STEP_SHAPE:
            ms = sequences.medians(row).get(SESSIONS["float32"])
            return 1e3 * ms if ms else None
    return None


def summarise(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Our mean, lowest ratio and losses by cell and precision."""
    out = []
    for cell, rows in groups(result).items():
        for precision, target in TARGETS.items():
            ratios = [
                row["session_ratios"][precision]
                for row in rows
                if precision in row["session_ratios"]
            ]
            if ratios:
                entry = {"cell": cell, "precision": precision, "target": target}
                out.append(entry | timing.ratio_summary(ratios, target["each"]))
    return out


def run(
    cases: Sequence[tuple[str, Case]],
    peers: Sequence[str],
    plan: timing.Plan,
    threads: int,
    log: TextIO | None = None,
) -> dict[str, Any]:
    """Measures all `cases`; returns the result as it is stored in the JSON."""
    result = sequences.run(cases, peers, (), plan, threads, log, "inference")
    for row in result["rows"]:
        compare(row)
    return result | {"summary": summarise(result), "threads": threads}
