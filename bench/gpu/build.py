"""Builds the engine with nvcc for this machine's GPU, as the checks of tests/gpu do."""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "gpu"))

import run as checks  # noqa: E402  (tests/gpu/run.py)


def missing() -> str | None:
    """What a measurement needs and this machine lacks, if anything."""
    if checks.count_gpus() == 0:
        return "no GPU"
    if checks.find_nvcc() is None:
        return "no nvcc in CUDA_HOME, PATH or /usr/local/cuda"
    try:
        import torch
    except ImportError:
        return "no PyTorch"
    return None if torch.cuda.is_available() else "no CUDA in this PyTorch"


def build(library: pathlib.Path, jobs: int) -> None:
    sources = [*checks.engine_sources(), pathlib.Path(__file__).with_name("shim.cu.cc")]
    compiler = checks.nvcc_command(checks.find_nvcc(), [checks.architecture()], strict=False)
    checks.build(compiler, sources, library, jobs)
