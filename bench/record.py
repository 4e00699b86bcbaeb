"""All benches one after another, each in a process of its own, on a machine that is quiet.

What has a result of this commit is left out, so a run that ended early goes on where it ended.
"""

from __future__ import annotations

import dataclasses
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from bench import machine, provenance, tidy, timing

# Besides the time of a plan, in seconds: of each contender of a case, to trace and compile; and of
# fresh processes.
_TO_PREPARE = 1.0
_IN_PROCESSES = {"memory": 10.0, "recompute": 10.0, "first_calls": 30.0}


@dataclasses.dataclass(frozen=True)
class Job:
    """A bench to run: `python -m bench` with these words, which writes its result to `path`."""

    bench: str
    words: tuple[str, ...]
    path: pathlib.Path
    seconds: float  # it takes about so long


def estimate(bench: str, contenders: int, plan: timing.Plan, path: pathlib.Path) -> float:
    """Seconds that a bench takes: those of the result at `path`, if it has the same plan.

    contenders: their number in all cases together.
    """
    earlier = tidy.read(path) if path.exists() else {}
    if "seconds" in earlier and earlier.get("plan") == dataclasses.asdict(plan):
        return earlier["seconds"]
    return contenders * (plan.seconds + _TO_PREPARE + _IN_PROCESSES.get(bench, 0.0))


def is_recorded(path: pathlib.Path, plan: timing.Plan, threads: int) -> bool:
    """Whether there is a result of this commit, plan and number of threads, from this processor."""
    if not path.exists():
        return False
    result, now = tidy.read(path), machine.stamp(threads)
    if now["commit"] is None or now["commit"].endswith("-dirty"):
        return False
    same = ("commit", "cpu", "cores", "threads", "versions")
    return (
        not result["interrupted"]
        and result.get("plan") == dataclasses.asdict(plan)
        and all(result["machine"][key] == now[key] for key in same)
    )


def _words(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60}:{minutes % 60:02d} h" if minutes >= 60 else f"{minutes} min"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(job: Job) -> int:
    """Runs a bench to its end; its exit code. An interrupt is passed on once, and then raised."""
    command = [sys.executable, "-m", "bench", job.bench, *job.words]
    child = subprocess.Popen(command, process_group=0)
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        child.wait()
        raise


def _left(jobs: Sequence[Job]) -> float:
    return sum(job.seconds for job in jobs)


def run(
    jobs: Sequence[Job], recorded: Sequence[str], quiet: Callable[[], str]
) -> Mapping[str, str]:
    """Runs the jobs but for the benches that are recorded; returns what came of each bench.

    quiet: waits for a quiet machine; returns why it is not quiet, which ends the run, or "".
    """
    came = dict.fromkeys((job.bench for job in jobs), "not measured")
    came |= dict.fromkeys(recorded, "recorded before, at this commit")
    wanted = [job for job in jobs if job.bench not in recorded]
    _say(f"{len(wanted)} of {len(jobs)} benches, about {_words(_left(wanted))}")
    start = time.monotonic()
    try:
        for number, job in enumerate(wanted):
            spent, left = time.monotonic() - start, _left(wanted[number:])
            _say(
                f"[{number + 1}/{len(wanted)}] {job.bench}: about {_words(job.seconds)};"
                f" {_words(spent)} spent, about {_words(left)} left"
            )
            if why := quiet():
                came[job.bench] = f"not measured: {why}"
                break
            code = _measure(job)
            came[job.bench] = f"failed, exit code {code}" if code else "measured"
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on with what is left")
    return came


def report(jobs: Sequence[Job], came: Mapping[str, str]) -> list[str]:
    """A line for each bench: what came of it, and how its run was not quiet."""
    lines = []
    for job in jobs:
        has_result = came[job.bench].startswith(("measured", "recorded"))
        note = provenance.noise(tidy.read(job.path)).note() if has_result else ""
        lines.append(f"{job.bench}: {came[job.bench]}. {note}".rstrip())
    return lines
