"""Calls that are cancelled while they run: for the child processes of the tests."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# Other work on the machine only adds to the time that a call takes to stop.
TRIES = 3


def seconds(function: Callable[[Any], Any], tensors: Any) -> float:
    """How long a call takes that is not the first one."""
    function(tensors)
    begin = time.perf_counter()
    function(tensors)
    return time.perf_counter() - begin


def check_stops(name: str, function: Any, tensors: Any, short: float, full: float) -> list[float]:
    """Seconds that a cancelled call took to stop, and those that it would run.

    Ends the process unless the call ends as Cancelled, in a fraction of the time that it would run.

    Args:
      function: a tf.function of tensors.
      short: seconds of a call like it with few steps.
      full: seconds of this call, by its steps, so that the check holds on any machine.
    """
    bound = max(0.1, full / 10)
    found = []
    while len(found) < TRIES and min(found, default=math.inf) > bound:
        took, running, outcome = _cancelled(function, tensors, 2 * short + 0.05)
        if not running or not outcome.startswith("CancelledError"):
            sys.exit(f"{name}: {outcome}, {'' if running else 'not '}running when cancelled")
        found.append(took)
    if min(found) > bound:
        times = ", ".join(f"{took:.3f}" for took in found)
        sys.exit(f"{name} took {times} s to stop, of about {full:.3f} s that it would run")
    return [min(found), full]


def _cancelled(function: Any, tensors: Any, after: float) -> tuple[float, bool, str]:
    """How long the call took to stop, whether it was running, and what it ended with."""
    from tensorflow.python.eager import cancellation as eager_cancellation

    manager = eager_cancellation.CancellationManager()
    concrete = manager.get_cancelable_function(function.get_concrete_function(tensors))
    outcome = []

    def call() -> None:
        try:
            concrete(tensors)
            outcome.append("ran to its end")
        except Exception as error:  # noqa: BLE001 - the kind is what we look for
            outcome.append(f"{type(error).__name__} {error}")
        outcome.append(time.perf_counter())

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(after)
    running = thread.is_alive()
    begin = time.perf_counter()
    manager.start_cancel()
    thread.join()
    return outcome[1] - begin, running, outcome[0]
