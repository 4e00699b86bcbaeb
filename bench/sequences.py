"""Benches whose contenders are processes: this project against other implementations on a CPU.

Every peer runs in a process of its own (thread pools and allocators must not interact); all get the
same numbers and are timed alternately. The float32 GEMM peak of the machine, measured in the same
run, is the limit that all are compared with.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench import tidy, timing
from bench.peers import PEERS
from bench.process import NoAnswer, PeerProcess
from bench.shapes import Case

# The tolerance between peers of one form, relative to the norm: sums over hundreds of steps, and in
# bfloat16 states and gradients that some libraries round at every step.
_AGREE = {"float32": 1e-3, "bfloat16": 0.05, "int8": 0.05}
_PEAK_SIZES = (1024, 2048)
_PEAK_CALLS = 5
# Its GEMM counts in every bench: PyTorch's alone, on processors of AMD, is slower than our calls.
_OF_PEAK = "tf_raw"

Checks = dict[str, dict[str, float]]


class Pool:
    """The peer processes, started when first needed, and restarted after they have ended."""

    def __init__(self, threads: int, log: pathlib.Path) -> None:
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
        with contextlib.ExitStack() as all_of_them:  # also if one fails
            for process in self._processes.values():
                all_of_them.callback(process.close)


def measure_peak(pool: Pool, names: Iterable[str]) -> dict[str, Any]:
    """The fastest float32 GEMM of all peers that have one: {"gflops", "by"}; zero if none has."""
    best: dict[str, Any] = {"gflops": 0.0, "by": None}
    for name in names:
        for size in _PEAK_SIZES:
            try:
                times = pool.get(name).ask("gemm", size, _PEAK_CALLS)
            except NoAnswer:
                break
            gflops = 2e-9 * size**3 / min(times)
            if gflops > best["gflops"]:
                who = f"TensorFlow, beside {name}" if name.startswith("ours") else name
                best = {"gflops": gflops, "by": f"{who}, {size}x{size}x{size}"}
    return best


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


def _prepare(
    pool: Pool, case: Case, names: Sequence[str], note: Callable[[str], None]
) -> dict[str, Any]:
    """Prepares all peers; returns each one's entry: {"check"} or {"missing"}, the reason."""
    entries: dict[str, Any] = {}
    for name in names:
        note(f"preparing {name}")
        try:
            entries[name] = {"check": pool.get(name).ask("prepare", case)}
        except NoAnswer as reason:
            entries[name] = {"missing": str(reason)}
    for which in {form(name, case.cell) for name in names}:
        checks = {
            name: entry["check"]
            for name, entry in entries.items()
            if "check" in entry and form(name, case.cell) == which
        }
        _, precision = which
        agree = case.dtype if precision == "float32" else precision
        for name, text in disagreement(checks, agree).items():
            entries[name] = {"missing": text}  # the time of another function does not count
    return entries


def _measure(
    pool: Pool,
    case: Case,
    names: Sequence[str],
    plan: timing.Plan,
    note: Callable[[str], None],
) -> list[tidy.Row]:
    """The rows of one case."""
    entries = _prepare(pool, case, names, note)
    runners = {name: pool.get(name).runner() for name, e in entries.items() if "check" in e}
    try:
        rows = tidy.measured(case.fields(), runners, plan, note)
    except NoAnswer as error:
        rows = []
        for name in runners:
            entries[name] = {"missing": f"the case was aborted: {error}"}
    timed = {row["contender"] for row in rows}
    rows += [{**case.fields(), "contender": name} for name in entries if name not in timed]
    return [row | entries[row["contender"]] for row in rows]


def run(
    bench: str,
    cases: Sequence[Case],
    peers: Sequence[str],
    plan: timing.Plan,
    threads: int,
    log: pathlib.Path,
) -> dict[str, Any]:
    """Measures all `cases` for all `peers`; returns the result as it is stored in the JSON.

    The output of the peers is appended to `log`.
    """
    pool = Pool(threads, log)
    with_gemm = dict.fromkeys((*peers, _OF_PEAK))

    def measure(case: Case, note: Callable[[str], None]) -> list[tidy.Row]:
        return _measure(pool, case, [p for p in peers if PEERS[p].does(case)], plan, note)

    try:
        result = tidy.new(bench, threads, plan)
        result["peaks"] = [measure_peak(pool, with_gemm)]  # at the start and at the end
        tidy.collect(result, cases, measure)
        if not result["interrupted"]:
            result["peaks"].append(measure_peak(pool, with_gemm))
    finally:
        pool.close()
    return result
