"""Same inputs, same build: the same bits, whatever the buffers, the threads and the run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, children, compare, run_modes

cells = pytest.mark.parametrize(
    "op, attrs",
    [pytest.param(o, a, id=f"{o.name}-{n}") for n, (o, a) in enumerate(block_cells.op_cases())],
)
DIMS = (33, 17, 64)


def test_threads_do_not_change_the_bits(tfb):
    """1, 2 and 8 threads, each pool in a process of its own; every process also runs twice."""
    del tfb
    digests = {}
    for threads in (1, 2, 8):
        result = children.run_python([str(children.PROGRAMS / "same_bits_child.py"), str(threads)])
        out = children.assert_ok(result, f"the run with {threads} threads")
        digests[threads] = json.loads(out.strip().splitlines()[-1])
    assert len(digests[1]) == len(block_cells.op_cases()) * len(block_cells.DTYPES) * 7
    assert len(set(digests[1].values())) == len(digests[1]), "digests that cannot tell calls apart"
    for threads in (2, 8):
        differing = [k for k, v in digests[1].items() if digests[threads][k] != v]
        assert not differing, f"1 and {threads} threads differ: {differing[:10]}"


ON_THE_CALLERS_THREAD = """
import numpy as np, tensorflow as tf, tf_blockrnn
from helpers import compare

B, H = 4096, 64
subnormal = np.full([B, H], 2e-39, np.float32)
known = dict(
    x=np.zeros([B, H]), h_prev=np.zeros([B, H]), w_ru=np.zeros([2 * H, 2 * H]),
    w_c=np.zeros([2 * H, H]), b_ru=np.zeros(2 * H), b_c=np.zeros(H),
    r=np.full([B, H], 0.5), u=np.full([B, H], 0.5), c=np.zeros([B, H]),
)
known = {name: value.astype(np.float32) for name, value in known.items()}
with tf.Graph().as_default() as graph:
    d_h = tf.compat.v1.placeholder(tf.float32, [B, H])
    gradients = tf_blockrnn.raw_ops.GRUBlockCellGrad(d_h=d_h, **known)
seen = set()
for inter_op in (1, -1, -1, -1):  # -1: no thread of its own for an op
    config = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=inter_op, intra_op_parallelism_threads=4
    )
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        found = session.run(gradients, {d_h: subnormal})
    seen.add(b"".join(compare.bits(value) for value in found))
print(len(seen))
"""


@pytest.mark.types
def test_the_callers_thread_rounds_as_the_pools_do(tfb):
    """TensorFlow's own threads flush subnormal numbers to zero; a session's caller does not."""
    del tfb
    result = children.run_python(["-c", ON_THE_CALLERS_THREAD], fresh=True)
    assert children.assert_ok(result, "the sessions").split()[-1] == "1"


def _bits(outputs):
    return [compare.bits(value) for value in outputs]


def _buffers(op, attrs, function, inputs):
    """(name, outputs) for the same numbers in every kind of buffer that TensorFlow has."""
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    zero = tf.zeros([], tensors["x"].dtype)
    variables = {k: tf.Variable(v) for k, v in inputs.items()}

    @tf.function
    def arguments(values):
        return function(**values, **attrs)

    @tf.function
    def constants():
        return function(**{k: tf.constant(v) for k, v in inputs.items()}, **attrs)

    @tf.function
    def from_variables():
        return function(**variables, **attrs)

    # Every argument is the result of another op and read by nothing else: such a buffer may be
    # given on to an output. The addend comes from outside, so it cannot be folded away.
    @tf.function
    def temporaries(values, addend):
        return function(**{k: v + addend for k, v in values.items()}, **attrs)

    # Slices of one larger buffer, which need not be aligned as a whole tensor is.
    @tf.function
    def slices(values):
        doubled = {k: tf.concat([v[:1], v], axis=0) for k, v in values.items()}
        return function(**{k: v[1:] for k, v in doubled.items()}, **attrs)

    yield "arguments", arguments(tensors)
    yield "constants", constants()
    yield "variables", from_variables()
    yield "temporaries", temporaries(tensors, zero)
    for name in op.inputs:

        @tf.function
        def one_temporary(values, addend, name=name):
            return function(**{**values, name: values[name] + addend}, **attrs)

        yield f"{name} a temporary", one_temporary(tensors, zero)
    yield "slices", slices(tensors)
    yield "eager temporaries", function(**{k: v + zero for k, v in tensors.items()}, **attrs)
    yield "eager variables", function(**variables, **attrs)


@pytest.mark.types
@cells
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
def test_buffers_do_not_change_the_bits(tfb, op, attrs, dtype):
    function = getattr(tfb.raw_ops, op.name)
    inputs = block_cells.random_inputs(op, DIMS, block_cells.numpy_type(dtype))
    want = _bits(block_cells.call(tfb.raw_ops, op, inputs, attrs))
    for name, outputs in _buffers(op, attrs, function, inputs):
        assert _bits(outputs) == want, name


@cells
def test_inputs_are_not_written(tfb, op, attrs):
    """A forwarded buffer would show in the arguments too."""
    inputs = block_cells.random_inputs(op, DIMS, np.float32)
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    getattr(tfb.raw_ops, op.name)(**tensors, **attrs)
    for name, value in inputs.items():
        assert compare.bits(tensors[name]) == compare.bits(value), name


def test_one_tensor_as_many_arguments(tfb):
    """The same tensor may be h_prev, r, u, c and d_h at once."""
    op = block_cells.GRU_GRAD
    inputs = block_cells.random_inputs(op, (9, 8, 8), np.float32)
    apart = {k: np.copy(inputs["u"]) if v.shape == (9, 8) else v for k, v in inputs.items()}
    shared = tf.constant(inputs["u"])
    together = {k: shared if v.shape == (9, 8) else v for k, v in inputs.items()}
    want = _bits(block_cells.call(tfb.raw_ops, op, apart, {}))
    assert _bits(block_cells.call(tfb.raw_ops, op, together, {})) == want
    for mode in ("graph", "jit"):
        assert _bits(block_cells.call(tfb.raw_ops, op, together, {}, mode)) == want


@cells
def test_all_modes_and_repeated_runs_agree(tfb, op, attrs):
    for dims in ((1, 1, 1), (7, 17, 15), (64, 65, 130)):
        inputs = block_cells.random_inputs(op, dims, np.float32)
        want = _bits(block_cells.call(tfb.raw_ops, op, inputs, attrs))
        calls = [block_cells.caller(tfb.raw_ops, op, attrs, mode) for mode in run_modes.MODES]
        for _ in range(3):
            for call in calls:
                assert _bits(call(inputs)) == want


@pytest.mark.parametrize("family", ["GRUBlockCell", "LSTMBlockCell"])
def test_gradients_have_the_same_bits(tfb, family):
    """The backward pass of the state, from temporaries and from variables, twice each.

    Only the state's: the other cotangents go through TensorFlow's own element-wise ops, which
    its graph optimiser rearranges.
    """
    op = block_cells.OPS[family]
    inputs = block_cells.random_inputs(op, DIMS, np.float32)
    attrs = {"use_peephole": True} if family == "LSTMBlockCell" else {}
    variables = {k: tf.Variable(v) for k, v in inputs.items()}

    def gradients(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = getattr(tfb.raw_ops, family)(**values, **attrs)
        return tape.gradient(outputs.h, values)

    @tf.function
    def temporaries(values, addend):
        return gradients({k: v + addend for k, v in values.items()})

    @tf.function
    def from_variables():
        return gradients({k: v.read_value() for k, v in variables.items()})

    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    want = {k: compare.bits(v) for k, v in gradients(tensors).items()}
    for _ in range(2):
        for got in (temporaries(tensors, tf.zeros([])), from_variables()):
            assert {k: compare.bits(v) for k, v in got.items()} == want
