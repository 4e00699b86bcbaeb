"""The registered gradients: every cotangent, every input, and no unnecessary work."""

from __future__ import annotations

import pytest
import tensorflow as tf
from helpers import (
    block_cells,
    block_checks,
    children,
    covering,
    run_modes,
    sequence_ops,
)

# The clip is straight-through, so differences can only be taken where it does not act.
SMOOTH = {
    "GRU cell": (block_cells.GRU, {}),
    "LSTM cell": (block_cells.LSTM, {"cell_clip": 0.0}),
    "LSTM cell, peepholes": (block_cells.LSTM, {"cell_clip": 100.0, "use_peephole": True}),
    "BlockGRU": (sequence_ops.GRU, {}),
    "BlockLSTM": (sequence_ops.LSTM, {"cell_clip": 0.0, "forget_bias": 0.5}),
    "BlockLSTM, peepholes": (sequence_ops.LSTM, {"cell_clip": 100.0, "use_peephole": True}),
    "BlockLSTMV2": (sequence_ops.LSTM_V2, {}),
    "BlockLSTMV2, peepholes": (sequence_ops.LSTM_V2, {"use_peephole": True}),
}
CASES = SMOOTH | {
    "LSTM cell, clipped": (block_cells.LSTM, {"cell_clip": 0.5, "use_peephole": True}),
    "BlockLSTM, clipped": (sequence_ops.LSTM, {"cell_clip": 0.5, "use_peephole": True}),
    "BlockLSTMV2, clipped": (sequence_ops.LSTM_V2, {"cell_clip": 0.5}),
}
SEQUENCES = [case for case in CASES if case.startswith("Block")]
CELLS = [case for case in CASES if case not in SEQUENCES]
all_cases = pytest.mark.parametrize("case", CASES)


def _everything_and_h(op):
    count = len(op.outputs)
    return (True,) * count, (*(False,) * (count - 1), True)


def _eagerly_and_traced(cases):
    return [*((case, "eager") for case in cases), *covering.in_turn(cases, run_modes.TRACED)]


@pytest.mark.parametrize(("case", "mode"), _eagerly_and_traced(CASES))
def test_gradient_is_the_oracles_for_every_cotangent(tfb, case, mode):
    op, attrs = CASES[case]
    cases = [((4, 3, 2, 5), 4), ((4, 3, 2, 5), 2)]
    cases = cases if case in SEQUENCES else [((3, 2, 5), None)]
    block_checks.check_gradients(tfb.raw_ops, op, attrs, "double", mode, cases)


@all_cases
@pytest.mark.parametrize("dtype", block_cells.DTYPES)
def test_gradient_in_every_type(tfb, case, dtype):
    op, attrs = CASES[case]
    cases = [((1, 2, 8, 16), 1), ((5, 7, 17, 15), 4), ((3, 33, 9, 31), 3)]
    if case in CELLS:
        cases = [((1, 1, 1), None), *((dims[1:], None) for dims, _ in cases[1:])]
    chosen = _everything_and_h(op)
    block_checks.check_gradients(tfb.raw_ops, op, attrs, dtype, "eager", cases, chosen)


@pytest.mark.types
@pytest.mark.parametrize(("case", "mode"), covering.in_turn(CASES, run_modes.MODES))
def test_gradient_of_empty_dims_and_of_no_steps(tfb, case, mode):
    """An empty batch has weight gradients of zero; T = 0 passes on what it was given."""
    op, attrs = CASES[case]
    all_dims = (sequence_ops if case in SEQUENCES else block_cells).EMPTY_DIMS
    # Each graph is traced: every third of the sizes, in one case or another.
    third = slice(list(CASES).index(case) % 3, None, 3)
    cases = [(dims, None) for dims in run_modes.fewer(mode, all_dims, third, run_modes.TRACED)]
    cases += [((4, 3, 2, 5), 0)] if case in SEQUENCES else []
    chosen = _everything_and_h(op)
    block_checks.check_gradients(tfb.raw_ops, op, attrs, "double", mode, cases, chosen)


@pytest.mark.types
@pytest.mark.parametrize(("case", "mode"), _eagerly_and_traced(SEQUENCES))
def test_cotangents_past_the_length_are_ignored(tfb, case, mode):
    block_checks.check_cotangents_past_the_length(tfb.raw_ops, *CASES[case], mode)


@pytest.mark.parametrize(("case", "mode"), covering.in_turn(SMOOTH, run_modes.TRACED, first=1))
def test_gradient_with_unknown_shapes(tfb, case, mode):
    block_checks.check_unknown_shapes(tfb.raw_ops, *CASES[case], mode)


@pytest.mark.parametrize(
    ("case", "used"),
    [
        (case, used)
        for case in SMOOTH
        for used in (("h",), ("cs", "h"))
        if "LSTM" in case or used == ("h",)
    ],
)
def test_gradient_is_one_pass(tfb, case, used):
    """Of the state alone, and of all that the next step of an unrolled recurrence reads."""
    block_checks.check_one_pass(tfb.raw_ops, *CASES[case], used)


@pytest.mark.parametrize("case", CELLS)
@pytest.mark.parametrize("mode", ["eager", "graph"])  # TensorFlow lowers none of its own to XLA
def test_tensorflows_own_ops_get_a_gradient(tfb, case, mode):
    """Importing the package gives tf.raw_ops.GRUBlockCell and LSTMBlockCell a gradient."""
    del tfb
    block_checks.check_gradients(tf.raw_ops, *CASES[case], "float", mode, [((3, 2, 5), None)])


_LEFT_ALONE = """
import tensorflow as tf
import {imported}
import numpy as np
from helpers import block_cells
for op in (block_cells.GRU, block_cells.LSTM):
    inputs = block_cells.random_inputs(op, (2, 3, 4), np.float32)
    tensors = {{k: tf.constant(v) for k, v in inputs.items()}}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        h = getattr(tf.raw_ops, op.name)(**tensors).h
    try:
        tape.gradient(h, tensors)
        print(op.name, "gradient")
    except LookupError:
        print(op.name, "LookupError")
"""
_OWN_GRADIENT = """
import tensorflow as tf
@tf.RegisterGradient("GRUBlockCell")
def mine(op, *grads):
    return [tf.ones_like(v) * 7.0 for v in op.inputs]
import tf_blockrnn, numpy as np
from helpers import block_cells
inputs = block_cells.random_inputs(block_cells.GRU, (2, 3, 4), np.float32)
tensors = {k: tf.constant(v) for k, v in inputs.items()}
with tf.GradientTape() as tape:
    tape.watch(tensors)
    h = tf.raw_ops.GRUBlockCell(**tensors).h
print(set(tape.gradient(h, tensors)["x"].numpy().ravel()) == {7.0})
"""


def test_extension_can_be_switched_off(tfb):
    del tfb
    code = _LEFT_ALONE.format(imported="tf_blockrnn")
    out = children.assert_ok(children.run_code(code, TF_BLOCKRNN_EXTEND_TF="0"), "import")
    assert out.split("\n")[:2] == ["GRUBlockCell LookupError", "LSTMBlockCell LookupError"]
    out = children.assert_ok(children.run_code(code, TF_BLOCKRNN_EXTEND_TF="1"), "import")
    assert out.split("\n")[:2] == ["GRUBlockCell gradient", "LSTMBlockCell gradient"]


def test_a_gradient_that_tensorflow_has_is_left(tfb):
    """Some later TensorFlow, or another package, may register one first."""
    del tfb
    out = children.assert_ok(children.run_code(_OWN_GRADIENT), "import after a registration")
    assert out.strip().endswith("True")
