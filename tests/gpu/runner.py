"""Runs the check programs for run.py and reports the outcome of each."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import check_program

HERE = pathlib.Path(__file__).resolve().parent
# How long to wait for a process to exit after each signal.
_SECONDS_TO_END = 5


def call(command: list, timeout: float | None, *, captured: bool) -> tuple[int | None, str]:
    """The exit code, None if the program ran out of time, and its output and errors if captured.

    It runs in the root of the project. A Python program that runs out of time says where it was.
    """
    # A file: the end of a pipe would have to be waited for, and a child process may hold it.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=HERE.parents[1],
            stdout=said if captured else None,
            stderr=subprocess.STDOUT if captured else None,
            # NumPy's threads would compete with the other job, for GEMMs that are too small for
            # them.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
            # At a time limit its child processes end too: a sanitizer's program holds the GPU.
            process_group=None if timeout is None else 0,
        )
        try:
            code = process.wait(timeout)
        except BaseException as error:
            _end(process, group=timeout is not None)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = None
        said.seek(0)
        return code, said.read().decode(errors="replace")


def _end(process: subprocess.Popen, *, group: bool) -> None:
    """Ends a program, first so that it can say where it is; group: with its child processes."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_END)


class Runner:
    """Runs check programs, each for at most `timeout` seconds, and records what became of each.

    jobs: concurrent programs, for the emulation only: a GPU runs one at a time.
    """

    def __init__(self, *, timeout: float | None, jobs: int = 1):
        self._timeout, self._jobs = timeout, jobs
        self._names = {outcome: [] for outcome in ("passed", "failed", "timed out", "not run")}

    def add(self, name: str, outcome: str, why: str = "") -> None:
        """outcome: "passed", "failed", "timed out" or "not run"."""
        self._names[outcome].append(name)
        if why:
            print(f"{name} {outcome}: {why}", flush=True)

    def run(
        self,
        names: Sequence[str],
        library: pathlib.Path,
        *options: str,
        kind: str = "",
        under: tuple[str, ...] = (),
    ) -> None:
        """under: the sanitizer's command; kind: its name."""

        def one(name: str) -> tuple[int | None, str]:
            command = [*under, sys.executable, HERE / name, "--library", library, *options]
            return call(command, self._timeout, captured=self._jobs > 1)

        with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool:
            # With one job the pool is not used: it would start the next program too early.
            results = pool.map(one, names) if self._jobs > 1 else map(one, names)
            for name, (code, output) in zip(names, results, strict=True):
                print(output, end="", flush=True)
                self.add(f"{kind} {name}".lstrip(), *self._outcome(code))

    def _outcome(self, code: int | None) -> tuple[str, str]:
        if code is None:
            return "timed out", f"after {self._timeout:g} s"
        if code < 0:
            return "failed", f"killed by signal {-code}: an access outside an array?"
        if code == check_program.NOT_RUN:
            return "not run", ""  # the program has printed the reason
        return ("failed", f"exit code {code}") if code else ("passed", "")

    def finish(self, ok: str) -> None:
        """The end of the run: `ok` if something passed and nothing failed."""
        for outcome, names in self._names.items():
            if names:
                print(f"{outcome}: {', '.join(names)}")
        if self._names["failed"] or self._names["timed out"]:
            sys.exit(1)
        if self._names["passed"]:
            print(ok)
