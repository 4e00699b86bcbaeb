"""Peak memory of forward and backward: this project's LSTMs against TensorFlow's BlockLSTMV2.

Each runs in a fresh process, `python -m bench.memory PEER CELL B T I H [RECOMPUTE]`, which prints
one JSON line: how far the peak of the resident set rose above its value before the first call of
this shape. A small shape runs first, so that code pages, thread stacks and tracing are not counted.
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
from bench.peers import PEERS, base, is_ours
from bench.process import environment, root
from bench.progress import Progress
from bench.provenance import measured
from bench.shapes import Case
from bench.tables import dims, markdown_table, text_table, why_missing

_OURS, _THEIRS = ("ours", "ours_block"), "tf_raw"
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


def measure_here(
    name: str, cell: str, shape: tuple[int, int, int, int], recompute: bool | int = False
) -> dict[str, Any]:
    """In this process: {"bytes"}, the rise of the peak, or {"absent"} with the reason."""
    entry = PEERS[name]
    try:
        peer = importlib.import_module(f"bench.peers.{entry.module}").Peer(
            entry.option, machine.cores()
        )
        small = Case(cell, "train", *_SMALL, recompute=recompute)
        peer.prepare(small, data.make(small)).call()
        case = Case(cell, "train", *shape, recompute=recompute)
        prepared = peer.prepare(case, data.make(case))
    except base.Absent as reason:
        return {"absent": str(reason)}
    _reset_peak()
    before = _resident_bytes()
    for _ in range(_CALLS):
        prepared.call()
    return {"bytes": _peak_bytes() - before}


def measure(
    name: str, cell: str, shape: Sequence[int], threads: int, recompute: bool | int = False
) -> dict[str, Any]:
    """In a fresh process."""
    arguments = map(str, (*shape, json.dumps(recompute)))
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory", name, cell, *arguments],
        env=environment(name, threads), cwd=root(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        return {"error": done.stderr.strip()[-500:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def run(shapes: Sequence[tuple[int, int, int, int]], threads: int) -> dict[str, Any]:
    """Peak memory at all `shapes`; returns the result as it is stored in the JSON."""
    bar = Progress(len(shapes))
    rows = []
    for shape in shapes:
        bar.start(f"memory lstm train {shape}")
        row: dict[str, Any] = {"cell": "lstm", "shape": list(shape), "peers": {}}
        for name in (*_OURS, _THEIRS):
            bar.note(name)
            row["peers"][name] = measure(name, "lstm", shape, threads)
        sizes = {n: e["bytes"] for n, e in row["peers"].items() if "bytes" in e}
        if _THEIRS in sizes:
            some = {name: sizes[name] for name in _OURS if name in sizes}
            row["ratios"] = {name: sizes[_THEIRS] / max(own, 1) for name, own in some.items()}
        rows.append(row)
        bar.done("  ".join(f"{n} {b / 2**20:.1f} MiB" for n, b in sizes.items()))
    return {"schema": 1, "bench": "memory", "machine": machine.stamp(threads), "rows": rows}


def _table(result: dict[str, Any]) -> tuple[list[str], list[list[str]], list[bool]]:
    """Head, cells, and for each row whether any of ours takes more than TensorFlow."""
    names = list(dict.fromkeys(name for row in result["rows"] for name in row["peers"]))
    ours = [name for name in names if is_ours(name)]
    head = ["B, T, I, H", *(f"{n} MiB" for n in names), *(f"tf_raw / {n}" for n in ours)]
    rows, lost = [], []
    for row in result["rows"]:
        entries, ratios = (row["peers"][n] for n in names), row.get("ratios", {})
        sizes = [
            f"{e['bytes'] / 2**20:.1f}" if "bytes" in e else why_missing(e)[:60] for e in entries
        ]
        shown = [f"{ratios[n]:.2f}" if n in ratios else "-" for n in ours]
        rows.append([dims(row["shape"]), *sizes, *shown])
        lost.append(any(ratio < 1 for ratio in ratios.values()))
    return head, rows, lost


def text(result: dict[str, Any]) -> str:
    """Peak memory of training as text."""
    head, rows, lost = _table(result)
    marks = ["<< more than TensorFlow" if more else "" for more in lost]
    return text_table([*head, ""], [[*row, m] for row, m in zip(rows, marks, strict=True)])


def markdown(result: dict[str, Any]) -> str:
    """Peak memory of training at all shapes."""
    head, rows, lost = _table(result)
    lines = [
        [f"**{name}**" if more else name, *cells]
        for (name, *cells), more in zip(rows, lost, strict=True)
    ]
    intro = (
        "The rise of the peak resident set in forward and backward: `tf_blockrnn.lstm`"
        " (`ours`) and our `BlockLSTMV2` (`ours_block`) with their gradients, TensorFlow's"
        " `BlockLSTMV2` and `BlockLSTMGradV2` (`tf_raw`), each in a fresh process."
    )
    return "\n\n".join([intro, markdown_table(head, lines), measured(result)])


if __name__ == "__main__":
    asked = json.loads(sys.argv[7]) if len(sys.argv) > 7 else False
    print(json.dumps(measure_here(*sys.argv[1:3], tuple(map(int, sys.argv[3:7])), asked)))
