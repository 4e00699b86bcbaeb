"""Alternating measurement of things that can be called, and its summary.

Why alternating: clocks, neighbours and temperature drift over seconds. A, B, A, B, ... lets a drift
hit all alike; all of A and then all of B does not. Why medians: one interrupt moves a mean, and on
a shared machine the minimum is the luck of the longest run.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

# A pause before each turn: the threads of whoever was before spin for a while when they have
# nothing left to do, and would take our time.
_SETTLE_SECONDS = 0.03
# Calls before each turn that do not count, as many as fit into this: they bring the caches and the
# thread pool back after somebody else's turn.
_WARM_SECONDS = 0.005
# A call longer than this needs no such warm call: a cold start costs it nothing that shows.
_LONG_CALL_SECONDS = 0.5
_MAX_CALLS_PER_TURN = 1000
_MIN_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long to measure: `seconds` for each contender and case, dealt out over `rounds` turns."""

    rounds: int = 10
    seconds: float = 1.0


class Runner(Protocol):
    """Runs `warm` calls untimed, then `calls` calls; gives the seconds of each of those."""

    def __call__(self, calls: int, warm: int) -> list[float]: ...


def timed_calls(function: Callable[[], object], calls: int, warm: int) -> list[float]:
    """Seconds of each of `calls` calls of `function`, after `warm` calls that do not count."""
    for _ in range(warm):
        function()
    times = []
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle of a call is not the call's cost
    try:
        for _ in range(calls):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    finally:
        if collecting:
            gc.enable()
    return times


def in_process(function: Callable[[], object]) -> Runner:
    """A Runner of a plain function."""
    return lambda calls, warm: timed_calls(function, calls, warm)


def _estimate(runner: Runner) -> float:
    """Seconds of one warm call."""
    first = runner(1, 1)[0]  # the untimed call pays for tracing, compiling, packing
    return first if first > 0.1 else statistics.median(runner(5, 2))


def alternate(
    runners: Mapping[str, Runner], plan: Plan, progress: Callable[[str], None] = lambda _: None
) -> dict[str, list[list[float]]]:
    """Times all `runners` turn by turn; gives each one's seconds per call, a list per turn.

    A contender whose single call is long sits out the later rounds, but has at least three turns
    (fewer when the plan has fewer).
    """
    seconds, turns = {}, {}
    for name, runner in runners.items():
        progress(f"warm-up {name}")
        seconds[name] = max(_estimate(runner), 1e-7)
        wanted = math.ceil(2 * plan.seconds / seconds[name])
        turns[name] = max(min(_MIN_ROUNDS, plan.rounds), min(plan.rounds, wanted))
    samples: dict[str, list[list[float]]] = {name: [] for name in runners}
    names = list(runners)
    for round_index in range(plan.rounds):
        shift = round_index % max(len(names), 1)  # nobody is always second in line
        for name in names[shift:] + names[:shift]:
            if round_index >= turns[name]:
                continue
            progress(f"round {round_index + 1}/{plan.rounds} {name}")
            call = seconds[name]
            calls = int(plan.seconds / plan.rounds / call)
            calls = min(max(calls, 1), _MAX_CALLS_PER_TURN)
            warm = 0 if call > _LONG_CALL_SECONDS else max(1, min(20, int(_WARM_SECONDS / call)))
            time.sleep(_SETTLE_SECONDS)
            samples[name].append(runners[name](calls, warm))
    return samples


def summary(turns: Sequence[Sequence[float]], per: int = 1) -> dict[str, object]:
    """Median, minimum and quartiles in ms over all calls of all turns, each divided by `per`."""
    flat = sorted(1e3 * t / per for turn in turns for t in turn)
    quartiles = statistics.quantiles(flat, n=4, method="inclusive") if len(flat) > 1 else flat * 3
    return {
        "median_ms": statistics.median(flat),
        "min_ms": flat[0],
        "p25_ms": quartiles[0],
        "p75_ms": quartiles[2],
        "calls": len(flat),
        "turn_medians_ms": [1e3 * statistics.median(turn) / per for turn in turns],
    }


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios: 2 and 1/2 give 1. NaN when there is nothing to take a mean of."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def arithmetic_mean(values: Sequence[float]) -> float:
    """The plain mean. NaN when there is nothing to take a mean of."""
    return sum(values) / len(values) if values else math.nan
