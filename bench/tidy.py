"""Results as tidy data: a JSON file for each bench, in it one row for each measurement.

A row has the fields of its case, its contender, its unit, and its numbers, or why there are none
("missing"). Ratios and means are not stored: tables and plots compute them.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import machine, timing
from bench.progress import Progress

FOLDER = pathlib.Path(__file__).resolve().parent / "results"
Row = dict[str, Any]


def new(bench: str, threads: int, plan: timing.Plan) -> dict[str, Any]:
    """A result without rows, stamped with the machine and its present load."""
    return {
        "schema": 2,
        "bench": bench,
        "machine": machine.stamp(threads) | {"load_at_start": machine.load_with_note()},
        "plan": dataclasses.asdict(plan),
        "interrupted": False,
        "rows": [],
    }


def measured(
    case: Mapping[str, Any],
    runners: Mapping[str, timing.Runner],
    plan: timing.Plan,
    note: Callable[[str], None] = lambda _: None,
    per: int = 1,
) -> list[Row]:
    """A row for each of the contenders of a case, which are timed alternately."""
    samples = timing.alternate(runners, plan, note)
    return [
        {**case, "contender": name, **timing.summary(rounds, per)}
        for name, rounds in samples.items()
    ]


def collect(
    result: dict[str, Any],
    cases: Sequence[Any],
    measure: Callable[[Any, Callable[[str], None]], list[Row]],
) -> dict[str, Any]:
    """Adds the rows of all cases. Ctrl-C ends it with the rows so far.

    measure: called with a case and a function that displays what is being done.
    """
    bar, rows = Progress(len(cases)), result["rows"]
    start = time.monotonic()
    try:
        for case in cases:
            bar.start(str(case))
            some = measure(case, bar.note)
            rows += some
            bar.done("  ".join(map(_brief, some)))
    except KeyboardInterrupt:
        if not rows:
            raise
        result["interrupted"] = True  # keep minutes of measurements
    result["machine"]["load_at_end"] = machine.load()
    result["seconds"] = round(time.monotonic() - start)
    return result


def _brief(row: Row) -> str:
    if "missing" in row:
        return f"{row['contender']} FAILED ({row['missing'][:60]})"
    return f"{row['contender']} {row['median']:.4g} {row['unit']}"


def read(path: pathlib.Path) -> dict[str, Any]:
    """The result in a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(result: dict[str, Any], path: pathlib.Path) -> None:
    """JSON with a line for each entry and each row, so that two runs can be compared by diff."""
    entries = []
    for key, value in result.items():
        text = json.dumps(value)
        if key == "rows" and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        entries.append(f" {json.dumps(key)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    new_file = path.with_suffix(".new")
    new_file.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")
    new_file.replace(path)  # at no moment is there half of a file
