"""The parent's handle on a process that measures, which a case may crash or hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

_SECONDS_TO_END = 3  # by itself, and after each signal
_SECONDS_TO_DIE = 60  # once its end of the connection is closed


class Lost(Exception):
    """The process has ended, or has been ended: for this reason."""


class Child:
    """A process of its own, with a connection that objects go through.

    serve: called there with the connection and `arguments`.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()  # so that the end of the process is seen here

    def send(self, request: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # receive() reports the reason
            self._connection.send(request)

    def receive(self, seconds: float) -> Any:
        """What the process sends; `Lost` if it ends or `seconds` pass."""
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(_SECONDS_TO_DIE)
            code = self._process.exitcode or 0
            why = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        else:
            why = f"no answer in {seconds:g} s"
        self.close()
        raise Lost(why)

    def close(self) -> None:
        """Ends the process; one that does not end by itself says where it is, by faulthandler."""
        self._connection.close()
        self._process.join(_SECONDS_TO_END)
        for number in (signal.SIGABRT, signal.SIGKILL):
            if self._process.is_alive():
                os.kill(self._process.pid, number)
                self._process.join(_SECONDS_TO_END)
