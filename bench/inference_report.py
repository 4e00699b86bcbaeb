"""Tables of the bench of inference: plain text for the terminal, Markdown for the pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import inference, sequences
from bench.provenance import measured
from bench.tables import dims, markdown_table, missing, number, text_table

_COLUMNS = {
    "ours_session": "Session",
    "ours_session_bfloat16": "Session, bfloat16",
    "ours_session_int8": "Session, int8",
    "onnxruntime_call": "ONNX Runtime",
    "onnxruntime_one": "ONNX Runtime, one thread",
    "torch_call": "PyTorch",
    "onnxruntime_int8": "ONNX Runtime, int8",
    "torch_int8": "PyTorch, int8",
}
_MODELS = {inference.MODEL: "model", inference.FROZEN: "frozen model"}
_PLOT = "inference.png"


def _ratio(ratio: float | None, wanted: float, lost: str) -> str:
    if ratio is None:
        return "-"
    return lost.format(f"{ratio:.2f}") if ratio < wanted else f"{ratio:.2f}"


def _times(row: dict[str, Any], columns: Sequence[str]) -> list[str]:
    """The median µs of each column."""
    times = sequences.medians(row)
    return [number(1e3 * times[name]) if name in times else "-" for name in columns]


def _sessions(rows: Sequence[dict[str, Any]], lost: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of one cell; a ratio below its target is in the format `lost`."""
    columns = [name for name in _COLUMNS if any(name in sequences.medians(row) for row in rows)]
    lines = []
    for row in rows:
        ratios = [
            _ratio(row["session_ratios"].get(precision), target["each"], lost)
            for precision, target in inference.TARGETS.items()
        ]
        lines.append([dims(row["shape"]), *_times(row, columns), *ratios])
    head = ["B, T, I, H", *(f"{_COLUMNS[name]}, µs" for name in columns)]
    return [*head, *(f"fastest / ours, {precision}" for precision in inference.TARGETS)], lines


def _models(result: dict[str, Any], lost: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows of frozen models; a share above the target is in the format `lost`."""
    lines = []
    for cell, rows in inference.groups(result, models=True).items():
        for row in rows:
            share = row.get("frozen_share")
            text = "-" if share is None else f"{share:.2f}"
            if share and share > inference.FROZEN_TARGET:
                text = lost.format(text)
            lines.append([f"{cell.upper()} {dims(row['shape'])}", *_times(row, _MODELS), text])
    head = ["B, T, I, H", *(f"{name}, µs" for name in _MODELS.values()), "frozen / not"]
    return head, lines


def _summary(result: dict[str, Any], lost: str) -> tuple[list[str], list[list[str]]]:
    lines = []
    for entry in result["summary"]:
        target = entry["target"]
        lines.append([
            f"{entry['cell'].upper()}, {entry['precision']}",
            _ratio(entry["geometric_mean"], target.get("mean", 0), lost),
            f"{target['mean']:g}" if "mean" in target else "-",
            _ratio(entry["lowest"], target["each"], lost),
            f"{target['each']:g}",
            f"{entry['slower']} of {entry['shapes']}",
        ])  # fmt: skip
    return ["", "fastest peer / ours, mean", "target", "lowest", "target", "slower at"], lines


def _steps(result: dict[str, Any]) -> list[str]:
    """The time of a step, a sentence for each cell."""
    out = []
    for cell in inference.groups(result):
        step = inference.step_us(result, cell)
        if step is not None:
            reached = "reached" if step < inference.STEP_TARGET_US else "missed"
            out.append(
                f"{cell.upper()}, a step at B, I, H = 1, 128, 128: {number(step)} µs"
                f" (target under {inference.STEP_TARGET_US:g}, {reached})."
            )
    return out


def text(result: dict[str, Any]) -> str:
    """All of the result as text; << marks what is slower than a peer or misses a target."""
    parts = []
    for cell, rows in inference.groups(result).items():
        parts += [cell.upper(), text_table(*_sessions(rows, "<< {}")), ""]
    if inference.groups(result, models=True):
        parts += [
            "Keras models, compiled by XLA, frozen and not",
            text_table(*_models(result, "<< {}")),
            "",
        ]
    if result["summary"]:
        parts += ["geometric means", text_table(*_summary(result, "<< {}")), ""]
    return "\n".join([*parts, *_steps(result), *missing(result["rows"])])


def _intro(result: dict[str, Any]) -> str:
    return (
        f"Median of whole Python calls, NumPy in and NumPy out, {result['threads']} threads;"
        " weights packed beforehand; calls of one step are `Session.step`. Each precision of the"
        " weights is compared with the fastest peer of that precision: above 1 we are faster, bold"
        " where we are slower or below the target. Means are geometric."
    )


def markdown(result: dict[str, Any]) -> str:
    """All rows; ratios below their targets are bold."""
    parts = [f"{_intro(result)} `python -m bench inference` measures again."]
    if result["summary"]:
        parts += [markdown_table(*_summary(result, "**{}**")), *_steps(result)]
    for cell, rows in inference.groups(result).items():
        parts += [f"**{cell.upper()}**", markdown_table(*_sessions(rows, "**{}**"))]
    if inference.groups(result, models=True):
        parts += [
            "**Keras models, compiled by XLA**: a call of the concrete function with and without"
            f" `tf_blockrnn.freeze`; the target of the last column is {inference.FROZEN_TARGET:g}.",
            markdown_table(*_models(result, "**{}**")),
        ]
    parts += [f"{line}." for line in missing(result["rows"])]
    return "\n\n".join([*parts, measured(result)])


def summary_markdown(result: dict[str, Any]) -> str:
    """The section of docs/performance.md: plot, means and a link to all rows."""
    return "\n\n".join([
        _intro(result),
        f"![Latency of a call against H](../bench/results/{_PLOT})",
        markdown_table(*_summary(result, "**{}**")),
        *_steps(result),
        f"[All rows](benchmarks.md#inference). {measured(result)}",
    ])  # fmt: skip
