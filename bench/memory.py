"""Peak memory of forward and backward: BlockLSTMV2 of this project against TensorFlow's.

Each in a fresh process, `python -m bench.memory PEER CELL B T I H`, which prints one JSON line: how
far the peak of the resident set rose above where it was before the first call of this shape. A
small shape goes before, so that code pages, thread stacks and tracing are not counted.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import pathlib
import resource
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench import data, machine
from bench.peers import PEERS, base
from bench.process import environment, root
from bench.progress import Progress
from bench.shapes import Case

_PEERS = ("ours", "tf_raw")
_CALLS = 3  # a leak, or a second set of buffers, shows in the later calls
_SMALL = (2, 3, 4, 5)


def _resident_bytes() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _reset_peak() -> None:
    """Linux: forget the peak of the imports. Where that fails, the peak only starts higher."""
    with contextlib.suppress(OSError):
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure_here(name: str, cell: str, shape: tuple[int, int, int, int]) -> dict[str, Any]:
    """In this process: {"bytes"} that the peak rises by, or {"absent"} with the reason."""
    entry = PEERS[name]
    try:
        peer = importlib.import_module(f"bench.peers.{entry.module}").Peer(
            entry.option, machine.cores()
        )
        small = Case(cell, "train", *_SMALL)
        peer.prepare(small, data.make(small)).call()
        case = Case(cell, "train", *shape)
        prepared = peer.prepare(case, data.make(case))
    except base.Absent as reason:
        return {"absent": str(reason)}
    _reset_peak()
    before = _resident_bytes()
    for _ in range(_CALLS):
        prepared.call()
    return {"bytes": _peak_bytes() - before}


def _measure(name: str, cell: str, shape: Sequence[int], threads: int) -> dict[str, Any]:
    """In a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", name, cell, *map(str, shape)],
        env=environment(name, threads), cwd=root(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip()[-500:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def run(shapes: Sequence[tuple[int, int, int, int]], threads: int) -> dict[str, Any]:
    """Peak memory at all `shapes`; gives the result as it goes into the JSON."""
    bar = Progress(len(shapes))
    rows = []
    for shape in shapes:
        bar.start(f"memory lstm train {shape}")
        row: dict[str, Any] = {"cell": "lstm", "shape": list(shape), "peers": {}}
        for name in _PEERS:
            bar.note(name)
            row["peers"][name] = _measure(name, "lstm", shape, threads)
        sizes = {n: e["bytes"] for n, e in row["peers"].items() if "bytes" in e}
        if len(sizes) == len(_PEERS):
            row["ratio"] = sizes["tf_raw"] / max(sizes["ours"], 1)
        rows.append(row)
        bar.done("  ".join(f"{n} {b / 2**20:.1f} MiB" for n, b in sizes.items()))
    return {"schema": 1, "bench": "memory", "machine": machine.stamp(threads), "rows": rows}


if __name__ == "__main__":
    print(json.dumps(measure_here(sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3:7])))))
