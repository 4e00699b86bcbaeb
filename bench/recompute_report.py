"""Tables of the bench of `recompute`."""

from __future__ import annotations

from typing import Any

from bench import recompute
from bench.provenance import measured
from bench.tables import dims, markdown_table, number, text_table

_PLOT = "../bench/results/recompute.png"


def _table(result: dict[str, Any], missed: str) -> tuple[list[str], list[list[str]]]:
    """MiB and milliseconds; a share of True above its target in the format `missed`."""
    lines = []
    for row in result["rows"]:
        for entry in row["choices"]:
            choice = entry["recompute"]
            shares = []
            for key, target in recompute.TARGETS.items():
                share = recompute.relative(row, key, choice)
                lost = choice is True and share > target
                shares.append(missed.format(f"{share:.2f}") if lost else f"{share:.2f}")
            lines.append([
                f"{row['cell'].upper()} {dims(row['shape'])}", str(choice),
                f"{entry['bytes'] / 2**20:.1f}", shares[0],
                number(entry["median_ms"]), shares[1],
            ])  # fmt: skip
    return ["B, T, I, H", "recompute", "MiB", "of False", "ms", "of False"], lines


def text(result: dict[str, Any]) -> str:
    """The result as text; << marks a missed target."""
    return text_table(*_table(result, "<< {}"))


def markdown(result: dict[str, Any]) -> str:
    """The same for a page, with the plot."""
    targets = recompute.TARGETS
    return "\n\n".join([
        f"![Memory and time of training against recompute]({_PLOT})",
        "The rise of the peak resident set in forward and backward, above x, weights and the"
        " gradient of the outputs, and the median time of both; float32. Bold: True is above"
        f" {targets['bytes']} of the memory or {targets['median_ms']} of the time of False.",
        markdown_table(*_table(result, "**{}**")),
        measured(result),
    ])  # fmt: skip
