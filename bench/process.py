"""The parent's handle on a peer process."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any, TextIO

from bench import timing
from bench.peers import PEERS

_ROOT = pathlib.Path(__file__).resolve().parent.parent


class PeerError(Exception):
    """The peer answered with an error, or its process ended."""


class PeerAbsent(Exception):
    """The peer is not available, or does not support this case."""


def root() -> pathlib.Path:
    """The folder that `bench` and `tf_blockrnn` are imported from."""
    return _ROOT


def environment(name: str, threads: int) -> dict[str, str]:
    """The environment of a peer: the same number of threads for each library, and no GPU."""
    count = str(threads)
    return (
        os.environ
        | dict(PEERS[name].environment)
        | {
            "OMP_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
            "CUDA_VISIBLE_DEVICES": "",
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
        }
    )


class PeerProcess:
    """One peer in a process of its own, which is stopped while other peers are measured.

    It is stopped by a signal, because thread pools continue to spin for milliseconds after a call,
    on a core that the next contender needs.
    """

    def __init__(self, name: str, threads: int, log: TextIO) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.peers.worker", name, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            env=environment(name, threads), cwd=_ROOT,
            start_new_session=True,  # Ctrl-C is for the parent, which ends its peers in order
        )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends a request, waits for the answer, stops the process again."""
        process = self._process
        process.send_signal(signal.SIGCONT)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"{self.name} died, exit code {process.wait()}")
        process.send_signal(signal.SIGSTOP)
        answer = json.loads(line)
        if "absent" in answer:
            raise PeerAbsent(answer["absent"])
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def runner(self) -> timing.Runner:
        """The prepared case as a Runner for timing.alternate."""
        return lambda calls, warm: self.ask(do="run", calls=calls, warm=warm)["times"]

    def alive(self) -> bool:
        """Whether the process is still running."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the process."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
