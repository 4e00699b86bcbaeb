"""Makes malformed calls of the ops under tf_blockrnn.lstm, gru and simple_rnn.

As perturbation_child.py. Usage: masked_perturbation_child.py WHAT FIRST PROGRESS_FILE, where WHAT
is what a call's name begins with: "LSTM", "GRU" or "RNN". The last line of standard output is JSON.
"""

from __future__ import annotations

import collections
import functools
import json
import os
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers import masked_ops, perturbation, sequence_perturbation
from helpers.programs import perturbation_child

BASES = ((3, 2, 5, 4), (1, 1, 1, 1))
RANDOM_CALLS = 30
_TYPES = {"mask": "bool", "zoneout_h": "bool", "zoneout_c": "bool", "sequence_lengths": "int32"}
_WRONG_LENGTHS = (-1, 2**31 - 1, -(2**31))


def calls(op: masked_ops.Op) -> Iterator[sequence_perturbation.Call]:
    """All malformed calls of `op`, and some legal ones between them."""
    for base in BASES:
        legal = op.shapes(base)
        yield _call((), legal)
        # Each optional argument left out, and all of them.
        optional = [name for name in legal if name in masked_ops.optional(op)]
        for names in (*([name] for name in optional), optional):
            yield _call((), {**legal, **{name: (0,) for name in names}})
        for valid in (0, base[0], base[0] + 1, *_WRONG_LENGTHS):
            yield _call(("sequence_lengths",), legal, valid)
        for name, shape in legal.items():
            for other in perturbation.other_shapes(shape):
                yield _call((name,), {**legal, name: other})
        for shape in ((), (1,), (0,), (1, 1), (0, 0), (2, 2), (1, 1, 1), (0, 0, 0)):
            yield _call(tuple(legal), {name: shape for name in legal})
        rng = np.random.default_rng(base)
        for _ in range(RANDOM_CALLS):
            names = tuple(rng.choice(list(legal), int(rng.integers(2, 4)), replace=False))
            shapes = dict(legal)
            for name in names:
                others = perturbation.other_shapes(legal[name])
                shapes[name] = others[int(rng.integers(len(others)))]
            yield _call(names, shapes)
    legal = op.shapes(BASES[0])
    for name in legal:
        yield _call((name,), legal, types={name: "string"})
        yield _call((name,), legal, types={name: "double"})
    for attr in ("time_major", "go_backwards"):
        yield _call((attr,), legal, attrs={attr: "yes"})


def _call(changed, shapes, valid: int = 0, **others):
    return sequence_perturbation.Call(changed, shapes, valid=valid, **others)


def made(what: str) -> Iterator[tuple]:
    """(key, call, mode) of every call, in their order."""
    for key, op in masked_ops.OPS.items():
        if not key.startswith(what):
            continue
        legal = op.shapes(BASES[0])
        for number, call in enumerate(calls(op)):
            modes = perturbation.modes(number, call, legal)
            if call.shapes["h_prev"] == (1, 1):
                modes = modes[:1]
            for mode in modes:
                yield key, call, mode


@functools.cache
def filled(shape, number):
    return tf.fill(shape, tf.constant(number, tf.int32))


def tensor(name, call):
    dtype = call.types.get(name, _TYPES.get(name, "float"))
    shape = tuple(call.shapes[name])
    if name == "sequence_lengths" and dtype == "int32":
        return filled(shape, call.valid)
    return perturbation_child.tensor(shape, dtype)


def complaint(op, call, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    if masked_ops.is_legal(op, call.shapes, 0):
        # Only the values of the lengths are wrong.
        message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
        pattern = rf"\b{op.name}\b.*\bsequence_lengths\b.* must .* got {call.valid}\b"
        return None if re.search(pattern, message) else "sequence_lengths and its value"
    return perturbation_child.complaint(op, call, error)


def outcome(op, caller, call, mode, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = {name: tensor(name, call) for name in call.shapes}
    legal = masked_ops.is_legal(op, call.shapes, call.valid)
    try:
        outputs = getattr(caller, mode)(tensors, call.attrs)
    except perturbation_child.REFUSALS as error:
        counts["refused"] += 1
        if call.is_framework_error():
            return None
        if legal:
            return f"legal, but refused: {error}"
        only_value = masked_ops.is_legal(op, call.shapes, 0)  # which a graph cannot know
        if mode == "static" and not only_value and not isinstance(error, ValueError):
            return f"not refused when the graph was built: {error}"
        if mode != "static" and not isinstance(error, tf.errors.InvalidArgumentError):
            return f"{type(error).__name__}, not InvalidArgumentError: {error}"
        lacks = complaint(op, call, error)
        return f"the message lacks {lacks}: {error}" if lacks else None
    except Exception as error:  # noqa: BLE001 - any other kind is what we look for
        return f"{type(error).__name__}: {error}"
    counts["accepted"] += 1
    if call.is_framework_error() or not legal:
        return "accepted"
    shapes = op.output_shapes(op.dims_of(call.shapes))
    for name, shape in shapes.items():
        # What an input that is left out has for a gradient is left out as well.
        given = name.removesuffix("_grad")
        if given not in masked_ops.UNREAD.get(op.name, ()):
            shape = call.shapes.get(given, shape)
        value = getattr(outputs, name).numpy()
        if value.shape != shape:
            return f"{name} has shape {value.shape}, not {shape}"
        if not np.isfinite(value).all():
            return f"{name} is not finite"
    return None


def main() -> None:
    what, first = sys.argv[1], int(sys.argv[2])
    progress = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT)
    import tf_blockrnn

    counts, problems, callers = collections.Counter(), [], {}
    for number, (key, call, mode) in enumerate(made(what)):
        if number < first:
            continue
        op = masked_ops.OPS[key]
        if key not in callers:
            callers[key] = perturbation_child.Caller(tf_blockrnn.raw_ops, op, op.attrs)
        os.pwrite(progress, b"%-12d" % number, 0)
        counts["calls"] += 1
        problem = outcome(op, callers[key], call, mode, counts)
        if problem:
            counts["problems"] += 1
            if len(problems) < 20:
                problems.append(f"{number} {key} {mode} {call}: {problem}"[:1500])
    print(json.dumps({"counts": counts, "problems": problems}))


def describe(what: str, wanted: int) -> str:
    """The call of a number, for the parent's message."""
    for number, (key, call, mode) in enumerate(made(what)):
        if number == wanted:
            return f"{key} {mode} {call}"
    return "past the last call"


if __name__ == "__main__":
    main()
