"""The table of a question, from tidy rows: as text, as Markdown, and its means."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from bench import provenance, timing
from bench.questions import WORDS, Column, Question

_SCALES = {("ms", "µs"): 1e3, ("ms", "ms"): 1.0, ("bytes", "MiB"): 2.0**-20}
_USUAL_UNITS = {"ms": "ms", "bytes": "MiB"}
_INTEGERS = {"layers", "directions"}


@dataclasses.dataclass(frozen=True)
class Place:
    """A column of a table, of one value of the field that is put across, if any."""

    column: Column
    across: str = ""

    @property
    def label(self) -> str:
        """With the unit."""
        text = f"{self.column.label}, {self.column.unit}" if self.column.unit else self.column.label
        return f"{WORDS.get(self.across, self.across)}: {text}" if self.across else text


@dataclasses.dataclass(frozen=True)
class Line:
    """A row of a table: the fields that it is of, and its numbers."""

    fields: dict[str, Any]
    values: dict[Place, float]

    def name(self, leave_out: Sequence[str] = ()) -> str:
        """The fields in words."""
        words = (_word(key, value) for key, value in self.fields.items() if key not in leave_out)
        return " ".join(filter(None, words))


def _word(key: str, value: Any) -> str:
    if key == "shape":
        return ", ".join(map(str, value))
    if key in _INTEGERS:
        return f"{value} {key}" if value > 1 else ""
    if key == "dtype":
        return value  # half is a type here
    return WORDS.get(value, value)


def _is_loss(place: Place, value: float) -> bool:
    return place.column.is_ratio and place.column.ours_is_over and value < 1


def _value(column: Column, measured: dict[str, Any], peak: float) -> float | None:
    """The number of a column, of the measurements of a line by contender."""
    some = [measured[name] for name in column.contenders if name in measured]
    if not some:
        return None
    best = min(some, key=lambda row: row["median"])
    if column.over == "peak":
        return provenance.share_of_peak(best, peak)
    if column.over and column.over not in measured:
        return None
    if column.over:
        return best["median"] / max(measured[column.over]["median"], 1e-9)
    return best["median"] * _SCALES[best["unit"], column.unit or _USUAL_UNITS[best["unit"]]]


def _contender(question: Question, row: dict[str, Any]) -> str:
    """Its name, with the type where contenders of several types are compared."""
    if "dtype" in question.rows or row.get("dtype", "float32") == "float32":
        return row["contender"]
    return f"{row['contender']} {row['dtype']}"


def _asked(question: Question, result: dict[str, Any]) -> list[dict[str, Any]]:
    """The measurements that a question is about."""
    only = question.only.items()
    return [row for row in result["rows"] if all(row[key] in some for key, some in only)]


def lines(question: Question, result: dict[str, Any]) -> list[Line]:
    """The rows of the table."""
    groups: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {}
    for row in _asked(question, result):
        if "missing" in row:
            continue
        fields = {key: row[key] for key in question.rows}
        _, by_across = groups.setdefault(repr(fields), (fields, {}))
        by_contender = by_across.setdefault(row.get(question.across, ""), {})
        by_contender[_contender(question, row)] = row
    out, peak = [], provenance.peak_gflops(result)
    for fields, by_across in groups.values():
        values = {
            Place(column, across): _value(column, measured, peak)
            for across, measured in by_across.items() for column in question.columns
        }  # fmt: skip
        out.append(Line(fields, {place: v for place, v in values.items() if v is not None}))
    return out


def places(question: Question, some: Sequence[Line]) -> list[Place]:
    """The columns that have a number in any of the rows."""
    have = dict.fromkeys(place for line in some for place in line.values)
    by_across = dict.fromkeys(place.across for place in have)
    every = (Place(column, across) for across in by_across for column in question.columns)
    return [place for place in every if place in have]


def _number(value: float) -> str:
    """Three significant digits, never an exponent."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def _cell(place: Place, value: float | None, lost: str) -> str:
    if value is None:
        return "-"
    if place.column.over == "peak":
        return f"{math.floor(100 * value)}%"  # 89.6% does not reach 90
    if not place.column.is_ratio:
        return _number(value)
    text = f"{value:.2f}"
    return lost.format(text) if _is_loss(place, value) else text


def _table(
    question: Question, result: dict[str, Any], lost: str
) -> tuple[list[str], list[list[str]]]:
    """Head and rows; a ratio that we lose is in the format `lost`."""
    some = lines(question, result)
    columns = places(question, some)
    rows = [
        [line.name(), *(_cell(place, line.values.get(place), lost) for place in columns)]
        for line in some
    ]
    return [question.dims, *(place.label for place in columns)], rows


def missing(question: Question, result: dict[str, Any]) -> list[str]:
    """The contenders without a number, with the reasons."""
    some = [row for row in _asked(question, result) if "missing" in row]
    reasons = sorted({(row["contender"], row["missing"]) for row in some})
    return [f"No number for {name}: {reason}." for name, reason in reasons]


def text(question: Question, result: dict[str, Any]) -> str:
    """The table for a terminal, columns padded to their width; << marks where we are slower."""
    head, rows = _table(question, result, "<< {}")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def padded(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    parts = [question.asks, *map(padded, [head, ["-" * w for w in widths], *rows])]
    return "\n".join([*parts, *missing(question, result)])


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """All columns but the first are right-aligned."""
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    text = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return "\n".join([text[0], rule, *text[1:]])


def markdown(question: Question, result: dict[str, Any]) -> str:
    """The table for a page: ratios that we lose are bold."""
    return "\n\n".join([_markdown(*_table(question, result, "**{}**")), *missing(question, result)])


def means(
    question: Question, result: dict[str, Any]
) -> dict[str, dict[Place, tuple[float, float]]]:
    """By the fields other than the shape: geometric mean and lowest of each ratio.

    A contender without a number at some shape has none: a mean over the others is another mean.
    """
    groups: dict[str, list[Line]] = {}
    for line in lines(question, result):
        groups.setdefault(line.name(leave_out=("shape",)), []).append(line)
    out: dict[str, dict[Place, tuple[float, float]]] = {}
    for name, some in groups.items():
        for place in places(question, some):
            ratios = [line.values[place] for line in some if place in line.values]
            if place.column.is_ratio and len(ratios) == len(some):
                out.setdefault(name, {})[place] = (timing.geometric_mean(ratios), min(ratios))
    return out


def means_markdown(question: Question, result: dict[str, Any], over: Sequence[str] = ()) -> str:
    """A table of means, with the lowest ratios in parentheses; bold where we are slower.

    over: of ratios over these contenders only, if any are given.
    """
    by_group = means(question, result)
    columns = dict.fromkeys(place for some in by_group.values() for place in some)
    shown = [place for place in columns if not over or place.column.over in over]

    def cell(place: Place, some: dict[Place, tuple[float, float]]) -> str:
        if place not in some:
            return "-"
        return "{} ({})".format(*(_cell(place, value, "**{}**") for value in some[place]))

    rows = [[name, *(cell(place, some) for place in shown)] for name, some in by_group.items()]
    return _markdown(["", *(place.label for place in shown)], rows)
