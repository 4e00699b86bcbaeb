"""PNG plots of a result."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  (the backend comes first)

from bench import inference as inference_bench  # noqa: E402
from bench import layers as layers_bench  # noqa: E402
from bench import layers_report, provenance, report, sequences, shapes, summary, timing  # noqa: E402
from bench import recompute as recompute_bench  # noqa: E402
from bench.peers import is_ours  # noqa: E402
from bench.tables import KINDS, PEER_LABELS, dims  # noqa: E402

# Okabe and Ito's colours, which colour-blind readers can distinguish.
_FASTER, _SLOWER, _LINE = "#0072B2", "#D55E00", "#444444"
# The pages show plots about 800 pixels wide: at this width in inches a font of 9 points stays
# legible there.
_WIDTH = 9.0
_SHAPE = "batch, steps, inputs, units"
_CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn": "simple RNN"}
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


def _panels(count: int, height: float, more: float = 1.2) -> tuple[Any, list[Any]]:
    """A figure of at most two columns, and its panels, each of that height in inches."""
    columns = min(2, count)
    lines = -(-count // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(_WIDTH, more + lines * height), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for axis in axes.flat[count:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:count])


def _describe(
    figure: Any,
    result: dict[str, Any],
    title: str,
    below: str,
    handles: dict[str, Any] | None = None,
) -> None:
    """What the plot shows, how it is read, and where it was measured; a legend if it has one."""
    figure.suptitle(title, fontsize=11)
    text = f"{below}\n{textwrap.fill(provenance.machine_line(result), 120)}"
    if handles is None:
        figure.supxlabel(text, fontsize=8, color=_LINE)
    else:
        figure.legend(
            handles.values(), handles.keys(), title=text, title_fontsize=8, fontsize=8, ncols=4,
            loc="outside lower center", frameon=False,
        )  # fmt: skip


def _name(cell: str, kind: str) -> str:
    return f"{_CELLS[cell]}, {KINDS[kind]}"


def _ratio_bars(
    axis: Any,
    labels: Sequence[str],
    ratios: Sequence[float],
    title: str,
    points: Sequence[float | None] = (),
) -> None:
    """Horizontal bars from 1 outwards on a log scale, slower ones in the other colour.

    `points` are marked with diamonds; the bars' numbers are then in a column at the right.
    """
    places = range(len(ratios))
    colours = [_FASTER if ratio >= 1 else _SLOWER for ratio in ratios]
    axis.barh(places, [r - 1 for r in ratios], left=1, color=colours, height=0.7)
    axis.set_xscale("log", base=2)
    marked = {place: point for place, point in enumerate(points) if point}
    low, high = min([*ratios, *marked.values(), 0.8]), max([*ratios, *marked.values(), 2.0])
    axis.set_xlim(low / 1.25, high * (high / low) ** 0.25)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
    for place, ratio in zip(places, ratios, strict=True):
        end = axis.get_xlim()[1] if marked else 1.06 * max(ratio, 1.0)
        align = "right" if marked else "left"
        axis.text(end, place, f"{ratio:.2f}", va="center", ha=align, fontsize=8)
    if marked:
        axis.scatter(
            marked.values(), marked.keys(), s=22, color=_PEER_STYLE["torch"][0], marker="D",
            edgecolors=_LINE, linewidths=0.4, zorder=3,
        )  # fmt: skip
    axis.axvline(1, color=_LINE, linewidth=1)
    axis.set_yticks(list(places), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_title(title, fontsize=10, loc="right")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def cells(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """The ratio to TensorFlow's op at each shape, a panel per op."""
    ops = list(result["summary"])
    figure, axes = _panels(len(ops), 0.6 + 0.22 * len(result["rows"]) / len(ops))
    for axis, op in zip(axes, ops, strict=True):
        rows = [row for row in result["rows"] if row["op"] == op]
        mean = result["summary"][op]["geometric_mean"]
        _ratio_bars(
            axis, [dims(row["shape"]) for row in rows], [row["ratio"] for row in rows],
            f"{op}, {mean:.2f}× on average",
        )  # fmt: skip
        axis.set_ylabel("batch, inputs, units", fontsize=8)
    _describe(
        figure, result, "One step: how many times as fast as TensorFlow's own op",
        "Blue: faster than TensorFlow's op (tf.raw_ops); orange: slower. float32.",
    )  # fmt: skip
    return _save(figure, path)


def _subplots(result: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows of the grids by (cell, kind)."""
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        if not row["set"].startswith("sweep"):
            out.setdefault((row["cell"], row["kind"]), []).append(row)
    return out


def _own_ratios(
    result: dict[str, Any], kinds: Collection[str]
) -> dict[tuple[str, str], list[tuple[dict[str, Any], float]]]:
    """Rows and ratios of the first of our contenders, by (cell, kind)."""
    out = {}
    for (cell, kind), rows in _subplots(result).items():
        ours = next((name for row in rows for name in row["ratios"]), None)
        if ours and kind in kinds:
            some = [(row, row["ratios"][ours]) for row in rows if ours in row["ratios"]]
            out[cell, kind] = some
    return out


def sequence_ratios(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """Our ratio to the fastest peer at each shape, a panel for each cell and kind; None if we have
    no times."""
    panels = _own_ratios(result, tuple(KINDS))
    if not panels:
        return None
    figure, axes = _panels(len(panels), 0.6 + 0.21 * max(map(len, panels.values())))
    for axis, ((cell, kind), rows) in zip(axes, panels.items(), strict=True):
        ratios = [ratio for _, ratio in rows]
        fastest = (PEER_LABELS[row["fastest"]].removesuffix(", reset before") for row, _ in rows)
        labels = [f"{report.label(row)}  ({f})" for (row, _), f in zip(rows, fastest, strict=True)]
        mean = timing.geometric_mean(ratios)
        _ratio_bars(axis, labels, ratios, f"{_name(cell, kind)}: {mean:.2f}× on average")
        axis.set_ylabel(_SHAPE, fontsize=8)
    _describe(
        figure, result, "How many times as fast as the fastest other library",
        "In parentheses: that library. Blue: tf_blockrnn is faster; orange: it is slower.",
    )  # fmt: skip
    return _save(figure, path)


def stack_ratios(result: dict[str, Any], path: pathlib.Path, kind: str) -> pathlib.Path | None:
    """The same for stacks in inference or training, a panel for each cell."""
    panels = _own_ratios(result, (kind,))
    if not panels:
        return None
    figure, axes = plt.subplots(
        1, len(panels), figsize=(_WIDTH, 1.6 + 0.19 * max(map(len, panels.values()))),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis, ((cell, _), rows) in zip(axes[0], panels.items(), strict=True):
        labels = [report.label(row) for row, _ in rows] if axis is axes[0][0] else [""] * len(rows)
        ratios = [ratio for _, ratio in rows]
        mean = timing.geometric_mean(ratios)
        _ratio_bars(axis, labels, ratios, f"{_CELLS[cell]}: {mean:.2f}× on average")
    axes[0][0].set_ylabel(_SHAPE, fontsize=8)
    _describe(
        figure, result,
        f"Two layers, both directions, {KINDS[kind]}: how many times as fast as the fastest other"
        " library",
        "spread: rows of many different lengths; half: of half of the steps. Blue: tf_blockrnn is"
        " faster; orange: slower.",
    )  # fmt: skip
    return _save(figure, path)


def peak_share(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path | None:
    """Each contender's share of the measured GEMM peak at each shape."""
    subplots, peak = _subplots(result), result["peak_gflops"]
    if not subplots or not peak:
        return None
    figure, axes = _panels(len(subplots), 0.6 + 0.2 * max(map(len, subplots.values())), 2.0)
    seen = {}
    for axis, ((cell, kind), rows) in zip(axes, subplots.items(), strict=True):
        for place, row in enumerate(rows):
            for name, entry in row["peers"].items():
                if "gflops" not in entry:
                    continue
                colour, marker = _PEER_STYLE[name]
                size = 60 if is_ours(name) else 26
                seen[PEER_LABELS[name]] = axis.scatter(
                    100 * entry["gflops"] / peak, place, s=size, color=colour, marker=marker,
                    edgecolors=_LINE, linewidths=0.4, zorder=3 if is_ours(name) else 2,
                )  # fmt: skip
        axis.set_yticks(range(len(rows)), [dims(row["shape"]) for row in rows], fontsize=8)
        axis.set_ylabel(_SHAPE, fontsize=8)
        axis.invert_yaxis()
        axis.set_xlim(0, 105)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}%")
        axis.axvline(100, color=_LINE, linewidth=1)
        axis.grid(alpha=0.3)
        axis.set_title(_name(cell, kind), fontsize=10)
    _describe(
        figure, result, "How much of the processor's speed in matrix products is used",
        f"100% is the speed of a large float32 matrix product there, {peak:.0f} GFLOP/s.", seen,
    )  # fmt: skip
    return _save(figure, path)


# What the sweeps vary.
_DIMS = {"T": "steps", "B": "batch", "I": "inputs", "H": "units"}


def _cost_lines(axis: Any, rows: list[dict[str, Any]], dim: str, peak: float) -> dict[str, Any]:
    """The time of every contender against one dim; returns a handle for each label."""
    rows = sorted(rows, key=lambda row: row["shape"]["BTIH".index(dim)])
    values = [row["shape"]["BTIH".index(dim)] for row in rows]
    seen = {}
    for name in report.peer_names(rows):
        points = [
            (v, r["peers"][name]["median_ms"])
            for v, r in zip(values, rows, strict=True)
            if "median_ms" in r["peers"].get(name, {})
        ]
        colour, marker = _PEER_STYLE[name]
        (seen[PEER_LABELS[name]],) = axis.plot(
            *zip(*points, strict=True), color=colour, marker=marker, markersize=4,
            linewidth=2.2 if is_ours(name) else 1.2,
        )  # fmt: skip
    if peak:
        limit = [1e-6 * row["flops"] / peak for row in rows]
        (seen["matrix products at the peak"],) = axis.plot(values, limit, ":", color=_LINE)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.grid(alpha=0.3)
    axis.set_xlabel(_DIMS[dim], fontsize=9)
    return seen


def costs(result: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """The time of a call against T, B and H, the others fixed; ideally straight lines. A file for
    each cell and kind."""
    sweeps: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for row in result["rows"]:
        if row["set"].startswith("sweep-"):
            by_dim = sweeps.setdefault((row["cell"], row["kind"]), {})
            by_dim.setdefault(row["set"].removeprefix("sweep-"), []).append(row)
    fixed = ", ".join(f"{_DIMS[dim]} {value}" for dim, value in shapes.SWEEP_BASE.items())
    files = []
    for (cell, kind), by_dim in sweeps.items():
        figure, axes = plt.subplots(
            1, len(by_dim), figsize=(_WIDTH, 4.2), squeeze=False, layout="constrained"
        )
        seen: dict[str, Any] = {}
        for axis, (dim, rows) in zip(axes[0], by_dim.items(), strict=True):
            seen |= _cost_lines(axis, rows, dim, result["peak_gflops"])
        axes[0][0].set_ylabel("milliseconds for one call", fontsize=9)
        _describe(
            figure, result, f"{_name(cell, kind)}: how the time of a call grows",
            f"One size varies, the others stay at {fixed}.", seen,
        )  # fmt: skip
        files.append(_save(figure, folder / f"{result['bench']}_cost_{cell}_{KINDS[kind]}.png"))
    return files


def layers(result: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path]:
    """Our layers' ratio to the faster Keras at each shape, and to PyTorch as a diamond. A file for
    each variant, with a panel for each cell and kind."""
    by_variant: dict[str, dict[tuple[str, str], list[dict[str, Any]]]] = {}
    groups = layers_bench.groups(result).items()
    for (variant, kind, cell), some in sorted(groups, key=lambda g: tuple(_CELLS).index(g[0][2])):
        rows = [row for row in some if "keras" in row["layer_ratios"]]
        if rows:
            by_variant.setdefault(variant, {})[cell, kind] = rows
    files = []
    for variant, panels in by_variant.items():
        figure, axes = _panels(len(panels), 0.6 + 0.24 * max(map(len, panels.values())))
        for axis, ((cell, kind), rows) in zip(axes, panels.items(), strict=True):
            _layer_bars(axis, rows, _name(cell, kind))
        diamonds = "" if variant == "recurrent_dropout" else " Diamonds: over PyTorch's layer."
        _describe(
            figure, result,
            f"Keras layers, {layers_report.VARIANTS[variant]}: how many times as fast as Keras'",
            f"Bars and numbers: over Keras' layer with or without XLA, the faster.{diamonds}",
        )  # fmt: skip
        files.append(_save(figure, folder / f"layers_{variant}.png"))
    return files


def _layer_bars(axis: Any, rows: list[dict[str, Any]], name: str) -> None:
    """One panel: a bar for each shape, and PyTorch's diamonds where it was measured."""
    ratios = [row["layer_ratios"]["keras"] for row in rows]
    mean = timing.geometric_mean(ratios)
    _ratio_bars(
        axis, [dims(row["shape"]) for row in rows], ratios, f"{name}: {mean:.2f}× on average",
        [row["layer_ratios"].get("torch") for row in rows],
    )  # fmt: skip
    axis.set_ylabel(_SHAPE, fontsize=8)


def headline(
    result: dict[str, Any], sessions: dict[str, Any] | None, path: pathlib.Path
) -> pathlib.Path:
    """The README's chart: our speed over each library's, the means over all shapes.

    sessions: the result of the bench of inference, if there is one.
    """
    bars = summary.headline_bars(result, sessions)
    kinds = list(dict.fromkeys(bar.kind for bar in bars))
    cells = list(dict.fromkeys(bar.cell for bar in bars))
    libraries = list(dict.fromkeys(bar.library for bar in bars))
    # A place for each cell and library in every panel, with space between the cells.
    places = {
        (cell, library): 1.15 * len(libraries) * n + m
        for n, cell in enumerate(cells) for m, library in enumerate(libraries)
    }  # fmt: skip
    labels = [f"{_CELLS[cell]} vs. {library}" for cell, library in places]
    figure, axes = plt.subplots(
        1, len(kinds), figsize=(8.0, 3.4), squeeze=False, sharey=True, layout="constrained"
    )
    for axis, kind in zip(axes[0], kinds, strict=True):
        means = {(bar.cell, bar.library): bar.mean for bar in bars if bar.kind == kind}
        for what, place in places.items():
            mean = means.get(what)
            text, weight = (f"{mean:.1f}×", "bold") if mean else (f"no {KINDS[kind]}", "normal")
            colour = _FASTER if mean and mean >= 1 else _SLOWER
            axis.barh(place, (mean or 1) - 1, left=1, color=colour, height=0.74)
            axis.text(
                1.06 * max(mean or 1, 1), place, text, va="center", fontsize=10, weight=weight,
                color="black" if mean else _LINE,
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xlim(0.6, 1.9 * max(bar.mean for bar in bars))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}×")
        axis.axvline(1, color=_LINE, linewidth=1)
        axis.set_title(KINDS[kind].capitalize(), fontsize=12)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0][0].set_yticks(list(places.values()), labels, fontsize=10)
    axes[0][0].invert_yaxis()
    shapes_of = " or ".join(str(n) for n in sorted({bar.shapes for bar in bars}))
    figure.suptitle("Speed of tf_blockrnn on a CPU relative to other libraries", fontsize=13)
    figure.supxlabel(
        f"4× is four times as fast; means of {shapes_of} shapes, float32,"
        f" {result['machine']['cores']} cores",
        fontsize=10, color=_LINE,
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=200)  # sharp on fine screens too
    plt.close(figure)
    return path


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
                (row["shape"][3], 1e3 * sequences.medians(row)[name])
                for row in rows
                if name in sequences.medians(row)
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


def recompute(result: dict[str, Any], path: pathlib.Path) -> pathlib.Path:
    """Memory and time against the steps of a span, a panel for each, relative to no recompute."""
    titles = {"bytes": "Memory", "median_ms": "Time"}
    styles = {"lstm": (_FASTER, "o"), "gru": (_SLOWER, "s")}
    figure, axes = _panels(len(titles), 3.0)
    handles = {}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        spans: list[int] = []
        for row in result["rows"]:
            colour, marker = styles[row["cell"]]
            spans = [e["recompute"] for e in row["choices"] if not isinstance(e["recompute"], bool)]
            shares = [recompute_bench.relative(row, key, span) for span in spans]
            (line,) = axis.plot(spans, shares, color=colour, marker=marker, markersize=4)
            chosen = axis.axhline(recompute_bench.relative(row, key), color=colour, linestyle=":")
            handles[_CELLS[row["cell"]]] = line
            handles[f"{_CELLS[row['cell']]}, recompute=True"] = chosen
        axis.axhline(1, color=_LINE, linewidth=1)
        axis.set_ylim(bottom=0)
        axis.set_xscale("log", base=2)
        axis.set_xticks(spans)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_xlabel("recompute, steps of a span", fontsize=9)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    shape = dims(result["rows"][0]["shape"])
    _describe(
        figure, result, f"Training with recompute relative to without, {_SHAPE} {shape}",
        "Lower is better", handles,
    )  # fmt: skip
    return _save(figure, path)
