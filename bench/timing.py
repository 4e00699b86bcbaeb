"""Alternating measurement of functions, and its summary.

Why alternating: clock frequency, other processes and temperature drift over seconds. In the order
A, B, A, B, ... a drift affects all contenders alike; with all of A before all of B it does not. Why
medians: one interrupt moves a mean, and on a shared machine the minimum depends on chance.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

# A pause before each round of a contender: the idle threads of the previous one spin for a while,
# and would take processor time from it.
_SETTLE_SECONDS = 0.03
# Untimed calls before each round, as many as fit into this time: they warm up the caches and the
# thread pool after another contender has run.
_WARM_SECONDS = 0.005
# A call longer than this needs no untimed call: the effect of a cold start is negligible.
_LONG_CALL_SECONDS = 0.5
_MAX_CALLS_PER_ROUND = 1000
_MIN_ROUNDS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long to measure: `seconds` for each contender and case, spread over `rounds`."""

    rounds: int = 10
    seconds: float = 1.0


class Runner(Protocol):
    """Runs `warm` calls untimed, then `calls` calls; returns the seconds of each of the latter."""

    def __call__(self, calls: int, warm: int) -> list[float]: ...


def timed_calls(function: Callable[[], object], calls: int, warm: int) -> list[float]:
    """Seconds of each of `calls` calls of `function`, after `warm` untimed calls."""
    for _ in range(warm):
        function()
    times = []
    collecting = gc.isenabled()
    gc.disable()  # a garbage collection during a call is not part of the call's cost
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
    """A Runner for a plain function."""
    return lambda calls, warm: timed_calls(function, calls, warm)


def _estimate(runner: Runner) -> float:
    """Seconds of one warm call."""
    first = runner(1, 1)[0]  # the untimed call includes tracing, compiling and packing
    return first if first > 0.1 else statistics.median(runner(5, 2))


def alternate(
    runners: Mapping[str, Runner], plan: Plan, progress: Callable[[str], None] = lambda _: None
) -> dict[str, list[list[float]]]:
    """Times all `runners` alternately; returns each one's seconds per call, a list per round.

    A contender whose single call is long skips the later rounds, but takes part in at least three
    (fewer if the plan has fewer).
    """
    seconds, rounds = {}, {}
    for name, runner in runners.items():
        progress(f"warm-up {name}")
        seconds[name] = max(_estimate(runner), 1e-7)
        wanted = math.ceil(2 * plan.seconds / seconds[name])
        rounds[name] = max(min(_MIN_ROUNDS, plan.rounds), min(plan.rounds, wanted))
    samples: dict[str, list[list[float]]] = {name: [] for name in runners}
    names = list(runners)
    for round_index in range(plan.rounds):
        shift = round_index % max(len(names), 1)  # rotate the order of the contenders
        for name in names[shift:] + names[:shift]:
            if round_index >= rounds[name]:
                continue
            progress(f"round {round_index + 1}/{plan.rounds} {name}")
            call = seconds[name]
            calls = int(plan.seconds / plan.rounds / call)
            calls = min(max(calls, 1), _MAX_CALLS_PER_ROUND)
            warm = 0 if call > _LONG_CALL_SECONDS else max(1, min(20, int(_WARM_SECONDS / call)))
            time.sleep(_SETTLE_SECONDS)
            samples[name].append(runners[name](calls, warm))
    return samples


def summary(rounds: Sequence[Sequence[float]], per: int = 1) -> dict[str, Any]:
    """Median, minimum and quartiles in ms over all calls of all rounds, each divided by `per`.

    And the median of each round: how much they differ shows the noise of the run.
    """
    flat = sorted(1e3 * t / per for times in rounds for t in times)
    quartiles = statistics.quantiles(flat, n=4, method="inclusive") if len(flat) > 1 else flat * 3
    return {
        "unit": "ms",
        "median": statistics.median(flat),
        "min": flat[0],
        "p25": quartiles[0],
        "p75": quartiles[2],
        "calls": len(flat),
        "rounds": [1e3 * statistics.median(times) / per for times in rounds],
    }


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios: 2 and 1/2 give 1. NaN if there are no values."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan
