"""The pages that show results: which section of which page is generated from which result.

A page has `<!-- bench:begin NAME -->` and `<!-- bench:end NAME -->` around each section. README.md
has the means and a chart of them, docs/performance.md the summaries, docs/benchmarks.md all rows,
docs/speed.md the parts of our times, docs/xla.md those of compiled programs, docs/functions.md the
memory of long sequences.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

from bench import (
    calls,
    inference_report,
    jit_report,
    layers_report,
    limits,
    memory,
    recompute_report,
    report,
    summary,
)
from bench.gpu import report as gpu_report

# A section has the name of the result that it is generated from.
_Sections = dict[str, Callable[[dict[str, Any]], str]]

_PLOTS = "../bench/results"
# The README's chart, and the results that it shows, of which the first must be there.
CHART = "bench/results/readme.png"
HEADLINE = ("sequences.json", "inference.json")
_ALL_ROWS: _Sections = {
    "cells": report.cells_markdown,
    "sequences": lambda result: report.sequences_markdown(result, [
        ("Share of the GEMM peak", f"{_PLOTS}/sequences_peak.png"),
        *(
            (f"Time of {cell.upper()} {kind} against steps, batch and units",
             f"{_PLOTS}/sequences_cost_{cell}_{kind}.png")
            for cell in ("lstm", "gru") for kind in ("inference", "training")
        ),
    ]),
    "stacks": report.sequences_markdown,
    "bfloat16": report.bfloat16_markdown,
    "layers": layers_report.markdown,
    "inference": inference_report.markdown,
    "memory": memory.markdown,
    "gpu": gpu_report.markdown,
}  # fmt: skip
PAGES: dict[str, _Sections] = {
    "README.md": {
        "sequences": summary.headline_markdown,
        "inference": summary.sessions_markdown,
    },
    "docs/performance.md": {
        **summary.SECTIONS,
        "inference": inference_report.summary_markdown,
        "gpu": gpu_report.summary_markdown,
    },
    "docs/benchmarks.md": _ALL_ROWS,
    "docs/speed.md": {
        "sequences": limits.markdown,
        "stacks": limits.markdown,
        "calls": calls.markdown,
    },
    "docs/xla.md": {"jit": jit_report.markdown},
    "docs/functions.md": {"recompute": recompute_report.markdown},
}


def _rewritten(page: str, sections: _Sections, results: pathlib.Path) -> tuple[str, list[str]]:
    """The page with its sections regenerated, and their names."""
    done = []
    for name, markdown in sections.items():
        file = results / f"{name}.json"
        if file.exists() and f"<!-- bench:begin {name} -->" in page:
            result = json.loads(file.read_text(encoding="utf-8"))
            page = report.replace_section(page, name, markdown(result))
            done.append(name)
    return page, done


def write(root: pathlib.Path, results: pathlib.Path) -> list[str]:
    """Writes each section for which a page under `root` has markers and `results` has a result.

    Returns a line of text for each page.
    """
    lines = []
    for name, sections in PAGES.items():
        path = root / name
        if path.exists():
            text, done = _rewritten(path.read_text(encoding="utf-8"), sections, results)
            path.write_text(text, encoding="utf-8")
            lines.append(f"{path}: {', '.join(done) or 'nothing'} from {results}")
    return lines
