"""Every op under XLA: the bits that it has without, in every type and with everything optional."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, compare, op_table, run_modes, sequence_functions
from helpers.op_table import SEQUENCES
from helpers.second_cases import BOUND, CASES, Case
from helpers.second_op_cases import make

# (T, B, I, H): few rows, each dim 0 in turn, one of each.
DIMS = ((4, 3, 5, 7), (0, 3, 4, 5), (3, 0, 4, 5), (3, 2, 0, 5), (3, 2, 4, 0), (1, 1, 1, 1))
LENGTHS = (2, 0, 3)
ATTRS = {
    "LSTMSequence": {"forget_bias": 0.5, "cell_clip": 0.4},
    "RNNSequence": {"activation": "relu"},
    "RNNSequenceGrad": {"activation": "relu"},
}


def _number(name, shape, dtype):
    rng = np.random.default_rng([len(name), *map(ord, name), *shape])
    if name in ("i", "f", "o", "r", "u"):
        return rng.uniform(0.05, 0.95, shape).astype(dtype)
    return rng.uniform(-0.9, 0.9, shape).astype(dtype)


def _arguments(key, dims, dtype, left_out=()):
    """Tensors of a call; what is in left_out has shape [0]."""
    (op, attrs), tensors = SEQUENCES[key], {}
    if dims[3] == 0:
        left_out = (*left_out, "w_p")  # which is legal with columns only
    for name, shape in op.shapes(op_table.sizes_of(*dims), attrs).items():
        shape = (0,) if name in left_out else shape
        if name in ("mask", "resets", "zoneout_h", "zoneout_c"):
            tensors[name] = tf.constant(np.random.default_rng(3).random(shape) < 0.7)
        elif name == "sequence_lengths":
            lengths = [min(LENGTHS[k % 3], dims[0]) for k in range(shape[0])]
            tensors[name] = tf.constant(lengths, tf.int32, shape)
        else:
            tensors[name] = tf.constant(_number(name, shape, dtype))
    return tensors


def _assert_same_bits(function, tensors, attrs, what):
    def run(given):
        return function(**given, **attrs)

    want = run(tensors)
    got = run_modes.in_mode("jit", run, autograph=False)(tensors)
    for name, value in want._asdict().items():
        assert compare.bits(getattr(got, name)) == compare.bits(value), f"{name} of {what}"
    return want


def _optional(op):
    """But h_grad, without which all gradients may be zero."""
    left_out = op.optional() - {"h_grad"}
    return tuple(name for name in op.inputs if name in left_out)


@pytest.mark.parametrize("key", SEQUENCES)
@pytest.mark.parametrize("dtype", block_cells.DTYPES)
def test_sequence_ops(tfb, key, dtype):
    """All optional inputs and none, both directions; each dim 0, in one type or another."""
    (op, layout), kind = SEQUENCES[key], block_cells.numpy_type(dtype)
    function = getattr(tfb.raw_ops, op.name)
    place = block_cells.DTYPES.index(dtype)
    changed = {"go_backwards": True, **ATTRS.get(op.name, {})}
    calls = [(DIMS[0], (), changed), (DIMS[0], _optional(op), {})]
    # Each type has its own share of the other sizes.
    calls += [(dims, (), changed) for dims in DIMS[1 + place :: len(block_cells.DTYPES)]]
    if op.name in ("LSTMSequence", "GRUSequence", "GRUAfterSequence"):
        calls.append((DIMS[0], (), {"is_training": False}))
    for dims, left_out, others in calls:
        tensors = _arguments(key, dims, kind, left_out)
        attrs = {**layout, **others}
        what = f"{key} {dtype} {dims} without {left_out}"
        outputs = _assert_same_bits(function, tensors, attrs, what)
        assert dims != DIMS[0] or any(np.any(v.numpy()) for v in outputs), what


@pytest.mark.parametrize("key", SEQUENCES)
def test_one_optional_input_at_a_time(tfb, key):
    op, attrs = SEQUENCES[key]
    function, optional = getattr(tfb.raw_ops, op.name), _optional(op)
    for given in optional:
        left_out = [name for name in optional if name != given]
        tensors = _arguments(key, DIMS[0], np.float32, left_out)
        _assert_same_bits(function, tensors, attrs, f"{key} with {given} alone")


@pytest.mark.parametrize("case", CASES)
def test_functions_and_their_gradients(tfb, case):
    """With projected inputs, both GRUs, projection, peepholes, dropout, masks and lengths."""
    call = Case(case, dtype=np.float32)
    tensors = call.tensors()

    def compute(tensors):
        inputs = {k: v for k, v in tensors.items() if not k.startswith("cotangent")}
        cotangents = [v for k, v in tensors.items() if k.startswith("cotangent")]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = call.call(tfb, inputs)
        return outputs, tape.gradient(outputs, inputs, output_gradients=cotangents)

    want, got = compute(tensors), run_modes.in_mode("jit", compute)(tensors)
    assert all(np.any(value.numpy()) for value in want[0])
    assert [compare.bits(v) for v in got[0]] == [compare.bits(v) for v in want[0]]
    for name, value in want[1].items():
        assert compare.bits(got[1][name]) == compare.bits(value), name


@pytest.mark.parametrize("name", sequence_functions.PLAIN)
@pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])
def test_one_program_for_masks_and_lengths_of_every_pattern(tfb, name, time_major):
    function, dims = sequence_functions.PLAIN[name], (6, 5, 3, 4)
    inputs = sequence_functions.random_inputs(function, dims, np.float32)
    if not time_major:
        inputs["x"] = np.swapaxes(inputs["x"], 0, 1)
    tensors = {k: tf.constant(v) for k, v in inputs.items()}

    def compute(mask, lengths):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(
                tfb, function, tensors, mask=mask, lengths=lengths,
                time_major=time_major, go_backwards=not time_major,
            )  # fmt: skip
        return outputs, list(tape.gradient(outputs, tensors).values())

    compiled, found = run_modes.in_mode("jit", compute), set()
    for kind, (mask, lengths) in sequence_functions.patterns(dims).items():
        mask = np.ones(dims[:2], bool) if mask is None else mask
        lengths = np.full(dims[1], dims[0]) if lengths is None else lengths
        given = tf.constant(mask if time_major else mask.T), tf.constant(lengths, tf.int32)
        want = [compare.bits(v) for v in tf.nest.flatten(compute(*given))]
        assert [compare.bits(v) for v in tf.nest.flatten(compiled(*given))] == want, kind
        found.add(tuple(want))
    assert len(found) > 8
    assert compiled.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("case", ["rnn tanh all", "LSTM cell peepholes", "stack rnn_tanh V1"])
def test_second_derivatives(tfb, case):
    """Loops of TensorFlow's ops, differentiated and compiled."""
    call = make(case)
    got = run_modes.in_mode("jit", lambda given: call.second(tfb, given))(call.tensors())
    for name, want in call.second(tfb, call.tensors()).items():
        compare.assert_close(got[name], want, call.bound, name)


@pytest.mark.parametrize("case, where", [("lstm", "inside"), ("gru before", "around")])
def test_forward_mode(tfb, case, where):
    """The accumulator inside of the compiled function, or around it."""
    call = Case(case)
    tensors = [tf.constant(v) for v in call.inputs.values()]
    tangents = [tf.ones_like(v) for v in tensors]

    def outputs_of(*tensors):
        return call.call(tfb, dict(zip(call.inputs, tensors, strict=True)))

    def pushed(function):
        with tf.autodiff.ForwardAccumulator(tensors, tangents) as accumulator:
            outputs = function(*tensors)
        return [accumulator.jvp(y) for y in outputs]

    if where == "inside":
        got = run_modes.in_mode("jit", lambda: pushed(outputs_of))()
    else:
        got = pushed(run_modes.in_mode("jit", outputs_of))
    for mine, want in zip(got, pushed(outputs_of), strict=True):
        compare.assert_close(mine, want, BOUND)
