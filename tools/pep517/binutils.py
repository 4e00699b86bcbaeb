"""Finds the binutils for the processor of a library, which need not be this machine's."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

# By e_machine of the ELF header: the processor as the tags of wheels name it.
_MACHINES = {62: "x86_64", 183: "aarch64"}


def machine_of(libraries: Iterable[Path]) -> str:
    """The one processor that all libraries are for; this machine's where there are none."""
    machines = set()
    for library in libraries:
        with library.open("rb") as file:
            e_machine = int.from_bytes(file.read(20)[18:], "little")
        machines.add(_MACHINES.get(e_machine, platform.machine()))
    if len(machines) > 1:
        sys.exit(f"The libraries are for several processors: {', '.join(sorted(machines))}.")
    return machines.pop() if machines else platform.machine()


def find(program: str, machine: str) -> str:
    """`objdump`, `strip` and so on, for libraries of that processor."""
    if machine == platform.machine():
        return program
    cross = f"{machine}-linux-gnu-{program}"
    if not shutil.which(cross):
        package = f"binutils-{machine.replace('_', '-')}-linux-gnu"
        sys.exit(
            f"{cross} is missing. Install {package} (Debian, Ubuntu: apt-get install {package})."
        )
    return cross
