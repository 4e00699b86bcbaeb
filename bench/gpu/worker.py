"""The process that measures: cases come, rows go."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import pathlib
import subprocess
from multiprocessing.connection import Connection
from typing import Any

from bench import tidy, timing
from bench.gpu import build, cases, report
from bench.peers.worker import guarded


def _ask_driver(name: str) -> str:
    """Of the first GPU, by nvidia-smi."""
    asked = (f"--query-gpu={name}", "--format=csv,noheader,nounits", "-i", "0")
    done = subprocess.run(
        ("nvidia-smi", *asked), capture_output=True, text=True, check=True, timeout=30
    )
    return done.stdout.strip()


def _clock_hz(properties: Any) -> float:
    """The highest clock of the multiprocessors. properties: PyTorch's; older versions have no
    clock in them."""
    if kilohertz := getattr(properties, "clock_rate", 0):
        return 1e3 * kilohertz
    return 1e6 * float(_ask_driver("clocks.max.sm"))


def stamp(library: Any) -> dict[str, Any]:
    """The GPU, and what computes on it: below the two sides, and of each."""
    import torch

    from bench.gpu import contenders

    properties = torch.cuda.get_device_properties(0)
    gpu = cases.Gpu(
        properties.name, torch.cuda.get_device_capability(0), properties.multi_processor_count,
        _clock_hz(properties),
    )  # fmt: skip
    below = {"driver": None, "CUDA": torch.version.cuda}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        below["driver"] = _ask_driver("driver_version")
    return {"gpu": dataclasses.asdict(gpu), "libraries": below | contenders.libraries(library)}


def measure(case: cases.Case, library: Any, clock_hz: float, plan: timing.Plan) -> list[tidy.Row]:
    """The rows of a case."""
    import torch

    from bench.gpu import contenders

    torch.cuda.empty_cache()  # the engine takes its memory beside PyTorch's
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        problem = contenders.Problem(case, "cuda")
        theirs = contenders.Cudnn(problem)
        ours = contenders.Ours(problem, library)
        try:
            theirs.joins = True
            found, cudnn_ran = build.cudnn_ran(theirs.run)
            before = library.blockrnn_persistent_kernels()
            disagreement = contenders.disagreement(ours.run(), found)
            kernels = library.blockrnn_persistent_kernels() - before
            theirs.joins = False
            stream.synchronize()
            # PyTorch has kernels of its own for bfloat16 where its cuDNN is older than 9.13.
            other = "cudnn" if cudnn_ran else "pytorch"
            runners = {
                name: contenders.event_runner(contender.run, stream, clock_hz)
                for name, contender in (("ours", ours), (other, theirs))
            }
            rows = tidy.measured(case.fields(), runners, plan)
            most = contenders.MOST_DISAGREEMENT[case.dtype]
            return report.checked(rows, disagreement, most, kernels)
        finally:
            ours.close()


def load_cudnn() -> None:
    """So that the first case takes no longer than the others."""
    import torch

    torch.nn.LSTM(8, 8, device="cuda")(torch.zeros(2, 1, 8, device="cuda"))
    torch.cuda.synchronize()


def serve(connection: Connection, path: pathlib.Path, plan: timing.Plan) -> None:
    """Sends the stamp, then for each case its rows or the failure."""
    faulthandler.enable()
    load_cudnn()
    library = ctypes.CDLL(str(path))  # after PyTorch, whose cuBLAS it uses, too
    stamped = stamp(library)
    connection.send(stamped)
    with contextlib.suppress(EOFError):  # the parent has closed the connection
        while True:
            case = connection.recv()
            connection.send(guarded(measure, case, library, stamped["gpu"]["clock_hz"], plan))
