"""The instruction sets of the CPU engine: which this machine runs, and which a build is for.

The engine is compiled once per set (cc/kernels/cpu/engine.bzl); at run time the loader takes the
best one that the processor supports (cc/loader/cpu_engine_loader.cc).
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "TF_BLOCKRNN_ISA"


@dataclass(frozen=True)
class InstructionSet:
    """A set: its name, the one that people know it by, and the processor's flags that it needs."""

    name: str
    known_as: str
    flags: str


_AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"

# Of each kind of processor, plainest first: every one of them runs the first. Flags as in
# /proc/cpuinfo.
_SETS = {
    "x86_64": (
        InstructionSet("x86-64-v2", "SSE4.2", "sse4_2 popcnt"),
        InstructionSet("x86-64-v3", "AVX2", "avx2 fma bmi2 f16c"),
        InstructionSet("x86-64-v4", "AVX-512", _AVX512),
        InstructionSet("x86-64-v4-vnni", "AVX-512 VNNI", f"{_AVX512} avx512_vnni"),
        InstructionSet("x86-64-v4-bf16", "AVX-512 BF16", f"{_AVX512} avx512_vnni avx512_bf16"),
    ),
    "aarch64": (
        InstructionSet("armv8-a", "NEON", "asimd"),
        InstructionSet("armv8.2-a-dotprod", "NEON dot products", "asimd atomics asimddp"),
        InstructionSet("armv8.2-a-bf16", "NEON BF16", "asimd atomics asimddp i8mm bf16"),
    ),
}
_GENERIC = (InstructionSet("generic", "any processor", ""),)


def sets() -> tuple[InstructionSet, ...]:
    """All that the engine has for this machine's kind of processor."""
    return _SETS.get(platform.machine(), _GENERIC)


def known_as(name: str) -> str:
    """What people call a set, as AVX2 for x86-64-v3."""
    every = [one for family in (*_SETS.values(), _GENERIC) for one in family]
    return next(one.known_as for one in every if one.name == name)


def _processor() -> dict[str, str]:
    """The entries of the first processor in /proc/cpuinfo; none on other systems than Linux."""
    file = Path("/proc/cpuinfo")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def supported() -> list[str]:
    """Those that this machine runs, plainest first."""
    processor = _processor()
    flags = set(f"{processor.get('flags', '')} {processor.get('Features', '')}".split())
    return [one.name for one in sets() if flags.issuperset(one.flags.split())]


def best() -> str:
    """The one that the loader takes on this machine, of all that there are."""
    names = supported()
    if not names:
        sys.exit(f"This processor runs none of {', '.join(one.name for one in sets())}.")
    # bfloat16 is faster there when it is widened (docs/adr/0002).
    if _processor().get("vendor_id") == "GenuineIntel" and names[-1] == "x86-64-v4-bf16":
        return names[-2]
    return names[-1]


def fallback(built: list[str]) -> str:
    """The plain set, where a build has it only in case it moves to another machine; else ""."""
    given = os.environ.get(VARIABLE, "").strip()
    return built[0] if not given and len(built) > 1 else ""


def to_build() -> list[str]:
    """What a build is for: the plain set, and the best one here or those of TF_BLOCKRNN_ISA."""
    names = [one.name for one in sets()]
    given = os.environ.get(VARIABLE, "").strip()
    if given == "all":
        return names
    wanted = [name.strip() for name in given.split(",")] if given else [best()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.exit(f"{VARIABLE} is {given!r}; it takes all, or some of {', '.join(names)}.")
    return [name for name in names if name == names[0] or name in wanted]
