"""Prints a digest of every op's outputs and gradients, for the given numbers of threads.

Usage: same_bits_child.py THREADS. The last line of standard output is JSON: {call: digest}.
Everything runs twice; a second run that differs is an error.
"""

from __future__ import annotations

import hashlib
import json
import sys

import tensorflow as tf

from helpers import block_cells, compare, run_modes

# Small, uneven, one row, few rows with many units, many rows with few, and large enough that
# every thread gets work.
DIMS = (
    (1, 1, 1),
    (7, 17, 15),
    (1, 300, 257),
    (3, 128, 512),
    (257, 33, 17),
    (64, 256, 256),
    (130, 65, 129),
)


def digest(tensors) -> str:
    sha = hashlib.sha256()
    for value in tensors:
        sha.update(compare.bits(value))
    return sha.hexdigest()


def outcomes(raw_ops, mode="eager"):
    """All calls; for XLA, which compiles a program for every shape, one for each op and type."""
    for number, (op, attrs) in enumerate(block_cells.op_cases()):
        for place, dtype in enumerate(block_cells.DTYPES):
            one = (number + place) % len(DIMS)
            for dims in run_modes.fewer(mode, DIMS, slice(one, one + 1)):
                inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
                key = f"{op.name} {dtype} {dims} {dict(attrs)}"
                yield key, digest(block_cells.call(raw_ops, op, inputs, attrs, mode))


def main() -> None:
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    import tf_blockrnn

    first = dict(outcomes(tf_blockrnn.raw_ops))
    second = dict(outcomes(tf_blockrnn.raw_ops))
    compiled = dict(outcomes(tf_blockrnn.raw_ops, "jit"))
    differing = [key for key in first if first[key] != second[key]]
    differing += [f"{key} by XLA" for key in compiled if first[key] != compiled[key]]
    if differing:
        sys.exit(f"two runs differ with {threads} threads: {differing[:5]}")
    print(json.dumps(first))


if __name__ == "__main__":
    main()
