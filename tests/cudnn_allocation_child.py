"""Runs the cuDNN RNN ops with less and less memory to be had; as allocation_child.py.

Every outcome is either ResourceExhausted or the very bits of the run with enough memory; anything
else ends the process with a message. The last line is JSON: {call: {outcome: count}}.
"""

from __future__ import annotations

import collections
import gc
import json
import resource
import sys

import allocation_child
import cudnn_ops
import tensorflow as tf
from allocation_child import MB
from cudnn_ops import Call
from cudnn_reference import Network

CALLS = {mode: Call(Network(mode, 2, 2, 64, 256), 6, 64) for mode in ("lstm", "gru", "rnn_tanh")}
STEP = MB // 2


def with_little_memory(run, what: str) -> dict[str, int]:
    """Calls `run` until there was enough memory for it twice."""
    want = allocation_child.digest(run())  # starts every thread, too
    outcomes = collections.Counter()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    room = 0
    gc.collect()
    while outcomes["right"] < 2:
        outputs = None
        resource.setrlimit(resource.RLIMIT_AS, (allocation_child.used() + room, limits[1]))
        try:
            outputs = run()
        except tf.errors.ResourceExhaustedError as error:
            outcomes["no scratch" if "scratch" in error.message else "no output"] += 1
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)
        if outputs is not None:
            if allocation_child.digest(outputs) != want:
                sys.exit(f"{what}: other numbers with {room} bytes to be had")
            outcomes["right"] += 1
        del outputs
        room += STEP
        if room > 1024 * MB:
            sys.exit(f"{what}: never enough memory: {dict(outcomes)}")
    return dict(outcomes)


def runs(call, raw_ops) -> dict:
    """What is run, by name; it makes no tensors of its own, which could run short, too."""
    tensors = call.tensors(call.random("float"))
    outputs = call.forward(raw_ops, tensors)
    backprops = {
        f"{k}_backprop": tf.constant(c)
        for k, c in zip(cudnn_ops.OUTPUTS, call.cotangents("float"), strict=True)
    }
    arguments = {**tensors, **outputs._asdict(), **backprops, **call.attrs()}
    return {
        "forward": lambda: call.forward(raw_ops, tensors),
        "inference": lambda: call.forward(raw_ops, tensors, is_training=False),
        "backward": lambda: raw_ops.CudnnRNNBackpropV3(**arguments),
    }


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(2)
    import tf_blockrnn

    outcomes = {}
    for mode, call in CALLS.items():
        for name, run in runs(call, tf_blockrnn.raw_ops).items():
            outcomes[f"{mode} {name}"] = with_little_memory(run, f"{mode} {name}")
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main()
