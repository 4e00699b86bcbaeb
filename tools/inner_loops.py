"""Counts the instructions of the float GEMM's inner loops in AArch64 code.

python tools/inner_loops.py OBJECT... [--at-least N] [--objdump PROGRAM]

A tile's sums must stay in the 32 vector registers. So the loop of a full tile has at most
INSTRUCTIONS_PER_FMLA instructions for each multiply-add of a vector, and none of them touches the
stack. Objects: those of //tests/cpp:full_tiles, with one function for each number of gates, or the
engine's. Prints a line per loop; ends with status 1 where one is worse or fewer than N are found.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
from pathlib import Path

INSTRUCTIONS_PER_FMLA = 1.2
OBJDUMP = "aarch64-linux-gnu-objdump"

# Sums of a full tile (6 rows by 3 or 4 vectors) with the multiply-adds of its main loop, which is
# unrolled to a depth of 4, or 8 with 3 vectors.
_FULL_TILES = {(24, 96), (18, 144)}

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+([a-z][\w.]*)\s*(.*)$")
_BRANCH = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)$")
_TARGET = re.compile(r"\b([0-9a-f]+) <")
# Multiply-adds of float32 vectors.
_FMLA = re.compile(r"^v(\d+)\.4s, v\d+\.4s, v\d+\.(4s|s\[\d\])$")


@dataclasses.dataclass
class Loop:
    """A loop without another in it."""

    function: str
    instructions: int
    multiply_adds: int
    sums: int
    stack_accesses: int

    @property
    def ratio(self) -> float:
        return self.instructions / self.multiply_adds

    @property
    def is_full_tile(self) -> bool:
        return (self.sums, self.multiply_adds) in _FULL_TILES

    @property
    def is_good(self) -> bool:
        return self.ratio <= INSTRUCTIONS_PER_FMLA and not self.stack_accesses

    def __str__(self) -> str:
        return (
            f"{self.instructions} instructions, {self.multiply_adds} multiply-adds into "
            f"{self.sums} sums ({self.ratio:.3f}), {self.stack_accesses} on the stack: "
            f"{self.function}"
        )


def _functions(listing: str):
    """Names and instructions, (address, name, operands), of each function of objdump's listing."""
    name, code = "", []
    for line in listing.splitlines():
        if start := _FUNCTION.match(line):
            yield name, code
            name, code = start[1], []
        elif found := _INSTRUCTION.match(line):
            code.append((int(found[1], 16), found[2], found[3].split("//")[0].strip()))
    yield name, code


def loops(listing: str) -> list[Loop]:
    """The loops that multiply float32 vectors, in what `objdump --disassemble` printed."""
    found = []
    for name, code in _functions(listing):
        position = {address: n for n, (address, _, _) in enumerate(code)}
        jumps = []
        for n, (_, instruction, operands) in enumerate(code):
            target = _TARGET.search(operands) if _BRANCH.match(instruction) else None
            begin = position.get(int(target[1], 16)) if target else None
            if begin is not None and begin <= n:
                jumps.append((begin, n))
        for begin, end in jumps:
            if any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in jumps):
                continue
            body = code[begin : end + 1]
            sums = [_FMLA.match(x)[1] for _, op, x in body if op == "fmla" and _FMLA.match(x)]
            if sums:
                on_stack = sum("[sp" in operands for _, _, operands in body)
                found.append(Loop(name, len(body), len(sums), len(set(sums)), on_stack))
    return found


def disassemble(path: Path, objdump: str) -> str:
    command = [objdump, "--disassemble", "--demangle", "--no-show-raw-insn", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def check(paths: list[Path], at_least: int, objdump: str = OBJDUMP) -> bool:
    """Prints the loops of full tiles; returns whether there are so many of them, and all good."""
    good = True
    for path in paths:
        full = [loop for loop in loops(disassemble(path, objdump)) if loop.is_full_tile]
        good &= len(full) >= at_least
        print(f"{path.name}: {len(full)} loops over full tiles, at least {at_least} expected")
        for loop in full:
            good &= loop.is_good
            print(f"  {'good' if loop.is_good else 'WORSE':5} {str(loop)[:150]}")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("objects", nargs="+", type=Path)
    parser.add_argument("--at-least", type=int, default=1)
    parser.add_argument("--objdump", default=OBJDUMP)
    arguments = parser.parse_args()
    sys.exit(0 if check(arguments.objects, arguments.at_least, arguments.objdump) else 1)


if __name__ == "__main__":
    main()
