"""python -m bench.gpu

The CUDA engine against cuDNN: LSTM or GRU, inference and training, event by event on the device.
Results go to bench/results/gpu.json, which is written after each case; `python -m bench show` plots
them. A case that crashes or hangs is recorded without a number. Without a GPU it reports that and
stops.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from bench import machine, process, provenance, questions, tables, tidy, timing
from bench.gpu import build, cases, report, worker

_SECONDS_TO_START = 120  # of a process: PyTorch and cuDNN are read from disk
_CHOICES = {"directions": (1, 2), **{name: cases.GRID[name] for name in cases.NAMED}}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--preset", choices=cases.PRESETS, help="instead of the sizes below")
    for name, values in cases.GRID.items():
        options = {"type": type(values[0]), "choices": _CHOICES.get(name), "default": values}
        add(f"--{name}", nargs="+", **options)
    add("--path", choices=cases.PATHS, help="how ours runs the steps")
    add("--rounds", type=int, default=3, help="turns of each contender")
    add("--seconds", type=float, default=0.3, help="per contender and case")
    add("--limit", type=float, default=20, help="seconds, after which a case is ended")
    add(
        "--library",
        type=pathlib.Path,
        help="kept, and reused until the sources change; may be that of tests/gpu/run.py",
    )
    add("--out", type=pathlib.Path, default=tidy.FOLDER / "gpu.json")
    return parser.parse_args(argv)


def _wanted(arguments: argparse.Namespace) -> list[cases.Case]:
    some = cases.PRESETS.get(arguments.preset) or cases.all_cases(
        **{name: getattr(arguments, name) for name in cases.GRID}
    )
    if arguments.path:
        some = (dataclasses.replace(case, path=arguments.path) for case in some)
    return list(dict.fromkeys(some))


class _Measuring:
    """A process that measures one case after the other, and is replaced after one that failed."""

    def __init__(self, library: pathlib.Path, plan: timing.Plan, limit: float):
        self._arguments, self._limit = (library, plan), limit
        self._child: process.Child | None = None
        self.stamp = self._start()

    def _start(self) -> dict[str, Any]:
        self._child = process.Child(worker.serve, *self._arguments)
        return self._child.receive(_SECONDS_TO_START)

    def measure(self, case: cases.Case) -> list[tidy.Row]:
        """A case's rows, whatever becomes of the process; `NoAnswer` if none starts any more."""
        if self._child is None:
            self._start()
        try:
            self._child.send(case)
            return self._child.receive(self._limit)
        except process.NoAnswer as reason:
            self.close()  # after an access that is not allowed every call of CUDA fails
            return report.failed(case, str(reason))

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def run(
    wanted: Sequence[cases.Case], measuring: _Measuring, result: dict[str, Any], out: pathlib.Path
) -> list[list[tidy.Row]]:
    """The rows of each case, which also go to the result and, after each case, to `out`. "stopped"
    in the result says why the rest of the cases is missing, if it is."""
    gpu = cases.Gpu(**measuring.stamp["gpu"])
    measured: list[list[tidy.Row]] = []
    for case in wanted:
        try:
            measured.append(measuring.measure(case))
        except process.NoAnswer as reason:
            result["stopped"] = f"no process starts any more: {reason}"
            break
        result["rows"] += measured[-1]
        tidy.write(result, out)
        line = report.line(case, measured[-1], gpu)
        print(f"{len(measured)}/{len(wanted)} {line}", flush=True)
    result["machine"]["load_at_end"] = machine.load()
    tidy.write(result, out)
    return measured


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    wanted = _wanted(arguments)
    if missing := build.missing(arguments.library):
        print(f"not measured: {missing}")
        return 1
    plan = timing.Plan(rounds=arguments.rounds, seconds=arguments.seconds)
    result = tidy.new("gpu", machine.cores(), plan)
    with tempfile.TemporaryDirectory() as folder:
        print("building the engine, unless --library has it", file=sys.stderr, flush=True)
        library, result["engine"] = build.build(
            arguments.library, pathlib.Path(folder), os.cpu_count() or 1
        )
        try:
            measuring = _Measuring(library, plan, arguments.limit)
        except process.NoAnswer as reason:
            print(f"not measured: {reason}")
            return 1
        result |= measuring.stamp
        with contextlib.closing(measuring):
            measured = run(wanted, measuring, result, arguments.out)
    (question,) = questions.of("gpu")
    print(tables.text(question, result))
    print(provenance.measured(result))
    print(report.summary(measured, len(wanted)))
    if "stopped" in result:
        print(f"STOPPED: {result['stopped']}")
    complete = len(measured) == len(wanted)
    return 0 if complete and not any("missing" in row for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
