"""Makes the malformed calls of cuDNN RNN ops, by both names, and writes down what became of them.

A process of its own: a call that kills it is a failed test and not a dead run.
Usage: cudnn_perturbation_child.py OPS FIRST PROGRESS_FILE, as perturbation_child.py; OPS are
separated by commas. One may be "reproducers": then it makes the published calls.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers import built_graphs, cudnn_ops, cudnn_perturbation, perturbation
from helpers.programs import perturbation_child

MAX_PROBLEMS = 20


def made_calls(what: str) -> Iterator[tuple]:
    """(call, mode, name) of every call, in their order."""
    for op in what.split(","):
        if op == "reproducers":
            for made in cudnn_perturbation.REPRODUCERS.values():
                for mode, name in itertools.product(perturbation.MODES, ("ours", "stock")):
                    yield made, mode, name
        else:
            yield from cudnn_perturbation.modes_and_names(
                cudnn_perturbation.calls(op), cudnn_perturbation.has_static
            )


class Maker:
    """The tensors of calls, and the calls themselves in each of the modes."""

    def __init__(self, raw_ops):
        self._raw_ops = raw_ops  # by name
        self._bases = {}

    def _base(self, made):
        """The tensors of the base and of all that its forward call gave, with their shapes."""
        key = repr(made.base)
        if key not in self._bases:
            call = made.base
            # Nothing negative: a single number must not be what is left of a difference.
            tensors = call.tensors({k: np.abs(v) for k, v in call.random("float").items()})
            outputs = call.forward(self._raw_ops["ours"], tensors)
            for name, value in zip(cudnn_ops.OUTPUTS, call.cotangents("float"), strict=True):
                tensors[f"{name}_backprop"] = tf.constant(call.laid_out(np.abs(value)))
            tensors |= outputs._asdict()
            self._bases[key] = {k: (v, tuple(v.shape)) for k, v in tensors.items()}
        return self._bases[key]

    def tensors(self, made):
        base = self._base(made) if made.base.lengths != () else {}
        return {
            name: self._tensor(made, name, *base.get(name, (None, None))) for name in made.shapes
        }

    def _tensor(self, made, name, legal, legal_shape):
        dtype, shape = made.type_of(name), made.shapes[name]
        if name == "sequence_lengths" and dtype == "int32" and len(shape) == 1:
            if shape == (len(made.lengths),):
                return tf.constant(made.lengths, tf.int32, shape)
            return tf.ones(shape, tf.int32)
        if shape == (-1,):
            shape = legal_shape
        if dtype == "float" and legal_shape == shape:
            return legal
        if dtype == "int32":
            return tf.ones(shape, tf.int32)
        return perturbation_child.tensor(tuple(shape), dtype)

    def call(self, made, mode, name, tensors):
        function = getattr(self._raw_ops[name], made.op)
        attrs = made.all_attrs()
        if mode == "eager":
            return function(**tensors, **attrs)
        if mode == "static":
            return built_graphs.call_static(function, tensors, attrs)
        if mode == "jit":
            return built_graphs.call_or_trace(mode, function, tensors, attrs)
        return built_graphs.call_unknown(f"{name} {made.op}", function, tensors, attrs)


def complaint(made, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    # TensorFlow puts the node's name around every message; that must not count as ours.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
    if not re.search(rf"\b{made.op}: ", message):
        return "the op"
    named = [n for n in made.related() if re.search(rf"\b{n}\b", message)]
    if not named:
        return "an argument that is wrong"
    if not any(re.search(rf"\b{n}\b[^;]* must .*got \S", message) for n in named):
        return "what it must be and what was given"
    return None


def check_outputs(made, tensors, outputs) -> str | None:
    """None when a call that was accepted was legal and gave the right numbers."""
    call = cudnn_perturbation.meant(made)
    if call is None:
        return "accepted"
    names = ("input", "input_h", "input_c", "params")
    arrays = {k: call.laid_out(tensors[k].numpy()) for k in names}
    if call.net.mode != "lstm":
        arrays["input_c"] = np.zeros(call.shapes()["input_c"])
    try:
        if not made.backward:
            cudnn_ops.check_outputs(call, outputs, call.run(arrays), "float", "")
            return None
        if call.net.mode != "lstm":
            if outputs.input_c_backprop.shape != made.shapes["input_c"]:
                return "input_c_backprop has not the shape of input_c"
            zeros = tf.zeros(call.laid_out(arrays["input_c"]).shape)
            outputs = outputs._replace(input_c_backprop=zeros)
        cotangents = [call.laid_out(tensors[f"{k}_backprop"].numpy()) for k in cudnn_ops.OUTPUTS]
        cudnn_ops.check_gradients(call, outputs, call.run(arrays), cotangents, "float", "")
    except AssertionError as error:
        return f"legal, but wrong: {error}"
    return None


def outcome(maker, made, mode, name, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = maker.tensors(made)
    try:
        outputs = maker.call(made, mode, name, tensors)
    except perturbation_child.REFUSALS as error:
        counts["refused"] += 1
        if made.is_framework_error:
            return None
        if cudnn_perturbation.meant(made) is not None:
            return f"legal, but refused: {error}"
        # Attrs are known whenever a graph is built; Python raises ValueError then.
        building = mode == "static" or (mode in ("unknown", "jit") and made.attrs)
        if not building and not isinstance(error, tf.errors.InvalidArgumentError):
            return f"{type(error).__name__}, not InvalidArgumentError: {error}"
        # TensorFlow's own shape functions answer for its names.
        if mode == "static" and name == "stock" and isinstance(error, ValueError):
            return None
        if mode == "static" and name == "ours" and not isinstance(error, ValueError):
            if not made.is_legal_but_for_values():
                return f"not refused when the graph was built: {error}"
        lacks = complaint(made, error)
        return f"the message lacks {lacks}: {error}" if lacks else None
    except Exception as error:  # noqa: BLE001 - any other kind is what we look for
        return f"{type(error).__name__}: {error}"
    counts["accepted"] += 1
    return check_outputs(made, tensors, outputs)


def run_all(calls, make_outcome, first: int, progress_file: str) -> None:
    """Makes the calls from number `first` on and prints the outcome."""
    progress = os.open(progress_file, os.O_WRONLY | os.O_CREAT)
    counts, problems = collections.Counter(), []
    for number, call in enumerate(calls):
        if number < first:
            continue
        os.pwrite(progress, b"%-12d" % number, 0)
        counts["calls"] += 1
        problem = make_outcome(*call, counts)
        if problem:
            counts["problems"] += 1
            if len(problems) < MAX_PROBLEMS:
                problems.append(f"{number} {call}: {problem}"[:1500])
    print(json.dumps({"counts": counts, "problems": problems}))


def main() -> None:
    import tf_blockrnn

    maker = Maker({"ours": tf_blockrnn.raw_ops, "stock": tf.raw_ops})

    def make(made, mode, name, counts):
        return outcome(maker, made, mode, name, counts)

    run_all(made_calls(sys.argv[1]), make, int(sys.argv[2]), sys.argv[3])


def describe(what: str, wanted: int) -> str:
    """The call of a number, for the parent's message."""
    for number, call in enumerate(made_calls(what)):
        if number == wanted:
            return str(call)
    return "past the last call"


if __name__ == "__main__":
    main()
