"""Runs the check programs for run.py, and tells what became of each."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence

import check_program

HERE = pathlib.Path(__file__).resolve().parent


def call(command: list, timeout: float | None, *, captured: bool) -> tuple[int | None, str]:
    """The exit code, None if the program ran out of time, and its output where it is captured."""
    process = subprocess.Popen(
        [str(part) for part in command],
        text=True,
        stdout=subprocess.PIPE if captured else None,
        # NumPy's threads would spin beside the other job, for products that are too small for them.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        # What has a limit is ended with all that it started: a sanitizer's program has the GPU.
        process_group=None if timeout is None else 0,
    )
    try:
        said, _ = process.communicate(timeout=timeout)
        return process.returncode, said or ""
    except BaseException as error:
        if timeout is None:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None, process.communicate()[0] or ""


class Runner:
    """Runs check programs, each for `timeout` seconds at most, and keeps what became of them.

    The first failure ends the whole run, but with keep_going. jobs: programs at a time, which is
    for the emulation: a GPU has one at a time.
    """

    def __init__(self, *, keep_going: bool, timeout: float | None, jobs: int = 1):
        self._keep_going, self._timeout, self._jobs = keep_going, timeout, jobs
        self._names = {outcome: [] for outcome in ("passed", "failed", "timed out", "not run")}

    def add(self, name: str, outcome: str, why: str = "") -> None:
        """outcome: "passed", "failed", "timed out" or "not run"."""
        self._names[outcome].append(name)
        said = f"{name} {outcome}: {why}"
        if outcome in ("failed", "timed out") and not self._keep_going:
            sys.exit(said)
        if why:
            print(said, flush=True)

    def run(
        self,
        names: Sequence[str],
        library: pathlib.Path,
        *options: str,
        kind: str = "",
        under: tuple[str, ...] = (),
    ) -> None:
        """under: the sanitizer's command, and kind which it is."""

        def one(name: str) -> tuple[int | None, str]:
            command = [*under, sys.executable, HERE / name, "--library", library, *options]
            return call(command, self._timeout, captured=self._jobs > 1)

        pool = concurrent.futures.ThreadPoolExecutor(self._jobs)
        try:
            # Without the pool where there is one job: nothing must begin that is not to be waited
            # for.
            results = pool.map(one, names) if self._jobs > 1 else map(one, names)
            for name, (code, said) in zip(names, results, strict=True):
                print(said, end="", flush=True)
                self.add(f"{kind} {name}".lstrip(), *self._outcome(code))
        finally:
            pool.shutdown(cancel_futures=True)

    def _outcome(self, code: int | None) -> tuple[str, str]:
        if code is None:
            return "timed out", f"after {self._timeout:g} s"
        if code < 0:
            return "failed", f"killed by signal {-code}: an access outside an array?"
        if code == check_program.NOT_RUN:
            return "not run", ""  # it has said why
        return ("failed", f"exit code {code}") if code else ("passed", "")

    def finish(self, ok: str) -> None:
        """The end of the run: `ok` if something passed and nothing failed."""
        if self._keep_going:
            for outcome, names in self._names.items():
                if names:
                    print(f"{outcome}: {', '.join(names)}")
        if self._names["failed"] or self._names["timed out"]:
            sys.exit(1)
        if self._names["passed"]:
            print(ok)
