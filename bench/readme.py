"""The README's section on speed: its tables, and the panels of its chart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bench import provenance, tables
from bench.questions import BY_KEY, Question

# The chart, and the one for screens of at most so many pixels.
CHART, NARROW = "readme.png", "readme-narrow.png"
_NARROW_WIDTH = 640

Results = Mapping[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Panel:
    """A part of the chart: one product on one processor."""

    title: str
    processor: str
    shapes: int
    bars: Mapping[str, tuple[float, float]]  # the geometric mean over the shapes, and the lowest


@dataclasses.dataclass(frozen=True)
class _Product:
    title: str
    result: str  # its name
    asked: Question  # of one kind, with a row for each cell and shape
    ours: str

    def shapes(self, result: dict[str, Any]) -> int:
        return len({tuple(line.fields["shape"]) for line in tables.lines(self.asked, result)})

    def table(self, result: dict[str, Any]) -> str:
        return tables.means_markdown(self.asked, result, over=(self.ours,))

    def panel(self, result: dict[str, Any]) -> Panel:
        bars = {
            f"{cell} vs. {place.column.label.partition(' / ')[0]}": ratios
            for cell, means in tables.means(self.asked, result).items()
            for place, ratios in means.items()
            if place.column.over == self.ours
        }
        machine = result["machine"]
        name = machine["cpu"].replace("(R)", "").removesuffix(" Processor")
        processor = f"{name}, {machine['cores']} cores"
        return Panel(self.title, processor, self.shapes(result), bars)


def _product(title: str, question: str, kind: str, ours: str) -> _Product:
    every = BY_KEY[question]
    only = {**every.only, "kind": (kind,)}
    asked = dataclasses.replace(every, only=only, rows=("cell", "shape"))
    return _Product(title, every.result, asked, ours)


_TRAINING = _product("Training with tf_blockrnn.lstm and gru", "sequences", "train", "ours")
_INFERENCE = _product("Inference with tf_blockrnn.lstm and gru", "sequences", "infer", "ours")
_SESSIONS = _product("Inference with a tf_blockrnn Session", "inference", "serve", "ours_session")


def panels(some: Results) -> list[Panel]:
    """The panels of the chart; none of a machine that is not known to have been quiet."""
    return [
        product.panel(some[product.result])
        for product in (_TRAINING, _INFERENCE, _SESSIONS)
        if product.result in some and provenance.noise(some[product.result]).quiet
    ]


def words(ratios: tuple[float, float]) -> str:
    """The two numbers of a bar."""
    return "{:.2f}× (lowest {:.2f}×)".format(*ratios)


def _picture(shown: Iterable[Panel], folder: str) -> str:
    described = "; ".join(
        f"{panel.title}: " + ", ".join(f"{name} {words(bar)}" for name, bar in panel.bars.items())
        for panel in shown
    )
    return (
        f'<picture>\n<source media="(max-width: {_NARROW_WIDTH}px)" srcset="{folder}/{NARROW}">\n'
        f'<img src="{folder}/{CHART}" alt="{described}">\n</picture>'
    )


def speed(some: Results, folder: str) -> str:
    """The section, with the chart in `folder`: how fast it is, then where that was measured."""
    functions, sessions, shown = some["sequences"], some.get("inference"), panels(some)
    parts = [
        "How many times as fast it is: the time of another library divided by ours, one layer,"
        f" float32. Each number is the geometric mean over {_TRAINING.shapes(functions)} shapes,"
        " with the least favourable shape in parentheses; **bold** where ours is slower."
        " Keras is compiled by XLA or not, whichever is faster.",
        "**Training**, forward and backward, with `tf_blockrnn.lstm` and `gru`:",
        _TRAINING.table(functions),
        "**Inference** with the same functions in TensorFlow:",
        _INFERENCE.table(functions),
    ]
    measured = [f"- Functions. {provenance.measured(functions)}"]
    if sessions:
        shapes = _SESSIONS.shapes(sessions)
        parts += [
            f"**Inference** with an `inference.Session`, without TensorFlow, over {shapes} shapes:",
            _SESSIONS.table(sessions),
        ]
        measured.append(f"- Sessions. {provenance.measured(sessions)}")
    if shown:
        parts.append(_picture(shown, folder))
    return "\n\n".join([*parts, "\n".join(measured)])
