"""Whole sequences: this project against the other ways to run an LSTM or GRU on a CPU.

Every peer in a process of its own (their thread pools and allocators must not meet), all given the
same numbers, timed turn by turn. The float32 product peak of the machine, measured in the same run,
is the limit that all are held against.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from bench import machine, timing
from bench.peers import PEERS, is_ours
from bench.process import PeerAbsent, PeerError, PeerProcess
from bench.progress import Progress
from bench.shapes import Case

# Peers of one form must agree this well, relative to the norm: sums over hundreds of steps, and in
# bfloat16 states and gradients that some libraries round at every step.
_AGREE = {"float32": 1e-3, "bfloat16": 0.05}
_PEAK_SIZES = (1024, 2048)
_PEAK_CALLS = 5
_EMPTY_CALLS = 200  # for each row

Checks = dict[str, dict[str, float]]


class Pool:
    """The peer processes, started when first needed and again when one has died."""

    def __init__(self, threads: int, log: TextIO) -> None:
        self._threads, self._log = threads, log
        self._processes: dict[str, PeerProcess] = {}

    def get(self, name: str) -> PeerProcess:
        """The running process of the peer `name`."""
        process = self._processes.get(name)
        if process is None or not process.alive():
            process = self._processes[name] = PeerProcess(name, self._threads, self._log)
        return process

    def close(self) -> None:
        """Ends them all."""
        for process in self._processes.values():
            process.close()


def measure_peak(pool: Pool, names: Iterable[str]) -> dict[str, Any]:
    """The best float32 product of any library that has one: {"gflops", "by"}; zero if none has."""
    best: dict[str, Any] = {"gflops": 0.0, "by": None}
    for name in names:
        for size in _PEAK_SIZES:
            try:
                answer = pool.get(name).ask(do="product", size=size, calls=_PEAK_CALLS)
            except (PeerAbsent, PeerError):
                break
            gflops = 2e-9 * size**3 / min(answer["times"])
            if gflops > best["gflops"]:
                who = f"TensorFlow, beside {name}" if is_ours(name) else name
                best = {"gflops": gflops, "by": f"{who}, {size}x{size}x{size}"}
    return best


def measure_call(pool: Pool, names: Iterable[str]) -> list[float]:
    """The median ms of calling a tf.function that does nothing, in a process of ours if any."""
    for name in filter(is_ours, names):
        with contextlib.suppress(PeerAbsent, PeerError):
            times = pool.get(name).ask(do="empty", calls=_EMPTY_CALLS)["times"]
            return [1e3 * statistics.median(times)]
    return []


def form(name: str, cell: str) -> str:
    """Which function a peer computes: there are two GRUs, and one LSTM."""
    return PEERS[name].gru_form if cell == "gru" else ""


def _distance(a: dict[str, float], b: dict[str, float]) -> float:
    """How far apart two outcomes are, relative to the norms of b."""
    # |loss_a - loss_b| is at most |h_a - h_b| |cotangent|, so the norm of h is its scale.
    gaps = [abs(a[key] - b[key]) / max(b["h_norm"], 1e-30) for key in ("h_norm", "loss")]
    if "x_grad_norm" in a and "x_grad_norm" in b:
        gaps.append(abs(a["x_grad_norm"] - b["x_grad_norm"]) / max(b["x_grad_norm"], 1e-30))
    # Spelt out, because max() of a list with a NaN depends on its order.
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


def disagreement(checks: Checks, dtype: str = "float32") -> dict[str, str]:
    """Those that did not compute what the others did, with how far off they are.

    The reference is the one that most others agree with. When no two agree, all are refused.
    """
    agree = _AGREE[dtype]
    if len(checks) < 2:
        return {}
    gaps = {a: {b: _distance(checks[a], checks[b]) for b in checks if b != a} for a in checks}
    agreeing = {a: sum(gap <= agree for gap in others.values()) for a, others in gaps.items()}
    reference = max(agreeing, key=agreeing.get)
    if not agreeing[reference]:
        return {name: f"no two of {', '.join(checks)} agree" for name in checks}
    return {
        name: f"differs from {reference} by {gaps[name][reference]:.1e}"
        for name in checks
        if name != reference and not gaps[name][reference] <= agree
    }


def _prepare(pool: Pool, case: Case, names: Sequence[str], bar: Progress) -> dict[str, Any]:
    """Makes all peers ready; gives each one's entry: {"check"}, {"absent"} or {"error"}."""
    entries: dict[str, Any] = {}
    for name in names:
        bar.note(f"preparing {name}")
        try:
            entries[name] = pool.get(name).ask(do="prepare", case=dataclasses.asdict(case))
        except PeerAbsent as reason:
            entries[name] = {"absent": str(reason)}
        except PeerError as error:
            entries[name] = {"error": str(error)}
    for which in {form(name, case.cell) for name in names}:
        checks = {
            name: entry["check"]
            for name, entry in entries.items()
            if "check" in entry and form(name, case.cell) == which
        }
        for name, text in disagreement(checks, case.dtype).items():
            entries[name] = {"error": text}  # a time for another function is no time
    return entries


def compare(row: dict[str, Any]) -> None:
    """Adds to a row its fastest peer and our ratios to it: above 1, we are faster."""
    peers = row["peers"]
    medians = {n: e["median_ms"] for n, e in peers.items() if "median_ms" in e}
    others = {n: ms for n, ms in medians.items() if not is_ours(n)}
    row["fastest"] = min(others, key=others.get) if others else None
    row["ratios"] = {
        n: others[row["fastest"]] / ms for n, ms in medians.items() if is_ours(n) and others
    }


def _measure(
    pool: Pool, case: Case, names: Sequence[str], plan: timing.Plan, bar: Progress
) -> dict[str, Any]:
    """One row of the result."""
    entries = _prepare(pool, case, names, bar)
    runners = {name: pool.get(name).runner() for name, e in entries.items() if "check" in e}
    try:
        samples = timing.alternate(runners, plan, bar.note)
    except PeerError as error:
        samples = {}
        for name in runners:
            entries[name] = {"error": f"the case was broken off: {error}"}
    for name, turns in samples.items():
        entries[name] |= timing.summary(turns)
        entries[name]["gflops"] = 1e-6 * case.flops() / entries[name]["median_ms"]
    row: dict[str, Any] = {
        "cell": case.cell,
        "kind": case.kind,
        "shape": list(case.shape),
        "lengths": case.lengths,
        "dtype": case.dtype,
        "flops": case.flops(),
        "peers": entries,
    }
    if case.as_layer:
        row["variant"] = case.variant
    compare(row)
    return row


def _line(row: dict[str, Any]) -> str:
    """A finished row for the progress display."""
    parts = []
    for name, entry in row["peers"].items():
        if "median_ms" in entry:
            parts.append(f"{name} {entry['median_ms']:.4g}")
        elif "error" in entry:
            parts.append(f"{name} FAILED ({entry['error'][:60]})")
    return "  ".join(parts) + " ms"


def run(
    cases: Sequence[tuple[str, Case]],
    peers: Sequence[str],
    sweep_peers: Sequence[str],
    plan: timing.Plan,
    threads: int,
    log: TextIO | None = None,
    bench: str = "sequences",
) -> dict[str, Any]:
    """Measures all `cases` (each with the name of the set it belongs to) for all `peers`.

    In a sweep only those take part that are also in `sweep_peers`. Gives the result as it goes into
    the JSON, which calls it `bench`. What the peers print goes to `log`.
    """
    machine.warn_if_busy()
    stamp = machine.stamp(threads)
    bar = Progress(len(cases))
    rows: list[dict[str, Any]] = []
    calls: list[float] = []
    interrupted = False
    with tempfile.TemporaryFile("w") as scratch:
        pool = Pool(threads, log or scratch)
        try:
            bar.announce("starting the peers, measuring the product peak")
            peaks = [measure_peak(pool, peers)]
            for group, case in cases:
                what = case.variant or ("" if case.lengths == "full" else case.lengths)
                bar.start(f"{group} {case.cell} {case.kind} {case.shape} {what}".rstrip())
                some = [p for p in peers if p in sweep_peers or not group.startswith("sweep")]
                names = [p for p in some if PEERS[p].does(case)]
                rows.append({"set": group} | _measure(pool, case, names, plan, bar))
                # Each time anew: the call of a process that did nothing before is faster.
                calls += measure_call(pool, peers)
                bar.done(_line(rows[-1]))
            peaks.append(measure_peak(pool, peers))
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True  # minutes of measuring are not to be thrown away
        finally:
            pool.close()
    stamp["load_at_end"] = machine.load()
    return {
        "schema": 1,
        "bench": bench,
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        # Taken before and after; the better one counts: the limit is what the machine can do.
        "peaks": peaks,
        "empty_call_ms": statistics.median(calls) if calls else None,
        "peak_gflops": max(peak["gflops"] for peak in peaks),
        "peer_notes": {name: PEERS[name].note for name in peers},
        "interrupted": interrupted,
        "rows": rows,
    }
