"""Table and plot of the bench of `recompute`."""

from __future__ import annotations

import pathlib
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


def draw(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """Memory and time against the steps of a span, a panel for each, relative to False."""
    from bench import plot

    titles = {"bytes": "Memory", "median_ms": "Time"}
    styles = {"lstm": ("#0072B2", "o"), "gru": ("#D55E00", "s")}
    figure, axes = plot.panels(len(titles), 3.0)
    handles = {}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for row in result["rows"]:
            colour, marker = styles[row["cell"]]
            spans = [e["recompute"] for e in row["choices"] if not isinstance(e["recompute"], bool)]
            shares = [recompute.relative(row, key, span) for span in spans]
            (line,) = axis.plot(spans, shares, color=colour, marker=marker, markersize=4)
            handles[row["cell"].upper()] = line
            chosen = axis.axhline(recompute.relative(row, key), color=colour, linestyle=":")
            handles[f"{row['cell'].upper()}, True"] = chosen
        axis.axhline(1, color="#444444", linewidth=1)
        axis.set_ylim(bottom=0)
        axis.set_xscale("log", base=2)
        axis.set_xticks(spans)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_xlabel("least steps of a span", fontsize=9)
        axis.set_title(f"{title}, without recompute 1", fontsize=10)
        axis.grid(alpha=0.3)
    shape = dims(result["rows"][0]["shape"])
    plot.describe(
        figure, result, f"Training with recompute, batch, steps, inputs, units {shape}",
        "Lower is better. Gradients have the same bits.", handles,
    )  # fmt: skip
    return plot.save(figure, path)
