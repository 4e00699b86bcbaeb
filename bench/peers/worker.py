"""The process of a peer: requests come through a connection, answers go back."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import importlib
import os
import pathlib
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench import data, timing
from bench.peers import PEERS, base
from bench.shapes import Case

_PR_SET_PDEATHSIG = 1


@dataclasses.dataclass
class Failure:
    """Why there is no answer."""

    reason: str


def peer(name: str, threads: int) -> base.Peer:
    """The adapter of a peer."""
    entry = PEERS[name]
    return importlib.import_module(f"bench.peers.{entry.module}").Peer(entry.option, threads)


class Server:
    """One peer and its prepared case."""

    def __init__(self, name: str, threads: int) -> None:
        self._peer = peer(name, threads)
        self._prepared: base.Prepared | None = None

    def prepare(self, case: Case) -> dict[str, float]:
        """Prepares a case; returns norms of its outcome, which those of other peers must equal."""
        self._prepared = None  # free the memory of the previous case first
        gc.collect()
        arrays = data.make(case)
        self._prepared = self._peer.prepare(case, arrays)
        outcome = self._prepared.outcome()
        h = np.asarray(outcome.h, np.float64)
        check = {
            "h_norm": float(np.linalg.norm(h)),
            "loss": float((h * arrays.cotangent).sum()),
        }
        if outcome.x_grad is not None:
            check["x_grad_norm"] = float(np.linalg.norm(np.asarray(outcome.x_grad, np.float64)))
        return check

    def run(self, calls: int, warm: int) -> list[float]:
        """Times calls of the prepared case."""
        return timing.timed_calls(self._prepared.call, calls, warm)

    def gemm(self, size: int, calls: int) -> list[float]:
        """Times the peer's GEMM; not every peer has one."""
        return timing.timed_calls(self._peer.gemm(size), calls, 2)


def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `function`, or its failure, such as of a library that is not installed."""
    try:
        return function(*arguments)
    except Exception as error:  # one peer's failure must not end the others' run
        traceback.print_exc()
        first_line = str(error).strip().partition("\n")[0]
        return Failure(f"{type(error).__name__}: {first_line}"[:500])


def be_a_child(log: pathlib.Path) -> None:
    """Output goes to `log`. Signals to the parent are not for its peers, which it ends in order.

    A stopped process does not notice that its parent is gone, so the kernel kills it (Linux).
    """
    os.setsid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with log.open("ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)


def serve(connection: Connection, name: str, threads: int, log: pathlib.Path) -> None:
    """Answers each request, the name of a method of Server and its arguments."""
    be_a_child(log)
    server = guarded(Server, name, threads)
    with contextlib.suppress(EOFError):  # the parent has closed the connection
        while True:
            verb, arguments = connection.recv()
            ready = isinstance(server, Server)
            connection.send(guarded(getattr(server, verb), *arguments) if ready else server)
