"""Reserve spaces that are not of the call they are given to; a part of process_child.py."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import tensorflow as tf

from helpers import cudnn_ops
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network


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
    want = cudnn_ops.bits(call.backward(raw_ops, tensors, outputs, cotangents))
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
            if cudnn_ops.bits(got) != want:
                sys.exit(f"byte {position} of the header changes the gradient")
    return refused


def _random_bytes(raw_ops, call, tensors, cotangents, outputs) -> int:
    """Garbage behind a right header gives garbage, and garbage before it an error: no crash."""
    rng = np.random.default_rng(1)
    whole = outputs.reserve_space.numpy()
    headers = [False, True] * 10
    for right_header in headers:
        space = rng.integers(0, 256, whole.nbytes, np.uint8).view(np.float32)
        if right_header:
            space[:32] = whole[:32]
            call.backward(
                raw_ops, tensors, outputs._replace(reserve_space=tf.constant(space)), cotangents
            )
        else:
            _refused(raw_ops, call, tensors, cotangents, outputs, tf.constant(space), "garbage")
    return len(headers)


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
