"""The conversion of single ops by tf2onnx, for programs that call them without Keras."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf
import tf2onnx
from helpers import covering, onnx_export, tolerances
from helpers.compare import assert_close

pytestmark = pytest.mark.types

T, B, X, H = 5, 4, 3, 2  # X: inputs
LENGTHS = np.array([5, 2, 0, 3], np.int32)
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], bool)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(0, 0.6, shape).astype(np.float32)


def assert_converts(function, arguments: dict[str, np.ndarray], opset: int = 15):
    """That ONNX Runtime computes what the function does, of arguments that are the file's inputs.

    The outputs are a tuple or list of tensors.
    """
    specs = [tf.TensorSpec(a.shape, a.dtype, n) for n, a in arguments.items()]
    traced = tf.function(function, input_signature=specs)
    want = [np.asarray(output) for output in tf.nest.flatten(function(*arguments.values()))]
    proto, _ = tf2onnx.convert.from_function(traced, specs, opset=opset)
    got = onnx_export.run(onnx_export.checked(proto), list(arguments.values()))
    for n, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        assert_close(mine, theirs, tolerances.ONNX, f"output {n}")
    return proto


@pytest.mark.parametrize(
    ("function", "time_major", "backwards", "masked"),
    covering.pairwise(["lstm", "gru", "gru-before", "simple_rnn"], *[[False, True]] * 3),
)
def test_lengths_and_weights_that_are_inputs(tfb, function, time_major, backwards, masked):
    name, _, before = function.partition("-")
    gates = {"lstm": 4, "gru": 3, "simple_rnn": 1}[name]
    states = 2 if name == "lstm" else 1
    options = {"reset_after": False} if before else {}

    def call(x, w_x, w_h, b, lengths, mask, *initial):
        outputs, last = getattr(tfb, name)(
            x,
            w_x,
            w_h,
            b,
            initial_state=initial if states == 2 else initial[0],
            lengths=lengths,
            mask=mask if masked else None,
            time_major=time_major,
            go_backwards=backwards,
            **options,
        )
        # The mask is an input of the file in any case.
        used = tf.reduce_any(mask, axis=0 if time_major else 1)
        return outputs, *tf.nest.flatten(last), tf.cast(used, tf.float32)

    x, mask = normal(B, T, X), MASK
    if time_major:
        x, mask = x.swapaxes(0, 1), mask.T
    arguments = {
        "x": x,
        "w_x": normal(X, gates * H),
        "w_h": normal(H, gates * H),
        "b": normal(gates * H),
        "lengths": LENGTHS,
        "mask": mask,
        **{f"state{n}": normal(B, H) + n for n in range(states)},
    }
    assert_converts(call, arguments)


def test_options_of_lstm(tfb):
    def call(x, peepholes):
        outputs, state = tfb.lstm(
            x,
            normal(X, 4 * H),
            normal(H, 4 * H),
            normal(4 * H),
            peepholes=tf.unstack(peepholes),
            forget_bias=0.7,
        )
        return outputs, *state

    assert_converts(call, {"x": normal(B, T, X), "peepholes": normal(3, H)})


@pytest.mark.parametrize("gates", [1, 3, 4])
def test_x_that_is_multiplied_already(tfb, gates):
    function = {1: tfb.simple_rnn, 3: tfb.gru, 4: tfb.lstm}[gates]
    w_h, b = normal(H, gates * H), normal(gates * H)
    assert_converts(lambda x: function(x, None, w_h, b)[0], {"x": normal(B, T, gates * H)})


GRU = {
    "w_ru": normal(X + H, 2 * H),
    "w_c": normal(X + H, H),
    "b_ru": normal(2 * H),
    "b_c": normal(H),
}
LSTM = {
    "w": normal(X + H, 4 * H),
    "wci": normal(H),
    "wcf": normal(H) + 1,
    "wco": normal(H) - 1,
    "b": normal(4 * H),
}


@pytest.mark.parametrize(
    ("op", "steps", "peephole"),
    covering.pairwise(["BlockLSTM", "BlockLSTMV2", "BlockGRU"], [T, 3, 0], [False, True]),
)
def test_block_ops(tfb, op, steps, peephole):
    def call(x, h_prev):
        common = {"seq_len_max": tf.constant(steps, tf.int64), "x": x, "h_prev": h_prev}
        if op == "BlockGRU":
            return tfb.raw_ops.BlockGRU(**common, **GRU).h
        own = {"use_peephole": peephole, "cell_clip": 0.0, "cs_prev": normal(B, H)}
        own |= {"forget_bias": 0.7} if op == "BlockLSTM" else {}
        return getattr(tfb.raw_ops, op)(**common, **LSTM, **own).h

    assert_converts(call, {"x": normal(T, B, X), "h_prev": normal(B, H) + 1})


@pytest.mark.parametrize("opset", [11, 15, 18])
def test_cells(tfb, opset):
    peephole = opset != 15

    def call(x, cs_prev, h_prev):
        options = {"forget_bias": 0.7, "cell_clip": 0.4, "use_peephole": peephole}
        lstm = tfb.raw_ops.LSTMBlockCell(x=x, cs_prev=cs_prev, h_prev=h_prev, **LSTM, **options)
        return *lstm, *tfb.raw_ops.GRUBlockCell(x=x, h_prev=h_prev, **GRU)

    arguments = {"x": normal(B, X), "cs_prev": normal(B, H) * 3, "h_prev": normal(B, H)}
    assert_converts(call, arguments, opset)


@pytest.mark.parametrize(
    ("mode", "direction", "version", "whose"),
    covering.pairwise(
        ["lstm", "gru", "rnn_relu", "rnn_tanh"],
        ["unidirectional", "bidirectional"],
        ["", "V2", "V3", "V3-batch-major", "V3-skip"],
        ["ours", "tensorflow's"],
    ),
)
def test_cudnn(tfb, mode, direction, version, whose):
    version, _, variant = version.partition("-")
    layers, directions = 2, 2 if direction == "bidirectional" else 1
    inputs = H if variant == "skip" else X
    network = {
        "rnn_mode": mode,
        "direction": direction,
        "input_mode": "skip_input" if variant == "skip" else "linear_input",
    }
    size = tfb.raw_ops.CudnnRNNParamsSize(
        num_layers=layers, num_units=H, input_size=inputs, T=tf.float32, S=tf.int32, **network
    )
    op = getattr(tfb.raw_ops if whose == "ours" else tf.raw_ops, f"CudnnRNN{version}")
    time_major = variant != "batch-major"
    options = {"time_major": time_major} if version == "V3" else {}

    def call(x, h, c, params, lengths):
        given = {"sequence_lengths": lengths} if version == "V3" else {}
        result = op(
            input=x,
            input_h=h,
            input_c=c,
            params=params,
            is_training=False,
            **given,
            **network,
            **options,
        )
        used = tf.cast(lengths, tf.float32), tf.reduce_sum(c)
        return result.output, result.output_h, result.output_c, *used

    def batch_first(array):
        return array if time_major else array.swapaxes(0, 1)

    state = layers * directions
    arguments = {
        "x": batch_first(normal(T, B, inputs)),
        "h": batch_first(normal(state, B, H)),
        "c": batch_first(normal(state, B, H) + 1),
        "params": normal(int(size[0])),
        "lengths": LENGTHS,
    }
    assert_converts(call, arguments)


def _gradient(tfb, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tfb.gru(x, normal(X, 3 * H), normal(H, 3 * H), normal(3 * H))[0]
    return tape.gradient(y, x)


def _saved_gates(tfb, x):
    states = {"cs_prev": normal(B, H), "h_prev": normal(B, H)}
    return tfb.raw_ops.BlockLSTMV2(seq_len_max=tf.constant(T, tf.int64), x=x, **states, **LSTM).cs


def _with_options(function: str, gates: int, **options):
    weights = normal(X, gates * H), normal(H, gates * H), normal(gates * H)
    return lambda tfb, x: getattr(tfb, function)(x, *weights, **options)[0]


_DRAWS = np.ones((B, T, H), bool)
REFUSED = {
    "a graph of a gradient": (_gradient, "GRUAfterSequenceGrad|output"),
    "gates that are outputs": (_saved_gates, "BlockRNN>BlockLSTMV2"),
    "dropout": (
        _with_options("gru", 3, recurrent_dropout_factors=np.ones((3, B, H), np.float32)),
        "for inference",
    ),
    "zoneout of an LSTM": (_with_options("lstm", 4, zoneout_h=0.25), "it has zoneout"),
    "zoneout of a GRU": (_with_options("gru", 3, zoneout_h=0.25), "it has zoneout"),
    "draws of an LSTM": (_with_options("lstm", 4, zoneout_h=_DRAWS), "it has zoneout"),
    "draws of a GRU": (_with_options("gru", 3, zoneout_h=_DRAWS), "it has zoneout"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_onnx_has_not_is_refused(tfb, name):
    call, words = REFUSED[name]
    shape = [T, B, X] if call is _saved_gates else [B, T, X]
    specs = [tf.TensorSpec(shape, tf.float32)]
    traced = tf.function(lambda x: call(tfb, x), input_signature=specs)
    with pytest.raises(NotImplementedError, match="tf_blockrnn.unfuse_model") as raised:
        tf2onnx.convert.from_function(traced, specs)
    assert re.search(words, str(raised.value))


def test_a_handler_of_the_callers_takes_precedence(tfb):
    """tf2onnx's `custom_op_handlers` works as for any other op."""

    def identity(ctx, node, name, args):
        del name, args
        output, x = node.output[0], node.input[0]
        ctx.remove_node(node.name)
        ctx.make_node("Identity", [x], outputs=[output])

    def call(x):
        return tfb.simple_rnn(x, normal(H, H), normal(H, H), normal(H))[0]

    specs = [tf.TensorSpec([B, T, H], tf.float32)]
    proto, _ = tf2onnx.convert.from_function(
        tf.function(call, input_signature=specs),
        specs,
        custom_op_handlers={"BlockRNN>RNNSequence": (identity, [])},
    )
    (got,) = onnx_export.run(proto, [normal(B, T, H)])
    assert_close(got, normal(B, T, H), tolerances.ONNX)
