"""Makes the malformed calls of ops and writes down what became of them.

A process of its own: a call that kills it is a failed test and not a dead run.
Usage: malformed_child.py OPS MODES FIRST PROGRESS_FILE [MODULE]
OPS and MODES are separated by commas; OPS may be "reproducers", for the published calls. FIRST is
the number of the first call to make; that of the call in progress is in PROGRESS_FILE. The last
line of standard output is JSON. MODULE gives raw_ops (default tf_blockrnn).
"""

from __future__ import annotations

import collections
import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers import (
    block_cells,
    built_graphs,
    compare,
    cudnn_ops,
    legal_calls,
    malformed,
    reproducers,
    sequence_ops,
    tolerances,
)
from helpers.malformed import SIZES_OF_NETWORKS, UNKNOWN, Call
from helpers.op_table import OPS, shape
from helpers.reference import stack

REFUSALS = (tf.errors.InvalidArgumentError, ValueError, TypeError)
_ORACLES = block_cells.OPS | sequence_ops.OPS


def made_calls(what: str, modes: str) -> Iterator[tuple[Call, str, str]]:
    """(call, mode, name) of every call, in their order."""
    made = (
        reproducers.made()
        if what == "reproducers"
        else (one for op in what.split(",") for one in malformed.made(OPS[op]))
    )
    return (one for one in made if one[1] in modes.split(","))


# ------------------------------------------------------------------- the arguments


@functools.lru_cache(maxsize=4096)
def _tensor(shape, dtype):
    """Random numbers of a shape; the same tensor every time."""
    if dtype == "string":
        return tf.fill(shape, "text")
    value = np.random.default_rng([*shape, 1]).uniform(0.1, 0.9, shape)
    return tf.cast(tf.constant(value), dtype)


@functools.lru_cache(maxsize=4096)
def _numbers(shape, dtype, numbers):
    if shape == (len(numbers),):
        return tf.constant(numbers, dtype)
    # Whatever shape a single number has, it is the one that was given.
    return tf.fill(shape, tf.constant(numbers[0] if len(numbers) == 1 else 1, dtype))


class Maker:
    """The tensors of calls, and the calls themselves in each of the modes."""

    def __init__(self, raw_ops):
        self._raw_ops = raw_ops  # by name
        self._legal = {}

    def _of_base(self, base) -> dict:
        """Tensors of a cuDNN call and of all that its forward gave, which its gradient reads."""
        call = base.cudnn
        if call is None:
            return {}
        if call not in self._legal:
            # Nothing negative: a single number must not be what is left of a difference.
            tensors = call.tensors({k: np.abs(v) for k, v in call.random("float").items()})
            outputs = call.forward(self._raw_ops["ours"], tensors)
            for name, value in zip(cudnn_ops.OUTPUTS, call.cotangents("float"), strict=True):
                tensors[f"{name}_backprop"] = tf.constant(call.laid_out(np.abs(value)))
            self._legal[call] = tensors | outputs._asdict()
        return self._legal[call]

    def tensors(self, call: Call) -> dict:
        legal = self._of_base(call.base)
        found = {}
        for name, argument in call.op.inputs.items():
            default = {"T": call.dtype, "Tlen": "int32"}.get(argument.type, argument.type)
            dtype = call.types.get(name, call.dtype if argument.is_list else default)
            given = call.shapes[name]
            given = tuple(legal[name].shape) if given == UNKNOWN else given
            if argument.is_list:
                found[name] = [_tensor(one, dtype) for one in given]
            elif name in call.numbers and dtype in ("int32", "int64"):
                found[name] = _numbers(given, dtype, call.numbers[name])
            elif name in legal and dtype == default and given == tuple(legal[name].shape):
                found[name] = legal[name]
            else:
                found[name] = _tensor(given, dtype)
        return found

    def call(self, call: Call, mode: str, name: str, tensors: dict):
        function, attrs = getattr(self._raw_ops[name], call.op.name), dict(call.attrs)
        if "S" in attrs:
            attrs["T"] = tf.float32
        if mode == "eager":
            return function(**tensors, **attrs)
        if mode == "unknown":
            return built_graphs.call_unknown(f"{name} {call.op.name}", function, tensors, attrs)
        if call.op.name in malformed.OF_PARAMS:
            # Sizes that are constants of the graph, so that all can be known when it is built.
            sizes = {k: v.numpy() for k, v in tensors.items() if k in SIZES_OF_NETWORKS}
            tensors = {k: v for k, v in tensors.items() if k not in sizes}

            def function(*, function=function, **given):
                return function(**given, **{k: tf.constant(v) for k, v in sizes.items()})

            if mode == "jit":
                return tf.function(lambda t: function(**t, **attrs), jit_compile=True)(tensors)
        if mode == "jit":
            return built_graphs.call_or_trace("jit", function, tensors, attrs)
        return built_graphs.call_static(function, tensors, attrs)


# ------------------------------------------------------------------- the outcomes


def _text(given) -> str:
    # The size of a reserve space is not a call's.
    return "[" if given == UNKNOWN else "[" + ",".join(map(str, given)) + "]"


def complaint(call: Call, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    # TensorFlow puts the node's name around every message; that must not count as ours.
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
    if not re.search(rf"\b{call.op.name}\b", message):
        return "the op"
    overflows = (
        r"(size of params|must have shape .*) overflows int64|params_size is .* must be int64"
    )
    if re.search(overflows, message):
        return None
    named = [n for n in call.may_be_named() if re.search(rf"\b{n}\b[^;]* must .*got \S", message)]
    if not named:
        return "an argument that is wrong, and what it must be"
    message = message.replace(", ", ",")
    if not any(f"got {given}" in message for name in named for given in _given(call, name)):
        return "what was given"
    return None


def _given(call: Call, name: str) -> list[str]:
    """How a message may show the value of an argument or an attr."""
    shapes = call.shapes.get(name, ())
    shapes = shapes if name in call.shapes and call.op.inputs[name].is_list else [shapes]
    found = [_text(given) for given in shapes] + [str(len(shapes))]
    found += [str(number) for number in call.numbers.get(name, ())]
    return found + ([""] if name in call.op.attrs else [])


def outcome(maker: Maker, call: Call, mode: str, name: str, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = maker.tensors(call)
    try:
        outputs = maker.call(call, mode, name, tensors)
    except REFUSALS as error:
        counts["refused"] += 1
        return _wrong_refusal(call, mode, name, error)
    except Exception as error:  # noqa: BLE001 - any other kind is what we look for
        return f"{type(error).__name__}: {error}"
    counts["accepted"] += 1
    found = legal_calls.meaning(call)
    if found is None:
        # XLA leaves out a call that has no element to give, and so does not see its numbers.
        empty = all(value.shape.num_elements() == 0 for value in outputs)
        unseen = mode == "jit" and empty and legal_calls.meaning(call, for_graph=True)
        return None if unseen else "accepted"
    try:
        _check_outputs(call, found, tensors, outputs)
    except AssertionError as error:
        return f"legal, but wrong: {error}"
    return None


def _wrong_refusal(call: Call, mode: str, name: str, error) -> str | None:
    if call.refused_by_tensorflow():
        return None
    if legal_calls.meaning(call) is not None:
        return f"legal, but refused: {error}"
    at_run_time = isinstance(error, tf.errors.InvalidArgumentError)
    if name == "stock" and mode in ("static", "jit") and not at_run_time:
        return None  # by TensorFlow's own shape functions
    if mode == "static" and name == "ours" and at_run_time:
        if not legal_calls.meaning(call, for_graph=True):
            return f"not refused when the graph was built: {error}"
    # Attrs are known whenever a graph is built; Python raises ValueError then.
    building = mode == "static" or (mode != "eager" and call.changed_attrs())
    if call.op.name in malformed.OF_PARAMS:
        building = building or mode == "jit"
    if not building and not at_run_time:
        return f"{type(error).__name__}, not InvalidArgumentError: {error}"
    lacks = complaint(call, error)
    return f"the message lacks {lacks}: {error}" if lacks else None


def _check_outputs(call: Call, found: dict, tensors: dict, outputs) -> None:
    """A legal call has outputs of the shapes of the op table, and the right numbers."""
    if call.op.name in malformed.OF_PARAMS:
        _check_params(call, found, tensors, outputs)
    elif call.base.cudnn is not None:
        _check_cudnn(call, found["cudnn"], tensors, outputs)
    else:
        for name, argument in call.op.outputs.items():
            value = getattr(outputs, name).numpy()
            want = (
                call.shapes[argument.same_as]
                if argument.same_as
                else shape(call.op.dims(argument, call.attrs), found)
            )
            assert value.shape == want, f"{name} has shape {value.shape}, not {want}"
            assert np.isfinite(value).all(), f"{name} is not finite"
    if call.op.name in _ORACLES:
        op = _ORACLES[call.op.name]
        want = block_cells.oracle(op, {k: v.numpy() for k, v in tensors.items()}, call.attrs)
        dims = tuple(found[size] for size in op.sizes)
        longest = op.longest_sum(dims, call.attrs)
        bound = tolerances.bound("float", longest, op.backward)
        for name in op.outputs:
            compare.assert_close(getattr(outputs, name).numpy(), want[name], bound, name)


def _check_cudnn(call: Call, cudnn, tensors: dict, outputs) -> None:
    arrays = {
        k: cudnn.laid_out(tensors[k].numpy()) for k in ("input", "input_h", "input_c", "params")
    }
    if cudnn.net.mode != "lstm":
        arrays["input_c"] = np.zeros(cudnn.shapes()["input_c"])
    run = cudnn.run(arrays)
    if not call.backward:
        cudnn_ops.check_outputs(cudnn, outputs, run, "float", "")
        return
    if cudnn.net.mode != "lstm":
        assert outputs.input_c_backprop.shape == call.shapes["input_c"]
        zeros = tf.zeros(cudnn.laid_out(arrays["input_c"]).shape)
        outputs = outputs._replace(input_c_backprop=zeros)
    cotangents = [cudnn.laid_out(tensors[f"{k}_backprop"].numpy()) for k in cudnn_ops.OUTPUTS]
    cudnn_ops.check_gradients(cudnn, outputs, run, cotangents, "float", "")


def _check_params(call: Call, found: dict, tensors: dict, outputs) -> None:
    if "S" in call.attrs:
        assert outputs.numpy().tolist() == [found["size"]]
    elif "weights" in tensors:
        got = outputs if tf.is_tensor(outputs) else outputs.params
        flat = [np.ravel(v) for k in ("weights", "biases") for v in tensors[k]]
        assert cudnn_ops.bits([got]) == cudnn_ops.bits([np.concatenate(flat)])
    else:
        weights, biases = stack.canonical(found["network"], tensors["params"].numpy())
        assert cudnn_ops.bits(outputs.weights) == cudnn_ops.bits(weights)
        assert cudnn_ops.bits(outputs.biases) == cudnn_ops.bits(biases)


def main() -> None:
    what, modes, first, progress_file = sys.argv[1:5]
    raw_ops = importlib.import_module(sys.argv[5] if len(sys.argv) > 5 else "tf_blockrnn").raw_ops
    maker = Maker({"ours": raw_ops, "stock": tf.raw_ops})
    progress = os.open(progress_file, os.O_WRONLY | os.O_CREAT)
    counts, problems = collections.Counter(), []
    for number, (call, mode, name) in enumerate(made_calls(what, modes)):
        if number < int(first):
            continue
        os.pwrite(progress, b"%-12d" % number, 0)
        counts["calls"] += 1
        problem = outcome(maker, call, mode, name, counts)
        if problem:
            counts["problems"] += 1
            if len(problems) < 20:
                problems.append(f"{number} {mode} {name} {call}: {problem}"[:1500])
    print(json.dumps({"counts": counts, "problems": problems}))


if __name__ == "__main__":
    main()
