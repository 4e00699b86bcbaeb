"""What the numbers were measured on: a stamp for every result."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import subprocess
import sys
import time

# Instruction sets that determine how fast a float32 or bfloat16 GEMM can be.
_FLAGS = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "asimd", "asimdhp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
# The highest load of a machine without other work, in busy processors.
QUIET_LOAD = 0.5
_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "torch", "onnxruntime", "onnx")


def cores() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo, as key and value."""
    out: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if not line.strip():
                break
            key, _, value = line.partition(":")
            out[key.strip()] = value.strip()
    return out


def has_int8_dot_products() -> bool:
    """Whether an x86 processor has VNNI, which sums products of int8 in int32; without it pairs of
    them are summed in int16, which overflows. True elsewhere."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return True
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(_cpuinfo().get("flags", "").split())


def _caches() -> dict[str, str]:
    """Size of each cache that the first core sees, such as {"L2": "1024K"}."""
    out = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            kind = (index / "type").read_text().strip()
            level = "L" + (index / "level").read_text().strip()
            if kind != "Instruction":
                out[level + ("d" if kind == "Data" else "")] = (index / "size").read_text().strip()
    return out


def _memory_gib() -> float | None:
    with contextlib.suppress(OSError, ValueError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    return None


def versions() -> dict[str, str]:
    """Versions of the packages that take part, if installed."""
    out = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            out[name] = importlib.metadata.version(name)
    return out


def commit(root: pathlib.Path) -> str | None:
    """Of a checkout, with "-dirty" after changes, but for those that results and pages bring."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--",
            ".", ":(exclude)bench/results", ":(exclude)*.md",
        )  # fmt: skip
        return git("describe", "--always") + ("-dirty" if changed else "")
    return None


def _processor_seconds(stat: pathlib.Path = pathlib.Path("/proc/stat")) -> tuple[float, float]:
    """Of all processors so far: the seconds busy or taken away, and all (Linux)."""
    line, _, _ = stat.read_text(encoding="utf-8").partition("\n")
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = [int(word) for word in line.split()[1:9]]
    each = 1 / os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) * each, sum(ticks) * each


def load(seconds: float = 2.0) -> float:
    """The mean number of busy processors during so many seconds: the machine's other work.

    Not the system's load average, which for minutes has the bench before in it, and nothing of what
    other virtual machines take. NaN where it is not known.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        busy, total = _processor_seconds()
        time.sleep(seconds)
        busy_then, total_then = _processor_seconds()
        share = (busy_then - busy) / max(total_then - total, 1e-9)
        # The counts of idle processors may fall a little.
        return round(min(max(share, 0.0), 1.0) * (os.cpu_count() or 1), 2)
    return float("nan")


def stamp(threads: int) -> dict[str, object]:
    """Processor, instruction sets, caches, versions and threads."""
    info = _cpuinfo()
    have = set(info.get("flags", info.get("Features", "")).split())
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cpu_family_model_stepping": [
            info.get(key) for key in ("cpu family", "model", "stepping") if key in info
        ],
        "cores": cores(),
        "threads": threads,
        "flags": [flag for flag in _FLAGS if flag in have],
        "caches": _caches(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
        "virtual": "hypervisor" in have,
        "versions": versions(),
        "commit": commit(pathlib.Path(__file__).resolve().parent.parent),
    }


def load_with_note() -> float:
    """The load, with a note if there is other work: such numbers should not be published."""
    now = load()
    if now > QUIET_LOAD:
        print(f"note: the machine is busy (load {now}); the times below are noisy", file=sys.stderr)
    return now


def wait_until_quiet(seconds: float) -> str:
    """Waits for the load to fall, such as that of a build, but no longer than that.

    Returns why the machine is not quiet, or "" if it is.
    """
    end = time.monotonic() + seconds
    waits = False
    while (now := load()) > QUIET_LOAD:
        if time.monotonic() >= end:
            return f"the load is {now}, above {QUIET_LOAD}; busy: {', '.join(busiest())}"
        if not waits:
            waits = True
            text = f"waiting for the load to fall, {seconds:g} s at most"
            print(text, file=sys.stderr, flush=True)
        time.sleep(min(5.0, max(0.0, end - time.monotonic())))
    return ""


def _cpu_seconds() -> dict[tuple[int, str], float]:
    """Of each process and its command, so far (Linux)."""
    out, tick = {}, os.sysconf("SC_CLK_TCK")
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may end meanwhile
            # The command is in parentheses and may have any character; utime and stime are the
            # 12th and 13th field after it.
            head, _, rest = (path / "stat").read_text(encoding="utf-8").rpartition(")")
            fields = rest.split()
            words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            command = " ".join(words.split()) or head.partition("(")[2]
            out[int(path.name), command] = (int(fields[11]) + int(fields[12])) / tick
    return out


def busiest(seconds: float = 1.0, most: int = 5) -> list[str]:
    """The processes that use the most processor time during `seconds`, with their share of it."""
    before = _cpu_seconds()
    time.sleep(seconds)
    used = {who: now - before[who] for who, now in _cpu_seconds().items() if who in before}
    ranked = sorted(used, key=lambda who: -used[who])[:most]
    shown = [
        f"{100 * used[who] / seconds:.0f}% {who[1][:60]} (process {who[0]})"
        for who in ranked if used[who] >= 0.02 * seconds
    ]  # fmt: skip
    return shown or ["no process now, so it falls"]
