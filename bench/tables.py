"""Functions shared by all tables of results: numbers, shapes and columns as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

KINDS = {"infer": "inference", "train": "training", "serve": "whole calls"}
# What plots call the contenders.
PEER_LABELS = {
    "ours": "tf_blockrnn",
    "ours_block": "tf_blockrnn, block op",
    "ours_layer": "tf_blockrnn, layer",
    "ours_cudnn": "tf_blockrnn, cuDNN op",
    "ours_v4": "tf_blockrnn without AVX512-BF16",
    "tf_raw": "TensorFlow's op",
    "keras": "Keras",
    "keras_xla": "Keras, XLA",
    "keras_before": "Keras, reset before",
    "keras_xla_before": "Keras, XLA, reset before",
    "torch": "PyTorch",
    "onnxruntime": "ONNX Runtime",
    "onnxruntime_before": "ONNX Runtime, reset before",
}


def dims(shape: Sequence[int]) -> str:
    """B, T, I, H."""
    return ", ".join(map(str, shape))


def number(value: float) -> str:
    """Three significant digits, never an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def percent(share: float) -> str:
    """The share in percent, rounded down: 89.6% does not reach 90."""
    return f"{math.floor(100 * share)}%"


def why_missing(entry: dict[str, Any]) -> str:
    """The reason why a contender has no number."""
    return entry.get("absent") or entry.get("error") or "no reason given"


def missing(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The contenders without a time, with the reasons."""
    reasons = {
        (name, why_missing(entry))
        for row in rows
        for name, entry in row["peers"].items()
        if "median_ms" not in entry
    }
    return [f"no time for {name}: {reason}" for name, reason in sorted(reasons)]


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their width, all but the first right-aligned."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def format_line(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(format_line, [lines[0], ["-" * w for w in widths], *lines[1:]]))


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same in Markdown; the text columns after the first are right-aligned too."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
