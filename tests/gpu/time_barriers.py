"""The times that the plans of the engine depend on (shim_latency.cu.cc), in microseconds.

python tests/gpu/time_barriers.py --library .build/gpu/engine.so

`judges` has the constants that each time speaks for or against, with their values in the sources.
kManyStepBlocks (step_matrix.cuh) and block_bytes (engine.h) weigh GEMMs against each other, so that
no time here judges them, but a sweep.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import pathlib
import re
import sys

CUDA = pathlib.Path(__file__).resolve().parents[2] / "cc/kernels/cuda"
PLAN = "step/persistent_plan.h"
# Each time with the sources and names of the constants that it judges.
JUDGES = {
    # A launch per GEMM is what a step costs without a persistent kernel, and a second one what the
    # BLAS costs more than StepKernel.
    "launch_us": ((PLAN, "kMaxPersistentTiles"), ("engine.h", "blas_step_work")),
    # What a persistent kernel costs before its first step, besides loading the weights.
    "cooperative_launch_us": ((PLAN, "kMinPersistentSteps"),),
    "barrier_us": ((PLAN, "kMinPersistentSteps"), (PLAN, "kMaxPersistentTiles")),
    # Of the directions that run together.
    "barrier_of_half_us": (),
    # Of the state, from L2. One read of each thread is 4 KB.
    "load_4_kb_us": ((PLAN, "kMinPieceBytes"),),
    "load_16_kb_us": ((PLAN, "kMinPieceBytes"),),
    "load_32_kb_us": ((PLAN, "kMinPieceBytes"),),
}


def value_of(source: str, name: str) -> str:
    """A constant's value as its source has it."""
    return re.search(rf"\b{name} = (.*);", (CUDA / source).read_text())[1]


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

    times = {
        "launch_us": microseconds("launches", whole, count),
        "cooperative_launch_us": microseconds("barriers", whole, count, 0, 0),
        "barrier_us": barrier,
        "barrier_of_half_us": microseconds("barriers", whole // 2, 1, count, 0),
        **{f"load_{kilobytes}_kb_us": load(kilobytes) for kilobytes in (4, 16, 32)},
    }
    judges = {
        time: {name: value_of(source, name) for source, name in constants}
        for time, constants in JUDGES.items()
    }
    found = {"multiprocessors": whole, "barriers": count, **times, "judges": judges}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
