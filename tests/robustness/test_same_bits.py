"""Same inputs, same build: the same bits, whatever the buffers, the mode and the run."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    block_cells,
    children,
    compare,
    covering,
    cudnn_ops,
    run_modes,
    sequence_functions,
    sequence_ops,
)
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

OPS = block_cells.OPS | sequence_ops.OPS
cudnn_modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)


def _dims(op):
    """For work on all units and rows, in part of a vector and of a tile."""
    return (4, 9, 17, 32) if len(op.sizes) == 4 else (33, 17, 64)


def _bits(outputs):
    return [compare.bits(value) for value in outputs]


def _assert_same_of_any_buffers(function, tensors, fixed=()):
    """The outputs for the same numbers in every kind of buffer that TensorFlow has.

    Nothing is written to the arguments; those in `fixed` are always given as they are.
    """
    want, before = _bits(function(tensors)), {k: compare.bits(v) for k, v in tensors.items()}
    whole = {k: tensors[k] for k in fixed}
    parts = {k: v for k, v in tensors.items() if k not in fixed}
    zero = tf.zeros([], next(v.dtype for v in parts.values() if v.dtype.is_floating))
    variables = {k: tf.Variable(v) for k, v in parts.items()}

    # The named arguments are results of another op and read by nothing else: such a buffer may be
    # given on to an output. The addend comes from outside, so it cannot be folded away.
    def temporaries(*names):
        @tf.function
        def compute(values, addend):
            return function({**whole, **values, **{k: values[k] + addend for k in names}})

        return compute(parts, zero)

    # Parts of a larger buffer, which need not be aligned as a whole tensor is.
    @tf.function
    def slices(values):
        doubled = {k: tf.concat([v[:1], v], axis=0) for k, v in values.items()}
        return function({**whole, **{k: v[1:] for k, v in doubled.items()}})

    found = {
        "arguments": tf.function(function)(tensors),
        "constants": tf.function(lambda: function(tensors))(),
        "variables": tf.function(lambda: function({**whole, **variables}))(),
        "eager variables": function({**whole, **variables}),
        "eager temporaries": function({**whole, **{k: v + zero for k, v in parts.items()}}),
        "temporaries": temporaries(*parts),
        "slices": slices(parts),
        **{f"{name} a temporary": temporaries(name) for name in parts},
    }
    for kind, outputs in found.items():
        assert _bits(outputs) == want, kind
    assert {k: compare.bits(v) for k, v in tensors.items()} == before, "an argument was written"


@pytest.mark.types
@pytest.mark.parametrize(
    ("case", "dtype"), covering.in_turn(block_cells.op_cases(OPS), ["bfloat16", "float"])
)
def test_buffers_do_not_change_the_bits(tfb, case, dtype):
    op, attrs = case
    inputs = block_cells.random_inputs(op, _dims(op), block_cells.numpy_type(dtype), valid=3)
    tensors = block_cells.tensors_of(inputs)
    _assert_same_of_any_buffers(
        lambda values: getattr(tfb.raw_ops, op.name)(**values, **attrs),
        tensors,
        tensors.keys() & {"seq_len_max"},
    )


@pytest.mark.types
@pytest.mark.parametrize(
    ("name", "dtype"),
    covering.in_turn(
        ["lstm-peephole", "gru-after", "gru-before", "layer-norm-lstm", "layer-norm-gru"],
        ["bfloat16", "float"],
    ),
)
def test_buffers_do_not_change_the_bits_of_functions(tfb, name, dtype):
    """The ops under tf_blockrnn.lstm and gru with a mask and lengths, and their Grad ops."""
    function, dims = sequence_functions.PLAIN[name], (4, 9, 17, 32)
    inputs = sequence_functions.random_inputs(function, dims, block_cells.numpy_type(dtype))
    mask, lengths = sequence_functions.patterns(dims)["lengths and holes"]
    options = {"mask": tf.constant(mask), "lengths": tf.constant(lengths)}

    def compute(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = sequence_functions.call(tfb, function, values, time_major=True, **options)
        return [*outputs, *tape.gradient(outputs, values).values()]

    _assert_same_of_any_buffers(compute, {k: tf.constant(v) for k, v in inputs.items()})


@cudnn_modes
def test_buffers_do_not_change_the_bits_of_stacks(tfb, mode):
    call = Call(Network(mode, 2, 2, 17, 33), 4, 9, (4, 0, 3, 1, 4, 2, 4, 4, 1))
    tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")
    lengths = ("sequence_lengths",)
    _assert_same_of_any_buffers(lambda t: call.forward(tfb.raw_ops, t), tensors, lengths)
    outputs = call.forward(tfb.raw_ops, tensors)
    keys = [k for k in cudnn_ops.OUTPUTS if k != "output_c" or mode == "lstm"]

    def backward(values):
        given = {k: v for k, v in values.items() if k in tensors}
        replaced = outputs._replace(**{k: values[k] for k in keys})
        return call.backward(tfb.raw_ops, given, replaced, cotangents)

    everything = {**tensors, **{k: getattr(outputs, k) for k in keys}}
    _assert_same_of_any_buffers(backward, everything, lengths)


@pytest.mark.parametrize("name", ["GRUBlockCellGrad", "BlockLSTMGrad", "BlockGRUGrad"])
def test_one_tensor_as_many_arguments(tfb, name):
    """The same tensor may be every residual and all incoming gradients at once."""
    op, dims = OPS[name], (4, 5, 8, 8)
    inputs = block_cells.random_inputs(op, dims[-len(op.sizes) :], np.float32)
    one = inputs["u" if "u" in inputs else "h"]
    same = [k for k, v in inputs.items() if np.shape(v) == one.shape and k != "x"]
    apart = inputs | {k: one.copy() for k in same}
    together = block_cells.tensors_of(inputs) | dict.fromkeys(same, tf.constant(one))
    want = _bits(block_cells.call(tfb.raw_ops, op, apart, op.attr_cases[-1]))
    for mode in run_modes.MODES:
        got = block_cells.call(tfb.raw_ops, op, together, op.attr_cases[-1], mode)
        assert _bits(got) == want, mode


@cudnn_modes
def test_one_tensor_as_many_arguments_of_a_stack(tfb, mode):
    """The same tensor may be both states and all their gradients, and the output its own."""
    call = Call(Network(mode, 1, 1, 5, 5), 3, 4)
    tensors = call.tensors(call.random("float"))
    shared = tensors["input_h"]
    tensors["input_c"] = shared
    outputs = call.forward(tfb.raw_ops, tensors)
    copies = {k: tf.identity(v) for k, v in tensors.items()}
    assert _bits(call.forward(tfb.raw_ops, copies)) == _bits(outputs)
    cotangents = [outputs.output.numpy(), shared.numpy(), outputs.output_c.numpy()]
    apart = call.backward(tfb.raw_ops, copies, outputs, cotangents)
    together = getattr(tfb.raw_ops, cudnn_ops.BACKPROP[3])(
        **tensors, **outputs._asdict(), **call.attrs(), output_backprop=outputs.output,
        output_h_backprop=shared, output_c_backprop=outputs.output_c,
    )  # fmt: skip
    assert _bits(together) == _bits(apart)


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
