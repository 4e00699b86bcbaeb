"""Calls from many threads at once: for the child processes of the tests."""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from helpers.compare import digest

CALLERS = 16


def check_bits(calls: Iterable[tuple[Callable[[Any], Any], Any, str]], share: float) -> int:
    """Runs calls one by one, then from many threads, which must give the same bits.

    Ends the process where they do not.

    Args:
      calls: (function, tensors, name), where threads share the functions.
      share: the part of all calls that each thread makes, in an order of its own.

    Returns:
      The number of calls.
    """
    jobs = [(run, tensors, digest(run(tensors)), name) for run, tensors, name in calls]

    def work(caller):
        for k in np.random.default_rng(caller).permutation(len(jobs))[: int(len(jobs) * share)]:
            run, tensors, want, name = jobs[k]
            if digest(run(tensors)) != want:
                return name
        return None

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        wrong = [name for name in pool.map(work, range(CALLERS)) if name]
    if wrong:
        sys.exit(f"not the bits of a serial run: {wrong}")
    return len(jobs)
