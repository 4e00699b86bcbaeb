"""The first half hour on a GPU: everything that has to be known of it, in three calls.

python tests/gpu/run.py --build-only --architecture 90 --library .build/gpu/engine.so
python tests/gpu/half_hour.py 1 --library .build/gpu/engine.so --out OUT
python tests/gpu/half_hour.py 2 --library .build/gpu/engine.so --out OUT --before EARLIER_OUT
python tests/gpu/half_hour.py 3 --library .build/gpu/engine.so --out OUT --before EARLIER_OUT

1: versions, barriers, the persistent kernels of one direction and of both, tensor cores, a short
   benchmark
2: all other checks, memcheck of all, racecheck and synccheck of the persistent kernels
3: a benchmark of both directions, then the full one

A call ends after --seconds (540), whatever fails or hangs. Each step's output goes to OUT/NAME.txt,
the outcomes to OUT/state.json, which a second call of the same stage reads: it runs what has not
passed, first of all what was not reached. --before: a folder with the results of an earlier call,
which is not written to. --emulate FOLDER: in the emulation, which is built there, to try this
program itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Sequence

import check_program
import run
import runner

HERE, ROOT = run.HERE, run.ROOT
STATE = "state.json"
NOT_REACHED = "not reached"
BENCH = ("bench_short", "bench_directions", "bench")
LEAST_SECONDS = 5  # less than that is left: a step is not started


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    seconds: float  # at most
    command: tuple[str, ...]
    shown: bool = False  # its output, even if it passes


def python(*words: object) -> tuple[str, ...]:
    return (sys.executable, *map(str, words))


def check(name: str, arguments: argparse.Namespace, *options: str) -> tuple[str, ...]:
    emulated = ("--cublas", arguments.cublas) if arguments.emulate else ()
    return python(HERE / name, "--library", arguments.library, *emulated, *options)


def bench(name: str, arguments: argparse.Namespace, *options: object) -> tuple[str, ...]:
    where = ("--library", arguments.library, "--out", arguments.out / f"{name}.json", "--resume")
    return python("-m", "bench.gpu", *where, *options)


def sanitized(kind: str, name: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    options = ("--small", *run.SANITIZED_OPTIONS.get(kind, ()))
    if arguments.emulate:
        return check(name, arguments, *options)
    tool = run.find_tool("compute-sanitizer") or "compute-sanitizer"
    under = (tool, "--tool", kind, "--error-exitcode", "1", *run.SANITIZERS[kind])
    return (*under, *check(name, arguments, *options))


def first(arguments: argparse.Namespace) -> list[Step]:
    barriers = ("--library", arguments.library, "--barriers", 20 if arguments.emulate else 20_000)
    short = ("--cells", "lstm", "--steps", 50)
    short += ("--batches", 1, 32, "--units", 256, 1024, "--rounds", 3, "--seconds", 0.1)
    return [
        Step("versions", 30, python(HERE / "half_hour.py", "versions")),
        Step("barriers", 60, python(HERE / "time_barriers.py", *barriers), shown=True),
        Step("check_persistent", 240, check("check_persistent.py", arguments)),
        Step("check_tensor", 120, check("check_tensor.py", arguments)),
        Step("check_stack_order", 90, check("check_stack_order.py", arguments)),
        Step("bench_short", 150, bench("bench_short", arguments, *short)),
    ]


def second(arguments: argparse.Namespace) -> list[Step]:
    done = ("check_persistent.py", "check_tensor.py", "check_stack_order.py")
    names = [name for name in run.CHECKS if name not in done]
    steps = [Step(name[:-3], 90, check(name, arguments)) for name in names]
    for kind in ("memcheck", "racecheck", "synccheck"):
        of_kind = run.CHECKS if kind == "memcheck" else (done[0], done[2])
        steps += [
            Step(f"{kind}_{name[:-3]}", 120, sanitized(kind, name, arguments))
            for name in of_kind
            if name not in run.NOT_SANITIZED
        ]
    return steps


def third(arguments: argparse.Namespace) -> list[Step]:
    lstm = ("--cells", "lstm", "--steps", 500, "--batches", 1, 32, "--units", 256, 512)
    lstm += ("--rounds", 3, "--directions", 2)
    return [
        Step("bench_directions", 90, bench("bench_directions", arguments, *lstm)),
        Step("bench", 400, bench("bench", arguments)),
    ]


STAGES = {"1": first, "2": second, "3": third}


def versions() -> None:
    """Prints what runs here; each as far as it is there."""
    for command in (["nvidia-smi"], ["nvcc", "--version"], ["compute-sanitizer", "--version"]):
        tool = run.find_tool(command[0])
        print(f"$ {' '.join(command)}", flush=True)
        if tool is None:
            print("not here")
        else:
            run.run([tool, *command[1:]], timeout=20)
    print(f"Python {sys.version}")
    try:
        import torch

        print(f"torch {torch.__version__}, CUDA {torch.version.cuda}")
        print(f"cuDNN {torch.backends.cudnn.version()}, device there: {torch.cuda.is_available()}")
    except ImportError as error:
        print(f"torch: {error}")


def outcome_of(code: int | None, output: str) -> str:
    if code is None:
        return "timed out"
    # What the benchmark says where it cannot run.
    lines = output.splitlines()
    if code == check_program.NOT_RUN or any(line.startswith("not measured:") for line in lines):
        return "not run"
    return "failed" if code else "passed"


def run_step(step: Step, seconds: float) -> tuple[str, str]:
    """Its outcome and output."""
    try:
        code, output = runner.call(list(step.command), seconds, captured=True)
    except OSError as error:
        return "failed", f"{error}\n"
    return outcome_of(code, output), output


class State:
    """The outcomes of all stages, written after each step."""

    def __init__(self, out: pathlib.Path, before: pathlib.Path | None):
        self.path = out / STATE
        out.mkdir(parents=True, exist_ok=True)
        for name in (STATE, *(f"{bench}.json" for bench in BENCH)):
            earlier = before / name if before else None
            if earlier and earlier.exists() and not (out / name).exists():
                shutil.copyfile(earlier, out / name)
        self.steps: dict[str, dict] = {}
        if self.path.exists():
            self.steps = json.loads(self.path.read_text())

    def outcome(self, name: str, origin: str) -> str | None:
        """None: the step was not reached with this library."""
        found = self.steps.get(name, {})
        reached = found.get("origin") == origin and found["outcome"] != NOT_REACHED
        return found["outcome"] if reached else None

    def set(self, name: str, **found: object) -> None:
        self.steps[name] = found
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.steps, indent=1) + "\n")
        os.replace(new, self.path)  # at no moment is there half of a file


def run_stage(steps: Sequence[Step], state: State, origin: str, seconds: float) -> bool:
    """Whether all steps of the stage that can be run have passed, now or before. origin: of the
    library; steps with another one are run again."""
    end = time.monotonic() + seconds
    # A step that hangs must not keep the others from being reached, call after call.
    for step in sorted(steps, key=lambda step: state.outcome(step.name, origin) is not None):
        if state.outcome(step.name, origin) == "passed":
            continue
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            if state.outcome(step.name, origin) is None:
                state.set(step.name, outcome=NOT_REACHED, origin=origin)
            continue
        start = time.monotonic()
        outcome, output = run_step(step, min(step.seconds, left))
        took = round(time.monotonic() - start, 1)
        (state.path.parent / f"{step.name}.txt").write_text(output)
        state.set(step.name, outcome=outcome, seconds=took, origin=origin)
        print(f"{outcome}  {step.name}, {took} s", flush=True)
        if outcome != "passed" or step.shown:
            print(
                "".join(f"  | {line}\n" for line in output.splitlines()[-15:]), end="", flush=True
            )
    outcomes = {step.name: state.steps[step.name]["outcome"] for step in steps}
    for outcome in sorted(set(outcomes.values())):
        print(f"{outcome}: {', '.join(n for n, found in outcomes.items() if found == outcome)}")
    return "passed" in outcomes.values() and set(outcomes.values()) <= {"passed", "not run"}


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("stage", choices=(*STAGES, "versions"))
    add("--library", type=pathlib.Path, help="as run.py --build-only has left it")
    add("--out", type=pathlib.Path)
    add("--before", type=pathlib.Path)
    add("--seconds", type=float, default=540)
    add("--emulate", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args(argv)
    if arguments.stage == "versions":
        return arguments
    if arguments.out is None or (arguments.library is None) == (arguments.emulate is None):
        parser.error("a stage needs --out, and --library or --emulate")
    arguments.out = arguments.out.resolve()
    return arguments


def prepare(arguments: argparse.Namespace) -> str:
    """Sets the library, and returns its origin."""
    if arguments.emulate is None:
        if run.count_gpus() == 0:
            sys.exit("no GPU")
        arguments.library, _ = run.gpu_library(arguments.library, pathlib.Path(), None, 1)
        return run.built_from(arguments.library)
    arguments.emulate.mkdir(parents=True, exist_ok=True)
    arguments.library = arguments.emulate.resolve() / "engine.so"
    cublas = arguments.library.with_name("libcublas.so.12")
    arguments.cublas = str(cublas)
    now = run.origin(["emulation"])
    built = arguments.library.with_name("engine.so.built")
    if not (built.exists() and built.read_text() == now):
        run.build_emulation(arguments.library, cublas, 1)
        built.write_text(now)
    return now


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(argv)
    if arguments.stage == "versions":
        versions()
        return
    origin = prepare(arguments)
    state = State(arguments.out, arguments.before)
    steps = STAGES[arguments.stage](arguments)
    sys.exit(0 if run_stage(steps, state, origin, arguments.seconds) else 1)


if __name__ == "__main__":
    main()
