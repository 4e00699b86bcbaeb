"""PNG plots of a result."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

from bench import inference as inference_bench  # noqa: E402
from bench import layers as layers_bench  # noqa: E402
from bench import layers_report, provenance, report, shapes, timing  # noqa: E402
from bench.peers import is_ours  # noqa: E402
from bench.tables import KINDS, dims  # noqa: E402

# Okabe and Ito's colours, which colour-blind readers can distinguish.
_FASTER, _SLOWER, _LINE = "#0072B2", "#D55E00", "#444444"
_PEER_STYLE = {
    "ours": ("#0072B2", "o"),
    "ours_block": ("#56B4E9", "o"),
    "ours_layer": ("#0072B2", "o"),
    "ours_cudnn": ("#0072B2", "o"),
    "ours_v4": ("#56B4E9", "o"),
    "tf_raw": ("#D55E00", "s"),
    "keras": ("#E69F00", "^"),
    "keras_xla": ("#F0E442", "v"),
    "keras_before": ("#8C6D31", "^"),
    "keras_xla_before": ("#B5A642", "v"),
    "torch": ("#CC79A7", "D"),
    "onnxruntime": ("#009E73", "P"),
    "onnxruntime_before": ("#66C2A5", "X"),
}


# Label, colour, marker and line of each contender of the plot of latency.
_LATENCY_STYLE = {
    "ours_session": ("tf_blockrnn", "#0072B2", "o", "-"),
    "onnxruntime_call": ("ONNX Runtime", "#009E73", "P", "-"),
    "torch_call": ("PyTorch", "#CC79A7", "D", "-"),
    "ours_session_int8": ("tf_blockrnn, int8", "#0072B2", "o", "--"),
    "onnxruntime_int8": ("ONNX Runtime, int8", "#009E73", "P", "--"),
    "torch_int8": ("PyTorch, int8", "#CC79A7", "D", "--"),
}


def _save(figure: Any, path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _ratio_bars(axis: Any, labels: Sequence[str], ratios: Sequence[float], title: str) -> None:
    """Horizontal bars from 1 outwards on a log scale, slower ones in the other colour."""
    places = range(len(ratios))
    colours = [_FASTER if ratio >= 1 else _SLOWER for ratio in ratios]
    axis.barh(places, [r - 1 for r in ratios], left=1, color=colours, height=0.7)
    axis.set_xscale("log", base=2)
    low, high = min([*ratios, 0.8]), max([*ratios, 2.0])
    axis.set_xlim(low / 1.25, high * 1.6)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    for place, ratio in zip(places, ratios, strict=True):
        axis.text(max(ratio, 1.0) * 1.04, place, f"{ratio:.2f}", va="center", fontsize=8)
    axis.axvline(1, color=_LINE, linewidth=1)
    axis.set_yticks(list(places), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def cells(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """The ratio to TensorFlow's op at each shape, a subplot per op."""
    ops = list(result["summary"])
    figure, axes = plt.subplots(
        1, len(ops), figsize=(3.6 * len(ops), 1.4 + 0.28 * len(result["rows"]) / len(ops)),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, op in zip(axes[0], ops, strict=True):
        rows = [row for row in result["rows"] if row["op"] == op]
        mean = result["summary"][op]["geometric_mean"]
        _ratio_bars(
            axis, [dims(row["shape"]) for row in rows], [row["ratio"] for row in rows],
            f"{op}\ngeometric mean {mean:.2f}×",
        )  # fmt: skip
    figure.suptitle("Speed against tf.raw_ops, float32, at B, I, H (above 1× we are faster)")
    figure.supxlabel(provenance.machine_line(result), fontsize=7, color=_LINE)
    return _save(figure, path)


def _subplots(result: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of the grids by (cell, kind)."""
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        if not row["set"].startswith("sweep"):
            out.setdefault((row["cell"], row["kind"]), []).append(row)
    return out


def sequence_ratios(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """Our ratio to the fastest peer at each shape; None if we have no times."""
    subplots = {}
    for (cell, kind), rows in _subplots(result).items():
        for name in dict.fromkeys(n for row in rows for n in row["ratios"]):
            subplots[cell, kind, name] = [row for row in rows if name in row["ratios"]]
    if not subplots:
        return None
    figure, axes = plt.subplots(
        1, len(subplots),
        figsize=(4.4 * len(subplots), 1.4 + 0.28 * max(map(len, subplots.values()))),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, ((cell, kind, name), rows) in zip(axes[0], subplots.items(), strict=True):
        ratios = [row["ratios"][name] for row in rows]
        form = "" if cell == "lstm" else f" ({name})"
        _ratio_bars(
            axis, [f"{report.label(row)}  vs {row['fastest']}" for row in rows], ratios,
            f"{cell.upper()} {KINDS[kind]}{form}\ngeometric mean"
            f" {timing.geometric_mean(ratios):.2f}×",
        )  # fmt: skip
    figure.suptitle("Speed against the fastest peer at B, T, I, H")
    figure.supxlabel(provenance.machine_line(result), fontsize=7, color=_LINE)
    return _save(figure, path)


def peak_share(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """Each contender's share of the measured GEMM peak at each shape."""
    subplots, peak = _subplots(result), result["peak_gflops"]
    if not subplots or not peak:
        return None
    rows_most = max(map(len, subplots.values()))
    figure, axes = plt.subplots(
        1, len(subplots), figsize=(3.4 * len(subplots), 2.0 + 0.3 * rows_most), sharex=True,
        squeeze=False, layout="constrained",
    )  # fmt: skip
    seen = {}
    for axis, ((cell, kind), rows) in zip(axes[0], subplots.items(), strict=True):
        for place, row in enumerate(rows):
            for name, entry in row["peers"].items():
                if "gflops" not in entry:
                    continue
                colour, marker = _PEER_STYLE[name]
                size = 60 if is_ours(name) else 26
                seen[name] = axis.scatter(
                    100 * entry["gflops"] / peak, place, s=size, color=colour, marker=marker,
                    edgecolors=_LINE, linewidths=0.4, zorder=3 if is_ours(name) else 2,
                )  # fmt: skip
        axis.set_yticks(range(len(rows)), [dims(row["shape"]) for row in rows], fontsize=8)
        axis.invert_yaxis()
        axis.set_xlim(left=0)
        axis.axvline(100, color=_LINE, linewidth=1)
        axis.grid(alpha=0.3)
        axis.set_title(f"{cell.upper()} {KINDS[kind]}", fontsize=10)
    figure.supxlabel(f"% of the measured float32 GEMM peak, {peak:.0f} GFLOP/s", fontsize=9)
    figure.legend(seen.values(), seen.keys(), loc="outside upper center", ncols=5, fontsize=8)
    return _save(figure, path)


def cost(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """The time of a call against T, B and H, the others fixed; ideally straight lines."""
    sweeps: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in result["rows"]:
        if row["set"].startswith("sweep-"):
            by_dim = sweeps.setdefault((row["cell"], row["kind"]), {})
            by_dim.setdefault(row["set"].removeprefix("sweep-"), []).append(row)
    if not sweeps:
        return None
    dims = list(dict.fromkeys(dim for by_dim in sweeps.values() for dim in by_dim))
    figure, axes = plt.subplots(
        len(sweeps), len(dims), figsize=(3.6 * len(dims), 2.6 * len(sweeps)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    seen = {}
    for line, ((cell, kind), by_dim) in zip(axes, sweeps.items(), strict=True):
        for axis, dim in zip(line, dims, strict=True):
            rows = sorted(by_dim.get(dim, []), key=lambda row: row["shape"]["BTIH".index(dim)])
            values = [row["shape"]["BTIH".index(dim)] for row in rows]
            for name in report.peer_names(rows):
                points = [
                    (v, r["peers"][name]["median_ms"])
                    for v, r in zip(values, rows, strict=True)
                    if "median_ms" in r["peers"].get(name, {})
                ]
                colour, marker = _PEER_STYLE[name]
                (seen[name],) = axis.plot(
                    *zip(*points, strict=True), color=colour, marker=marker, markersize=4,
                    linewidth=2.2 if is_ours(name) else 1.2,
                )  # fmt: skip
            if result["peak_gflops"]:
                limit = [1e-6 * row["flops"] / result["peak_gflops"] for row in rows]
                (seen["GEMM peak"],) = axis.plot(values, limit, ":", color=_LINE)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axis.grid(alpha=0.3)
            axis.set_title(f"{cell.upper()} {KINDS[kind]}: ms against {dim}", fontsize=9)
    figure.legend(seen.values(), seen.keys(), loc="outside upper center", ncols=6, fontsize=8)
    return _save(figure, path)


def layers(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """Our layers' ratio to the faster Keras at each shape, and to PyTorch as a diamond."""
    groups = {
        key: [row for row in rows if "keras" in row["layer_ratios"]]
        for key, rows in layers_bench.groups(result).items()
    }
    groups = {key: rows for key, rows in groups.items() if rows}
    if not groups:
        return None
    columns = list(dict.fromkeys(key[:2] for key in groups))
    cells = list(dict.fromkeys(key[2] for key in groups))
    most = max(map(len, groups.values()))
    figure, axes = plt.subplots(
        len(cells), len(columns), squeeze=False, layout="constrained",
        figsize=(3.6 * len(columns), 0.8 + (1.0 + 0.26 * most) * len(cells)),
    )  # fmt: skip
    for axis in axes.flat:
        axis.set_visible(False)
    for (variant, kind, cell), rows in groups.items():
        axis = axes[cells.index(cell)][columns.index((variant, kind))]
        axis.set_visible(True)
        ratios = [row["layer_ratios"]["keras"] for row in rows]
        _ratio_bars(
            axis, [dims(row["shape"]) for row in rows], ratios,
            f"{cell.upper()} {layers_report.title(variant, kind)}\ngeometric mean over Keras"
            f" {timing.geometric_mean(ratios):.2f}×",
        )  # fmt: skip
        torch = [(r["layer_ratios"].get("torch"), place) for place, r in enumerate(rows)]
        points = [point for point in torch if point[0]]
        if points:
            axis.scatter(
                *zip(*points, strict=True), s=22, color=_PEER_STYLE["torch"][0], marker="D",
                edgecolors=_LINE, linewidths=0.4, zorder=3,
            )  # fmt: skip
            low, high = axis.get_xlim()
            furthest = [ratio for ratio, _ in points]
            axis.set_xlim(min(low, *furthest), max(high, 1.2 * max(furthest)))
    figure.suptitle(
        "Our layers against Keras' (bars, the faster of tf.function and XLA) and PyTorch's"
        " (diamonds) at B, T, I, H"
    )
    figure.supxlabel(provenance.machine_line(result), fontsize=7, color=_LINE)
    return _save(figure, path)


def inference(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """The latency of a call of one row against H: a step and a short sequence, LSTM and GRU."""
    panels: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for cell, rows in inference_bench.groups(result).items():
        for row in rows:
            batch, steps, inputs, units = row["shape"]
            if batch == 1 and inputs == units and steps in (1, shapes.INFERENCE_STEPS):
                panels.setdefault((steps, cell), []).append(row)
    panels = {key: rows for key, rows in sorted(panels.items()) if len(rows) > 1}
    if not panels:
        return None
    steps_of, cells = (sorted({key[i] for key in panels}, key=str) for i in (0, 1))
    figure, axes = plt.subplots(
        len(steps_of), len(cells), figsize=(4.0 * len(cells), 3.1 * len(steps_of)), squeeze=False,
        sharex=True, layout="constrained",
    )  # fmt: skip
    seen = {}
    for (steps, cell), rows in panels.items():
        axis = axes[steps_of.index(steps)][cells.index(cell)]
        rows = sorted(rows, key=lambda row: row["shape"][3])
        for name, (label, colour, marker, line) in _LATENCY_STYLE.items():
            points = [
                (row["shape"][3], 1e3 * inference_bench.medians(row)[name])
                for row in rows
                if name in inference_bench.medians(row)
            ]
            if points:
                (seen[label],) = axis.plot(
                    *zip(*points, strict=True), line, color=colour, marker=marker, markersize=4,
                    linewidth=2.2 if is_ours(name) else 1.2,
                )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks([row["shape"][3] for row in rows])
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.grid(alpha=0.3)
        axis.set_ylabel("µs", fontsize=9)
        what = "one step" if steps == 1 else f"{steps} steps"
        axis.set_title(f"{cell.upper()}, {what}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("units H (and inputs)", fontsize=9)
    figure.suptitle("Time of a call with one row, lower is better", fontsize=11)
    figure.legend(seen.values(), seen.keys(), loc="outside lower center", ncols=3, fontsize=9)
    return _save(figure, path)
