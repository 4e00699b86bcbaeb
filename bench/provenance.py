"""The provenance of a result: machine, versions, date, commit, and whether it was quiet."""

from __future__ import annotations

from typing import Any

from bench.peers import PEERS
from bench.tables import percent

_LIBRARIES = {"keras": "Keras", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
# The benches that not all of them take part in, with those that do.
_LIBRARIES_OF: dict[str, tuple[str, ...]] = {
    "cells": (),
    "calls": (),
    "memory": (),
    "recompute": (),
    "layers": ("keras", "torch"),
    "jit": ("keras",),
    "inference": ("keras", "torch", "onnxruntime"),
}
# The change of the GEMM peak within a run that is normal on a machine without other work.
_PEAK_DRIFT = 0.05


def machine_line(result: dict[str, Any]) -> str:
    """The stamp in one sentence."""
    m = result["machine"]
    versions = m["versions"]
    tensorflow = versions.get("tensorflow") or versions.get("tensorflow-cpu")
    names = [f"TensorFlow {tensorflow}"] + [
        f"{label} {versions[key]}"
        for key, label in _LIBRARIES.items()
        if key in versions and key in _LIBRARIES_OF.get(result["bench"], _LIBRARIES)
    ]
    # The widest set of each kind is sufficient.
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "sve") if f in m["flags"]]
    return (
        f"{m['cpu']} (family, model, stepping {'/'.join(m['cpu_family_model_stepping'])}),"
        f" {m['cores']} cores, {', '.join(wide)}; {', '.join(names)}; {m['time'][:10]}"
    )


def _above_peak(result: dict[str, Any]) -> list[float]:
    """The shares of the float32 GEMM peak that are above 1, which no true time can have."""
    peak = result.get("peak_gflops")
    shares = [
        entry["gflops"] / peak
        for row in result["rows"]
        if peak and row.get("dtype", "float32") == "float32"
        for name, entry in row["peers"].items()
        if "gflops" in entry and (name not in PEERS or PEERS[name].precision == "float32")
    ]
    return [share for share in shares if share > 1]


def not_quiet(result: dict[str, Any]) -> str:
    """The signs in a result that the machine had other work; empty if there are none."""
    signs = []
    peaks = [peak["gflops"] for peak in result.get("peaks", ()) if peak["gflops"]]
    if peaks and 1 - min(peaks) / max(peaks) > _PEAK_DRIFT:
        signs.append(
            f"its GEMM peak was {peaks[0]:.0f} GFLOP/s at the start and {peaks[-1]:.0f} at the end"
        )
    above = _above_peak(result)
    if above:
        what = "time lies" if len(above) == 1 else "times lie"
        signs.append(
            f"{len(above)} float32 {what} above the peak, of ours and of others, at up to"
            f" {percent(max(above))} of it, so the peak was measured too low"
        )
    return f"**The machine was not quiet in this run**: {'; '.join(signs)}." if signs else ""


def measured(result: dict[str, Any]) -> str:
    """Where, when and at which commit, and whether the machine was quiet."""
    commit, _, dirty = (result["machine"].get("commit") or "unknown").partition("-")
    at = f"commit {commit}" + (" with uncommitted changes" if dirty else "")
    return f"Measured at {at} on {machine_line(result)}. {not_quiet(result)}".rstrip()
