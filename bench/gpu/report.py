"""What a measurement on a GPU says: a line for each case, and a summary."""

from __future__ import annotations

from collections.abc import Sequence

from bench import tables, timing
from bench.gpu.cases import Case, Gpu
from bench.gpu.rows import Row
from bench.questions import BY_KEY

_FIELDS = (*BY_KEY["gpu"].rows, "path")
# Less than this times cuDNN's speed is worth a look.
_SLOW = 0.9


def _name(rows: Sequence[Row]) -> str:
    """Of the case, as in the table."""
    return tables.Line({key: rows[0][key] for key in _FIELDS}, {}).name()


def _missing(rows: Sequence[Row]) -> str | None:
    return rows[0].get("missing")


def _ratio(rows: Sequence[Row]) -> float:
    """How many times as fast as the other ours is."""
    ours, theirs = rows
    return theirs["median"] / ours["median"]


def line(case: Case, rows: Sequence[Row], gpu: Gpu) -> str:
    """The times of a case, and what else tells why they are what they are."""
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
    if why := _missing(rows):
        parts.append(f"MISSING: {why}")
    return f"{_name(rows)}: {', '.join(parts)}"


def summary(measured: Sequence[Sequence[Row]], wanted: int) -> str:
    """How many of the wanted cases have a ratio, those without one, and of ours as the engine
    chooses the mean and the slow ones."""
    good = [rows for rows in measured if not _missing(rows)]
    lines = [f"{len(good)} of {wanted} cases have a ratio"]
    ratios = {_name(rows): _ratio(rows) for rows in good if not rows[0]["path"]}
    if some := ratios.values():
        mean = timing.geometric_mean(list(some))
        lines[0] += f", cuDNN / ours: mean {mean:.2f}, {min(some):.2f} to {max(some):.2f}"
    lines += [f"slow: {name}, {ratio:.2f}" for name, ratio in ratios.items() if ratio < _SLOW]
    lines += [f"missing: {_name(rows)}, {why}" for rows in measured if (why := _missing(rows))]
    return "\n".join(lines)
