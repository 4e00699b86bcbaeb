"""First calls: import, tracing and compiling, ours against Keras' layers.

Each measurement is the one call of a fresh process, in which TensorFlow and Keras are imported, and
the weights made, before the clock starts. Contenders alternate, so that a drift affects all alike.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench import data, process, tidy, timing
from bench.peers import base, tensorflow_base, worker
from bench.shapes import Case

CONTENDERS = {"ours": "ours", "keras": "keras", "ours, XLA": "ours", "keras, XLA": "keras"}
_IMPORT = "import"
_MOST_PROCESSES = 5  # of each contender and case, which take seconds to start
# The outcomes, relative.
_SAME = 1e-3


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _import_ours() -> None:
    import tf_blockrnn  # noqa: F401


def _measure_here(contender: str, case: Case, threads: int) -> dict[str, Any]:
    """In this process: the seconds of the call, and of the import if it is ours; h's norm."""
    tf = tensorflow_base.start(threads)
    import keras  # noqa: F401

    found = {}
    if CONTENDERS[contender] == "ours":
        found[_IMPORT] = _seconds(_import_ours)
    peer = worker.peer(CONTENDERS[contender], threads)
    arrays = data.make(case)
    tf.constant(0.0) + 0.0  # starts the runtime
    model = peer.model(case, arrays)
    model.xla = contender.endswith("XLA")
    made: list[base.Prepared] = []

    def first_call() -> None:
        made.append(tensorflow_base.prepared(tf, model, case.kind == "train"))
        made[0].call()

    found[contender] = _seconds(first_call)
    h = made[0].outcome().h
    return {"seconds": found, "norm": float((h.astype("float64") ** 2).sum() ** 0.5)}


def _serve(connection: Connection, contender: str, case: Case, threads: int) -> None:
    worker.be_a_child(pathlib.Path(os.devnull))
    connection.send(worker.guarded(_measure_here, contender, case, threads))


def _one(contender: str, case: Case, threads: int) -> dict[str, Any]:
    """What a fresh process measures; NoAnswer if it fails."""
    environment = process.environment(CONTENDERS[contender], threads)
    child = process.Child(_serve, contender, case, threads, **environment)
    with contextlib.closing(child):
        return child.receive()


def measure(
    case: Case, threads: int, plan: timing.Plan, note: Callable[[str], None]
) -> list[tidy.Row]:
    """The rows of one case; "import" is of all processes with ours."""
    rounds: dict[str, list[list[float]]] = {}
    norms: dict[str, float] = {}
    missing: dict[str, str] = {}
    for number in range(min(plan.rounds, _MOST_PROCESSES)):
        for contender in CONTENDERS:
            note(f"process {number + 1} {contender}")
            try:
                found = _one(contender, case, threads)
            except process.NoAnswer as reason:
                missing[contender] = str(reason)
                continue
            norms[contender] = found["norm"]
            for name, seconds in found["seconds"].items():
                rounds.setdefault(name, []).append([seconds])
    if norms and max(norms.values()) - min(norms.values()) > _SAME * max(norms.values()):
        raise RuntimeError(f"the results differ: their norms are {norms}")
    rows = {name: timing.summary(some) for name, some in rounds.items()}
    rows |= {name: {"missing": reason} for name, reason in missing.items()}
    return [{**case.fields(), "contender": name, **numbers} for name, numbers in rows.items()]
