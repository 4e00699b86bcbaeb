"""What Bazel is doing, in words for somebody who waits: "[12 of 29] CPU engine for AVX2: float32".

Bazel prints counters, `[12 / 29] Compiling …`, and with --subcommands each command as it starts it.
Both become one line per piece of work; what is neither, such as a compiler's errors, is passed on
as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

import instruction_sets

# --curses=no: a line for each report, on a terminal too.
FLAGS = ["--subcommands", "--curses=no", "--color=no", "--show_progress_rate_limit=0.2"]

_COUNTERS = re.compile(r"\[([\d,]+) / ([\d,]+)\] ")
_COMMAND = re.compile(r"SUBCOMMAND: # (\S+) \[action '(\w+) ([^']*)'")
_NOT_FOR_USERS = re.compile(
    r"(Loading|Analyzing|INFO|DEBUG):| +currently loading|Starting local Bazel server"
    r"|Target //|  /\S+$|WARNING: info command"
)

_TYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_PARTS = {
    "//cc/kernels:": "TensorFlow kernels",
    "//cc/ops:": "TensorFlow ops and their checks",
    "//cc/xla:": "XLA",
    "//cc/loader:": "loader of the engines",
    "//cc/inference:": "sessions",
    "//tests/cpp:": "C++ tests",
}


def _engine(label: str, stem: str) -> str:
    """`stem` names a source of the CPU engine, `label` the target and by it the instruction set."""
    isa = instruction_sets.known_as(label.partition("_")[2])
    part = stem.removeprefix("engine").removeprefix("_").replace("_", " ")
    return f"CPU engine for {isa}: {_TYPES.get(part, part) or 'its table'}"


def piece_of_work(label: str, action: str, path: str) -> str:
    """What a command of Bazel's makes, in words, or "" for what takes no time."""
    name = path.rpartition("/")[2]
    stem = name.partition(".")[0]
    if action == "Linking":
        return f"linking {name}"
    if action not in ("Compiling", "CudaCompile"):
        return ""
    if re.match("//cc/kernels/cpu:(common|own|objects)_", label):
        return _engine(label, stem)
    if label.startswith("//cc/kernels/cuda:"):
        return f"CUDA engine: {stem.replace('_', ' ')}"
    part = next((words for prefix, words in _PARTS.items() if label.startswith(prefix)), label)
    return f"{part}: {stem.removesuffix('_together').replace('_', ' ')}"


def in_words(lines: Iterable[str]) -> Iterator[tuple[bool, str]]:
    """What to show for the lines that Bazel prints: whether it is progress, and a line."""
    done, total = "0", "?"
    in_command = False
    for line in lines:
        line = line.rstrip("\n")
        if command := _COMMAND.match(line):
            if words := piece_of_work(*command.groups()):
                yield True, f"[{done:>3} of {total}] {words}"
            # The command itself follows, in parentheses.
            in_command = True
        elif in_command:
            in_command = not line.endswith(")")
        elif counters := _COUNTERS.match(line):
            done, total = counters.groups()
        elif line.strip() and not _NOT_FOR_USERS.match(line):
            yield False, line


def show(lines: Iterable[str]) -> None:
    """Prints progress, and what is none to the standard error."""
    for is_progress, line in in_words(lines):
        print(line, file=sys.stdout if is_progress else sys.stderr, flush=True)
