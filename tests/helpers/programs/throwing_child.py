"""Runs ops while allocations of the libraries throw std::bad_alloc, one after another, or while
TensorFlow's thread pool does: throwing_child.py LIBRARY allocations|pool.

LIBRARY is throwing.cc's, and preloaded. Every outcome is ResourceExhausted or the very bits of the
run without; anything else ends the process. The last line is JSON: {call: failures}.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import tf_blockrnn

Runs = dict[str, Callable]


def calls(steps: int, batch: int, units: int) -> Runs:
    """Of one kernel each that takes lengths and a mask, run by TensorFlow and by XLA."""
    rng = np.random.default_rng(1)

    def draw(*shape):
        return tf.constant(rng.standard_normal(shape) / 8, tf.float32)

    x, w, b = draw(steps, batch, units), draw(units, 4 * units), draw(4 * units)
    lengths = tf.constant(rng.integers(steps // 2, steps + 1, batch), tf.int64)
    mask = tf.constant(rng.random([steps, batch]) < 0.9)

    def lstm(clip):
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = tf_blockrnn.lstm(
                x, w, w, b, lengths=lengths, mask=mask, cell_clip=clip, time_major=True
            )[0]
        return h, tape.gradient(h, x)

    graph, compiled = tf.function(lstm), tf.function(lstm, jit_compile=True)
    return {
        "eager": lambda n: lstm(9.0 + n),  # each another kernel, to be constructed
        "graph": lambda n: graph(9.0),
        "XLA": lambda n: compiled(9.0),
    }


def allocations_throw(library, run: Callable) -> int:
    """How many allocations there are, each of which has failed."""
    want = [value.numpy() for value in run(0)]
    n = 0
    while True:
        library.throwing_allocation(n)
        try:
            got = [value.numpy() for value in run(n)]
        except tf.errors.ResourceExhaustedError as error:
            assert "out of memory" in str(error), error
            got = want
        thrown = library.throwing_allocations_left() < 0
        library.throwing_allocation(-1)
        np.testing.assert_equal(got, want)
        if not thrown:
            return n
        n += 1


def pool_throws(library, run: Callable) -> int:
    """How often work was scheduled."""
    want = [value.numpy() for value in run(0)]
    library.throwing_pool(True)
    before = library.throwing_schedules()
    for n in range(20):
        np.testing.assert_equal([value.numpy() for value in run(n)], want)
    library.throwing_pool(False)
    return library.throwing_schedules() - before


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    if sys.argv[2] == "pool":
        tf.config.threading.set_intra_op_parallelism_threads(4)
        runs, fails = calls(30, 64, 96), pool_throws
    else:
        runs, fails = calls(5, 3, 4), allocations_throw
    print(json.dumps({name: fails(library, run) for name, run in runs.items()}))


if __name__ == "__main__":
    main()
