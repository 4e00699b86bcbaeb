"""The provenance of a result: machine, versions, date, commit, and whether it was quiet."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

from bench.machine import QUIET_LOAD
from bench.peers import PEERS

_LIBRARIES = {"keras": "Keras", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
# The largest change of the GEMM peak within a run, and the largest typical spread of the medians
# of a contender's rounds, of a machine without other work.
_MOST_DRIFT = _MOST_SPREAD = 0.05
_LEAST_ROUNDS = 3


def machine_line(result: dict[str, Any]) -> str:
    """The stamp in one sentence."""
    m = result["machine"]
    if "gpu" in result:
        libraries = ", ".join(f"{name} {number}" for name, number in result["libraries"].items())
        return f"{result['gpu']['name']}; {libraries}; {m['time'][:10]}"
    versions = m["versions"]
    tensorflow = versions.get("tensorflow") or versions.get("tensorflow-cpu")
    contenders = {row["contender"].lower() for row in result["rows"]}
    names = [f"TensorFlow {tensorflow}"] + [
        f"{label} {versions[key]}"
        for key, label in _LIBRARIES.items()
        if any(contender.startswith(key) for contender in contenders)
    ]
    # The widest set of each kind is sufficient.
    wide = [f for f in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "sve") if f in m["flags"]]
    return (
        f"{m['cpu']} (family, model, stepping {'/'.join(m['cpu_family_model_stepping'])}),"
        f" {m['cores']} cores, {', '.join(wide)}; {', '.join(names)}; {m['time'][:10]}"
    )


@dataclasses.dataclass(frozen=True)
class Noise:
    """What a result tells about the other work of its machine."""

    signs: tuple[str, ...]  # of other work
    unknown: tuple[str, ...]  # what would have to be recorded to judge, and is not

    @property
    def quiet(self) -> bool:
        """Whether the machine is known to have been quiet."""
        return not self.signs and not self.unknown

    def note(self) -> str:
        """A sentence for the page and the caption of the plot; empty if it was quiet."""
        if self.signs:
            return f"The machine was not quiet in this run: {'; '.join(self.signs)}."
        if self.unknown:
            return f"The machine is not known to have been quiet: no {' or '.join(self.unknown)}."
        return ""


def noise(result: dict[str, Any]) -> Noise:
    """Judges a run by its load, its GEMM peak, and the spread between its rounds."""
    signs: list[str] = []
    unknown = []
    m = result["machine"]
    # Times of a GPU do not depend on the host's load.
    for when in () if "gpu" in result else ("start", "end"):
        load = m.get(f"load_at_{when}")
        if load is None or load != load:  # a system that does not tell records NaN
            unknown.append(f"load at the {when}")
        elif load > QUIET_LOAD:
            signs.append(f"its load was {load:g} at the {when} ({m['cores']} cores)")
    spread = typical_spread(result)
    if spread is None:
        unknown.append("spread between rounds")
    elif spread > _MOST_SPREAD:
        signs.append(f"the rounds of a contender typically differed by {100 * spread:.1f}%")
    return Noise((*signs, *_signs_of_the_peak(result)), tuple(unknown))


def typical_spread(result: dict[str, Any]) -> float | None:
    """The interquartile range of the medians of a contender's rounds, relative to their median.

    The median of it over all measurements; None if none has enough rounds.
    """
    spreads = []
    for row in result["rows"]:
        rounds = row.get("rounds", ())
        if len(rounds) >= _LEAST_ROUNDS:
            quartiles = statistics.quantiles(rounds, n=4, method="inclusive")
            spreads.append((quartiles[2] - quartiles[0]) / quartiles[1])
    return statistics.median(spreads) if spreads else None


def peak_gflops(result: dict[str, Any]) -> float:
    """The highest measured float32 GEMM peak, as the limit of the machine; 0 if there is none."""
    return max((peak["gflops"] for peak in result.get("peaks", ())), default=0.0)


def share_of_peak(row: dict[str, Any], peak: float) -> float | None:
    """The speed of the GEMMs in a measurement relative to the peak, if both are known."""
    if not peak or row.get("unit") != "ms" or "flops" not in row:
        return None
    return 1e-6 * row["flops"] / row["median"] / peak


def _signs_of_the_peak(result: dict[str, Any]) -> list[str]:
    signs = []
    peaks = [peak["gflops"] for peak in result.get("peaks", ()) if peak["gflops"]]
    if peaks and 1 - min(peaks) / max(peaks) > _MOST_DRIFT:
        signs.append(
            f"its GEMM peak was {peaks[0]:.0f} GFLOP/s at the start and {peaks[-1]:.0f} at the end"
        )
    shares = [
        share_of_peak(row, peak_gflops(result)) or 0.0
        for row in result["rows"]
        if row.get("dtype", "float32") == "float32"
        and (row["contender"] not in PEERS or PEERS[row["contender"]].precision == "float32")
    ]
    above = [share for share in shares if share > 1]
    if above:
        signs.append(
            f"{len(above)} float32 time{'s' * (len(above) > 1)} at up to {100 * max(above):.0f}%"
            " of the GEMM peak, so it was measured too low"
        )
    return signs


def measured(result: dict[str, Any]) -> str:
    """Where, when and at which commit, and whether the machine was quiet."""
    commit, _, changed = (result["machine"].get("commit") or "unknown").partition("-")
    at = f"commit {commit}" + (" with uncommitted changes" if changed else "")
    note = noise(result).note()
    return f"Measured at {at} on {machine_line(result)}." + (f" **{note}**" if note else "")
