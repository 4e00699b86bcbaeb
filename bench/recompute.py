"""Memory and time of training a long sequence against `recompute`, the steps of a span.

The rise of the peak of memory is measured as in bench.memory, each in a fresh process; the times
are those of contenders that alternate in one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench import data, machine, memory, timing
from bench.peers import PEERS, ours
from bench.progress import Progress
from bench.shapes import Case
from bench.tables import dims

CELLS = ("lstm", "gru")
# False keeps everything, True chooses.
CHOICES: tuple[bool | int, ...] = (False, True, 128, 256, 512, 1024, 2048, 4096)
QUICK: tuple[bool | int, ...] = (False, True, 300)
# The largest wanted memory and time of True, relative to False.
TARGETS = {"bytes": 0.35, "median_ms": 1.4}


def _row(
    cell: str,
    shape: Sequence[int],
    choices: Sequence[bool | int],
    plan: timing.Plan,
    threads: int,
    bar: Progress,
) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    for choice in choices:
        bar.note(f"memory {choice}")
        entries.append(
            {"recompute": choice, **memory.measure("ours", cell, shape, threads, choice)}
        )
    peer = ours.Peer(PEERS["ours"].option, threads)
    runners = {}
    for choice in choices:
        case = Case(cell, "train", *shape, recompute=choice)
        runners[str(choice)] = timing.in_process(peer.prepare(case, data.make(case)).call)
    samples = timing.alternate(runners, plan, bar.note)
    for entry in entries:
        entry.update(timing.summary(samples[str(entry["recompute"])]))
    return {"cell": cell, "shape": list(shape), "choices": entries}


def relative(row: dict[str, Any], key: str, choice: bool | int = True) -> float:
    """The bytes or median_ms of a choice over those without recompute."""
    of = {repr(entry["recompute"]): entry[key] for entry in row["choices"]}
    return of[repr(choice)] / max(of["False"], 1e-9)


def run(
    shape: Sequence[int], choices: Sequence[bool | int], plan: timing.Plan, threads: int
) -> dict[str, Any]:
    """Measures both cells; returns the result as it is stored in the JSON."""
    machine.warn_if_busy()
    stamp = machine.stamp(threads)
    bar, rows = Progress(len(CELLS)), []
    for cell in CELLS:
        bar.start(f"recompute {cell} train {dims(shape)}")
        rows.append(_row(cell, shape, choices, plan, threads, bar))
        found = " and ".join(f"{relative(rows[-1], key):.2f} of {key}" for key in TARGETS)
        bar.done(f"True: {found}")
    stamp["load_at_end"] = machine.load()
    return {
        "schema": 1,
        "bench": "recompute",
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        "rows": rows,
    }
