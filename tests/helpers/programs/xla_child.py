"""Compiles every op where the package is imported before or after XLA has compiled anything.

Usage: xla_child.py early | late | names. The last line of standard output is JSON: how many calls
had the bits that they have without XLA; for "names", what became of each of TensorFlow's names.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, cudnn_ops, run_modes, sequence_ops
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from helpers.second_cases import Case

DIMS = (3, 2, 5, 4)
# One of each op over a sequence, with its gradient.
FUNCTIONS = ("lstm all", "gru after urc", "gru before all", "rnn tanh all")


def count() -> int:
    """How many calls there are."""
    calls = len(block_cells.op_cases()) + len(sequence_ops.op_cases())
    return calls + len(FUNCTIONS) + 2 * len(cudnn_ops.FORWARD)


def _compare(run, tensors, what) -> None:
    want = [compare.bits(v) for v in tf.nest.flatten(run(tensors))]
    got = [compare.bits(v) for v in tf.nest.flatten(run_modes.in_mode("jit", run)(tensors))]
    if got != want:
        sys.exit(f"other bits: {what}")


def _cudnn_run(raw_ops, version):
    """Forward and backward, but for the reserve space, and the tensors."""
    call = Call(Network("gru", 2, 2, 3, 4), 4, 3, version=version)
    cotangents = call.cotangents("float")

    def run(tensors):
        outputs = call.forward(raw_ops, tensors)
        return [*outputs[:3], *call.backward(raw_ops, tensors, outputs, cotangents)]

    return run, call.tensors(call.random("float"))


def every_op() -> int:
    import tf_blockrnn

    raw_ops, made = tf_blockrnn.raw_ops, 0
    for module, dims in ((block_cells, DIMS[1:]), (sequence_ops, DIMS)):
        for op, attrs in module.op_cases():
            run = module.caller(raw_ops, op, attrs)
            inputs = module.random_inputs(op, dims, np.float32)
            _compare(run, sequence_ops.tensors_of(inputs), op.name)
            made += 1
    for name in FUNCTIONS:
        case = Case(name, dtype=np.float32)

        def gradients(tensors, case=case):
            inputs = {k: v for k, v in tensors.items() if not k.startswith("cotangent")}
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = case.call(tf_blockrnn, inputs)
            return outputs, tape.gradient(outputs, inputs)

        _compare(gradients, case.tensors(), name)
        made += 1
    for version in cudnn_ops.FORWARD:
        for names in (raw_ops, tf.raw_ops):
            _compare(*_cudnn_run(names, version), f"version {version}")
            made += 1
    return made


def names() -> dict[str, str]:
    import tf_blockrnn

    found = {}
    _compare(*_cudnn_run(tf_blockrnn.raw_ops, 3), "ours")
    found["ours"] = "ok"
    for version, name in cudnn_ops.FORWARD.items():
        run, tensors = _cudnn_run(tf.raw_ops, version)
        try:
            run_modes.in_mode("jit", run)(tensors)
        except tf.errors.OpError as error:
            found[name] = f"{type(error).__name__}: {error.message}"
        else:
            found[name] = "ok"
    return found


def main() -> None:
    what = sys.argv[1]
    if what == "late":
        one = run_modes.in_mode("jit", lambda x: x + 1)(tf.zeros([2]))
        if "tf_blockrnn" in sys.modules or one.numpy().tolist() != [1, 1]:
            sys.exit("the package was imported, or XLA has not compiled")
    print(json.dumps(names() if what == "names" else every_op()))


if __name__ == "__main__":
    main()
