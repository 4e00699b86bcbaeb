"""python -m bench.gpu

The CUDA engine against cuDNN: LSTM or GRU, inference and training, event by event on the device.
Results go to bench/results/gpu.json and gpu.png, and are written after each case; with --resume
what is measured already stays, if the engine of --library is the same. Without a GPU it reports
that and stops.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from bench import machine, questions, tables, tidy, timing
from bench.gpu import build, cases, rows


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.gpu", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--cells", nargs="+", choices=cases.CELLS, default=cases.CELLS)
    add("--kinds", nargs="+", choices=cases.KINDS, default=cases.KINDS)
    add("--dtypes", nargs="+", choices=cases.DTYPES, default=cases.DTYPES)
    add("--batches", nargs="+", type=int, default=cases.BATCHES)
    add("--steps", nargs="+", type=int, default=cases.STEPS)
    add("--units", nargs="+", type=int, default=cases.UNITS)
    add("--layers", nargs="+", type=int, default=cases.LAYERS)
    add("--directions", nargs="+", type=int, choices=(1, 2), default=cases.DIRECTIONS)
    add("--rounds", type=int, default=5, help="turns of each contender")
    add("--seconds", type=float, default=0.15, help="per contender and case")
    add("--step-by-step", action="store_true", help="ours without its persistent kernels")
    add(
        "--library",
        type=pathlib.Path,
        help="kept, and reused until the sources change; may be that of tests/gpu/run.py",
    )
    add("--out", type=pathlib.Path, default=tidy.FOLDER / "gpu.json")
    add(
        "--resume",
        action="store_true",
        help="with --library: keep the cases that --out has of it, and add to them",
    )
    return parser.parse_args(argv)


def _clock_hz(properties: Any) -> float:
    """The highest clock of the first GPU's multiprocessors. properties: PyTorch's; older versions
    have no clock in them."""
    if kilohertz := getattr(properties, "clock_rate", 0):
        return 1e3 * kilohertz
    asked = ("--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits", "-i", "0")
    done = subprocess.run(
        ("nvidia-smi", *asked), capture_output=True, text=True, check=True, timeout=30
    )
    return 1e6 * float(done.stdout.split()[0])


def this_gpu() -> cases.Gpu:
    import torch

    properties = torch.cuda.get_device_properties(0)
    capability = torch.cuda.get_device_capability(0)
    return cases.Gpu(
        properties.name, capability, properties.multi_processor_count, _clock_hz(properties)
    )


def measure(
    case: cases.Case, library: Any, gpu: cases.Gpu, plan: timing.Plan, switches: dict[str, bool]
) -> list[rows.Row]:
    """The rows of a case; or why there are none, such as results that disagree.

    switches: of contenders.Ours.
    """
    import torch

    from bench.gpu import contenders

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        problem = contenders.Problem(case, "cuda")
        theirs = contenders.Cudnn(problem)
        ours = contenders.Ours(problem, library, **switches)
        try:
            theirs.joins = True
            found, cudnn_ran = build.cudnn_ran(theirs.run)
            error = contenders.disagreement(ours.run(), found)
            theirs.joins = False
            if not error <= contenders.MOST_DISAGREEMENT[case.dtype]:
                return rows.failed(case, f"the two disagree by {error:.2g}")
            stream.synchronize()
            kernels = ours.persistent_kernels()
            runners = {
                name: contenders.event_runner(contender.run, stream, gpu.clock_hz)
                for name, contender in (("ours", ours), ("cudnn", theirs))
            }
            samples = timing.alternate(runners, plan)
            return rows.measured(case, samples, kernels, cudnn_ran=cudnn_ran)
        finally:
            ours.close()


def _first_line(error: RuntimeError) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def run(arguments: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """The result, which is also written after each case. "stopped" in it says why the rest of the
    cases is missing, if it is."""
    import torch

    from bench.gpu import contenders

    gpu = this_gpu()
    plan = timing.Plan(rounds=arguments.rounds, seconds=arguments.seconds)
    switches = {"persistent": not arguments.step_by_step}
    with tempfile.TemporaryDirectory() as folder:
        say("building the engine, unless --library has it")
        path, origin = build.build(arguments.library, pathlib.Path(folder), os.cpu_count() or 1)
        library = contenders.load(path)
        result = tidy.new("gpu", machine.cores(), plan) | {
            "gpu": json.loads(json.dumps(dataclasses.asdict(gpu))),  # as it comes from a file
            "libraries": contenders.libraries(library),
            "engine": origin,
            **switches,
        }
        if arguments.resume and arguments.out.exists():
            result["rows"] = rows.to_keep(tidy.read(arguments.out), result)
        wanted = list(
            cases.all_cases(
                arguments.cells, arguments.kinds, arguments.dtypes, arguments.batches,
                arguments.steps, arguments.units, arguments.layers, arguments.directions,
            )
        )  # fmt: skip
        wanted = rows.without_number(wanted, result["rows"])
        for n, case in enumerate(wanted):
            say(f"{n + 1}/{len(wanted)} {case}")
            others = rows.without(result["rows"], case)
            # What remains of a case that never ends.
            result["rows"] = [*others, *rows.failed(case, "begun, not ended")]
            tidy.write(result, arguments.out)
            try:
                measured = measure(case, library, gpu, plan, switches)
            except RuntimeError as error:  # of PyTorch, CUDA or the engine
                measured = rows.failed(case, _first_line(error))
            result["rows"] = [*others, *measured]
            try:
                torch.cuda.synchronize()
                torch.cuda.empty_cache()  # the engine takes its memory beside PyTorch's
            except RuntimeError as error:  # an access that is not allowed, after which none is
                result["stopped"] = _first_line(error)
            tidy.write(result, arguments.out)
            if "stopped" in result:
                break
    result["machine"]["load_at_end"] = machine.load()
    tidy.write(result, arguments.out)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    if missing := build.missing(arguments.library):
        print(f"not measured: {missing}")
        return 1
    result = run(arguments, lambda line: print(line, file=sys.stderr, flush=True))
    (question,) = questions.of("gpu")
    print(tables.text(question, result))
    if "stopped" in result:
        print(f"STOPPED, cases are missing: {result['stopped']}")
    if importlib.util.find_spec("matplotlib") is None:
        print("no plot: no matplotlib")
    else:
        from bench import plot

        print(plot.question(question, result, arguments.out.with_suffix(".png")))
    all_measured = not any("missing" in row for row in result["rows"])
    return 0 if all_measured and "stopped" not in result else 1


if __name__ == "__main__":
    sys.exit(main())
