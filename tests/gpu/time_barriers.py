"""The times that the plans of the engine depend on (shim_latency.cu.cc), in microseconds.

python tests/gpu/time_barriers.py --library .build/gpu/engine.so

They are the reasons for kMinPersistentSteps and kMinPieceBytes (persistent_plan.h). The limits of
tiles there, kManyStepBlocks (step_matrix.cuh), and blas_step_work and block_bytes (engine.h) weigh
GEMMs against each other, for which `python -m bench.gpu` has to measure whole calls.
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
    parser.add_argument("--barriers", type=int, default=20_000, help="and launches")
    arguments = parser.parse_args()
    library = ctypes.CDLL(str(arguments.library.resolve()))
    count = arguments.barriers

    def microseconds(function: str, *numbers: int) -> float:
        """Of one of the `count` barriers or launches."""
        found = ctypes.c_double()
        measure = getattr(library, f"blockrnn_time_{function}")
        measure.restype = ctypes.c_char_p
        error = measure(*map(ctypes.c_int64, numbers), ctypes.byref(found))
        if error is not None:
            sys.exit(f"{function} {numbers}: {error.decode()}")
        return found.value / count

    whole = library.blockrnn_multiprocessors()
    barrier = microseconds("barriers", whole, 1, count, 0)

    def load(kilobytes: int) -> float:
        return microseconds("barriers", whole, 1, count, kilobytes << 10) - barrier

    found = {
        "multiprocessors": whole,
        "barriers": count,
        # What a step costs without a persistent kernel, for each GEMM.
        "launch_us": microseconds("launches", whole, count),
        # What a persistent kernel costs before its first step, besides loading the weights.
        "cooperative_launch_us": microseconds("barriers", whole, count, 0, 0),
        "barrier_us": barrier,
        # Of each of two directions that run together.
        "barrier_of_half_us": microseconds("barriers", whole // 2, 1, count, 0),
        # Of the state, from L2. One read of each thread is 4 KB.
        **{f"load_{kilobytes}_kb_us": load(kilobytes) for kilobytes in (4, 16, 32)},
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
