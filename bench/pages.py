"""The pages that show results: what is generated of README.md and docs/, and the plots.

A page has `<!-- bench:begin NAME -->` and `<!-- bench:end NAME -->` around each generated section.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from bench import provenance, tables, tidy
from bench.questions import BY_KEY, QUESTIONS, Question

_PLOTS = "bench/results"
CHART = "readme.png"
_ALL, _SPEED = "all", "speed"
PAGES = ("README.md", "docs/performance.md", "docs/benchmarks.md")
# The README's table, and its chart, which is of a machine that was quiet.
_TABLED, _CHARTED = BY_KEY["sequences"], BY_KEY["inference"]

Results = dict[str, dict[str, Any]]


def read(folder: pathlib.Path) -> Results:
    """All results of a folder, by bench."""
    return {path.stem: tidy.read(path) for path in sorted(folder.glob("*.json"))}


def plot_name(question: Question) -> str:
    """The name of the file of its plot."""
    return f"{question.key}.png"


def _section(question: Question, result: dict[str, Any]) -> str:
    """All of a question: its plot, its table, where and how it was measured."""
    command = "bench.gpu" if question.result == "gpu" else f"bench {question.result}"
    parts = [
        f"## {question.name}",
        f"**{question.asks}** {question.text} `python -m {command}` measures it.",
    ]
    if question.plotted:
        parts.append(f"![{question.asks.replace('`', '')}](../{_PLOTS}/{plot_name(question)})")
    return "\n\n".join([*parts, tables.markdown(question, result), provenance.measured(result)])


def _all(some: Results) -> str:
    parts = [_section(question, some[question.result]) for question in QUESTIONS
             if question.result in some]  # fmt: skip
    absent = [f"`{question.result}`" for question in QUESTIONS if question.result not in some]
    if absent:
        parts.append(f"Without a stored result: {', '.join(absent)}.")
    return "\n\n".join(parts)


def _means(question: Question, result: dict[str, Any]) -> str:
    return "\n\n".join([
        tables.means_markdown(question, result),
        f"[All rows](benchmarks.md#{question.key}). {provenance.measured(result)}",
    ])  # fmt: skip


def bars(some: Results) -> dict[str, tuple[float, float]]:
    """The mean and lowest ratio of each bar of the README's chart.

    There are none if the machine is not known to have been quiet.
    """
    result = some.get(_CHARTED.result)
    if result is None or not provenance.noise(result).quiet:
        return {}
    return {
        f"{group} vs. {place.column.label.partition(' / ')[0]}": ratios
        for group, means in tables.means(_CHARTED, result).items()
        for place, ratios in means.items()
        if place.column.over == "ours_session"
    }


def _speed(some: Results) -> str:
    parts = [
        "One layer, one call of `tf_blockrnn.lstm` or `gru`, float32: how many times as fast it is"
        " on average, and in parentheses at the least favourable shape.",
        tables.means_markdown(_TABLED, some[_TABLED.result], over=("ours",)),
        provenance.measured(some[_TABLED.result]),
    ]
    if bars(some):
        parts += [
            f"![{_CHARTED.asks}]({_PLOTS}/{CHART})",
            "Whole calls of an `inference.Session`, float32."
            f" {provenance.measured(some[_CHARTED.result])}",
        ]
    return "\n\n".join(parts)


def _replace_section(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- bench:begin {name} -->", f"<!-- bench:end {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no section {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", page)


def rewritten(page: str, some: Results) -> str:
    """The page with its sections anew; ValueError for a section that cannot be generated."""
    for name in re.findall(r"<!-- bench:begin (.*?) -->", page):
        if name == _ALL:
            text = _all(some)
        elif name == _SPEED:
            text = _speed(some)
        elif name in BY_KEY and BY_KEY[name].result in some:
            text = _means(BY_KEY[name], some[BY_KEY[name].result])
        else:
            raise ValueError(f"there is no question {name} with a result")
        page = _replace_section(page, name, text)
    return page


def write(root: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes the pages under `root` and their plots from the results in `folder`.

    Plots that no page shows any more are deleted.
    """
    from bench import plot

    some, made = read(folder), []
    for name in PAGES:
        path = root / name
        path.write_text(rewritten(path.read_text(encoding="utf-8"), some), encoding="utf-8")
        made.append(path)
    plots = root / _PLOTS
    for old in plots.glob("*.png"):
        old.unlink()
    for question in QUESTIONS:
        if question.plotted and question.result in some:
            path = plots / plot_name(question)
            made.append(plot.question(question, some[question.result], path))
    if some_bars := bars(some):
        made.append(plot.chart(some_bars, some[_CHARTED.result], plots / CHART))
    return made
