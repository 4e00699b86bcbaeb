"""Rows, goals, table and plot of a measurement on a GPU, all from its JSON."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from bench import tables, timing
from bench.gpu.cases import BATCHES, Case, Gpu, floor, step_floor

# Of cuDNN's time over ours.
LEAST_RATIO = 0.9
MEAN_RATIO = 1.5
SMALL_RATIO = 2.0  # the least, where batch and cell are small
_SMALL_BATCH, _SMALL_UNITS = 8, 1024


def row(
    case: Case,
    gpu: Gpu,
    samples: dict[str, list[list[float]]],
    persistent_kernels: int,
    *,
    cudnn_ran: bool,
) -> dict[str, Any]:
    """One case: both medians, their ratio, and our time beside the least possible.

    persistent_kernels: of one of our calls. cudnn_ran: else "cudnn" is PyTorch's own kernels, which
    it takes for bfloat16 where its cuDNN is older than 9.13.
    """
    summaries = {name: timing.summary(turns) for name, turns in samples.items()}
    ours_ms = summaries["ours"]["median_ms"]
    return {
        **dataclasses.asdict(case),
        **summaries,
        "ratio": summaries["cudnn"]["median_ms"] / ours_ms,
        "floor_ms": 1e3 * floor(case, gpu),
        "share_of_floor": 1e3 * floor(case, gpu) / ours_ms,
        "step_us": 1e3 * ours_ms / case.steps,
        "step_floor_us": 1e6 * step_floor(case, gpu),
        "persistent_kernels": persistent_kernels,
        "cudnn_ran": cudnn_ran,
    }


def _case(r: dict[str, Any]) -> Case:
    return Case(**{field.name: r[field.name] for field in dataclasses.fields(Case)})


def rows_to_keep(before: dict[str, Any], now: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a result to which another one adds: none where our engine is not the same or not
    known; `ValueError` where the two are not of the same GPU, libraries and plan."""
    for name in ("gpu", "libraries", "persistent", "plan"):
        if before[name] != now[name]:
            raise ValueError(f"{name} was {before[name]}, now {now[name]}: measure all again")
    same = now["engine"] is not None and before.get("engine") == now["engine"]
    return before["rows"] if same else []


def missing(wanted: Sequence[Case], rows: Sequence[dict[str, Any]]) -> list[Case]:
    """The cases that are not measured; last those that have failed, which may again end it all."""
    have = {_case(r) for r in measured(rows)}
    tried = {_case(r) for r in rows}
    return sorted((case for case in wanted if case not in have), key=lambda case: case in tried)


def without(rows: Sequence[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    return [r for r in rows if _case(r) != case]


def failed_row(case: Case, error: str) -> dict[str, Any]:
    return {**dataclasses.asdict(case), "error": error}


def measured(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r for r in rows if "ratio" in r]


def _against_cudnn(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What PyTorch ran on its own kernels is no measurement of cuDNN."""
    return [r for r in measured(rows) if r["cudnn_ran"]]


def _is_small(r: dict[str, Any]) -> bool:
    return r["batch"] <= _SMALL_BATCH and r["units"] <= _SMALL_UNITS


def goals(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each goal: reached, missed and by what, or not measured."""
    against_cudnn = _against_cudnn(rows)
    ratios = [r["ratio"] for r in against_cudnn]
    small = [r["ratio"] for r in against_cudnn if _is_small(r)]
    lines = []
    for name, found, least in (
        ("slowest case", min(ratios, default=None), LEAST_RATIO),
        ("geometric mean", timing.geometric_mean(ratios) if ratios else None, MEAN_RATIO),
        (f"slowest case of B ≤ {_SMALL_BATCH}, H ≤ {_SMALL_UNITS}",
         min(small, default=None), SMALL_RATIO),
    ):  # fmt: skip
        if found is None:
            lines.append(f"{name}: not measured")
        else:
            verdict = "reached" if found >= least else "MISSED"
            lines.append(f"{name}: {found:.2f}× cuDNN, goal {least}×: {verdict}")
    if others := len(measured(rows)) - len(ratios):
        lines.append(f"{others} cases against PyTorch's own kernels, not cuDNN: in no goal")
    if failures := len(rows) - len(measured(rows)):
        lines.append(f"{failures} cases FAILED")
    return lines


_HEAD = (
    "cell", "", "type", "layers", "directions", "B, T, H", "ours ms", "cuDNN ms", "ratio",
    "µs a step", "its floor", "share of floor", "persistent kernels",
)  # fmt: skip
_OF_CASE = _HEAD.index("ours ms")  # those before it say what was measured
_RATIO = _HEAD.index("ratio")


def _cells(r: dict[str, Any]) -> list[str]:
    begin = [r["cell"], tables.KINDS[r["kind"]], r["dtype"]]
    begin += [str(r["layers"]), str(r["directions"])]
    begin.append(tables.dims((r["batch"], r["steps"], r["units"])))
    if "ratio" not in r:
        return [*begin, tables.why_missing(r), *[""] * (len(_HEAD) - len(begin) - 1)]
    times = (r["ours"]["median_ms"], r["cudnn"]["median_ms"], r["ratio"])
    times += (r["step_us"], r["step_floor_us"])
    shown = [*map(tables.number, times), f"{100 * r['share_of_floor']:.0f} %"]
    if not r["cudnn_ran"]:
        shown[1] += " (not cuDNN)"
    return [*begin, *shown, str(r["persistent_kernels"])]


def _in_order(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda r: dataclasses.astuple(_case(r)))


def _libraries(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in result["libraries"].items())


def text(result: dict[str, Any]) -> str:
    rows = [_cells(r) for r in _in_order(result["rows"])]
    gpu = result["gpu"]
    head = f"{gpu['name']}, {gpu['multiprocessors']} multiprocessors, {gpu['clock_hz'] / 1e9} GHz"
    lines = [head, _libraries(result), tables.text_table(_HEAD, rows), *goals(result["rows"])]
    if "stopped" in result:
        lines.append(f"STOPPED, cases are missing: {result['stopped']}")
    return "\n".join(lines)


def _stamp(result: dict[str, Any]) -> str:
    commit, gpu = result["machine"].get("commit") or "unknown", result["gpu"]["name"]
    day = result["machine"]["time"][:10]
    return f"Measured at commit {commit} on {gpu} with {_libraries(result)}; {day}."


def markdown(result: dict[str, Any]) -> str:
    """All rows, slower ones in bold."""
    rows = []
    for r in _in_order(result["rows"]):
        cells = _cells(r)
        if r.get("ratio", 1) < 1:
            cells[_RATIO] = f"**{cells[_RATIO]}**"
        rows.append([", ".join(filter(None, cells[:_OF_CASE])), *cells[_OF_CASE:]])
    head = [", ".join(filter(None, _HEAD[:_OF_CASE])), *_HEAD[_OF_CASE:]]
    return "\n\n".join([tables.markdown_table(head, rows), _goals_markdown(result)])


def _goals_markdown(result: dict[str, Any]) -> str:
    lines = [f"- {line}" for line in goals(result["rows"])]
    if "stopped" in result:
        lines.append(f"- stopped, cases are missing: {result['stopped']}")
    return "\n".join([*lines, "", _stamp(result)])


def summary_markdown(result: dict[str, Any]) -> str:
    """The summary in docs/performance.md."""
    ratios = [r["ratio"] for r in _against_cudnn(result["rows"])]
    return "\n\n".join([
        "cuDNN's time over ours, through PyTorch's modules, by events on the device; means are"
        " geometric.",
        "![Speed of the ops on a GPU against cuDNN](../bench/results/gpu.png)",
        _goals_markdown(result),
        f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} rows are slower than cuDNN:"
        " [all rows](benchmarks.md#gpu).",
    ])  # fmt: skip


def plot(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """The ratio against the units: a panel for each cell, kind, type, layers and steps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = measured(result["rows"])
    tall = sorted({(r["kind"], r["dtype"]) for r in rows})
    wide = sorted({(r["cell"], r["layers"], r["steps"]) for r in rows})
    figure, axes = plt.subplots(
        max(1, len(tall)), max(1, len(wide)), squeeze=False, sharex=True, sharey=True,
        figsize=(2.6 * max(1, len(wide)) + 1, 2.0 * max(1, len(tall)) + 1), layout="constrained",
    )  # fmt: skip
    for panels, (kind, dtype) in zip(axes, tall, strict=False):
        for axis, (cell, layers, steps) in zip(panels, wide, strict=False):
            of_panel = {
                "kind": kind, "dtype": dtype, "cell": cell, "layers": layers, "steps": steps
            }  # fmt: skip
            shown = [r for r in rows if of_panel.items() <= r.items()]
            _panel(axis, shown)
            title = f"{cell}, {tables.KINDS[kind]}, {dtype}, T = {steps}"
            title += f", {layers} layers" * (layers > 1)
            title += " (not cuDNN)" * (not all(r["cudnn_ran"] for r in shown))
            axis.set_title(title, fontsize=8)
    axes[0][0].legend(fontsize=7)
    figure.suptitle("Speed against cuDNN (above 1× we are faster), by units")
    figure.supxlabel(result["gpu"]["name"], fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


_COLOURS = dict(zip(BATCHES, ("#0072B2", "#009E73", "#E69F00", "#D55E00"), strict=True))


def _panel(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    axis.axhline(1, color="#444444", linewidth=1)
    for batch in sorted({r["batch"] for r in rows}):
        points = sorted((r["units"], r["ratio"]) for r in rows if r["batch"] == batch)
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3,
                  color=_COLOURS.get(batch, "#CC79A7"), label=f"B = {batch}")  # fmt: skip
