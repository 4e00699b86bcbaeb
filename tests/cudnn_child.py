"""Checks of the cuDNN RNN ops that need a process of their own: its threads, its crashes.

Usage: cudnn_child.py THREADS CHECK...; THREADS is the size of the intra-op pool. Ends with 0 when
every check held. The last line of standard output is JSON: {check: what it found}.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import sys
import threading
import time

import cudnn_ops
import numpy as np
import tensorflow as tf
from cudnn_ops import Call
from cudnn_reference import Network

DTYPES = ("bfloat16", "float", "double")
CALLERS = 16
SEEDED = (5, 6)


def bit_calls() -> list[Call]:
    """One row, few rows with many units, many rows with few, uneven, and large enough that every
    thread gets work; both directions, which may run at once; dropout whose mask is drawn apart."""
    calls = []
    for mode in cudnn_ops.MODES:
        projected = 40 if mode == "lstm" else 0
        calls += [
            Call(Network(mode, 1, 1, 1, 1), 3, 1),
            Call(Network(mode, 2, 2, 17, 33), 5, 7, (5, 0, 3, 1, 5, 2, 4), time_major=False),
            Call(Network(mode, 2, 2, 65, 129), 4, 3),
            Call(Network(mode, 1, 2, 9, 17), 3, 130, tuple(k % 4 for k in range(130))),
            Call(Network(mode, 3, 1, 96, 96, projected, skip=True), 4, 40, (4,) * 20 + (2,) * 20),
            Call(Network(mode, 2, 2, 24, 40), 6, 50, dropout=0.3, seeds=SEEDED),
        ]
    return calls


def digest(tensors) -> str:
    sha = hashlib.sha256()
    for value in cudnn_ops.bits(tensors):
        sha.update(value)
    return sha.hexdigest()


def _forward_and_backward(call, raw_ops, dtype):
    """The tensors of a call, and a function of them that gives all outputs and gradients."""
    cotangents = call.cotangents(dtype)

    def run(tensors):
        outputs = call.forward(raw_ops, tensors)
        return [*outputs, *call.backward(raw_ops, tensors, outputs, cotangents)]

    return call.tensors(call.random(dtype)), run


def bits(raw_ops) -> dict[str, str]:
    """A digest of all outputs and gradients; eagerly, in a graph and once more: all must agree.

    A call with dropout is made in graphs only: each begins with the first mask of its seeds.
    """
    found = {}
    for call, dtype in itertools.product(bit_calls(), DTYPES):
        tensors, run = _forward_and_backward(call, raw_ops, dtype)
        runs = [digest(tf.function(run)(tensors))]
        runs += [digest((tf.function(run) if call.dropout else run)(tensors)) for _ in range(2)]
        key = f"{call} {dtype}"
        if len(set(runs)) > 1:
            sys.exit(f"runs differ: {key}")
        found[key] = runs[0]
    return found


def masks(raw_ops) -> dict[str, str]:
    """Digests of outputs with dropout, for given seeds and for none."""
    call = Call(Network("gru", 2, 2, 3, 20), 5, 6, dropout=0.5, seeds=SEEDED)
    tensors = call.tensors(call.random("float"))
    found = {}
    for name, seeds in (("seeded", SEEDED), ("unseeded", (0, 0))):
        call = dataclasses.replace(call, seeds=seeds)
        found[name] = digest(call.forward(raw_ops, tensors)[:2])
    return found


def load(raw_ops) -> int:
    """Many threads × mixed calls, eagerly and on shared functions: the bits of a serial run."""
    jobs = []
    for call in bit_calls():
        if call.dropout:
            continue
        tensors, run = _forward_and_backward(call, raw_ops, "float")
        for function in (run, tf.function(run)):
            jobs.append((function, tensors, digest(function(tensors)), str(call)))

    def work(caller):
        for k in np.random.default_rng(caller).permutation(len(jobs))[: len(jobs) // 3]:
            run, tensors, want, what = jobs[k]
            if digest(run(tensors)) != want:
                return what
        return None

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        wrong = [w for w in pool.map(work, range(CALLERS)) if w]
    if wrong:
        sys.exit(f"not the bits of a serial run: {wrong}")
    return len(jobs)


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
        function(short)
        begin = time.perf_counter()
        function(short)
        short_time = time.perf_counter() - begin
        function, tensors = _cancellable(raw_ops, net, batch, steps, backward)
        took, running, outcome = _cancelled(function, tensors, 2 * short_time + 0.05)
        full = short_time * steps / trial
        found[name] = [took, full]
        if not running or not outcome.startswith("CancelledError"):
            sys.exit(f"{name}: {outcome}, {'' if running else 'not '}running when cancelled")
        if took > max(0.1, full / 3):
            sys.exit(f"{name} took {took:.3f} s to stop, of about {full:.3f} s that it would run")
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


def _cancelled(function, tensors, after: float) -> tuple[float, bool, str]:
    """How long the call took to stop, whether it was running, and what it ended with."""
    from tensorflow.python.eager import cancellation as eager_cancellation

    manager = eager_cancellation.CancellationManager()
    concrete = manager.get_cancelable_function(function.get_concrete_function(tensors))
    outcome = []

    def call():
        try:
            concrete(tensors)
            outcome.append("ran to its end")
        except Exception as error:  # noqa: BLE001 - the kind is what we look for
            outcome.append(f"{type(error).__name__} {error}")
        outcome.append(time.perf_counter())

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(after)
    running = thread.is_alive()
    begin = time.perf_counter()
    manager.start_cancel()
    thread.join()
    return outcome[1] - begin, running, outcome[0]


def reserve_calls() -> list[Call]:
    """Calls of which no two may take one another's reserve space."""
    lstm = Call(Network("lstm", 2, 2, 3, 4), 4, 3, (4, 2, 3))
    tanh = Call(Network("rnn_tanh", 2, 2, 3, 4), 4, 3, (4, 2, 3))
    change, network = dataclasses.replace, lambda net, **more: dataclasses.replace(net, **more)
    return [
        lstm,
        tanh,
        change(tanh, net=network(tanh.net, mode="rnn_relu")),
        change(tanh, net=network(tanh.net, mode="gru")),
        change(tanh, net=network(tanh.net, inputs=5)),
        change(tanh, net=network(tanh.net, inputs=4)),
        change(tanh, net=network(tanh.net, inputs=4, skip=True)),
        change(tanh, net=network(tanh.net, directions=1, layers=4)),
        change(tanh, net=network(tanh.net, layers=1)),
        change(tanh, time_major=False),
        change(tanh, lengths=(4, 3, 2)),
        change(tanh, lengths=None),
        change(tanh, steps=5),
        change(tanh, dropout=0.5),
        change(tanh, dropout=0.25),
        change(lstm, net=network(lstm.net, num_proj=4)),
        change(lstm, net=network(lstm.net, num_proj=2)),
        change(lstm, lengths=(4, 3, 2)),
    ]


def reserve(raw_ops) -> dict[str, int]:
    """A reserve space of another call, cut, longer, or with other bytes in it."""
    calls = reserve_calls()
    runs = []
    for call in calls:
        tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")
        runs.append((call, tensors, cotangents, call.forward(raw_ops, tensors)))
    found = {"foreign": 0, "bytes": 0, "sizes": 0, "survived": 0}
    for (call, *rest), other in itertools.product(runs, runs):
        outputs = rest[2]
        if other[0] is not call:
            _refused(raw_ops, call, *rest, other[3].reserve_space, f"{call} with {other[0]}'s")
            found["foreign"] += 1
        else:  # the test itself: its own is taken
            call.backward(raw_ops, rest[0], outputs, rest[1])
    for call, tensors, cotangents, outputs in runs[:2]:
        whole = outputs.reserve_space.numpy()
        for size in (0, 1, 27, 28, 31, 32, len(whole) - 1, len(whole) + 1, 2 * len(whole)):
            space = tf.constant(np.resize(whole, size))
            _refused(raw_ops, call, tensors, cotangents, outputs, space, f"{size} of {len(whole)}")
            found["sizes"] += 1
        found["bytes"] += _header_bytes(raw_ops, call, tensors, cotangents, outputs)
        found["survived"] += _random_bytes(raw_ops, call, tensors, cotangents, outputs)
    _of_another_type(raw_ops)
    return found


def _refused(raw_ops, call, tensors, cotangents, outputs, space, what) -> None:
    try:
        call.backward(raw_ops, tensors, outputs._replace(reserve_space=space), cotangents)
    except tf.errors.InvalidArgumentError as error:
        if "reserve_space must" not in error.message:
            sys.exit(f"not in these words: {error.message}")
        return
    sys.exit(f"accepted: {what}")


def _header_bytes(raw_ops, call, tensors, cotangents, outputs) -> int:
    """Every byte before the first number, changed: refused, or of no account."""
    want = digest(call.backward(raw_ops, tensors, outputs, cotangents))
    refused = 0
    for position in range(128):
        space = outputs.reserve_space.numpy()
        space.view(np.uint8)[position] ^= 0x41
        try:
            got = call.backward(
                raw_ops, tensors, outputs._replace(reserve_space=tf.constant(space)), cotangents
            )
        except tf.errors.InvalidArgumentError:
            refused += 1
        else:
            if digest(got) != want:
                sys.exit(f"byte {position} of the header changes the gradient")
    return refused


def _random_bytes(raw_ops, call, tensors, cotangents, outputs) -> int:
    """Garbage behind a right header gives garbage, and garbage before it an error: no crash."""
    rng = np.random.default_rng(1)
    whole = outputs.reserve_space.numpy()
    for number in range(20):
        space = rng.integers(0, 256, whole.nbytes, np.uint8).view(np.float32)
        if number % 2:
            space[:32] = whole[:32]
            call.backward(
                raw_ops, tensors, outputs._replace(reserve_space=tf.constant(space)), cotangents
            )
        else:
            _refused(raw_ops, call, tensors, cotangents, outputs, tf.constant(space), "garbage")
    return number


def _of_another_type(raw_ops) -> None:
    """The very bytes of a call in float64, given to the same call in float32, and back."""
    call = reserve_calls()[0]
    runs = {}
    for dtype in ("float", "double"):
        tensors = call.tensors(call.random(dtype))
        runs[dtype] = tensors, call.cotangents(dtype), call.forward(raw_ops, tensors)
    for dtype, other in (("float", "double"), ("double", "float")):
        space = runs[other][2].reserve_space.numpy().view(cudnn_ops.numpy_type(dtype))
        _refused(raw_ops, call, *runs[dtype], tf.constant(space), f"{dtype} with {other}'s")


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
    """Shapes that would agree if a dim were cut to 32 bits or a product wrapped around."""
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


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
    tf.config.threading.set_inter_op_parallelism_threads(2)
    import tf_blockrnn

    checks = {f.__name__: f for f in (bits, masks, load, cancellation, reserve, huge)}
    found = {name: checks[name](tf_blockrnn.raw_ops) for name in sys.argv[2:]}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
