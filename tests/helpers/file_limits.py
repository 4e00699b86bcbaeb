"""What a process that reads files of weights may take."""

from __future__ import annotations

import pathlib


def most_memory(size: int) -> int:
    """What reading files of this size may take: twice the arrays that SECURITY.md allows."""
    return 2 * ((256 << 20) + 1032 * size)


def memory(name: str) -> int:
    """A size of this process: VmSize, VmRSS or VmHWM, the peak of that."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))
