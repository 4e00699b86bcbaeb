"""Checks of cells, block ops and functions that need a process of their own, for its threads.

Usage: sequence_child.py THREADS CHECK...; THREADS is the size of the intra-op pool. Ends with 0
when every check held. The last line of standard output is JSON: {check: what it found}.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

from helpers import (
    block_cells,
    block_checks,
    cancelling,
    compare,
    many_callers,
    run_modes,
    sequence_functions,
    sequence_ops,
    tolerances,
)
from helpers.compare import digest

# (T, B, I, H): one row, few rows with many units, many rows with few, uneven, and large enough
# that every thread gets work, over rows as over units.
DIMS = (
    (3, 1, 1, 1),
    (5, 7, 17, 15),
    (4, 1, 100, 257),
    (3, 3, 128, 384),
    (5, 257, 33, 33),
    (4, 64, 100, 128),
    (3, 130, 65, 129),
)
COMPILED = DIMS[5]  # of the functions XLA compiles this alone
OPS = block_cells.OPS | sequence_ops.OPS


def bits(raw_ops) -> dict[str, str]:
    """A digest of every op's outputs; twice, and both must agree."""
    found = {}
    for number, (op, attrs) in enumerate(block_cells.op_cases(OPS)):
        for place, dtype in enumerate(block_cells.DTYPES):
            for dims in DIMS:
                of_op, valid = dims[-len(op.sizes) :], max(dims[0] - 1, 1)
                kind = block_cells.numpy_type(dtype)
                inputs = block_cells.random_inputs(op, of_op, kind, valid=valid)
                key = f"{op.name} {dtype} {dims} {dict(attrs)}"
                found[key] = digest(block_cells.call(raw_ops, op, inputs, attrs))
                # XLA compiles a program for every shape: one for each op and type.
                compiled = dims == DIMS[(number + place) % len(DIMS)]
                mode = "jit" if compiled else "eager"
                if found[key] != digest(block_cells.call(raw_ops, op, inputs, attrs, mode)):
                    sys.exit(f"two runs differ: {key} {mode}")
    return found


def _masked(name, dims, dtype):
    """Inputs, mask and lengths of a call of lstm or gru."""
    function = sequence_functions.PLAIN[name]
    inputs = sequence_functions.random_inputs(function, dims, block_cells.numpy_type(dtype))
    return function, inputs, *sequence_functions.patterns(dims)["lengths and holes"]


def _with_gradients(called, arguments, mode="graph"):
    """A graph for arguments like these, of all sizes: tracing it takes longer than the calls."""
    import tf_blockrnn

    sizes_unknown = tf.nest.map_structure(
        lambda t: tf.TensorSpec([None] * t.shape.rank, t.dtype), arguments
    )

    def compute(tensors, mask, lengths):
        options = {"time_major": True, "mask": mask, "lengths": lengths}
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(tf_blockrnn, called, tensors, **options)
        return outputs, tape.gradient(outputs, tensors)

    function = run_modes.in_mode(mode, compute, input_signature=sizes_unknown, autograph=False)
    return function.get_concrete_function()


def function_bits(raw_ops) -> dict[str, str]:
    """A digest of lstm's and gru's outputs and gradients, with a mask and lengths."""
    del raw_ops
    found = {}
    for name in sequence_functions.PLAIN:
        for dtype in ("bfloat16", "float"):
            compute = None
            for dims in DIMS[1:]:
                function, *arguments = _masked(name, dims, dtype)
                arguments = tf.nest.map_structure(tf.constant, arguments)
                compute = compute or _with_gradients(function, arguments)
                key = f"{name} {dtype} {dims}"
                outputs, gradients = compute(*arguments)
                found[key] = digest([*outputs, *gradients.values()])
                if dims == COMPILED:
                    outputs, gradients = _with_gradients(function, arguments, "jit")(*arguments)
                    if found[key] != digest([*outputs, *gradients.values()]):
                        sys.exit(f"the bits of XLA differ: {key}")
    return found


def option_bits(raw_ops) -> dict[str, str]:
    """The same with recurrent dropout, projections and the simple RNN."""
    del raw_ops
    import tf_blockrnn

    found = {}
    for name, variant in sequence_functions.FUNCTIONS.items():
        for dtype in ("bfloat16", "float"):
            for dims in DIMS[2:]:
                inputs = sequence_functions.random_inputs(
                    variant, dims, block_cells.numpy_type(dtype), dropout=True
                )
                outputs, gradients = sequence_functions.differentiated_sum(
                    tf_blockrnn, variant, {k: tf.constant(v) for k, v in inputs.items()}
                )
                values = [*outputs, *gradients.values()]
                found[f"{name} dropout {dtype} {dims}"] = digest(values)
    return found


def numbers(raw_ops) -> int:
    """The oracle's numbers in every type, by the instruction set that this process uses."""
    for op in sequence_ops.OPS.values():
        for dtype in block_cells.DTYPES:
            block_checks.check_numbers(raw_ops, op, dtype, "eager", sequence_ops.ODD_CASES[4:11])
    for name in sequence_functions.PLAIN:
        for dtype in block_cells.DTYPES:
            compute = None
            for dims in ((7, 17, 15, 33), (4, 1, 30, 70)):
                function, inputs, mask, lengths = _masked(name, dims, dtype)
                arguments = tf.nest.map_structure(tf.constant, (inputs, mask, lengths))
                compute = compute or _with_gradients(function, arguments)
                got, gradients = compute(*arguments)
                oracle = sequence_functions.Oracle(function, inputs, mask, lengths)
                want, what = oracle.outputs(), f"{name} {dtype} {dims}"
                steps, batch, width, units = dims
                bound = tolerances.bound(dtype, steps * (width + units))
                for mine, expected in zip(got, want, strict=True):
                    compare.assert_close(mine.numpy(), expected, bound, what)
                expected = oracle.gradients([np.ones_like(value) for value in want])
                bound = tolerances.composed_bound(
                    dtype, steps * max(width + units, 4 * units, batch)
                )
                for key, gradient in gradients.items():
                    compare.assert_close(gradient.numpy(), expected[key], bound, f"{key}, {what}")
    return len(sequence_ops.OPS)


def load(raw_ops) -> int:
    """Many threads × mixed sizes, in all modes on shared functions: the bits of a serial run."""
    calls = []
    sizes = ((2, 1, 3, 5), (4, 33, 24, 40), (3, 2, 64, 200), (3, 0, 4, 4), (5, 200, 8, 3))
    for op, attrs in block_cells.op_cases(OPS):
        runs = [block_cells.caller(raw_ops, op, attrs, mode) for mode in run_modes.MODES]
        for dims in sizes:
            inputs = block_cells.random_inputs(op, dims[-len(op.sizes) :], np.float32)
            tensors = block_cells.tensors_of(inputs)
            calls += [(run, tensors, f"{op.name} {dims}") for run in runs]

    return many_callers.check_bits(calls, 1 / 2)


def loops(raw_ops) -> int:
    """Inside tf.data, tf.map_fn and as many branches of one graph, which may all run at once."""
    scales = np.linspace(-2, 2, 24, dtype=np.float32)
    for op in (block_cells.GRU, sequence_ops.GRU):
        inputs = block_cells.random_inputs(op, (6, 16, 24, 40)[-len(op.sizes) :], np.float32)
        tensors = block_cells.tensors_of(inputs)
        x = tensors.pop("x")

        def scaled(scale, op=op, x=x, tensors=tensors):
            return getattr(raw_ops, op.name)(x=x * scale, **tensors).h

        want = [compare.bits(scaled(s)) for s in scales]
        data = tf.data.Dataset.from_tensor_slices(scales)
        found = {
            f"tf.data.map with {parallel} parallel calls": data.map(
                scaled, num_parallel_calls=parallel
            )
            for parallel in (1, 8, tf.data.AUTOTUNE)
        }
        branches = tf.function(lambda f=scaled: [f(tf.constant(s)) for s in scales])
        found |= {f"parallel branches, {k}": branches() for k in range(3)}
        mapped = tf.function(lambda f=scaled: tf.map_fn(f, scales, parallel_iterations=3))
        for what, values in {**found, "tf.map_fn": mapped()}.items():
            if [compare.bits(v) for v in values] != want:
                sys.exit(f"{op.name}: {what} differs")
        nested = tf.data.Dataset.range(4).interleave(
            lambda _, f=scaled, d=data: d.map(f, num_parallel_calls=4),
            cycle_length=4,
            num_parallel_calls=4,
        )
        if sorted(compare.bits(v) for v in nested) != sorted(want * 4):
            sys.exit(f"{op.name}: a parallel interleave differs")
    _while_loop(raw_ops)
    return len(scales)


def _while_loop(raw_ops) -> None:
    """Steps inside tf.while_loop, with its gradient, are the steps of a Python loop."""
    inputs = block_cells.random_inputs(block_cells.GRU, (16, 24, 40), np.float32)
    tensors, steps = block_cells.tensors_of(inputs), 20
    first = tensors.pop("h_prev")

    def step(k, h):
        return k + 1, raw_ops.GRUBlockCell(h_prev=h, **tensors).h

    def in_python(h):
        for k in range(steps):
            _, h = step(k, h)
        return h

    def in_graph(h):
        return tf.while_loop(lambda k, _: k < steps, step, (0, h), parallel_iterations=8)[1]

    def differentiated(loop, h):
        with tf.GradientTape() as tape:
            tape.watch(h)
            last = loop(h)
        return digest([last, tape.gradient(last, h)])

    if differentiated(tf.function(in_graph), first) != differentiated(in_python, first):
        sys.exit("tf.while_loop differs from a Python loop")


# (op, dtype, steps of a trial, steps of the call that is cancelled, (B, I, H)): one row, which
# splits over units, and many rows. A step costs much more than the memory of its outputs.
CANCELLED = (
    ("BlockLSTM", 10, 600, (1, 1, 1536)),
    ("BlockLSTMGradV2", 10, 600, (1, 1, 1536)),
    ("BlockGRU", 3, 120, (64, 1, 1024)),
    ("BlockGRUGrad", 3, 120, (64, 1, 1024)),
)


def cancellation(raw_ops) -> dict[str, list[float]]:
    """A call that is cancelled ends as Cancelled, in a fraction of the time that it would take.

    The time is that of a short call, many times over, so it holds on any machine.
    """
    found = {}
    for name, trial, steps, dims in CANCELLED:
        op = sequence_ops.OPS[name]
        function = _function(raw_ops, op)
        short = _tensors(op, (trial, *dims))
        short_time = cancelling.seconds(function, short)
        full = short_time * steps / trial
        tensors = _tensors(op, (steps, *dims))
        found[name] = cancelling.check_stops(name, function, tensors, short_time, full)
        # And what comes after is not cancelled.
        function(short)
    return found


def _function(raw_ops, op):
    return tf.function(lambda t: getattr(raw_ops, op.name)(**t, **op.attr_cases[-1]))


def _tensors(op, dims):
    """All of one number: drawing millions of random ones would take longer than the call."""
    tensors = {
        name: tf.fill(shape, np.float32(0.01))
        for name, shape in op.shapes(dims).items()
        if name != "seq_len_max"
    }
    return {"seq_len_max": tf.constant(dims[0], tf.int64), **tensors}


def main() -> None:
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(min(threads, 4))
    import tf_blockrnn

    checks = {
        f.__name__: f
        for f in (bits, function_bits, option_bits, numbers, load, loops, cancellation)
    }
    found = {name: checks[name](tf_blockrnn.raw_ops) for name in sys.argv[2:]}
    found["isa"] = tf_blockrnn.build_info()["cpu_isa"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
