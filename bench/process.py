"""The parent's handle on a process that measures, and on that of a peer."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

from bench import timing
from bench.peers import PEERS, worker

_SECONDS_TO_END = 3  # by itself, and after each signal
_SECONDS_TO_DIE = 60  # once its end of the connection is closed


class NoAnswer(Exception):
    """A process has failed, has ended, or has been ended: for this reason."""


class Child:
    """A process of its own, with a connection that objects go through, and more environment.

    serve: called there with the connection and `arguments`.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any, **environment: str) -> None:
        context = multiprocessing.get_context("spawn")  # threads and CUDA do not survive a fork
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        before = {name: os.environ[name] for name in environment if name in os.environ}
        os.environ.update(environment)  # read where libraries are loaded
        try:
            self._process.start()
        finally:
            for name in environment.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)
        theirs.close()  # so that the end of the process is seen here

    def alive(self) -> bool:
        """Whether the process is still running."""
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        """Sends a signal to the process, if it is still running."""
        if self.alive():
            os.kill(self._process.pid, number)

    def send(self, request: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # receive() reports the reason
            self._connection.send(request)

    def receive(self, seconds: float | None = None) -> Any:
        """What the process sends; `NoAnswer` for a Failure, if it ends, or if `seconds` pass."""
        try:
            if self._connection.poll(seconds):
                answer = self._connection.recv()
                if isinstance(answer, worker.Failure):
                    raise NoAnswer(answer.reason)
                return answer
        except (EOFError, ConnectionResetError):
            self._process.join(_SECONDS_TO_DIE)
            code = self._process.exitcode or 0
            why = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        else:
            why = f"no answer in {seconds:g} s"
        self.close()
        raise NoAnswer(why)

    def close(self) -> None:
        """Ends the process; one that does not end by itself says where it is, by faulthandler."""
        self._connection.close()
        self._process.join(_SECONDS_TO_END)
        for number in (signal.SIGABRT, signal.SIGKILL):
            if self.alive():
                self.signal(number)
                self._process.join(_SECONDS_TO_END)


def environment(name: str, threads: int) -> dict[str, str]:
    """Of a peer's process: the same number of threads for each library, and no GPU."""
    return {
        **{f"{library}_NUM_THREADS": str(threads) for library in ("OMP", "MKL", "OPENBLAS")},
        "CUDA_VISIBLE_DEVICES": "",
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **dict(PEERS[name].environment),
    }


class PeerProcess(Child):
    """One peer in a process of its own, which is stopped while other peers are measured.

    It is stopped by a signal, because thread pools continue to spin for milliseconds after a call,
    on a core that the next contender needs.
    """

    def __init__(self, name: str, threads: int, log: pathlib.Path) -> None:
        super().__init__(worker.serve, name, threads, log, **environment(name, threads))

    def ask(self, verb: str, *arguments: Any) -> Any:
        """What a method of worker.Server returns; the process is stopped again."""
        self.signal(signal.SIGCONT)
        self.send((verb, arguments))
        try:
            return self.receive()
        finally:
            self.signal(signal.SIGSTOP)

    def runner(self) -> timing.Runner:
        """The prepared case as a Runner for timing.alternate."""
        return lambda calls, warm: self.ask("run", calls, warm)

    def close(self) -> None:
        self.signal(signal.SIGCONT)
        super().close()
