"""The pages that show results: what is generated of README.md and docs/, and the plots.

A page has `<!-- bench:begin NAME -->` and `<!-- bench:end NAME -->` around each generated section.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from bench import provenance, readme, tables, tidy
from bench.questions import BY_KEY, QUESTIONS, Question

_PLOTS = "bench/results"
_ALL, _SPEED = "all", "speed"
PAGES = ("README.md", "docs/performance.md", "docs/benchmarks.md")
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
            text = readme.speed(some, _PLOTS)
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
    if panels := readme.panels(some):
        for name, narrow in ((readme.CHART, False), (readme.NARROW, True)):
            made.append(plot.chart(panels, plots / name, narrow=narrow))
    return made
