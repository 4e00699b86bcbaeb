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

    def microseconds(self, blocks: int) -> float:
        """Of a barrier of `blocks` blocks."""
        found = ctypes.c_double()
        error = self._time(blocks, ctypes.c_int64(self.barriers), ctypes.byref(found))
        if error is not None:
            sys.exit(f"a kernel of {blocks} blocks: {error.decode()}")
        return found.value / self.barriers

    def measure(self) -> dict[str, float]:
        whole = self.library.blockrnn_multiprocessors()
        return {
            "multiprocessors": whole,
            "barriers": self.barriers,
            "barrier_us": self.microseconds(whole),
            "barrier_of_half_us": self.microseconds(whole // 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--barriers", type=int, default=20_000)
    arguments = parser.parse_args()
    times = Barriers(arguments.library.resolve(), arguments.barriers).measure()
    print(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
