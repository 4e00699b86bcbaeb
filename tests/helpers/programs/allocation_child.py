"""Runs a group of ops with less and less memory to be had: allocation_child.py GROUP.

Every outcome is either ResourceExhausted or the very bits of the run with enough memory; anything
else ends the process with a message. The last line is JSON: {call: {outcome: count}}. The parent
sets the environment in which large blocks go to and come from the system one by one, and all
threads have the same small ones.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import gc
import json
import resource
import sys
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, cudnn_ops, sequence_ops
from helpers.reference.stack import Network

MB = 2**20
STEP = MB // 4
MOST = 1024 * MB

Runs = dict[str, Callable]


def _used() -> int:
    """Address space in use, which is what the limit counts."""
    with open("/proc/self/statm", encoding="utf-8") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


@contextlib.contextmanager
def _small_blocks() -> Iterator[None]:
    """Leaves some megabytes of blocks that are too small for an output or scratch.

    TensorFlow's own small allocations, which end the process where they fail, find room in them.
    """
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    # A block that stays allocated separates each from the next.
    blocks = [libc.malloc(size) for _ in range(256) for size in (16 * 1024, 2048)]
    for block in blocks[::2]:
        libc.free(block)
    yield
    for block in blocks[1::2]:
        libc.free(block)


def _digest(outputs) -> list[int]:
    return [hash(compare.bits(value)) for value in outputs]


def with_little_memory(run: Callable, what: str) -> dict[str, int]:
    """Calls `run` until there was enough memory for it twice; how often it ended how."""
    want = _digest(run())  # starts every thread, too
    outcomes = collections.Counter()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    room = 0
    gc.collect()
    while outcomes["right"] < 2:
        outputs = None
        with _small_blocks():
            resource.setrlimit(resource.RLIMIT_AS, (_used() + room, limits[1]))
            try:
                outputs = run()
            except tf.errors.ResourceExhaustedError as error:
                outcomes["no scratch" if "scratch" in error.message else "no output"] += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, limits)
        if outputs is not None:
            if _digest(outputs) != want:
                sys.exit(f"{what}: other numbers with {room} bytes to be had")
            outcomes["right"] += 1
        del outputs
        room += STEP
        if room > MOST:
            sys.exit(f"{what}: never enough memory: {dict(outcomes)}")
    return dict(outcomes)


# What is run makes no tensors of its own, which could run short, too (where an eager op of
# TensorFlow throws std::bad_alloc, its binding to Python ends the process); outputs and scratch
# take a megabyte or more each.


def _cells(tfb) -> Runs:
    runs = {}
    for name, dtype in (
        ("GRUBlockCell", "float"),
        ("GRUBlockCell", "half"),
        ("GRUBlockCellGrad", "bfloat16"),
        ("LSTMBlockCell", "double"),
        ("LSTMBlockCellGrad", "float"),
    ):
        op = block_cells.OPS[name]
        inputs = block_cells.random_inputs(op, (512, 64, 1024), block_cells.numpy_type(dtype))
        runs[f"{name} {dtype}"] = _caller(tfb, op, inputs)
    return runs


def _caller(tfb, op, inputs) -> Callable:
    function, attrs = getattr(tfb.raw_ops, op.name), op.attr_cases[-1]
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    return lambda: function(**tensors, **attrs)


def _sequences(tfb) -> Runs:
    runs = {}
    for name in ("BlockLSTM", "BlockLSTMGradV2", "BlockGRU", "BlockGRUGrad"):
        op = sequence_ops.OPS[name]
        inputs = sequence_ops.random_inputs(op, (8, 128, 64, 256), np.float32)
        runs[name] = _caller(tfb, op, inputs)
    return runs | {
        "lstm": _trained(tfb.lstm, 4, biases=1),
        "gru": _trained(tfb.gru, 3, biases=2),
        "gru before": _trained(tfb.gru, 3, biases=2, reset_after=False),
    }


def _trained(function, gates: int, biases: int, **options) -> Callable:
    """Outputs and gradients of rows with lengths and a mask."""
    steps, batch, inputs, units = 8, 128, 64, 256
    rng = np.random.default_rng(0)

    def random(*shape):
        return tf.constant(rng.uniform(-0.1, 0.1, shape), tf.float32)

    x = random(batch, steps, inputs)
    weights = [random(inputs, gates * units), random(units, gates * units)]
    weights += [random(gates * units) for _ in range(biases)]
    state = random(batch, units)
    if gates == 4:
        state = (state, random(batch, units))
    lengths = tf.constant(rng.integers(0, steps + 1, batch), tf.int32)
    mask = tf.constant(rng.uniform(size=(batch, steps)) < 0.7)

    def run():
        with tf.GradientTape() as tape:
            tape.watch([x, *weights])
            h, _ = function(x, *weights, initial_state=state, lengths=lengths, mask=mask, **options)
        return [h, *tape.gradient(h, [x, *weights])]

    return run


def _stacks(tfb) -> Runs:
    runs = {}
    # A simple RNN has one gate, and of 256 units so little scratch that freed memory may do for it.
    for mode, units in (("lstm", 256), ("rnn_tanh", 512)):
        call = cudnn_ops.Call(Network(mode, 2, 2, 64, units), 6, 64)
        runs |= {f"{mode} {k}": run for k, run in _stack(call, tfb.raw_ops).items()}
    return runs


def _stack(call, raw_ops) -> Runs:
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


GROUPS = {"cells": _cells, "sequences": _sequences, "stacks": _stacks}


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(2)
    import tf_blockrnn

    runs = GROUPS[sys.argv[1]](tf_blockrnn)
    print(json.dumps({name: with_little_memory(run, name) for name, run in runs.items()}))


if __name__ == "__main__":
    main()
