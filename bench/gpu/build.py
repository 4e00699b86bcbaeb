"""Builds the engine with nvcc for this machine's GPU, as the checks of tests/gpu do."""

from __future__ import annotations

import importlib.util
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "gpu"))

import run as checks  # noqa: E402  (tests/gpu/run.py)
from torch_calls import cudnn_ran  # noqa: E402, F401  (tests/gpu/torch_calls.py)


def missing(cached: pathlib.Path | None) -> str | None:
    """What a measurement needs and this machine lacks, if anything. cached: a library that may have
    been built elsewhere."""
    if checks.count_gpus() == 0:
        return "no GPU"
    if checks.find_nvcc() is None and cached is None:
        return "no nvcc in CUDA_HOME, PATH or /usr/local/cuda"
    # Not imported: each process that measures does that.
    return "no PyTorch" if importlib.util.find_spec("torch") is None else None


def build(
    cached: pathlib.Path | None, folder: pathlib.Path, jobs: int
) -> tuple[pathlib.Path, str | None]:
    """The library, which the checks use too, and its origin if it is stored. cached: as in
    gpu_library of tests/gpu/run.py."""
    library, _ = checks.gpu_library(cached, folder, checks.find_nvcc(), jobs)
    return library, checks.built_from(library) if cached else None
