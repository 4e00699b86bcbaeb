"""Tables of the bench of compiled programs: plain text for the terminal, Markdown for the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import jit, timing
from bench.provenance import measured
from bench.tables import KINDS, dims, markdown_table, number, text_table

# The largest wanted share of the compiled concrete function's time in the plain one's, inference.
CALL_TARGETS = {(1, 100, 64, 64): 0.85, (1, 10, 64, 64): 0.75}
# Keras with XLA over our compiled model, on mean; and at every shape the faster of it and our model
# without XLA.
MODEL_TARGETS = {"mean": 1.5, "each": 1.0}

_Table = tuple[list[str], list[list[str]]]


def _rows(result: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [row for row in result["rows"] if row["part"] == part]


def _label(row: dict[str, Any]) -> str:
    return f"{row['cell'].upper()} {KINDS[row['kind']]} {dims(row['shape'])}"


def _calls(result: dict[str, Any], missed: str) -> _Table:
    """Microseconds; a ratio above its target in the format `missed`."""
    lines = []
    for row in _rows(result, "calls"):
        times = [number(1e3 * row["ways"][name]["median_ms"]) for name in jit.CALLS]
        share = jit.ratio(row, jit.CONCRETE_XLA, jit.CONCRETE)
        target = CALL_TARGETS.get(tuple(row["shape"])) if row["kind"] == "infer" else None
        text = f"{share:.2f}" if target is None else f"{share:.2f} (target {target})"
        floor = jit.ratio(row, jit.EMPTY_XLA, jit.EMPTY)
        lost = share > (target or 1)
        lines.append([
            _label(row), *times, missed.format(text) if lost else text, f"{floor:.2f}",
        ])  # fmt: skip
    head = ["B, T, I, H", *(f"{name}, µs" for name in jit.CALLS)]
    return [*head, "concrete, XLA / plain", "empty, XLA / plain"], lines


def gains(row: dict[str, Any]) -> dict[str, float]:
    """The times of the other models over that of ours with XLA."""
    return {name: jit.ratio(row, name, jit.OURS_XLA) for name in (jit.OURS, jit.KERAS_XLA)}


def _models(result: dict[str, Any], missed: str) -> _Table:
    """Milliseconds of a step; a ratio below its target in the format `missed`."""
    lines = []
    for row in _rows(result, "fit"):
        line = [f"{row['cell'].upper()} {dims(row['shape'])}"]
        line += [number(row["ways"][name]["median_ms"]) for name in jit.MODELS]
        for value in gains(row).values():
            text = f"{value:.2f}"
            line.append(missed.format(text) if value < MODEL_TARGETS["each"] else text)
        lines.append(line)
    head = ["B, T, E, H", *(f"{name}, ms" for name in jit.MODELS)]
    return [*head, *(f"{name} / ours, XLA" for name in (jit.OURS, jit.KERAS_XLA))], lines


def _mean(result: dict[str, Any]) -> list[str]:
    """The mean ratio to Keras with XLA, in one sentence; none if no model was measured."""
    ratios = [gains(row)[jit.KERAS_XLA] for row in _rows(result, "fit")]
    if not ratios:
        return []
    mean, target = timing.geometric_mean(ratios), MODEL_TARGETS["mean"]
    verdict = "reached" if mean >= target else "missed"
    return [
        f"Keras with XLA over ours with XLA: geometric mean {mean:.2f} (target {target},"
        f" {verdict}), lowest {min(ratios):.2f}."
    ]


def text(result: dict[str, Any]) -> str:
    """All of the result as text; << marks a missed target, or a time that XLA made longer."""
    parts = ["calls", text_table(*_calls(result, "<< {}")), ""]
    if _rows(result, "fit"):
        parts += ["a step of fit", text_table(*_models(result, "<< {}")), ""]
    return "\n".join([*parts, *_mean(result)])


def _titled(title: str, table: _Table) -> Sequence[str]:
    return [title, markdown_table(*table)]


def markdown(result: dict[str, Any]) -> str:
    """The same for a page."""
    parts = _titled(
        "**Calls**: median µs, float32, all ways of calling alternating in one run; bold: slower"
        " with XLA than without, or above the target.",
        _calls(result, "**{}**"),
    )
    if _rows(result, "fit"):
        parts += _titled(
            "**A step of `fit`**: median ms, float32, Adam. The model has an embedding of E"
            " numbers, two recurrent layers of H units and a softmax over 100 characters at every"
            " step; bold: below 1.",
            _models(result, "**{}**"),
        )
    return "\n\n".join([*parts, *_mean(result), measured(result)])
