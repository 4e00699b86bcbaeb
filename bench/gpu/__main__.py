"""python -m bench.gpu

The CUDA engine against cuDNN: LSTM or GRU, inference and training, event by event on the device.
Results go to bench/results/gpu.json, which is written after each case, and gpu.png. A case that
crashes or hangs is recorded without a number. Without a GPU it reports that and stops.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from bench import machine, provenance, questions, tables, tidy, timing
from bench.gpu import build, cases, child, report, rows, worker

_SECONDS_TO_START = 120  # of a process: PyTorch and cuDNN are read from disk


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--preset", choices=cases.PRESETS, help="instead of the sizes below")
    add("--cells", nargs="+", choices=cases.CELLS, default=cases.CELLS)
    add("--kinds", nargs="+", choices=cases.KINDS, default=cases.KINDS)
    add("--dtypes", nargs="+", choices=cases.DTYPES, default=cases.DTYPES)
    add("--batches", nargs="+", type=int, default=cases.BATCHES)
    add("--steps", nargs="+", type=int, default=cases.STEPS)
    add("--units", nargs="+", type=int, default=cases.UNITS)
    add("--layers", nargs="+", type=int, default=cases.LAYERS)
    add("--directions", nargs="+", type=int, choices=(1, 2), default=cases.DIRECTIONS)
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
    add("--no-plot", action="store_true")
    return parser.parse_args(argv)


def _wanted(arguments: argparse.Namespace) -> list[cases.Case]:
    some = cases.PRESETS.get(arguments.preset) or cases.all_cases(
        arguments.cells, arguments.kinds, arguments.dtypes, arguments.batches, arguments.steps,
        arguments.units, arguments.layers, arguments.directions,
    )  # fmt: skip
    if arguments.path:
        some = (dataclasses.replace(case, path=arguments.path) for case in some)
    return list(dict.fromkeys(some))


class _Measuring:
    """A process that measures one case after the other, and is replaced if one has ended it."""

    def __init__(self, library: pathlib.Path, plan: timing.Plan, limit: float):
        self._arguments, self._limit = (library, plan), limit
        self._child: child.Child | None = None
        self.stamp = self._start()

    def _start(self) -> dict[str, Any]:
        self._child = child.Child(worker.serve, *self._arguments)
        return self._child.receive(_SECONDS_TO_START)

    def measure(self, case: cases.Case) -> list[rows.Row]:
        """A case's rows, whatever becomes of the process; `child.Lost` if none starts any more."""
        if self._child is None:
            self._start()
        usable = False
        try:
            self._child.send(case)
            measured, usable = self._child.receive(self._limit)
        except child.Lost as lost:
            measured = rows.failed(case, str(lost))
        if not usable:
            self.close()
        return measured

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def run(
    wanted: Sequence[cases.Case], measuring: _Measuring, result: dict[str, Any], out: pathlib.Path
) -> list[list[rows.Row]]:
    """The rows of each case, which also go to the result and, after each case, to `out`. "stopped"
    in the result says why the rest of the cases is missing, if it is."""
    gpu = cases.Gpu(**measuring.stamp["gpu"])
    measured: list[list[rows.Row]] = []
    for case in wanted:
        try:
            measured.append(measuring.measure(case))
        except child.Lost as lost:
            result["stopped"] = f"no process starts any more: {lost}"
            break
        result["rows"] += measured[-1]
        tidy.write(result, out)
        line = report.line(case, measured[-1], gpu)
        print(f"{len(measured)}/{len(wanted)} {line}", flush=True)
    result["machine"]["load_at_end"] = machine.load()
    tidy.write(result, out)
    return measured


def _plot(question: questions.Question, result: dict[str, Any], out: pathlib.Path) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: no matplotlib")
        return
    from bench import plot

    print(plot.question(question, result, out.with_suffix(".png")))


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
        except child.Lost as lost:
            print(f"not measured: {lost}")
            return 1
        result |= measuring.stamp
        try:
            measured = run(wanted, measuring, result, arguments.out)
        finally:
            measuring.close()
    (question,) = questions.of("gpu")
    print(tables.text(question, result))
    if not arguments.no_plot:
        _plot(question, result, arguments.out)
    print(provenance.measured(result))
    print(report.summary(measured, len(wanted)))
    if "stopped" in result:
        print(f"STOPPED: {result['stopped']}")
    complete = len(measured) == len(wanted)
    return 0 if complete and not any("missing" in row for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
