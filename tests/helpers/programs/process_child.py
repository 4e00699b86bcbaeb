"""Checks of all ops and functions that need a process of their own: its threads, its crashes.

Usage: process_child.py THREADS CHECK...; THREADS is the size of the intra-op pool. Ends with 0 when
every check held. The last line of standard output is JSON: {check: what it found}.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import time

import numpy as np
import tensorflow as tf

from helpers import (
    block_cells,
    block_checks,
    cancelling,
    compare,
    cudnn_ops,
    cudnn_reserve,
    many_callers,
    run_modes,
    sequence_functions,
    sequence_ops,
)
from helpers.built_graphs import zeros
from helpers.compare import digest
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

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
OPS = block_cells.OPS | sequence_ops.OPS
FUNCTION_TYPES = ("bfloat16", "float")
STACK_TYPES = ("bfloat16", "float", "double")
SEEDED = (5, 6)


def stack_calls() -> list[Call]:
    """One row, few rows with many units, many rows with few, uneven, and large enough that every
    thread gets work; both directions, which may run at once; dropout whose mask is drawn apart;
    x · w_x within the steps on one thread and ahead of them on two, the last block of few rows."""
    calls = []
    for mode in cudnn_ops.MODES:
        projected = 40 if mode == "lstm" else 0
        calls += [
            Call(Network(mode, 1, 1, 1, 1), 3, 1),
            Call(Network(mode, 2, 2, 17, 33), 5, 7, (5, 0, 3, 1, 5, 2, 4), time_major=False),
            Call(Network(mode, 2, 2, 65, 129), 4, 3),
            Call(Network(mode, 1, 2, 9, 65), 3, 130, tuple(k % 4 for k in range(130))),
            Call(Network(mode, 3, 1, 96, 96, projected, skip=True), 4, 40, (4,) * 20 + (2,) * 20),
            Call(Network(mode, 2, 2, 24, 40), 6, 50, dropout=0.3, seeds=SEEDED),
            Call(Network(mode, 1, 1, 64, 64), 65, 16),
        ]
    return calls


def _forward_and_backward(call, raw_ops, dtype):
    """The tensors of a call, and a function of them that gives all outputs and gradients."""
    cotangents = call.cotangents(dtype)

    def run(tensors):
        outputs = call.forward(raw_ops, tensors)
        return [*outputs, *call.backward(raw_ops, tensors, outputs, cotangents)]

    return call.tensors(call.random(dtype)), run


def bits(raw_ops) -> dict[str, str]:
    """A digest of all outputs and gradients; twice, the second time by XLA here and there."""
    found = {}
    for key, run, again, tensors in (
        *_bits_of_ops(raw_ops), *_bits_of_functions(), *_bits_of_stacks(raw_ops),
    ):  # fmt: skip
        values = run(tensors)
        found[key] = digest(values)
        # A program's reserve space has room for rows that have all steps, and zeros there.
        same = [
            value[: len(want)] if len(value.shape) == len(want.shape) == 1 else value
            for value, want in zip(again(tensors), values, strict=True)
        ]
        if found[key] != digest(same):
            sys.exit(f"two runs differ: {key}")
    return found


def _bits_of_ops(raw_ops):
    for number, (op, attrs) in enumerate(block_cells.op_cases(OPS)):
        runs = {m: block_cells.caller(raw_ops, op, attrs, m) for m in ("eager", "jit")}
        for (place, dtype), dims in itertools.product(enumerate(block_cells.DTYPES), DIMS):
            kind, valid = block_cells.numpy_type(dtype), max(dims[0] - 1, 1)
            of_op = dims[-len(op.sizes) :]
            inputs = block_cells.random_inputs(op, of_op, kind, valid=valid)
            # XLA compiles a program for every shape: one for each op and type.
            compiled = dims == DIMS[(number + place) % len(DIMS)]
            again = runs["jit" if compiled else "eager"]
            yield f"{op.name} {dtype} {dims} {dict(attrs)}", runs["eager"], again, inputs


def _function_and_gradients(function):
    """A function of (tensors, mask, lengths)."""
    import tf_blockrnn

    def compute(arguments):
        tensors, mask, lengths = arguments
        options = {"time_major": True, "mask": mask, "lengths": lengths}
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(tf_blockrnn, function, tensors, **options)
        gradients = tape.gradient(outputs, {k: v for k, v in tensors.items() if k != "dropout"})
        return [*outputs, *gradients.values()]

    return compute


def _bits_of_functions():
    """With lengths, a mask and recurrent dropout; their gradients, too."""
    for name, function in sequence_functions.FUNCTIONS.items():
        compute = _function_and_gradients(function)
        for dtype in FUNCTION_TYPES:
            runs, kind = {}, block_cells.numpy_type(dtype)
            for dims in DIMS[1:]:
                inputs = sequence_functions.random_inputs(function, dims, kind, dropout=True)
                pattern = sequence_functions.patterns(dims)["lengths and holes"]
                arguments = tf.nest.map_structure(tf.constant, (inputs, *pattern))
                # A graph for all sizes: tracing it takes longer than the calls.
                unknown = tf.nest.map_structure(
                    lambda t: tf.TensorSpec([None] * t.shape.rank, t.dtype), arguments
                )
                options = {"input_signature": [unknown], "autograph": False}
                runs = runs or {
                    m: run_modes.in_mode(m, compute, **options) for m in run_modes.TRACED
                }
                again = runs["jit" if dims == DIMS[5] and dtype == "float" else "graph"]
                yield f"{name} {dtype} {dims}", runs["graph"], again, arguments


def _bits_of_stacks(raw_ops):
    """In graphs: with dropout each begins with the first mask of its seeds."""
    for number, (call, dtype) in enumerate(itertools.product(stack_calls(), STACK_TYPES)):
        tensors, run = _forward_and_backward(call, raw_ops, dtype)
        # A call in one type, the next one in another.
        mode = (
            "jit" if number % (len(STACK_TYPES) + 1) == 0 else "graph" if call.dropout else "eager"
        )
        yield f"{call} {dtype}", tf.function(run), run_modes.in_mode(mode, run), tensors


def masks(raw_ops) -> dict[str, str]:
    """Digests of outputs with dropout, for given seeds and for none."""
    call = Call(Network("gru", 2, 2, 3, 20), 5, 6, dropout=0.5, seeds=SEEDED)
    tensors = call.tensors(call.random("float"))
    found = {}
    for name, seeds in (("seeded", SEEDED), ("unseeded", (0, 0))):
        call = dataclasses.replace(call, seeds=seeds)
        found[name] = digest(call.forward(raw_ops, tensors)[:2])
    return found


def numbers(raw_ops) -> str:
    """The references' numbers in every type, by the instruction set that this process uses."""
    import tf_blockrnn

    for dtype in block_cells.DTYPES:
        for op in sequence_ops.OPS.values():
            block_checks.check_numbers(raw_ops, op, dtype, "eager", sequence_ops.ODD_CASES[4:11])
        for function in sequence_functions.PLAIN.values():
            for dims in ((7, 17, 15, 33), (4, 1, 30, 70)):
                pattern = sequence_functions.patterns(dims)["lengths and holes"]
                sequence_functions.check(tf_blockrnn, function, dims, dtype, pattern, True)
        for mode in cudnn_ops.MODES:
            for number, call in enumerate(cudnn_ops.odd_calls(mode)):
                cudnn_ops.check(raw_ops, call, dtype, seed=number)
    return tf_blockrnn.build_info()["cpu_isa"]


def load(raw_ops) -> int:
    """Many threads × mixed calls, in all modes on shared functions: the bits of a serial run."""
    calls = []
    sizes = ((2, 1, 3, 5), (4, 33, 24, 40), (3, 2, 64, 200), (3, 0, 4, 4), (5, 200, 8, 3))
    for op, attrs in block_cells.op_cases(OPS):
        runs = [block_cells.caller(raw_ops, op, attrs, mode) for mode in run_modes.MODES]
        for dims in sizes:
            inputs = block_cells.random_inputs(op, dims[-len(op.sizes) :], np.float32)
            tensors = block_cells.tensors_of(inputs)
            calls += [(run, tensors, f"{op.name} {dims}") for run in runs]
    for call in (call for call in stack_calls() if not call.dropout):
        tensors, run = _forward_and_backward(call, raw_ops, "float")
        calls += [(run_modes.in_mode(m, run), tensors, str(call)) for m in run_modes.MODES]
    return many_callers.check_bits(calls, 1 / 3)


def loops(raw_ops) -> int:
    """Inside tf.data, tf.map_fn and as many branches of one graph, which may all run at once."""
    scales = np.linspace(-2, 2, 24, dtype=np.float32)
    calls = {}
    for op in (block_cells.GRU, sequence_ops.GRU):
        inputs = block_cells.random_inputs(op, (6, 16, 24, 40)[-len(op.sizes) :], np.float32)
        tensors = block_cells.tensors_of(inputs)
        calls[op.name] = "x", tensors, lambda t, op=op: getattr(raw_ops, op.name)(**t).h
    call = Call(Network("gru", 2, 2, 24, 40), 6, 16)
    tensors = call.tensors(call.random("float"))
    calls["CudnnRNNV3"] = "input", tensors, lambda t: call.forward(raw_ops, t).output
    for name, (x, tensors, run) in calls.items():

        def scaled(scale, x=x, tensors=tensors, run=run):
            return run({**tensors, x: tensors[x] * scale})

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
                sys.exit(f"{name}: {what} differs")
        nested = tf.data.Dataset.range(4).interleave(
            lambda _, f=scaled, d=data: d.map(f, num_parallel_calls=4),
            cycle_length=4,
            num_parallel_calls=4,
        )
        if sorted(compare.bits(v) for v in nested) != sorted(want * 4):
            sys.exit(f"{name}: a parallel interleave differs")
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


# A call that is cancelled: its name, steps of a trial and of the call, and what it is made of. One
# row, which splits over units, and many rows. A step costs much more than the memory of its
# outputs.
CANCELLED = (
    ("BlockLSTM", 10, 600, (1, 1, 1536)),
    ("BlockLSTMGradV2", 10, 600, (1, 1, 1536)),
    ("BlockGRU", 3, 120, (64, 1, 1024)),
    ("BlockGRUGrad", 3, 120, (64, 1, 1024)),
    ("CudnnRNNV3", 20, 6000, (Network("lstm", 1, 1, 1, 1024), 1)),
    ("CudnnRNNBackpropV3", 20, 1000, (Network("lstm", 1, 1, 1, 1024), 1)),
    ("CudnnRNNV3", 4, 400, (Network("gru", 2, 2, 1, 512), 16)),
    ("CudnnRNNBackpropV3", 4, 200, (Network("gru", 2, 2, 1, 512), 16)),
)


def cancellation(raw_ops) -> list[list[float]]:
    """A call that is cancelled ends as Cancelled, in a fraction of the time that it would take.

    The time is that of a short call, many times over, so it holds on any machine.
    """
    found = []
    for name, trial, steps, sizes in CANCELLED:
        cancellable = _cancellable_stack if name.startswith("Cudnn") else _cancellable_op
        function, short = cancellable(raw_ops, name, trial, sizes)
        short_time = cancelling.seconds(function, short)
        full = short_time * steps / trial
        long = cancellable(raw_ops, name, steps, sizes)
        found.append(cancelling.check_stops(f"{name} {sizes}", *long, short_time, full))
        function(short)  # and what comes after is not cancelled
    return found


# Functions and their tensors, all of one number: random ones would take longer to draw.


def _cancellable_op(raw_ops, name, steps, sizes):
    op = sequence_ops.OPS[name]
    shapes = op.shapes((steps, *sizes))
    shapes.pop("seq_len_max")
    tensors = {name: tf.fill(shape, np.float32(0.01)) for name, shape in shapes.items()}
    tensors["seq_len_max"] = tf.constant(steps, tf.int64)
    return tf.function(lambda t: getattr(raw_ops, name)(**t, **op.attr_cases[-1])), tensors


def _cancellable_stack(raw_ops, name, steps, sizes):
    net, batch = sizes
    call = Call(net, steps, batch)
    tensors = call.tensors({k: np.full(v, 0.01, np.float32) for k, v in call.shapes().items()})
    if name == "CudnnRNNV3":
        return tf.function(lambda t: call.forward(raw_ops, t)), tensors
    outputs = call.forward(raw_ops, tensors)
    cotangents = [np.zeros_like(c) for c in call.cotangents("float")]
    return tf.function(lambda t: call.backward(raw_ops, t[0], t[1], cotangents)), (tensors, outputs)


def huge(raw_ops) -> int:
    """Dims past 32 bits whose tensors have no elements: right shapes at once, or an error."""
    made = 0
    for steps, batch, layers, inputs, units in (
        (2**31, 0, 1, 2, 3), (2**40, 0, 2, 2, 3), (1, 2**32 + 1, 1, 0, 0), (2**20, 2**20, 2, 0, 0),
        (0, 2**31, 1, 0, 0), (0, 0, 2**20, 0, 0), (2, 0, 2**31 + 1, 0, 0), (1, 0, 2**40, 0, 0),
        (0, 0, 1, 2**40, 0),
    ):  # fmt: skip
        for mode in cudnn_ops.MODES:
            begin = time.perf_counter()
            _huge(raw_ops, mode, (steps, batch, layers, inputs, units))
            took = time.perf_counter() - begin
            if took > 3:
                sys.exit(f"{mode} {(steps, batch, layers, inputs, units)} took {took:.1f} s")
            made += 1
    for shapes in _too_large():
        try:
            raw_ops.CudnnRNNV2(**{k: zeros(v) for k, v in shapes.items()}, rnn_mode="rnn_tanh")
        except tf.errors.InvalidArgumentError:
            made += 1
        else:
            sys.exit(f"accepted: {shapes}")
    return made


def _huge(raw_ops, mode, dims) -> None:
    steps, batch, layers, inputs, units = dims
    size = 0 if units == 0 else Network(mode, layers, 1, inputs, units).params_size()
    state = zeros((layers, batch, units))
    shapes = {
        "input": zeros((steps, batch, inputs)),
        "input_h": state,
        "input_c": state,
    }
    tensors = {**shapes, "params": zeros((size,))}
    outputs = raw_ops.CudnnRNNV2(**tensors, rnn_mode=mode)
    assert outputs.output.shape == (steps, batch, units), (mode, dims)
    assert outputs.output_h.shape == (layers, batch, units), (mode, dims)
    gradients = raw_ops.CudnnRNNBackpropV2(
        **tensors,
        **outputs._asdict(),
        **{f"{k}_backprop": getattr(outputs, k) for k in cudnn_ops.OUTPUTS},
        rnn_mode=mode,
    )
    for name, value in zip(cudnn_ops.GRADIENTS, tensors.values(), strict=True):
        assert getattr(gradients, name).shape == value.shape, (mode, dims, name)
    if size:
        assert not np.any(gradients.params_backprop.numpy())


def _too_large():
    """Shapes that would agree if a dim were cut to 32 bits or a multiplication overflowed."""
    for batch, other in ((2**32 + 1, 1), (2**32, 0), (1, 2**32 + 1)):
        yield {
            "input": (1, batch, 0), "input_h": (1, other, 0), "input_c": (0,), "params": (0,),
        }  # fmt: skip
    for inputs, units, layers in (
        (0, 2**62, 1), (0, 2**63 - 1, 1), (2**62, 2**62, 2), (2**63 - 1, 1, 1), (0, 2**32, 2),
        (2**32, 2**32, 1), (2, 2**31, 2**40),
    ):  # fmt: skip
        for size in (0, 2):
            yield {
                "input": (2, 0, inputs), "input_h": (layers, 0, units), "input_c": (0,),
                "params": (size,),
            }  # fmt: skip


CHECKS = (bits, masks, numbers, load, loops, cancellation, cudnn_reserve.reserve, huge)


def main() -> None:
    threads = int(sys.argv[1])
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(min(threads, 4))
    import tf_blockrnn

    checks = {f.__name__: f for f in CHECKS}
    print(json.dumps({name: checks[name](tf_blockrnn.raw_ops) for name in sys.argv[2:]}))


if __name__ == "__main__":
    main()
