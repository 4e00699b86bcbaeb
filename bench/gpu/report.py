"""What a measurement on a GPU says: its rows, a line for each case, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from bench import tables, timing
from bench.gpu.cases import Case, Gpu
from bench.questions import BY_KEY
from bench.tidy import Row

_FIELDS = (*BY_KEY["gpu"].rows, "path")


def checked(rows: Sequence[Row], disagreement: float, most: float, kernels: int) -> list[Row]:
    """The rows of a case, ours first, whose times do not count if the two disagree by more than
    `most`. kernels: persistent ones of one of our calls."""
    ours, *others = rows
    ours = ours | {"persistent_kernels": kernels, "disagreement": disagreement}
    if not disagreement <= most:
        ours["missing"] = f"the two disagree by {disagreement:.2g}"
    return [ours, *others]


def failed(case: Case, why: str) -> list[Row]:
    """The row of a case without a number."""
    return [{**case.fields(), "contender": "ours", "missing": why}]


def _ratio(rows: Sequence[Row]) -> float:
    """How many times as fast as the other ours is."""
    ours, theirs = rows
    return theirs["median"] / ours["median"]


def line(case: Case, rows: Sequence[Row], gpu: Gpu) -> str:
    """The times of a case, and what else tells why they are what they are."""
    name = tables.Line({key: rows[0][key] for key in _FIELDS}, {}).name()
    parts = [f"{row['contender']} {1e3 * row['median']:.1f} µs" for row in rows if "median" in row]
    ours = rows[0]
    if "median" in ours:
        parts += [
            f"ratio {_ratio(rows):.2f}",
            f"{1e3 * ours['median'] / case.steps:.2f} µs a step",
            f"{ours['persistent_kernels']} persistent kernels",
            f"disagreement {ours['disagreement']:.1e}",
        ]
        if shortest := gpu.shortest_seconds(case):
            parts.append(f"{1e5 * shortest / ours['median']:.0f}% of the GPU's multiply-adds")
    if "missing" in ours:
        parts.append(f"MISSING: {ours['missing']}")
    return f"{name}: {', '.join(parts)}"


def summary(measured: Sequence[Sequence[Row]], wanted: int) -> str:
    """How many cases have a ratio, and their mean where the engine chooses its kernels."""
    good = [rows for rows in measured if "missing" not in rows[0]]
    text = f"{len(good)} of {wanted} cases have a ratio"
    if ratios := [_ratio(rows) for rows in good if not rows[0]["path"]]:
        mean = timing.geometric_mean(ratios)
        text += f", cuDNN / ours: mean {mean:.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
    return text
