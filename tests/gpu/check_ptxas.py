"""Reads the report of ptxas (nvcc -Xptxas=-v) and rejects kernels that spill or exceed limits.

python tests/gpu/check_ptxas.py REPORT...

A kernel fails that spills registers or has a stack frame (both are slow local memory), that needs
more registers than a full block has, or more static shared memory than a launch allows.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterable

THREADS = 256  # kThreads of cc/kernels/cuda/launch.cuh
REGISTERS = 64 * 1024  # of a multiprocessor
SHARED_BYTES = 48 * 1024  # without asking for more

_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclasses.dataclass
class Kernel:
    symbol: str
    architecture: str
    local_bytes: int | None = None  # None: the report does not say
    registers: int | None = None
    shared_bytes: int = 0

    def problem(self) -> str | None:
        if self.local_bytes is None or self.registers is None:
            return "the report is incomplete"
        if self.local_bytes:
            return f"{self.local_bytes} bytes of stack frame and spills"
        if self.registers * THREADS > REGISTERS:
            return f"{self.registers} registers are too many for a block of {THREADS}"
        if self.shared_bytes > SHARED_BYTES:
            return f"{self.shared_bytes} bytes of shared memory"
        return None


def parse(text: str) -> list[Kernel]:
    """The kernels of a report, once for each architecture."""
    kernels: list[Kernel] = []
    current: Kernel | None = None
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            current = Kernel(*entry.groups())
            kernels.append(current)
        elif "Function properties for" in line and current and current.symbol not in line:
            current = None  # of a function that was not inlined: its lines are not the kernel's
        elif current and (local := _LOCAL.search(line)):
            current.local_bytes = sum(map(int, local.groups()))
        elif current and (used := _USED.search(line)):
            current.registers = int(used.group(1))
            shared = _SHARED.search(line)
            current.shared_bytes = int(shared.group(1)) if shared else 0
    return kernels


def readable(symbols: Iterable[str]) -> dict[str, str]:
    """The symbols' C++ names where c++filt is there, else the symbols."""
    symbols = list(symbols)
    try:
        done = subprocess.run(
            ["c++filt", *symbols], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return {symbol: symbol for symbol in symbols}
    names = (name.replace("blockrnn::cuda::", "") for name in done.stdout.splitlines())
    return dict(zip(symbols, names, strict=True))


def summary(kernels: list[Kernel]) -> list[str]:
    """A line for each kernel template and architecture."""
    names = readable({kernel.symbol for kernel in kernels})
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        name = re.sub(r"^void |\(anonymous namespace\)::", "", names[kernel.symbol])
        template = re.match(r"\w+", name).group(0)
        groups.setdefault((template, kernel.architecture), []).append(kernel)
    return [
        f"{template}, {architecture}: {len(group)} kernels, "
        f"{min(k.registers or 0 for k in group)}-{max(k.registers or 0 for k in group)} registers, "
        f"{max(k.shared_bytes for k in group)} bytes of shared memory at most"
        for (template, architecture), group in sorted(groups.items())
    ]


def check(text: str) -> list[str]:
    """What is wrong, a line for each kernel; empty if all is well."""
    kernels = parse(text)
    if not kernels:
        return ["no kernel in the report"]
    wrong = {kernel.symbol: kernel for kernel in kernels if kernel.problem()}
    names = readable(wrong)
    return [f"{names[s]} ({k.architecture}): {k.problem()}" for s, k in wrong.items()]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    text = "\n".join(pathlib.Path(path).read_text() for path in sys.argv[1:])
    print("\n".join(summary(parse(text))))
    if wrong := check(text):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
