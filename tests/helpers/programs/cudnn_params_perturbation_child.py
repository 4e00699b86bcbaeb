"""Makes the malformed calls of the ops on parameters; as cudnn_perturbation_child.py.

Usage: cudnn_params_perturbation_child.py OPS FIRST PROGRESS_FILE.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from helpers import built_graphs, cudnn_ops, cudnn_params_perturbation, cudnn_perturbation
from helpers.programs import cudnn_perturbation_child, perturbation_child
from helpers.reference import stack


def made_calls(what: str) -> Iterator[tuple]:
    """(call, mode, name) of every call, in their order."""
    for op in what.split(","):
        yield from cudnn_perturbation.modes_and_names(
            cudnn_params_perturbation.calls(op), cudnn_params_perturbation.has_static
        )


@functools.cache
def _filled(shape, number):
    return tf.fill(shape, tf.constant(number, tf.int32))


def _tensors(made):
    """(tensors by name, lists of tensors by name)"""
    found = {}
    for name, shape in made.shapes.items():
        dtype = made.types.get(name, "float" if name == "params" else "int32")
        if dtype == "int32":
            found[name] = _filled(tuple(shape), made.sizes[name])
        else:
            found[name] = perturbation_child.tensor(shape, dtype)
    lists = {}
    for name, shapes in made.lists.items():
        kind = made.types.get(name, "float")
        lists[name] = [perturbation_child.tensor(s, kind) for s in shapes]
    return found | lists


def _call(raw_ops, made, mode, name, tensors):
    function, attrs = getattr(raw_ops[name], made.op), dict(made.attrs)
    if "S" in attrs:
        attrs["T"] = tf.float32
    if mode == "eager":
        return function(**tensors, **attrs)
    if mode in ("static", "jit"):
        # Sizes that are constants of the graph, so that all can be known when it is built.
        constants = {k: v for k, v in tensors.items() if k in cudnn_params_perturbation.SIZES}
        others = {k: v for k, v in tensors.items() if k not in constants}
        values = {k: v.numpy() for k, v in constants.items()}

        def known(**t):
            return function(**t, **{k: tf.constant(v) for k, v in values.items()}, **attrs)

        if mode == "jit":
            return tf.function(known, jit_compile=True)(**others)
        return built_graphs.call_static(known, others, {})
    return built_graphs.call_unknown(f"{name} {made.op}", function, tensors, attrs)


def complaint(made, error) -> str | None:
    """What the message lacks: the op, the argument, what it must be, what it was."""
    message = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]|\[\[.*?\]\]", "", str(error))
    if not re.search(rf"\b{made.op}: ", message):
        return "the op"
    if re.search(r"size of params overflows int64|params_size is \d+, .* must be int64", message):
        return None
    if not any(re.search(rf"\b{n}\b[^;]* must .*got \S", message) for n in made.related()):
        return "an argument, what it must be and what was given"
    return None


def check_outputs(made, tensors, outputs) -> str | None:
    """None when a call that was accepted was legal and gave what it should."""
    net = cudnn_params_perturbation.meant(made)
    if net is None:
        return "accepted"
    if "S" in made.attrs:
        right = outputs.numpy().tolist() == [cudnn_params_perturbation.size_of(net)]
    elif made.lists:
        got = outputs if tf.is_tensor(outputs) else outputs.params
        flat = [np.ravel(v) for k in ("weights", "biases") for v in tensors[k]]
        right = cudnn_ops.bits([got]) == cudnn_ops.bits([np.concatenate(flat)])
    else:
        weights, biases = stack.canonical(net, tensors["params"].numpy())
        right = cudnn_ops.bits(outputs.weights) == cudnn_ops.bits(weights)
        right = right and cudnn_ops.bits(outputs.biases) == cudnn_ops.bits(biases)
    return None if right else "legal, but wrong"


def outcome(raw_ops, made, mode, name, counts) -> str | None:
    """Makes one call; returns what is wrong with its outcome, if anything."""
    tensors = _tensors(made)
    try:
        outputs = _call(raw_ops, made, mode, name, tensors)
    except perturbation_child.REFUSALS as error:
        counts["refused"] += 1
        if made.is_framework_error or (mode == "static" and name == "stock"):
            return None
        if cudnn_params_perturbation.meant(made) is not None:
            return f"legal, but refused: {error}"
        # Shapes and attrs are known when a graph is built, and sizes that are constants.
        at_run_time = isinstance(error, tf.errors.InvalidArgumentError)
        if mode == "jit" and name == "stock" and isinstance(error, ValueError):
            return None  # by TensorFlow's own shape function, which knows all shapes here
        if mode == "static" and at_run_time and "S must be int64" not in str(error):
            return f"not refused when the graph was built: {error}"
        building = mode in ("static", "jit") or (mode == "unknown" and made.attrs_are_changed())
        if not building and not at_run_time:
            return f"{type(error).__name__}, not InvalidArgumentError: {error}"
        lacks = complaint(made, error)
        return f"the message lacks {lacks}: {error}" if lacks else None
    except Exception as error:  # noqa: BLE001 - any other kind is what we look for
        return f"{type(error).__name__}: {error}"
    counts["accepted"] += 1
    return check_outputs(made, tensors, outputs)


def main() -> None:
    import tf_blockrnn

    raw_ops = {"ours": tf_blockrnn.raw_ops, "stock": tf.raw_ops}

    def make(made, mode, name, counts):
        return outcome(raw_ops, made, mode, name, counts)

    cudnn_perturbation_child.run_all(made_calls(sys.argv[1]), make, int(sys.argv[2]), sys.argv[3])


def describe(what: str, wanted: int) -> str:
    """The call of a number, for the parent's message."""
    for number, call in enumerate(made_calls(what)):
        if number == wanted:
            return str(call)
    return "past the last call"


if __name__ == "__main__":
    main()
