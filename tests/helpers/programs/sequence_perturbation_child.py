"""Makes the malformed calls of one whole-sequence op and writes down what became of them.

A process of its own: a call that kills it is a failed test and not a dead run.
Usage: sequence_perturbation_child.py OP FIRST PROGRESS_FILE [MODULE], as perturbation_child.py.
OP may be "reproducers": then it makes the published calls of all ops.
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator

import tensorflow as tf

from helpers import compare, perturbation, sequence_ops, sequence_perturbation, tolerances
from helpers.programs import perturbation_child

_lengths = {}


def tensor(name, call):
    dtype = call.types.get(name, "int64" if name == "seq_len_max" else call.dtype)
    shape = tuple(call.shapes[name])
    if name != "seq_len_max":
        return perturbation_child.tensor(shape, dtype)
    kind = tf.as_dtype(dtype)
    if kind == tf.string:
        return tf.fill(shape, "text")
    key = (shape, kind, call.valid)
    if key not in _lengths:
        _lengths[key] = tf.fill(shape, tf.cast(tf.constant(call.valid, tf.int64), kind))
    return _lengths[key]


def complaint(op, call, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    steps = call.shapes["x"][0] if call.shapes["x"] else 0
    if call.shapes["seq_len_max"] != () or 0 <= call.valid <= steps:
        return perturbation_child.complaint(op, call, error)
    # Only its value is wrong.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
    if not re.search(rf"\b{op.name}\b.*\bseq_len_max must ", message):
        return "the op or seq_len_max"
    if not re.search(rf"must .*0\.\..*\b{steps}\b.* got {call.valid}\b", message):
        return "the range or the number that was given"
    return None


def check_outputs(op, call, attrs, tensors, outputs) -> str | None:
    """None when a call that was accepted was legal and gave the right numbers."""
    if call.is_framework_error() or not sequence_ops.is_legal(op, call.shapes, attrs, call.valid):
        return "accepted"
    want = sequence_ops.oracle(op, {k: v.numpy() for k, v in tensors.items()}, attrs)
    dims = (*call.shapes["x"], call.shapes["h_prev"][1])
    bound = tolerances.bound("float", sequence_ops.longest_sum(op, dims), op.backward)
    for name in op.outputs:
        try:
            compare.assert_close(getattr(outputs, name).numpy(), want[name], bound, name)
        except AssertionError as error:
            return f"legal, but wrong: {error}"
    return None


def made(what: str) -> Iterator[tuple]:
    """(op, attrs, call, mode) of every call, in their order."""
    if what == "reproducers":
        for name, attrs, call in sequence_perturbation.REPRODUCERS.values():
            for mode in perturbation.MODES:
                yield sequence_ops.OPS[name], attrs, call, mode
        return
    op = sequence_ops.OPS[what]
    legal = op.shapes(sequence_perturbation.BASES[0])
    for attrs in sequence_perturbation.attr_cases(op):
        for number, call in enumerate(sequence_perturbation.calls(op)):
            for mode in perturbation.modes(number, call, legal):
                yield op, attrs, call, mode


def outcome(op, caller, call, mode, attrs, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = {name: tensor(name, call) for name in call.shapes}
    legal = sequence_ops.is_legal(op, call.shapes, attrs, call.valid)
    try:
        outputs = getattr(caller, mode)(tensors, call.attrs)
    except perturbation_child.REFUSALS as error:
        counts["refused"] += 1
        if call.is_framework_error():
            return None
        if legal:
            return f"legal, but refused: {error}"
        only_value = sequence_ops.is_legal(op, call.shapes, attrs)  # which a graph cannot know
        if mode == "static" and not only_value and not isinstance(error, ValueError):
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
    what, first = sys.argv[1], int(sys.argv[2])
    progress = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
    module = sys.argv[4] if len(sys.argv) > 4 else "tf_blockrnn"
    raw_ops = importlib.import_module(module).raw_ops
    counts = collections.Counter()
    problems = []
    callers = {}
    for number, (op, attrs, call, mode) in enumerate(made(what)):
        if number < first:
            continue
        key = f"{op.name} {attrs}"
        if key not in callers:
            callers[key] = perturbation_child.Caller(raw_ops, op, attrs)
        os.pwrite(progress, b"%-12d" % number, 0)
        counts["calls"] += 1
        problem = outcome(op, callers[key], call, mode, attrs, counts)
        if problem:
            counts["problems"] += 1
            if len(problems) < 20:
                text = f"{number} {op.name} {mode} {dict(attrs)} {call}: {problem}"
                problems.append(text[:1500])
    print(json.dumps({"counts": counts, "problems": problems}))


def describe(what: str, wanted: int) -> str:
    """The call of a number, for the parent's message."""
    for number, (op, attrs, call, mode) in enumerate(made(what)):
        if number == wanted:
            return f"{op.name} {mode} {dict(attrs)} {call}"
    return "past the last call"


if __name__ == "__main__":
    main()
