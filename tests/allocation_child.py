"""Runs every op with less and less memory to be had.

Every outcome is either ResourceExhausted or the very bits of the run with enough memory; anything
else ends the process with a message. The last line is JSON: {call: {outcome: count}}. The parent
sets the environment in which large blocks go to and come from the system one by one.
"""

from __future__ import annotations

import collections
import gc
import json
import resource
import sys

import block_cells
import compare
import tensorflow as tf

MB = 2**20
# Outputs and scratch take a megabyte or more each.
DIMS = (512, 64, 1024)
STEP = MB // 2
CALLS = (
    ("GRUBlockCell", "float"),
    ("GRUBlockCell", "half"),
    ("GRUBlockCellGrad", "bfloat16"),
    ("GRUBlockCellGrad", "double"),
    ("LSTMBlockCell", "float"),
    ("LSTMBlockCell", "half"),
    ("LSTMBlockCellGrad", "float"),
)


def used() -> int:
    """Address space in use, which is what the limit counts."""
    with open("/proc/self/statm", encoding="utf-8") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def digest(outputs) -> list[int]:
    return [hash(compare.bits(value)) for value in outputs]


def with_little_memory(raw_ops, op, dtype) -> dict[str, int]:
    attrs = op.attr_cases[-1]
    inputs = block_cells.random_inputs(op, DIMS, block_cells.numpy_type(dtype))
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    function = getattr(raw_ops, op.name)
    want = digest(function(**tensors, **attrs))  # starts every thread, too
    outcomes = collections.Counter()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    room = 0
    while outcomes["right"] < 2:
        gc.collect()
        outputs = None
        resource.setrlimit(resource.RLIMIT_AS, (used() + room, limits[1]))
        try:
            outputs = function(**tensors, **attrs)
        except tf.errors.ResourceExhaustedError as error:
            outcomes["no scratch" if "scratch" in error.message else "no output"] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
        if outputs is not None:
            if digest(outputs) != want:
                sys.exit(f"{op.name} {dtype}: other numbers with {room} bytes to be had")
            outcomes["right"] += 1
        del outputs
        room += STEP
        if room > 1024 * MB:
            sys.exit(f"{op.name} {dtype}: never enough memory: {dict(outcomes)}")
    return dict(outcomes)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(2)
    import tf_blockrnn

    outcomes = {}
    for name, dtype in CALLS:
        op = block_cells.OPS[name]
        outcomes[f"{name} {dtype}"] = with_little_memory(tf_blockrnn.raw_ops, op, dtype)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
