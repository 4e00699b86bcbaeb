"""The times that the plans of the engine depend on (shim_latency.cu.cc).

python tests/gpu/time_barriers.py --library .build/gpu/engine.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import sys


class Barriers:
    """Kernels of blocks that meet `barriers` times."""

    def __init__(self, library: pathlib.Path, barriers: int):
        self.barriers = barriers
        self.library = ctypes.CDLL(str(library))
        self._time = self.library.blockrnn_time_barriers
        self._time.restype = ctypes.c_char_p

    def microseconds(self, grids: int, blocks: int) -> float:
        """Until `grids` kernels of `blocks` blocks are done."""
        found = ctypes.c_double()
        error = self._time(grids, blocks, ctypes.c_int64(self.barriers), ctypes.byref(found))
        if error is not None:
            sys.exit(f"{grids} kernels of {blocks} blocks: {error.decode()}")
        return found.value

    def measure(self) -> dict[str, float]:
        whole = self.library.blockrnn_multiprocessors()
        half = whole // 2
        alone, both = self.microseconds(1, half), self.microseconds(2, half)
        return {
            "multiprocessors": whole,
            "barriers": self.barriers,
            "barrier_us": self.microseconds(1, whole) / self.barriers,
            "barrier_of_half_us": alone / self.barriers,
            "two_halves_over_one": both / alone,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--barriers", type=int, default=20_000)
    arguments = parser.parse_args()
    times = Barriers(arguments.library.resolve(), arguments.barriers).measure()
    ratio = times["two_halves_over_one"]
    said = "run concurrently" if ratio < 1.5 else "run ONE AFTER THE OTHER"
    print(json.dumps(times, indent=1))
    print(f"two cooperative kernels of half a device each {said}: {ratio:.2f}")


if __name__ == "__main__":
    main()
