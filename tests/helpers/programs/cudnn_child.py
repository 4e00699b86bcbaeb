"""Checks of the cuDNN RNN ops that need a process of their own: its threads, its crashes.

Usage: cudnn_child.py THREADS CHECK...; THREADS is the size of the intra-op pool. Ends with 0 when
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

from helpers import cancelling, cudnn_ops, cudnn_reserve, many_callers, run_modes
from helpers.compare import digest
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

DTYPES = ("bfloat16", "float", "double")
SEEDED = (5, 6)


def bit_calls() -> list[Call]:
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
    """A digest of all outputs and gradients; eagerly, in a graph, by XLA and once more: all agree.

    A call with dropout is made in graphs only: each begins with the first mask of its seeds.
    """
    found = {}
    for number, (call, dtype) in enumerate(itertools.product(bit_calls(), DTYPES)):
        tensors, run = _forward_and_backward(call, raw_ops, dtype)
        values = tf.function(run)(tensors)
        runs = [digest(values)]
        if number % (len(DTYPES) + 1) == 0:  # a call in one type, the next one in another
            runs.append(digest(_compiled(run, tensors, values[3].shape[0])))
        runs += [digest((tf.function(run) if call.dropout else run)(tensors)) for _ in range(2)]
        key = f"{call} {dtype}"
        if len(set(runs)) > 1:
            sys.exit(f"runs differ: {key}")
        found[key] = runs[0]
    return found


def _compiled(run, tensors, reserved) -> list:
    """What XLA makes of it; reserve_space, which must be zero from there on, cut to `reserved`."""
    values = run_modes.in_mode("jit", run)(tensors)
    if np.any(values[3].numpy()[reserved:]):
        sys.exit("the end of reserve_space is not zero")
    return [*values[:3], values[3][:reserved], *values[4:]]


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
    """The reference's numbers in every type, by the instruction set that this process uses."""
    import tf_blockrnn

    for mode, dtype in itertools.product(cudnn_ops.MODES, cudnn_ops.DTYPES):
        for number, call in enumerate(cudnn_ops.odd_calls(mode)):
            cudnn_ops.check(raw_ops, call, dtype, seed=number)
    return tf_blockrnn.build_info()["cpu_isa"]


def in_data_map(raw_ops) -> int:
    """Inside tf.data.map, many at once: the bits of calls one after the other."""
    call = Call(Network("gru", 2, 2, 24, 40), 6, 16)
    tensors = call.tensors(call.random("float"))
    x = tensors.pop("input")

    def sequence(scale):
        return call.forward(raw_ops, {"input": x * scale, **tensors}).output

    scales = np.linspace(-2, 2, 24, dtype=np.float32)
    want = [digest([sequence(s)]) for s in scales]
    for parallel in (1, 8):
        data = tf.data.Dataset.from_tensor_slices(scales)
        got = [digest([v]) for v in data.map(sequence, num_parallel_calls=parallel)]
        if got != want:
            sys.exit(f"tf.data.map with {parallel} parallel calls differs")
    return len(scales)


def load(raw_ops) -> int:
    """Many threads × mixed calls, in all modes on shared functions: the bits of a serial run."""
    calls = []
    for call in bit_calls():
        if call.dropout:
            continue
        tensors, run = _forward_and_backward(call, raw_ops, "float")
        for mode in run_modes.MODES:
            function = run_modes.in_mode(mode, run)
            calls.append((function, tensors, str(call)))

    return many_callers.check_bits(calls, 1 / 3)


# (network, batch, steps of a trial, steps of the call that is cancelled: forward, backward); a step
# costs much more than the memory of its outputs.
CANCELLED = {
    "one layer": (Network("lstm", 1, 1, 1, 1024), 1, 20, (6000, 1000)),
    "two directions": (Network("gru", 2, 2, 1, 512), 16, 4, (400, 200)),
}


def cancellation(raw_ops) -> dict[str, list[float]]:
    """A call that is cancelled ends as Cancelled, in a fraction of the time that it would take.

    The time is that of a short call, many times over, so it holds on any machine.
    """
    found = {}
    for (what, (net, batch, trial, both)), backward in itertools.product(
        CANCELLED.items(), (False, True)
    ):
        name, steps = f"{what}, backward" if backward else what, both[backward]
        function, short = _cancellable(raw_ops, net, batch, trial, backward)
        short_time = cancelling.seconds(function, short)
        full = short_time * steps / trial
        long = _cancellable(raw_ops, net, batch, steps, backward)
        found[name] = cancelling.check_stops(name, *long, short_time, full)
        function, short = _cancellable(raw_ops, net, batch, trial, backward)
        function(short)  # and what comes after is not cancelled
    return found


def _cancellable(raw_ops, net, batch, steps, backward):
    """A function and its tensors, all of one number: random ones would take longer to draw."""
    call = Call(net, steps, batch)
    tensors = call.tensors({k: np.full(v, 0.01, np.float32) for k, v in call.shapes().items()})
    if not backward:
        return tf.function(lambda t: call.forward(raw_ops, t)), tensors
    outputs = call.forward(raw_ops, tensors)
    cotangents = [np.zeros_like(c) for c in call.cotangents("float")]
    return tf.function(lambda t: call.backward(raw_ops, t[0], t[1], cotangents)), (tensors, outputs)


def _zeros(shape, dtype=tf.float32):
    # tf.zeros would take a shape of 2^62 through int32 somewhere; a reshape does not.
    count = 0 if 0 in shape else int(np.prod(shape))
    return tf.reshape(tf.zeros([count], dtype), tf.constant(shape, tf.int64))


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
            raw_ops.CudnnRNNV2(**{k: _zeros(v) for k, v in shapes.items()}, rnn_mode="rnn_tanh")
        except tf.errors.InvalidArgumentError:
            made += 1
        else:
            sys.exit(f"accepted: {shapes}")
    return made


def _huge(raw_ops, mode, dims) -> None:
    steps, batch, layers, inputs, units = dims
    size = 0 if units == 0 else Network(mode, layers, 1, inputs, units).params_size()
    state = _zeros((layers, batch, units))
    shapes = {"input": _zeros((steps, batch, inputs)), "input_h": state, "input_c": state}
    tensors = {**shapes, "params": _zeros((size,))}
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


CHECKS = (bits, masks, numbers, in_data_map, load, cancellation, cudnn_reserve.reserve, huge)


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    tf.config.threading.set_inter_op_parallelism_threads(2)
    import tf_blockrnn

    checks = {f.__name__: f for f in CHECKS}
    found = {name: checks[name](tf_blockrnn.raw_ops) for name in sys.argv[2:]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
