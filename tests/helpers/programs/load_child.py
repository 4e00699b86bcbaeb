"""Many concurrent calls, in the given pools; every result must be that of a single call.

Usage: load_child.py INTRA INTER. Ends with 0 and prints "ok" for each check that held. A deadlock
shows as the parent's timeout.
"""

from __future__ import annotations

import concurrent.futures
import sys

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, run_modes

DIMS = ((1, 3, 5), (7, 17, 15), (33, 64, 65), (64, 128, 128), (2, 256, 300), (0, 4, 4), (200, 8, 3))
CALLERS = 32
ROUNDS = 6


def bits(outputs):
    return [compare.bits(value) for value in outputs]


def shared_functions(raw_ops):
    """32 threads × mixed sizes, in all modes on shared functions, against a serial run."""
    jobs = []
    for op, attrs in block_cells.op_cases():
        runs = [block_cells.caller(raw_ops, op, attrs, mode) for mode in run_modes.MODES]
        for dims in DIMS:
            inputs = block_cells.random_inputs(op, dims, np.float32)
            tensors = {k: tf.constant(v) for k, v in inputs.items()}
            for run in runs:
                jobs.append((run, tensors, bits(run(tensors)), f"{op.name} {dims}"))

    def work(caller):
        order = np.random.default_rng(caller).permutation(len(jobs))
        for _ in range(ROUNDS):
            for k in order[: len(jobs) // 3]:
                run, tensors, want, what = jobs[k]
                if bits(run(tensors)) != want:
                    return what
        return None

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        wrong = [w for w in pool.map(work, range(CALLERS)) if w]
    if wrong:
        sys.exit(f"not the bits of a serial run: {wrong}")
    return len(jobs)


def _step(raw_ops, weights):
    def step(x, h):
        return raw_ops.GRUBlockCell(x=x, h_prev=h, **weights).h

    return step


def _model(batch=16, inputs=24, units=40):
    values = block_cells.random_inputs(block_cells.GRU, (batch, inputs, units), np.float32)
    x, h = tf.constant(values.pop("x")), tf.constant(values.pop("h_prev"))
    return x, h, {k: tf.constant(v) for k, v in values.items()}


def while_loop(raw_ops):
    """Steps inside tf.while_loop, with its gradient, are the steps of a Python loop."""
    x, h0, weights = _model()
    step = _step(raw_ops, weights)
    steps = 20

    @tf.function
    def looped(x, h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = tf.while_loop(
                lambda k, _: k < steps,
                lambda k, state: (k + 1, step(x, state)),
                (0, h),
                parallel_iterations=8,
            )[1]
        return last, tape.gradient(last, h)

    with tf.GradientTape() as tape:
        tape.watch(h0)
        h = h0
        for _ in range(steps):
            h = step(x, h)
    want = h, tape.gradient(h, h0)
    got = looped(x, h0)
    if bits(got) != bits(want):
        sys.exit("tf.while_loop differs from a Python loop")


def data_map(raw_ops):
    """Ops inside tf.data.map with parallel calls, nested in a parallel interleave."""
    x, h, weights = _model()
    step = _step(raw_ops, weights)
    scales = np.linspace(-2, 2, 64, dtype=np.float32)
    want = [compare.bits(step(x * s, h)) for s in scales]
    for parallel in (1, 8, tf.data.AUTOTUNE):
        data = tf.data.Dataset.from_tensor_slices(scales)
        data = data.map(lambda s: step(x * s, h), num_parallel_calls=parallel)
        got = [compare.bits(v) for v in data.prefetch(4)]
        if got != want:
            sys.exit(f"tf.data.map with {parallel} parallel calls differs")
    data = tf.data.Dataset.range(4).interleave(
        lambda _: tf.data.Dataset.from_tensor_slices(scales[:16]).map(
            lambda s: step(x * s, h), num_parallel_calls=4
        ),
        cycle_length=4,
        num_parallel_calls=4,
    )
    got = sorted(compare.bits(v) for v in data)
    if got != sorted(want[:16] * 4):
        sys.exit("a parallel interleave differs")


def parallel_branches(raw_ops):
    """Forty ops of one graph that may all run at once."""
    x, h, weights = _model(64, 64, 64)
    step = _step(raw_ops, weights)

    @tf.function
    def branches(x, h):
        return [step(x * (0.01 * k), h) for k in range(40)]

    want = bits(branches(x, h))
    for _ in range(5):
        if bits(branches(x, h)) != want:
            sys.exit("parallel branches differ between runs")
    if want != [compare.bits(step(x * (0.01 * k), h)) for k in range(40)]:
        sys.exit("parallel branches differ from single calls")


def map_fn(raw_ops):
    """Steps inside tf.map_fn, several at a time."""
    x, h, weights = _model()
    step = _step(raw_ops, weights)
    many = tf.stack([x * 0.5, x, x * 2.0])
    got = tf.function(lambda m: tf.map_fn(lambda one: step(one, h), m, parallel_iterations=3))(many)
    if bits(got) != [compare.bits(step(one, h)) for one in many]:
        sys.exit("tf.map_fn differs")


def main() -> None:
    intra, inter = int(sys.argv[1]), int(sys.argv[2])
    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter)
    import tf_blockrnn

    for check in (shared_functions, while_loop, data_map, parallel_branches, map_fn):
        check(tf_blockrnn.raw_ops)
        print("ok", check.__name__, flush=True)


if __name__ == "__main__":
    main()
