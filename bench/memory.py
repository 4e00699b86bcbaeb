"""Peak memory of forward and backward, and what `recompute` saves of it.

Each contender runs in a fresh process: how far does the peak of the resident set rise above its
value before the first call of this case? A small case runs first, so that code pages, thread stacks
and tracing are not counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench import data, machine, process, tidy, timing
from bench.peers import PEERS, ours, worker
from bench.shapes import Case

# Of `recompute`: False keeps everything, True chooses.
CHOICES: tuple[bool | int, ...] = (False, True, 128, 256, 512, 1024, 2048, 4096)
_CALLS = 3  # a leak, or a second set of buffers, shows in the later calls
_SMALL = (2, 3, 4, 5)


def _resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _reset_peak() -> None:
    """Resets the peak left by the imports (Linux). If that fails, the peak only starts higher."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _measure_here(name: str, case: Case) -> int:
    """In this process: the rise of the peak."""
    batch, steps, inputs, units = _SMALL
    small = dataclasses.replace(case, batch=batch, steps=steps, inputs=inputs, units=units)
    peer = worker.peer(name, machine.cores())
    peer.prepare(small, data.make(small)).call()
    prepared = peer.prepare(case, data.make(case))
    _reset_peak()
    before = _resident_bytes()
    for _ in range(_CALLS):
        prepared.call()
    return _peak_bytes() - before


def _serve(connection: Connection, name: str, case: Case) -> None:
    worker.be_a_child(pathlib.Path(os.devnull))
    connection.send(worker.guarded(_measure_here, name, case))


def measure(name: str, case: Case, threads: int) -> dict[str, Any]:
    """In a fresh process: the rise of the peak, or why there is none."""
    child = process.Child(_serve, name, case, **process.environment(name, threads))
    with contextlib.closing(child):
        try:
            return {"unit": "bytes", "median": child.receive()}
        except process.NoAnswer as reason:
            return {"missing": str(reason)}


def measure_peers(case: Case, threads: int, note: Callable[[str], None]) -> list[tidy.Row]:
    """The rows of one case of the bench of memory."""
    rows = []
    for name in ("ours", "ours_block", "tf_raw"):
        note(name)
        rows.append({**case.fields(), "contender": name, **measure(name, case, threads)})
    return rows


def measure_recompute(
    case: Case, threads: int, plan: timing.Plan, note: Callable[[str], None]
) -> list[tidy.Row]:
    """The rows of one case of the bench of `recompute`, the steps of a span: memory and time."""
    rows, runners = [], {}
    peer = ours.Peer(PEERS["ours"].option, threads)
    for choice in CHOICES:
        if choice is not True and choice > case.steps:
            continue
        name, some = f"recompute={choice}", dataclasses.replace(case, recompute=choice)
        note(f"memory, {name}")
        rows.append({**case.fields(), "contender": name, **measure("ours", some, threads)})
        runners[name] = timing.in_process(peer.prepare(some, data.make(some)).call)
    return rows + tidy.measured(case.fields(), runners, plan, note)
