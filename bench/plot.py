"""PNG plots: of a question, from the same lines as its table, the README's chart, and a soak's."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

from bench import provenance, readme, tables  # noqa: E402
from bench.questions import WORDS, Question  # noqa: E402

# Okabe and Ito's colours, which colour-blind readers can distinguish.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#000000")
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
_LINE = "#444444"
# The pages show plots about 800 pixels wide: at this width in inches a font of 9 points stays
# legible there.
_WIDTH = 9.0
_FIELDS = {"B": "batch", "T": "steps", "I": "inputs", "E": "embedding", "H": "units"}


def _save(figure: Any, path: pathlib.Path, dpi: int = 110) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    plt.close(figure)
    return path


def caption(result: dict[str, Any], how_to_read: str) -> str:
    """How a plot is read, where it was measured, and whether the machine was quiet."""
    parts = [how_to_read, provenance.machine_line(result), provenance.noise(result).note()]
    return "\n".join(textwrap.fill(part, 120) for part in parts if part)


def _style(shown: Sequence[tables.Place], place: tables.Place) -> dict[str, str]:
    """Colours are columns and markers are what is put across; both, if there is only one column."""
    columns = list(dict.fromkeys(place.column for place in shown))
    across = list(dict.fromkeys(place.across for place in shown))
    first, second = columns.index(place.column), across.index(place.across)
    if len(columns) == 1:
        first = second
    if len(across) == 1:
        second = first
    return {"color": _COLOURS[first % 8], "marker": _MARKERS[second % 8]}


def _panel(
    axis: Any, lines: Sequence[tables.Line], shown: Sequence[tables.Place]
) -> dict[str, Any]:
    """A mark for each number of each row; returns a handle for each label."""
    handles = {}
    for place in shown:
        points = [(line.values[place], n) for n, line in enumerate(lines) if place in line.values]
        if points:
            handles[place.label] = axis.scatter(
                *zip(*points, strict=True), s=34, edgecolors=_LINE, linewidths=0.4, zorder=3,
                **_style(shown, place),
            )  # fmt: skip
    axis.set_ylim(len(lines) - 0.4, -0.6)
    axis.grid(axis="y", alpha=0.3)
    axis.grid(axis="x", alpha=0.15)
    return handles


def _scale(axis: Any, values: Sequence[float], ratios: bool) -> None:
    """Logarithmic, and with the line of no difference if the values are ratios."""
    axis.set_xscale("log", base=2 if ratios else 10)
    low, high = min(values), max(values)
    if ratios:
        low, high = min(low, 0.8), max(high, 1.25)
        axis.axvline(1, color=_LINE, linewidth=1)
    axis.set_xlim(low / 1.15, high * 1.15)
    form = (lambda value, _: f"{value:g}×") if ratios else (lambda value, _: f"{value:g}")
    axis.xaxis.set_major_formatter(form)
    axis.xaxis.set_minor_formatter("")
    axis.tick_params(labelsize=8)


def _shown(asked: Question, lines: Sequence[tables.Line]) -> list[tables.Place]:
    """The ratios to other contenders; without any, to another way of ours, or else the times."""
    every = tables.places(asked, lines)
    ratios = [place for place in every if place.column.is_ratio]
    return [place for place in ratios if place.column.ours_is_over] or ratios or every


def _how_to_read(asked: Question, shown: Sequence[tables.Place]) -> str:
    rows = f"Rows: {', '.join(_FIELDS[dim] for dim in asked.dims.split(', '))}."
    if not shown[0].column.is_ratio:
        return f"{rows} In µs."
    faster = shown[0].column.ours_is_over
    return f"{rows} {'Right of 1×: ours is faster' if faster else 'Left of 1×: less than without'}."


def question(asked: Question, result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """A panel for each value of the fields that the question names; None without numbers."""
    lines = tables.lines(asked, result)
    shown = _shown(asked, lines)
    if not shown:
        return None
    panels: dict[tuple[Any, ...], list[tables.Line]] = {}
    for line in lines:
        panels.setdefault(tuple(line.fields[key] for key in asked.panels), []).append(line)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    longest = max(map(len, panels.values()))
    figure, axes = plt.subplots(
        rows, columns, figsize=(_WIDTH, 1.9 + rows * (0.6 + 0.2 * longest)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    handles: dict[str, Any] = {}
    values = [line.values[place] for line in lines for place in shown if place in line.values]
    names: list[str] = []
    for n, (key, some) in enumerate(panels.items()):
        axis, left = axes.flat[n], names
        names = [line.name(leave_out=asked.panels) for line in some]
        handles |= _panel(axis, some, shown)
        # A panel at the right uses the names of its neighbour, if they are the same.
        axis.set_yticks(range(len(some)), [""] * len(some) if n % 2 and names == left else names)
        _scale(axis, values, shown[0].column.is_ratio)
        axis.set_title(" ".join(filter(None, (WORDS.get(v, v) for v in key))), fontsize=10)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(asked.asks.replace("`", ""), fontsize=11)
    figure.legend(
        handles.values(), handles.keys(), title=caption(result, _how_to_read(asked, shown)),
        title_fontsize=8, fontsize=8, ncols=max(1, min(4, 140 // (4 + max(map(len, handles))))),
        loc="outside lower center", frameon=False,
    )  # fmt: skip
    return _save(figure, path)


def _bars(axis: Any, panel: readme.Panel, narrow: bool, size: float) -> None:
    """A bar from 1 to each mean, and a mark at the lowest; their words beside or above it."""
    for place, (name, (mean, lowest)) in enumerate(panel.bars.items()):
        axis.barh(place, mean - 1, left=1, color=_COLOURS[0 if mean >= 1 else 1], height=0.44)
        axis.scatter(lowest, place, marker="D", c="white", edgecolors=_LINE, zorder=3)
        text = readme.words((mean, lowest))
        if narrow:
            axis.text(
                0.01, place - 0.36, f"{name}: {text}", fontsize=size, zorder=4,
                transform=axis.get_yaxis_transform(), bbox={"color": "white", "pad": 0},
            )  # fmt: skip
        else:
            axis.text(1.04 * max(mean, 1), place, text, va="center", fontsize=size)
    axis.set_yticks(range(len(panel.bars)), [""] * len(panel.bars) if narrow else list(panel.bars))
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(len(panel.bars) - 0.5, -0.8 if narrow else -0.5)


def chart(panels: Sequence[readme.Panel], path: pathlib.Path, narrow: bool = False) -> pathlib.Path:
    """The README's chart: a bar for each mean ratio, with the lowest in words.

    Its fonts are of at least 12 pixels where it is 640 pixels wide or, if narrow, 350.
    """
    size = 9 if narrow else 11
    heights = [1.2 + (0.54 if narrow else 0.4) * len(panel.bars) for panel in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(3.6 if narrow else 8.0, sum(heights)), squeeze=False,
        height_ratios=heights, layout="constrained",
    )  # fmt: skip
    for axis, panel in zip(axes.flat, panels, strict=True):
        _bars(axis, panel, narrow, size)
        ends = [end for bar in panel.bars.values() for end in bar]
        axis.set_xscale("log", base=2)
        left, most = min(0.9, *ends) / 1.1, max(ends)
        # Beside the longest bar its words take about a third of the width.
        axis.set_xlim(left, 1.1 * most if narrow else left * (most / left) ** (1 / 0.62))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.tick_params(labelsize=size)
        axis.axvline(1, color=_LINE, linewidth=1)
        title = f"{panel.title},", f"{panel.processor}, float32"
        axis.set_title(("\n" if narrow else " ").join(title), fontsize=size + 1)
        axis.set_xlabel(
            "times as fast (logarithmic; 1× = equal)\n"
            f"bar: geometric mean over {panel.shapes} shapes; ◇: lowest",
            fontsize=size,
        )
        for side in ("left", "top", "right"):
            axis.spines[side].set_visible(False)
    return _save(figure, path, dpi=220)  # sharp on fine screens too


def memory(
    result: dict[str, Any], control: dict[str, Any] | None, path: pathlib.Path
) -> pathlib.Path:
    """A soak's resident memory and allocated bytes over time, with those of its peer, if any.

    Shaded: the quarters whose medians are compared.
    """
    shown = {"resident": "resident memory, MiB", "allocated": "allocated by malloc, MiB"}
    shown = {key: title for key, title in shown.items() if result["rows"][0][key] is not None}
    figure, axes = plt.subplots(
        len(shown), 1, figsize=(_WIDTH, 1.6 + 2.1 * len(shown)), sharex=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis, (key, title) in zip(axes.flat, shown.items(), strict=True):
        highest = 0.0
        for place, run in enumerate(filter(None, (result, control))):
            values = [row[key] / 2**20 for row in run["rows"]]
            minutes = [row["minutes"] for row in run["rows"]]
            axis.plot(minutes, values, color=_COLOURS[place], label=run["contender"], linewidth=1.3)
            highest = max(highest, *values)
        # From zero, so that what is flat looks flat.
        axis.set_ylim(0, 1.15 * highest)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.2)
        axis.tick_params(labelsize=9)
        minutes = [row["minutes"] for row in result["rows"]]
        quarter = len(minutes) // 4
        for first in (quarter, len(minutes) - quarter):
            axis.axvspan(minutes[first], minutes[first + quarter - 1], color=_LINE, alpha=0.1)
    axes.flat[-1].set_xlabel("minutes", fontsize=9)
    axes.flat[0].legend(fontsize=9, loc="lower right", ncols=2)
    verdict = "passed" if result["verdict"]["passed"] else "failed"
    figure.suptitle(f"{result['bench']}: {verdict}", fontsize=11)
    figure.supxlabel(
        "Shaded: the quarters whose medians are compared.\n"
        + textwrap.fill(provenance.machine_line(result), 120),
        fontsize=8,
    )
    return _save(figure, path)
