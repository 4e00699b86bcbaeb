"""Whole sequences: this project against other implementations of LSTM and GRU on a CPU.

Every peer runs in a process of its own (thread pools and allocators must not interact); all get the
same numbers and are timed alternately. The float32 GEMM peak of the machine, measured in the same
run, is the limit that all are compared with.
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

# The tolerance between peers of one form, relative to the norm: sums over hundreds of steps, and in
# bfloat16 states and gradients that some libraries round at every step.
_AGREE = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.05}
_PEAK_SIZES = (1024, 2048)
_PEAK_CALLS = 5
_EMPTY_CALLS = 200  # for each row

Checks = dict[str, dict[str, float]]


class Pool:
    """The peer processes, started when first needed, and restarted after they have ended."""

    def __init__(self, threads: int, log: TextIO) -> None:
        self._threads, self._log = threads, log
        self._processes: dict[str, PeerProcess] = {}

    def get(self, name: str) -> PeerProcess:
        """The running process of peer `name`."""
        process = self._processes.get(name)
        if process is None or not process.alive():
            process = self._processes[name] = PeerProcess(name, self._threads, self._log)
        return process

    def close(self) -> None:
        """Ends all processes."""
        for process in self._processes.values():
            process.close()


def measure_peak(pool: Pool, names: Iterable[str]) -> dict[str, Any]:
    """The fastest float32 GEMM of all peers that have one: {"gflops", "by"}; zero if none has."""
    best: dict[str, Any] = {"gflops": 0.0, "by": None}
    for name in names:
        for size in _PEAK_SIZES:
            try:
                answer = pool.get(name).ask(do="gemm", size=size, calls=_PEAK_CALLS)
            except (PeerAbsent, PeerError):
                break
            gflops = 2e-9 * size**3 / min(answer["times"])
            if gflops > best["gflops"]:
                who = f"TensorFlow, beside {name}" if is_ours(name) else name
                best = {"gflops": gflops, "by": f"{who}, {size}x{size}x{size}"}
    return best


def measure_call(pool: Pool, names: Iterable[str]) -> list[float]:
    """The median ms of calling an empty tf.function, in a process of one of our contenders."""
    for name in filter(is_ours, names):
        with contextlib.suppress(PeerAbsent, PeerError):
            times = pool.get(name).ask(do="empty", calls=_EMPTY_CALLS)["times"]
            return [1e3 * statistics.median(times)]
    return []


def form(name: str, cell: str) -> tuple[str, str]:
    """The function that a peer computes: there are two GRUs, one LSTM, and each precision."""
    entry = PEERS[name]
    return (entry.gru_form if cell == "gru" else "", entry.precision)


def _distance(a: dict[str, float], b: dict[str, float]) -> float:
    """The distance of two outcomes, relative to the norms of b."""
    # |loss_a - loss_b| is at most |h_a - h_b| |cotangent|, so the norm of h is its scale.
    gaps = [abs(a[key] - b[key]) / max(b["h_norm"], 1e-30) for key in ("h_norm", "loss")]
    if "x_grad_norm" in a and "x_grad_norm" in b:
        gaps.append(abs(a["x_grad_norm"] - b["x_grad_norm"]) / max(b["x_grad_norm"], 1e-30))
    # Explicit, because max() of a list with a NaN depends on its order.
    return max(gaps) if all(map(math.isfinite, gaps)) else math.inf


def disagreement(checks: Checks, dtype: str = "float32") -> dict[str, str]:
    """The peers whose results differ from the others', with the difference.

    The reference is the one that most others agree with. If no two agree, all are rejected.
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
    """Prepares all peers; returns each one's entry: {"check"}, {"absent"} or {"error"}."""
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
        _, precision = which
        agree = case.dtype if precision == "float32" else precision
        for name, text in disagreement(checks, agree).items():
            entries[name] = {"error": text}  # the time of another function does not count
    return entries


def medians(row: dict[str, Any]) -> dict[str, float]:
    """The median ms of each contender that has one."""
    return {name: e["median_ms"] for name, e in row["peers"].items() if "median_ms" in e}


def compare(row: dict[str, Any]) -> None:
    """Adds to a row its fastest peer and our ratios to it; above 1 we are faster."""
    times = medians(row)
    others = {n: ms for n, ms in times.items() if not is_ours(n)}
    row["fastest"] = min(others, key=others.get) if others else None
    row["ratios"] = {
        n: others[row["fastest"]] / ms for n, ms in times.items() if is_ours(n) and others
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
            entries[name] = {"error": f"the case was aborted: {error}"}
    for name, rounds in samples.items():
        entries[name] |= timing.summary(rounds)
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

    A sweep runs only the peers that are also in `sweep_peers`. Returns the result as it is stored
    in the JSON, under the name `bench`. The output of the peers is written to `log`.
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
            bar.announce("starting the peers, measuring the GEMM peak")
            peaks = [measure_peak(pool, peers)]
            for group, case in cases:
                what = case.variant or ("" if case.lengths == "full" else case.lengths)
                bar.start(f"{group} {case.cell} {case.kind} {case.shape} {what}".rstrip())
                some = [p for p in peers if p in sweep_peers or not group.startswith("sweep")]
                names = [p for p in some if PEERS[p].does(case)]
                rows.append({"set": group} | _measure(pool, case, names, plan, bar))
                # Measured for each row: the call of a process that was idle before is faster.
                calls += measure_call(pool, peers)
                bar.done(_line(rows[-1]))
            peaks.append(measure_peak(pool, peers))
        except KeyboardInterrupt:
            if not rows:
                raise
            interrupted = True  # keep minutes of measurements
        finally:
            pool.close()
    stamp["load_at_end"] = machine.load()
    return {
        "schema": 1,
        "bench": bench,
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        # Measured before and after; the higher one counts, as the limit of the machine.
        "peaks": peaks,
        "empty_call_ms": statistics.median(calls) if calls else None,
        "peak_gflops": max(peak["gflops"] for peak in peaks),
        "peer_notes": {name: PEERS[name].note for name in peers},
        "interrupted": interrupted,
        "rows": rows,
    }
