"""The times that the plans of the engine depend on (shim_latency.cu.cc).

python tests/gpu/time_barriers.py --library .build/gpu/engine.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import sys


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--barriers", type=int, default=20_000)
    arguments = parser.parse_args()
    library = ctypes.CDLL(str(arguments.library.resolve()))
    library.blockrnn_time_barriers.restype = ctypes.c_char_p

    def microseconds(blocks: int) -> float:
        """Of a barrier of `blocks` blocks."""
        found, barriers = ctypes.c_double(), ctypes.c_int64(arguments.barriers)
        error = library.blockrnn_time_barriers(blocks, barriers, ctypes.byref(found))
        if error is not None:
            sys.exit(f"a kernel of {blocks} blocks: {error.decode()}")
        return found.value / arguments.barriers

    whole = library.blockrnn_multiprocessors()
    times = {
        "multiprocessors": whole,
        "barriers": arguments.barriers,
        "barrier_us": microseconds(whole),
        "barrier_of_half_us": microseconds(whole // 2),
    }
    print(json.dumps(times, indent=1))


if __name__ == "__main__":
    main()
