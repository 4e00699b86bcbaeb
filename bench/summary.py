"""The README's means, and the sections of docs/performance.md: for each bench the plot, means,
losses, targets and a link to all rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from bench import inference, layers_report, report, timing
from bench.peers import is_ours
from bench.provenance import measured
from bench.tables import KINDS, markdown_table, number, percent

# The target of the block cells: their mean speed relative to TensorFlow's.
_CELL_MEAN = 2.0
_PLOTS = "../bench/results"
_PAGE = "benchmarks.md"


# The libraries of the README's chart, each with its contenders, the faster of which counts: against
# a function of ours, and against a session, which keeps its weights packed as theirs do.
_LIBRARIES = {
    "Keras": ("keras", "keras_xla"),
    "PyTorch": ("torch",),
    "ONNX Runtime": ("onnxruntime",),
}
_SESSION_LIBRARIES = {
    "PyTorch": ("torch_call",),
    "ONNX Runtime": ("onnxruntime_call", "onnxruntime_one"),
}


@dataclasses.dataclass(frozen=True)
class Headline:
    """A bar of the README's chart."""

    cell: str
    kind: str
    library: str
    mean: float  # geometric, of its time over ours
    lowest: float
    shapes: int


def _bars(
    rows: Sequence[dict[str, Any]],
    cell: str,
    kind: str,
    libraries: dict[str, tuple[str, ...]],
    ours: str,
) -> list[Headline]:
    bars = []
    for library, names in libraries.items():
        ratios = []
        for row in rows:
            times = [row["peers"].get(name, {}).get("median_ms") for name in names]
            mine = row["peers"].get(ours, {}).get("median_ms")
            if mine and any(times):
                ratios.append(min(filter(None, times)) / mine)
        if ratios and len(ratios) == len(rows):
            mean = timing.geometric_mean(ratios)
            bars.append(Headline(cell, kind, library, mean, min(ratios), len(rows)))
    return bars


def session_bars(result: dict[str, Any]) -> list[Headline]:
    """The README's bars of sessions, from the bench of inference."""
    return [
        bar
        for cell, rows in inference.groups(result).items()
        for bar in _bars(rows, cell, "infer", _SESSION_LIBRARIES, "ours_session")
    ]


def headline_bars(result: dict[str, Any], sessions: dict[str, Any] | None = None) -> list[Headline]:
    """The README's bars, training first; a library without a time at some shape has none.

    sessions: the result of the bench of inference. Its libraries are compared with sessions there.
    """
    bars = []
    groups = report.groups(result).items()
    for (cell, kind), rows in sorted(groups, key=lambda group: group[0][1] != "train"):
        bars += _bars(rows, cell, kind, _LIBRARIES, "ours")
    if sessions is None:
        return bars
    better = {(bar.cell, bar.kind, bar.library): bar for bar in session_bars(sessions)}
    return [better.get((bar.cell, bar.kind, bar.library), bar) for bar in bars]


def _lowest(bars: Sequence[Headline]) -> str:
    lowest: dict[str, float] = {}
    for bar in bars:
        lowest[bar.library] = min(bar.lowest, lowest.get(bar.library, bar.lowest))
    slower = [f"{ratio:.2f}× that of {library}" for library, ratio in lowest.items() if ratio < 1]
    return f"The lowest speeds at any shape: {', '.join(slower)}. " if slower else ""


def headline_markdown(result: dict[str, Any]) -> str:
    """The README's chart, what it leaves out, machine and date."""
    bars = [bar for bar in headline_bars(result) if bar.kind == "train" or bar.library == "Keras"]
    return "\n\n".join([
        "![Training and inference: how many times as fast as Keras, PyTorch and ONNX Runtime]"
        "(bench/results/readme.png)",
        "Training, and Keras: one layer, one call of `tf_blockrnn.lstm` or `gru`; Keras with or"
        f" without XLA, whichever is faster. {_lowest(bars)}{measured(result)}",
    ])  # fmt: skip


def sessions_markdown(result: dict[str, Any]) -> str:
    """The line under the README's chart about its bars of sessions."""
    step = inference.step_us(result, "lstm")
    times = f"A step of an LSTM at B, I, H = 1, 128, 128 takes {number(step)} µs. " if step else ""
    return (
        "Inference against PyTorch and ONNX Runtime: one call of `inference.Session`, NumPy in and"
        f" NumPy out. {times}{_lowest(session_bars(result))}{measured(result)}"
    )


def _bold(value: float, wanted: float) -> str:
    return f"**{value:.2f}**" if value < wanted else f"{value:.2f}"


def _mean_and_lowest(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{_bold(timing.geometric_mean(ratios), 1)} ({_bold(min(ratios), 1)})"


def _lost(ratios: Sequence[float]) -> int:
    return sum(ratio < 1 for ratio in ratios)


def _all_rows(result: dict[str, Any], lost: int, rows: int, how: str) -> str:
    """The number of rows where we are slower, a link to all rows, and their provenance."""
    link = f"[all rows]({_PAGE}#{result['bench']})"
    return f"{lost} of {rows} rows are {how}: {link}. {measured(result)}"


def _cells(result: dict[str, Any]) -> str:
    lines, some = [], result["summary"]
    floor = result["floor"]
    for op, s in some.items():
        lines.append([
            f"`{op}`", _bold(s["arithmetic_mean"], _CELL_MEAN), f"{_CELL_MEAN:g}",
            f"{s['geometric_mean']:.2f}", _bold(s["lowest"], 1.0), f"{floor:g}",
            f"{s['slower']} of {s['shapes']}",
        ])  # fmt: skip
    head = ["", "mean", "target", "geometric mean", "lowest", "target", "slower at"]
    return "\n\n".join([
        "TensorFlow's time over ours, one step, float32; bold: below the target.",
        f"![Speed of the block cells relative to TensorFlow's own]({_PLOTS}/cells.png)",
        markdown_table(head, lines),
        _all_rows(
            result, sum(s["slower"] for s in some.values()), len(result["rows"]),
            "slower than TensorFlow's",
        ),
    ])  # fmt: skip


def _shares(rows: Sequence[dict[str, Any]], name: str, peak: float) -> list[float]:
    """The shares of the GEMM peak at the shapes that have a target for it."""
    return [
        row["peers"][name]["gflops"] / peak
        for row in rows
        if peak
        and row["shape"][0] >= report.PEAK_FROM["B"]
        and row["shape"][3] >= report.PEAK_FROM["H"]
    ]


def _sequence_line(
    what: str, rows: Sequence[dict[str, Any]], name: str, kind: str, peak: float
) -> list[str]:
    """Means, losses and targets of one of our contenders in one group of rows."""
    target = report.TARGETS[kind]
    ratios = [row["ratios"][name] for row in rows]
    shares = _shares(rows, name, peak)
    low = percent(min(shares)) if shares else "-"
    return [
        what,
        _bold(timing.geometric_mean(ratios), target["mean"]),
        f"{target['mean']:g}",
        _bold(min(ratios), target["each"]),
        f"{_lost(ratios)} of {len(ratios)}",
        f"{target['each']:g}",
        f"{sum(ratio < target['each'] for ratio in ratios)}",
        f"**{low}**" if shares and min(shares) < target["peak"] else low,
        f"{100 * target['peak']:.0f}%",
    ]


def _sequence_table(result: dict[str, Any]) -> tuple[str, int, int]:
    """The table, how many of its ratios are below 1, and how many there are."""
    lines, ratios = [], []
    for (cell, kind), rows in report.groups(result).items():
        for name in dict.fromkeys(n for row in rows for n in row["ratios"]):
            some = [row for row in rows if name in row["ratios"]]
            what = f"{cell.upper()} {KINDS[kind]}, `{name}`"
            lines.append(_sequence_line(what, some, name, kind, result["peak_gflops"]))
            ratios += [row["ratios"][name] for row in some]
    least = f"least of peak, B ≥ {report.PEAK_FROM['B']}, H ≥ {report.PEAK_FROM['H']}"
    head = [
        "", "mean", "target", "lowest", "slower at", "target of a row", "under it", least, "target",
    ]  # fmt: skip
    return markdown_table(head, lines), _lost(ratios), len(ratios)


def _more_targets(result: dict[str, Any]) -> list[str]:
    """Sentences about the targets that are not in the table; lengths over all groups of rows."""
    lines = [
        f"- {cell.upper()} {KINDS[kind]}: {text}"
        for (cell, kind), rows in report.groups(result).items()
        for text in report.over_tensorflow(rows)
    ]
    lines += [f"- {text}" for text in report.saved_by_lengths(result["rows"])]
    return ["\n".join(lines)] if lines else []


def _sequences(intro: str, *plots: tuple[str, str]) -> Callable[[dict[str, Any]], str]:
    def section(result: dict[str, Any]) -> str:
        table, slower, rows = _sequence_table(result)
        closing = _all_rows(result, slower, rows, "slower than the fastest peer")
        ours = (f"`{n}` is {note}." for n, note in result["peer_notes"].items() if is_ours(n))
        beginning = " ".join([intro, *ours])
        plotted = (f"![{description}]({_PLOTS}/{file})" for description, file in plots)
        return "\n\n".join([beginning, *plotted, table, *_more_targets(result), closing])

    return section


def _bfloat16(result: dict[str, Any]) -> str:
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (cell, kind, _), times in report.bfloat16_times(result).items():
        for other, gain in report.bfloat16_gains(times).items():
            groups.setdefault((cell, kind), {}).setdefault(other, []).append(gain)
    others = list(dict.fromkeys(other for gains in groups.values() for other in gains))
    lines = [
        [f"{cell.upper()} {KINDS[kind]}", *(_mean_and_lowest(gains.get(o, ())) for o in others)]
        for (cell, kind), gains in groups.items()
    ]
    theirs = [gain for gains in groups.values() for gain in gains.get(others[-1], ())]
    return "\n\n".join([
        "Times of the others over ours in bfloat16 with AVX512-BF16: geometric mean (lowest).",
        f"![Speed in bfloat16 and in float32]({_PLOTS}/bfloat16_ratio.png)",
        markdown_table(["", *(f"over {other}" for other in others)], lines),
        _all_rows(result, _lost(theirs), len(theirs), f"slower than {others[-1]}"),
    ])  # fmt: skip


def _layers(result: dict[str, Any]) -> str:
    ratios = [row["layer_ratios"] for row in result["rows"]]
    slower = sum(any(ratio < 1 for ratio in some.values()) for some in ratios)
    return "\n\n".join([
        "Keras' time (the better of with and without XLA) and PyTorch's over ours, float32; means"
        " are geometric; bold: we are slower, or below the target.",
        *(
            f"![Speed of the layers, {title}]({_PLOTS}/layers_{name}.png)"
            for name, title in layers_report.VARIANTS.items()
            if any(row["variant"] == name for row in result["rows"])
        ),
        *layers_report.summary_markdown(result),
        _all_rows(result, slower, len(ratios), "slower than Keras or PyTorch"),
    ])  # fmt: skip


def _memory(result: dict[str, Any]) -> str:
    ratios = [ratio for row in result["rows"] for ratio in row.get("ratios", {}).values()]
    return "\n\n".join([
        "The rise of peak resident memory in training, TensorFlow's `BlockLSTMV2` and its"
        " Grad over `tf_blockrnn.lstm` and our `BlockLSTMV2`:"
        f" {min(ratios):.2f} to {max(ratios):.2f}, geometric mean"
        f" {timing.geometric_mean(ratios):.2f} (above 1 we use less).",
        _all_rows(result, _lost(ratios), len(ratios), "above TensorFlow's"),
    ])  # fmt: skip


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {
    "cells": _cells,
    "sequences": _sequences(
        "The fastest peer's time over ours, one call, float32; peers are TensorFlow's ops, Keras"
        " with and without XLA, PyTorch and ONNX Runtime. Means are geometric; bold: below the"
        " target.",
        ("Speed relative to the fastest peer", "sequences_ratio.png"),
    ),
    "stacks": _sequences(
        "The same for the cuDNN ops: two layers, both directions, rows of full and of different"
        " lengths, against PyTorch and ONNX Runtime.",
        ("Speed of stacks in inference, relative to the fastest peer", "stacks_inference.png"),
        ("Speed of stacks in training, relative to the fastest peer", "stacks_training.png"),
    ),
    "bfloat16": _bfloat16,
    "layers": _layers,
    "memory": _memory,
}
