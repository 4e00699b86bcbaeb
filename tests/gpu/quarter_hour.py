"""The first quarter of an hour on a GPU: everything that has to be known of it, in two calls.

python tests/gpu/run.py --build-only --architecture 90 --library .build/gpu/engine.so
python tests/gpu/quarter_hour.py checks --library .build/gpu/engine.so --out OUT
python tests/gpu/quarter_hour.py speeds --library .build/gpu/engine.so --out OUT

checks: versions, every check, the handlers of XLA under JAX, compute-sanitizer
speeds: the shapes of `python -m bench.gpu --preset quarter` against cuDNN

They write OUT/log.txt (what the programs say), OUT/results.jsonl (what became of each case) and
OUT/bench.json; the last on stdout is a summary. A case that hangs or ends its program costs that
case: another process continues after it, until a second case does so. A call ends after --seconds,
whatever hangs. --only: the checks of these programs alone. --emulate FOLDER: in the emulation,
which is built there, to try this program itself.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

import check_program
import run
import runner

HERE, ROOT = run.HERE, run.ROOT
MOST_LOST = 2  # cases that end their program, after which a check is given up
CASE_SECONDS = 20
SANITIZED_SECONDS = 60  # of a case under a sanitizer
# Programs that share the GPU; what is timed has it alone.
JOBS = min(8, os.cpu_count() or 1)
PATIENCE = 30.0  # with the emulation
MOST_FAILURES = 40  # that the summary names
# What is likeliest to go wrong comes first.
FIRST = ("check_persistent.py", "check_stack_order.py", "check_tensor.py")
# Under compute-sanitizer, the first cases of each: with memcheck alone, and with racecheck and
# synccheck too.
SANITIZED_CASES = 4
OF_MEMCHECK = (
    ("check.py", "numbers"),
    ("check_sequences.py", "sequences, lstm"),
    ("check_sequences.py", "sequences, layer_norm_gru"),
    ("check_stack.py", "reserve spaces"),
)
OF_ALL = (
    ("check_persistent.py", "persistent lstm"),
    ("check_persistent.py", "persistent gru"),
    ("check_stack_order.py", "directions in one grid"),
    ("check_tensor.py", "tensor cores, sizes"),
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A check, or another program whose exit code says what became of it."""

    name: str
    command: tuple[str, ...]
    seconds: float = 120  # at most, every process of it together
    recorded: bool = True  # takes --record and --seconds
    case_seconds: float | None = None  # else CASE_SECONDS
    shown: bool = False  # its output, even if it passes


@dataclasses.dataclass
class Outcome:
    """What became of a program."""

    name: str
    what: str  # "ok", "failed", "given up", "timed out", "not run"
    seconds: float
    cases: list[dict] = dataclasses.field(default_factory=list)  # that have ended
    output: str = ""

    def failures(self) -> list[str]:
        found = [
            f"{self.name}, {case['what']}: {case['error']}"
            for case in self.cases
            if case["error"] is not None
        ]
        if not found and self.what not in ("ok", "not run"):
            last = (self.output.strip().splitlines() or ["it says nothing"])[-1]
            found = [f"{self.name}, {self.what}: {last}"]
        return found


def python(*words: object) -> tuple[str, ...]:
    return (sys.executable, *map(str, words))


class Stage:
    """Runs programs until the time of the stage is over, and stores what they say."""

    def __init__(
        self, out: pathlib.Path, records: pathlib.Path, seconds: float, patience: float = 1.0
    ):
        """patience: a factor of the limits of programs and cases."""
        out.mkdir(parents=True, exist_ok=True)
        self.out, self._records, self._patience = out, records, patience
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self.outcomes: list[Outcome] = []

    def left(self) -> float:
        return self._end - time.monotonic()

    def run(self, programs: Sequence[Program], jobs: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(self._run, programs))

    def _run(self, program: Program) -> None:
        start = time.monotonic()
        if self.left() < 1:
            outcome = Outcome(program.name, "timed out", 0.0, output="not reached")
        elif program.recorded:
            outcome = self._recorded(program)
        else:
            code, output = self._call(program.command, program.seconds * self._patience)
            outcome = Outcome(program.name, _what(code), 0.0, output=output)
        outcome.seconds = round(time.monotonic() - start, 1)
        self._store(program, outcome)

    def _call(self, command: Sequence[str], seconds: float) -> tuple[int | None, str]:
        try:
            return runner.call(list(command), min(seconds, max(self.left(), 1)), captured=True)
        except OSError as error:
            return 1, f"{error}\n"

    def _recorded(self, program: Program) -> Outcome:
        """One process after another, each behind the case that ended the one before."""
        record = self._records / (re.sub(r"\W+", "_", program.name) + ".jsonl")
        options = ("--record", str(record))
        limit = (program.case_seconds or CASE_SECONDS) * self._patience
        options += ("--seconds", str(limit))
        start, output, lost = time.monotonic(), "", 0
        while True:
            left = program.seconds * self._patience - (time.monotonic() - start)
            code, said = self._call((*program.command, *options), left)
            output += said
            unended = _end_cases(record, code)
            if code is None or not (unended or code == check_program.LOST or code < 0):
                what = _what(code)
                break
            lost += 1
            if lost == MOST_LOST or self.left() < 1:
                what = "given up"
                break
        cases = [line for line in check_program.read(record) if "error" in line]
        if what in ("ok", "not run") and (lost or any(case["error"] is not None for case in cases)):
            what = "failed"  # in a process before the last one, perhaps between its cases
        return Outcome(program.name, what, 0.0, cases, output)

    def _store(self, program: Program, outcome: Outcome) -> None:
        with self._lock:
            self.outcomes.append(outcome)
            with open(self.out / "log.txt", "a") as log:
                log.write(f"==== {outcome.name}: {outcome.what}, {outcome.seconds} s\n")
                log.write(outcome.output)
            with open(self.out / "results.jsonl", "a") as results:
                for case in outcome.cases:
                    results.write(json.dumps({"program": outcome.name, **case}) + "\n")
            print(f"{outcome.what}  {outcome.name}, {outcome.seconds} s", flush=True)
            if program.shown or (outcome.what != "ok" and not outcome.cases):
                lines = outcome.output.splitlines()[-12:]
                print("".join(f"  | {line}\n" for line in lines), end="", flush=True)

    def summary(self) -> str:
        cases = [case for outcome in self.outcomes for case in outcome.cases]
        wrong = [case for case in cases if case["error"] is not None]
        counts = {
            what: sum(outcome.what == what for outcome in self.outcomes)
            for what in ("ok", "failed", "given up", "timed out", "not run")
        }
        shares = [(case.get("share", 0.0), case["check"], case["what"]) for case in cases]
        share, check, what = max(shares, default=(0.0, "", ""))
        failures = [failure for outcome in self.outcomes for failure in outcome.failures()]
        lines = [
            f"{len(cases) - len(wrong)} cases ok, {len(wrong)} wrong",
            "programs: " + ", ".join(f"{n} {what}" for what, n in counts.items() if n),
            f"the largest error is {share:.2f} of its bound: {check}, {what}",
            *(f"FAILURE  {failure[:300]}" for failure in failures[:MOST_FAILURES]),
        ]
        if len(failures) > MOST_FAILURES:
            lines.append(f"and {len(failures) - MOST_FAILURES} more in results.jsonl")
        return "\n".join(lines)


def _what(code: int | None) -> str:
    if code is None:
        return "timed out"
    return {0: "ok", check_program.NOT_RUN: "not run"}.get(code, "failed")


def _end_cases(record: pathlib.Path, code: int | None) -> bool:
    """Ends the case, if any, that has no end in the record, and returns whether there was one."""
    lines = check_program.read(record)
    if not lines or "error" in lines[-1]:
        return False
    why = "ran out of time" if code is None else f"ended its program, exit code {code}"
    with open(record, "a") as file:
        file.write(json.dumps(lines[-1] | {"error": why}) + "\n")
    return True


@contextlib.contextmanager
def context_held() -> Iterator[None]:
    """An idle context in another process, so that the driver stays up between the programs."""
    hold = (
        "import ctypes, time; cuda = ctypes.CDLL('libcuda.so.1'); cuda.cuInit(0); "
        "cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0); time.sleep(900)"
    )
    process = subprocess.Popen(python("-c", hold), stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def check(name: str, arguments: argparse.Namespace, *options: str) -> tuple[str, ...]:
    emulated = ("--cublas", arguments.cublas) if arguments.emulate else ()
    return python(HERE / name, "--library", arguments.library, *emulated, *options)


def checks_of(name: str, arguments: argparse.Namespace) -> list[Program]:
    """The checks of a check program."""
    listed = subprocess.run(
        check(name, arguments, "--list"), capture_output=True, text=True, check=False, cwd=ROOT
    )
    if listed.returncode:  # it says why when it is run
        return [Program(name, check(name, arguments))]
    return [
        Program(f"{name[:-3]}: {one}", check(name, arguments, "--only", one))
        for word, _, one in (line.partition(" ") for line in listed.stdout.splitlines())
        if word == "check"
    ]


def sanitized(arguments: argparse.Namespace) -> list[Program]:
    tool = run.find_tool("compute-sanitizer") or "compute-sanitizer"
    found = []
    for kind, checks in (
        ("racecheck", OF_ALL),
        ("synccheck", OF_ALL),
        ("memcheck", (*OF_ALL, *OF_MEMCHECK)),
    ):
        under = (tool, "--tool", kind, "--error-exitcode", "1", *run.SANITIZERS[kind])
        for name, one in checks:
            options = ("--small", "--cases", str(SANITIZED_CASES), "--only", one)
            command = check(name, arguments, *options)
            command = command if arguments.emulate else (*under, *command)
            name = f"{kind} {name[:-3]}: {one}"
            found.append(Program(name, command, 75, case_seconds=SANITIZED_SECONDS))
    return found


def checks(stage: Stage, arguments: argparse.Namespace) -> None:
    versions = python(HERE / "quarter_hour.py", "versions")
    stage.run([Program("versions", versions, 60, recorded=False, shown=True)], 1)
    names = [n for n in FIRST if n in arguments.only]
    names += [n for n in arguments.only if n not in FIRST]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        listed = pool.map(lambda name: checks_of(name, arguments), names)
        programs = [program for found in listed for program in found]
    if arguments.ffi is not None:
        platform = "emulated" if arguments.emulate else "CUDA"
        options = ("--folder", str(arguments.ffi.resolve()), "--platform", platform)
        programs.insert(0, Program("check_ffi", check("check_ffi.py", arguments, *options), 150))
    stage.run(programs, JOBS)
    if arguments.sanitizers:
        stage.run(sanitized(arguments), JOBS)


def speeds(stage: Stage, arguments: argparse.Namespace) -> None:
    command = python(
        "-m", "bench.gpu", "--preset", "quarter",
        "--library", arguments.library, "--out", stage.out / "bench.json",
    )  # fmt: skip
    code, _ = runner.call(list(command), max(stage.left(), 1), captured=False)
    if code != 0:
        sys.exit(f"the benchmark {_what(code)}")


STAGES = {"checks": checks, "speeds": speeds}


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


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("stage", choices=(*STAGES, "versions"))
    add("--library", type=pathlib.Path, help="as run.py --build-only has left it")
    add("--out", type=pathlib.Path)
    add("--seconds", type=float, default=400)
    add("--only", nargs="*", choices=run.CHECKS, default=run.CHECKS, metavar="CHECK.py")
    add("--no-sanitizers", dest="sanitizers", action="store_false")
    add("--ffi", type=pathlib.Path, metavar="FOLDER", help="as check_ffi.py --prepare has left it")
    add("--emulate", type=pathlib.Path, metavar="FOLDER")
    arguments = parser.parse_args(argv)
    if arguments.stage == "versions":
        return arguments
    if arguments.out is None or (arguments.library is None) == (arguments.emulate is None):
        parser.error("a stage needs --out, and --library or --emulate")
    arguments.out = arguments.out.resolve()
    return arguments


def prepare(arguments: argparse.Namespace) -> None:
    """Sets the library."""
    if arguments.emulate is None:
        if run.count_gpus() == 0:
            sys.exit("no GPU")
        arguments.library, _ = run.gpu_library(arguments.library, pathlib.Path(), None, 1)
        return
    arguments.emulate.mkdir(parents=True, exist_ok=True)
    arguments.library = arguments.emulate.resolve() / "engine.so"
    cublas = arguments.library.with_name("libcublas.so.12")
    arguments.cublas = str(cublas)
    if not arguments.library.exists():
        run.build_emulation(arguments.library, cublas, 1)


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(argv)
    if arguments.stage == "versions":
        versions()
        return
    prepare(arguments)
    with context_held(), tempfile.TemporaryDirectory() as records:
        patience = PATIENCE if arguments.emulate else 1.0
        stage = Stage(arguments.out, pathlib.Path(records), arguments.seconds, patience)
        STAGES[arguments.stage](stage, arguments)
        if arguments.stage == "speeds":
            return
    print(stage.summary())
    sys.exit(0 if all(outcome.what in ("ok", "not run") for outcome in stage.outcomes) else 1)


if __name__ == "__main__":
    main()
