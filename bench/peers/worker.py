"""A peer as a server: `python -m bench.peers.worker NAME THREADS`.

Requests come on stdin, answers go to stdout: one JSON object per line, each answered by one.

    {"do": "prepare", "case": fields of a Case}               -> {"check": {...}} or {"absent": why}
    {"do": "run", "calls": n, "warm": m}                      -> {"times": [seconds, ...]}
    {"do": "gemm", "size": n, "calls": m}                     -> {"times": [...]} or {"absent": why}
    end of input                                              -> the process ends

Every failure is {"error": text}. A library that prints to stdout does not disturb the protocol:
stdout is redirected before any library is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any, TextIO

import numpy as np

from bench import data, timing
from bench.peers import PEERS, base
from bench.shapes import Case

_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """A stopped worker cannot notice that its parent is gone, so the kernel kills it (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _own_stdout() -> TextIO:
    """The real stdout, for the protocol only; file descriptor 1 becomes stderr."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


class Server:
    """One peer and its prepared case."""

    def __init__(self, name: str, threads: int) -> None:
        entry = PEERS[name]
        module = importlib.import_module(f"bench.peers.{entry.module}")
        self._peer = module.Peer(entry.option, threads)
        self._prepared: base.Prepared | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request."""
        return getattr(self, "_" + request.pop("do"))(**request)

    def _prepare(self, case: dict[str, Any]) -> dict[str, Any]:
        self._prepared = None  # free the memory of the previous case first
        gc.collect()
        made = Case(**case)
        arrays = data.make(made)
        self._prepared = self._peer.prepare(made, arrays)
        outcome = self._prepared.outcome()
        h = np.asarray(outcome.h, np.float64)
        check = {
            "h_norm": float(np.linalg.norm(h)),
            "loss": float((h * arrays.cotangent).sum()),
        }
        if outcome.x_grad is not None:
            check["x_grad_norm"] = float(np.linalg.norm(np.asarray(outcome.x_grad, np.float64)))
        return {"check": check}

    def _run(self, calls: int, warm: int) -> dict[str, Any]:
        return {"times": timing.timed_calls(self._prepared.call, calls, warm)}

    def _gemm(self, size: int, calls: int) -> dict[str, Any]:
        if not hasattr(self._peer, "gemm"):
            return {"absent": "has no GEMM to measure"}
        return {"times": timing.timed_calls(self._peer.gemm(size), calls, 2)}


def _guarded(function: Any, *args: Any) -> Any:
    """The result of `function`, or the reason of its failure."""
    try:
        return function(*args)
    except base.Absent as reason:
        return {"absent": str(reason)}
    except Exception as error:  # one peer's failure must not end the others' run
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main(name: str, threads: int) -> None:
    """Answers requests until stdin ends."""
    _die_with_parent()
    stdout = _own_stdout()
    server = _guarded(Server, name, threads)
    for line in sys.stdin:
        ready = isinstance(server, Server)
        out = _guarded(server.answer, json.loads(line)) if ready else server
        print(json.dumps(out), file=stdout, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
