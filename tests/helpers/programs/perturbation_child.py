"""Makes the malformed calls of one op and writes down what became of them.

A process of its own: a call that kills it is a failed test and not a dead run.
Usage: perturbation_child.py OP FIRST PROGRESS_FILE [MODULE]
FIRST is the number of the first call to make; the number of the call in progress is in
PROGRESS_FILE. The last line of standard output is JSON. MODULE gives raw_ops (default tf_blockrnn).
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers import block_cells, built_graphs, compare, perturbation, tolerances

REFUSALS = (tf.errors.InvalidArgumentError, ValueError, TypeError)


def attr_cases(op):
    if "use_peephole" not in op.attr_cases[-1]:
        return ({},)
    return ({"use_peephole": False}, {"use_peephole": True})


class Caller:
    """Makes a call in each of the modes."""

    def __init__(self, raw_ops, op, attrs):
        self._function = getattr(raw_ops, op.name)
        self._attrs = dict(attrs)
        self._name = op.name

    def eager(self, tensors, attrs):
        return self._function(**tensors, **{**self._attrs, **attrs})

    def static(self, tensors, attrs):
        return built_graphs.call_static(self._function, tensors, {**self._attrs, **attrs})

    def unknown(self, tensors, attrs):
        attrs = {**self._attrs, **attrs}
        return built_graphs.call_unknown(self._name, self._function, tensors, attrs)

    def jit(self, tensors, attrs):
        return built_graphs.call_or_trace("jit", self._function, tensors, {**self._attrs, **attrs})


_cache = {}


def tensor(shape, dtype):
    """Random numbers of a shape; the same tensor every time."""
    key = (shape, dtype)
    if key not in _cache:
        rng = np.random.default_rng([*shape, 1])
        value = rng.uniform(0.1, 0.9, shape)
        kind = tf.as_dtype(dtype)
        _cache[key] = (
            tf.fill(shape, "text") if kind == tf.string else tf.cast(tf.constant(value), kind)
        )
    return _cache[key]


def text_of(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


def complaint(op, call, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    # TensorFlow puts the node's name around every message; that must not count as ours.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
    if not re.search(rf"\b{op.name}\b", message):
        return "the op"
    named = [n for n in perturbation.related(op, call.changed) if re.search(rf"\b{n}\b", message)]
    if not named:
        return "an argument that is wrong"
    if not any(f"got {text_of(call.shapes[n])}" in message for n in named):
        return "the shape that was given"
    if not any(re.search(rf"\b{n} must .*\[.*\].*got", message) for n in named):
        return "the shape that it must have"
    return None


def check_outputs(op, call, attrs, tensors, outputs) -> str | None:
    """None when a call that was accepted was legal and gave the right numbers."""
    if call.is_framework_error() or not block_cells.is_legal(op, call.shapes, attrs):
        return "accepted"
    inputs = {k: v.numpy() for k, v in tensors.items()}
    want = block_cells.oracle(op, inputs, attrs)
    dims = (*call.shapes["x"], call.shapes["h_prev"][1])
    bound = tolerances.bound("float", block_cells.reduction_length(dims, op, attrs), op.backward)
    for name in op.outputs:
        try:
            compare.assert_close(getattr(outputs, name).numpy(), want[name], bound, name)
        except AssertionError as error:
            return f"legal, but wrong: {error}"
    return None


def made(op) -> Iterator[tuple]:
    """(attrs, call, mode) of every call, in their order."""
    legal = op.shapes(perturbation.BASES[0])
    for attrs in attr_cases(op):
        for number, call in enumerate(perturbation.calls(op)):
            for mode in perturbation.modes(number, call, legal):
                yield attrs, call, mode


def outcome(op, caller, call, mode, attrs, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = {
        name: tensor(tuple(shape), call.types.get(name, "float"))
        for name, shape in call.shapes.items()
    }
    try:
        outputs = getattr(caller, mode)(tensors, call.attrs)
    except REFUSALS as error:
        counts["refused"] += 1
        if call.is_framework_error():
            return None
        if block_cells.is_legal(op, call.shapes, attrs):
            return f"legal, but refused: {error}"
        if mode == "static" and not isinstance(error, ValueError):
            return f"not refused when the graph was built: {error}"
        if mode != "static" and not isinstance(error, tf.errors.InvalidArgumentError):
            return f"{type(error).__name__}, not InvalidArgumentError: {error}"
        lacks = complaint(op, call, error)
        return f"the message lacks {lacks}: {error}" if lacks else None
    except Exception as error:  # noqa: BLE001 - any other kind is what we look for
        return f"{type(error).__name__}: {error}"
    counts["accepted"] += 1
    return check_outputs(op, call, attrs, tensors, outputs)


def main() -> None:
    op = block_cells.OPS[sys.argv[1]]
    first, progress = int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
    module = sys.argv[4] if len(sys.argv) > 4 else "tf_blockrnn"
    raw_ops = importlib.import_module(module).raw_ops
    counts = collections.Counter()
    problems = []
    callers = {}
    for number, (attrs, call, mode) in enumerate(made(op)):
        if number < first:
            continue
        key = repr(attrs)
        if key not in callers:
            callers[key] = Caller(raw_ops, op, attrs)
        os.pwrite(progress, b"%-12d" % number, 0)
        counts["calls"] += 1
        problem = outcome(op, callers[key], call, mode, attrs, counts)
        if problem:
            counts["problems"] += 1
            if len(problems) < 20:
                problems.append(f"{number} {mode} {dict(attrs)} {call}: {problem}"[:1500])
    print(json.dumps({"counts": counts, "problems": problems}))


def describe(op, wanted: int) -> str:
    """The call of a number, for the parent's message."""
    for number, (attrs, call, mode) in enumerate(made(op)):
        if number == wanted:
            return f"{mode} {dict(attrs)} {call}"
    return "past the last call"


if __name__ == "__main__":
    main()
