"""The registered gradients: every cotangent, every input, and no unnecessary work."""

from __future__ import annotations

import collections
import contextlib

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, children, compare, run_modes, tolerances
from helpers.reference import block_ops

DIMS = (3, 2, 5)
VJPS = {
    "GRUBlockCell": block_ops.gru_block_cell_vjp,
    "LSTMBlockCell": block_ops.lstm_block_cell_vjp,
}
# The clip is straight-through, so differences can only be taken where it does not act.
CASES = [
    pytest.param(block_cells.GRU, {}, id="GRU"),
    pytest.param(block_cells.LSTM, {"cell_clip": 0.0}, id="LSTM"),
    pytest.param(block_cells.LSTM, {"cell_clip": 100.0, "use_peephole": True}, id="LSTM-peephole"),
]
# The same with a clip that acts, for comparisons with the oracle.
ORACLE_CASES = [
    *CASES,
    pytest.param(block_cells.LSTM, {"cell_clip": 0.5, "use_peephole": True}, id="LSTM-clipped"),
]


def _cotangents(op, dims, dtype, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in op.output_shapes(dims).values()]


def _gradients(raw_ops, op, attrs, inputs, cotangents, mode="eager"):
    """Gradient of every input; a cotangent that is None belongs to an output that is not used."""
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    used = [k for k, c in enumerate(cotangents) if c is not None]

    def compute(arguments, output_gradients):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(raw_ops, op.name)(**arguments, **attrs)
            targets = [outputs[k] for k in used]
        return tape.gradient(
            targets,
            arguments,
            output_gradients=output_gradients,
            unconnected_gradients=tf.UnconnectedGradients.NONE,
        )

    compute = run_modes.in_mode(mode, compute)
    return compute(tensors, [tf.constant(cotangents[k]) for k in used])


def _selections(op):
    """Each cotangent alone, all together, all but the last."""
    count = len(op.outputs)
    alone = [tuple(k == j for j in range(count)) for k in range(count)]
    return [*alone, (True,) * count, (*(True,) * (count - 1), False)]


def _assert_gradients(op, attrs, inputs, got, want, bound):
    for name, expected in zip(op.inputs, want, strict=True):
        shape = inputs[name].shape
        what = f"gradient of {name} {shape}, {op.name} {dict(attrs)}"
        value = got[name]
        if value is None:
            assert name in ("wci", "wcf", "wco"), f"{what} is None"
            value = np.zeros_like(inputs[name])
        assert not isinstance(value, tf.IndexedSlices)
        compare.assert_close(np.asarray(value), expected, bound, what)


@pytest.mark.parametrize("op, attrs", CASES)
def test_gradient_is_the_finite_difference(tfb, op, attrs):
    """float64 central differences of our own forward, all cotangents at once and one by one."""
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    cotangents = _cotangents(op, DIMS, np.float64)
    step = tolerances.FINITE_DIFFERENCE_STEP
    function = getattr(tfb.raw_ops, op.name)

    # Jacobian of every output, contracted with its own cotangent: [outputs] for each element.
    differences = {k: np.zeros((len(op.outputs), *v.shape)) for k, v in inputs.items()}
    for name, value in inputs.items():
        for index in np.ndindex(*value.shape):
            totals = []
            for sign in (1, -1):
                moved = {k: v.copy() for k, v in inputs.items()}
                moved[name][index] += sign * step
                pairs = zip(cotangents, function(**moved, **attrs), strict=True)
                totals.append(np.array([(c * y.numpy()).sum() for c, y in pairs]))
            differences[name][(slice(None), *index)] = (totals[0] - totals[1]) / (2 * step)

    for selection in _selections(op):
        chosen = [c if use else None for c, use in zip(cotangents, selection, strict=True)]
        got = _gradients(tfb.raw_ops, op, attrs, inputs, chosen)
        want = [differences[name][list(selection)].sum(axis=0) for name in op.inputs]
        _assert_gradients(op, attrs, inputs, got, want, tolerances.FINITE_DIFFERENCES)


@pytest.mark.parametrize("op, attrs", ORACLE_CASES)
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_is_the_oracles_for_every_cotangent(tfb, op, attrs, mode, device):
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    cotangents = _cotangents(op, DIMS, np.float64)
    bound = tolerances.composed_bound("double", block_cells.reduction_length(DIMS))
    for selection in run_modes.fewer(mode, _selections(op), slice(-2, -1)):
        chosen = [c if use else None for c, use in zip(cotangents, selection, strict=True)]
        with tf.device(device):
            got = _gradients(tfb.raw_ops, op, attrs, inputs, chosen, mode)
        want = VJPS[op.name](**inputs, cotangents=chosen, **attrs)
        _assert_gradients(op, attrs, inputs, got, want, bound)


@pytest.mark.parametrize("op, attrs", ORACLE_CASES)
@pytest.mark.parametrize("dtype", block_cells.DTYPES)
def test_gradient_in_every_type(tfb, op, attrs, dtype, device):
    for dims in ((1, 1, 1), (7, 17, 15), (33, 9, 31)):
        inputs = block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype))
        cotangents = _cotangents(op, dims, block_cells.numpy_type(dtype))
        length = max(block_cells.reduction_length(dims), 4 * dims[2], dims[0])
        bound = tolerances.composed_bound(dtype, length)
        only_state = [None] * (len(cotangents) - 1) + cotangents[-1:]
        for chosen in (only_state, cotangents):
            with tf.device(device):
                got = _gradients(tfb.raw_ops, op, attrs, inputs, chosen)
            want = VJPS[op.name](**inputs, cotangents=chosen, **attrs)
            _assert_gradients(op, attrs, inputs, got, want, bound)
            for value in got.values():
                assert value is None or value.dtype == tf.as_dtype(dtype)


@pytest.mark.parametrize("case", range(len(CASES)), ids=[case.id for case in CASES])
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_of_empty_dims(tfb, case, mode):
    """An empty batch has weight gradients of zero, not of whatever was in memory."""
    op, attrs = CASES[case].values
    # Compiled by XLA, each of the dims in one of the cases.
    for dims in run_modes.fewer(mode, block_cells.EMPTY_DIMS, slice(case, None, len(CASES))):
        inputs = block_cells.random_inputs(op, dims, np.float64)
        cotangents = _cotangents(op, dims, np.float64)
        got = _gradients(tfb.raw_ops, op, attrs, inputs, cotangents, mode)
        want = VJPS[op.name](**inputs, cotangents=cotangents, **attrs)
        bound = tolerances.composed_bound("double", block_cells.reduction_length(dims))
        _assert_gradients(op, attrs, inputs, got, want, bound)


@pytest.mark.parametrize("op, attrs", CASES)
def test_gradient_with_unknown_batch(tfb, op, attrs):
    """Shapes that are not known when the graph is built must not be needed then."""
    unknown = {k: tf.TensorSpec(None, tf.float64) for k in op.inputs}

    @tf.function(input_signature=[unknown])
    def compute(arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            h = getattr(tfb.raw_ops, op.name)(**arguments, **attrs).h
            total = tf.reduce_sum(h)
        return tape.gradient(total, arguments, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    for dims in (DIMS, (1, 4, 3), (0, 2, 2)):
        inputs = block_cells.random_inputs(op, dims, np.float64)
        got = compute({k: tf.constant(v) for k, v in inputs.items()})
        cotangents = [None] * (len(op.outputs) - 1) + [np.ones((dims[0], dims[2]))]
        want = VJPS[op.name](**inputs, cotangents=cotangents, **attrs)
        bound = tolerances.composed_bound("double", block_cells.reduction_length(dims))
        _assert_gradients(op, attrs, inputs, got, want, bound)


def test_gradient_through_two_steps(tfb):
    """Two cells in a row: what one gives back is what the other takes."""
    op, dims = block_cells.GRU, (3, 4, 5)
    inputs = block_cells.random_inputs(op, dims, np.float64)
    d_h = _cotangents(op, dims, np.float64)[-1]
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        first = tfb.raw_ops.GRUBlockCell(**tensors).h
        second = tfb.raw_ops.GRUBlockCell(**{**tensors, "h_prev": first}).h
    got = tape.gradient(second, tensors, output_gradients=tf.constant(d_h))

    h = block_ops.gru_block_cell(**inputs)[3]
    late = block_ops.gru_block_cell_vjp(
        **{**inputs, "h_prev": h}, cotangents=(None, None, None, d_h)
    )
    early = block_ops.gru_block_cell_vjp(**inputs, cotangents=(None, None, None, late[1]))
    bound = tolerances.composed_bound("double", 2 * block_cells.reduction_length(dims))
    for position, name in enumerate(op.inputs):
        want = early[position] + (late[position] if name != "h_prev" else 0.0)
        compare.assert_close(got[name].numpy(), want, bound, name)


@pytest.mark.parametrize("op, attrs", CASES)
def test_second_gradient_is_the_finite_difference_of_the_first(tfb, op, attrs):
    """What the Grad ops themselves give back: d/dx of v · (gradient of the state)."""
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    d_h = tf.constant(_cotangents(op, DIMS, np.float64)[-1])
    weights = {
        k: tf.constant(v) for k, v in block_cells.random_inputs(op, DIMS, np.float64, 9).items()
    }

    def first(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            h = getattr(tfb.raw_ops, op.name)(**tensors, **attrs).h
        gradients = tape.gradient(h, tensors, output_gradients=d_h)
        return tf.add_n([tf.reduce_sum(weights[k] * g) for k, g in gradients.items()])

    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        total = first(tensors)
    got = tape.gradient(total, tensors, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    step = tolerances.FINITE_DIFFERENCE_STEP
    for name, value in inputs.items():
        want = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            totals = []
            for sign in (1, -1):
                moved = {k: v.copy() for k, v in inputs.items()}
                moved[name][index] += sign * step
                totals.append(float(first({k: tf.constant(v) for k, v in moved.items()})))
            want[index] = (totals[0] - totals[1]) / (2 * step)
        compare.assert_close(got[name].numpy(), want, tolerances.FINITE_DIFFERENCES, name)


@pytest.mark.parametrize("op, attrs", CASES)
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_forward_mode_agrees_with_backward_mode(tfb, op, attrs, mode):
    """⟨cotangent, J·v⟩ = ⟨Jᵀ·cotangent, v⟩."""
    inputs = block_cells.random_inputs(op, DIMS, np.float64)
    tangents = block_cells.random_inputs(op, DIMS, np.float64, 11)
    cotangents = _cotangents(op, DIMS, np.float64)
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    call = run_modes.in_mode(mode, lambda given: getattr(tfb.raw_ops, op.name)(**given, **attrs))
    with tf.autodiff.ForwardAccumulator(
        list(tensors.values()), [tf.constant(tangents[k]) for k in tensors]
    ) as accumulator:
        outputs = call(tensors)
    pairs = zip(cotangents, outputs, strict=True)
    forward = sum((c * accumulator.jvp(y).numpy()).sum() for c, y in pairs)
    gradients = VJPS[op.name](**inputs, cotangents=cotangents, **attrs)
    backward = sum((g * tangents[k]).sum() for k, g in zip(tensors, gradients, strict=True))
    bound = tolerances.composed_bound("double", block_cells.reduction_length(DIMS))
    compare.assert_close(forward, backward, bound)


@contextlib.contextmanager
def _executed_ops():
    """Counts the ops that run eagerly, by type."""
    from tensorflow.python.framework import op_callbacks

    counts: collections.Counter = collections.Counter()

    def callback(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        del inputs, attrs, outputs, op_name
        if graph is None:
            counts[op_type.decode() if isinstance(op_type, bytes) else op_type] += 1

    op_callbacks.add_op_callback(callback)
    try:
        yield counts
    finally:
        op_callbacks.remove_op_callback(callback)


# What a backward pass of the last output alone may run: one Grad op, and for the weights one
# GEMM each (for the LSTM one more gives [d_x, d_h_prev], which its Grad op does not).
_GEMMS = {"GRUBlockCell": 2, "LSTMBlockCell": 2}
_GEMM_TYPES = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")


def _assert_one_pass(counts, op):
    assert counts[f"BlockRNN>{op.name}Grad"] == 1, dict(counts)
    gemms = sum(counts[k] for k in _GEMM_TYPES)
    assert gemms == _GEMMS[op.name], dict(counts)
    # No element-wise pass of zeros either; h_prev ∘ r, for the GRU's weights, is the only Mul.
    assert counts["Mul"] <= 1, dict(counts)


@pytest.mark.parametrize("op, attrs", CASES)
def test_unused_outputs_cost_no_second_pass_eagerly(tfb, op, attrs):
    inputs = block_cells.random_inputs(op, DIMS, np.float32)
    chosen = [None] * (len(op.outputs) - 1) + _cotangents(op, DIMS, np.float32)[-1:]
    with _executed_ops() as counts:
        _gradients(tfb.raw_ops, op, attrs, inputs, chosen)
    assert counts[f"BlockRNN>{op.name}"] == 1, dict(counts)
    _assert_one_pass(counts, op)


@pytest.mark.parametrize("op, attrs", CASES)
def test_unused_outputs_cost_no_second_pass_in_a_graph(tfb, op, attrs):
    """Counted in the graph as it is built; nothing is left to an optimiser."""
    inputs = block_cells.random_inputs(op, DIMS, np.float32)

    @tf.function
    def compute(arguments, d_h):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            h = getattr(tfb.raw_ops, op.name)(**arguments, **attrs).h
        return tape.gradient(h, arguments, output_gradients=d_h)

    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    graph = compute.get_concrete_function(tensors, tf.zeros(list(DIMS[::2]))).graph
    counts = collections.Counter(node.op for node in graph.as_graph_def().node)
    assert counts[f"BlockRNN>{op.name}"] == 1, dict(counts)
    _assert_one_pass(counts, op)


@pytest.mark.parametrize("op, attrs", CASES)
def test_the_state_and_its_cell_cost_one_pass_too(tfb, op, attrs):
    """What an unrolled recurrence asks for: all outputs that the next step reads."""
    chosen = _cotangents(op, DIMS, np.float32)
    if op is block_cells.GRU:
        chosen[:3] = [None] * 3
    else:
        chosen = [c if k in (1, 6) else None for k, c in enumerate(chosen)]
    inputs = block_cells.random_inputs(op, DIMS, np.float32)
    with _executed_ops() as counts:
        _gradients(tfb.raw_ops, op, attrs, inputs, chosen)
    _assert_one_pass(counts, op)


@pytest.mark.parametrize("op, attrs", ORACLE_CASES)
@pytest.mark.parametrize("mode", ["eager", "graph"])  # TensorFlow lowers none of its own to XLA
def test_tensorflows_own_ops_get_a_gradient(tfb, op, attrs, mode):
    """Importing the package gives tf.raw_ops.GRUBlockCell and LSTMBlockCell a gradient."""
    del tfb
    inputs = block_cells.random_inputs(op, DIMS, np.float32)
    cotangents = _cotangents(op, DIMS, np.float32)
    bound = tolerances.composed_bound("float", block_cells.reduction_length(DIMS))
    for selection in _selections(op):
        chosen = [c if use else None for c, use in zip(cotangents, selection, strict=True)]
        got = _gradients(tf.raw_ops, op, attrs, inputs, chosen, mode)
        want = VJPS[op.name](**inputs, cotangents=chosen, **attrs)
        _assert_gradients(op, attrs, inputs, got, want, bound)


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
