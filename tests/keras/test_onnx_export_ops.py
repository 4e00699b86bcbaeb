"""The conversion of single ops by tf2onnx, for programs that call them without Keras."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tf2onnx
from helpers import onnx_export, tolerances
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


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("function", ["lstm", "gru", "gru-before", "simple_rnn"])
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


@pytest.mark.parametrize("steps", [T, 3, 0])
@pytest.mark.parametrize("op", ["BlockLSTM", "BlockLSTMV2", "BlockGRU"])
@pytest.mark.parametrize("peephole", [False, True])
def test_block_ops(tfb, op, steps, peephole):
    def call(x, h_prev):
        common = {"seq_len_max": tf.constant(steps, tf.int64), "x": x, "h_prev": h_prev}
        if op == "BlockGRU":
            return tfb.raw_ops.BlockGRU(
                **common,
                w_ru=normal(X + H, 2 * H),
                w_c=normal(X + H, H),
                b_ru=normal(2 * H),
                b_c=normal(H),
            ).h
        own = {"forget_bias": 0.7} if op == "BlockLSTM" else {}
        return getattr(tfb.raw_ops, op)(
            **common,
            cs_prev=normal(B, H),
            w=normal(X + H, 4 * H),
            wci=normal(H),
            wcf=normal(H) + 1,
            wco=normal(H) - 1,
            b=normal(4 * H),
            use_peephole=peephole,
            cell_clip=0.0,
            **own,
        ).h

    assert_converts(call, {"x": normal(T, B, X), "h_prev": normal(B, H) + 1})


@pytest.mark.parametrize("opset", [11, 15, 18])
@pytest.mark.parametrize("peephole", [False, True])
def test_lstm_cell(tfb, opset, peephole):
    def call(x, cs_prev, h_prev):
        return tfb.raw_ops.LSTMBlockCell(
            x=x,
            cs_prev=cs_prev,
            h_prev=h_prev,
            w=normal(X + H, 4 * H),
            wci=normal(H),
            wcf=normal(H) + 1,
            wco=normal(H) - 1,
            b=normal(4 * H),
            forget_bias=0.7,
            cell_clip=0.4,
            use_peephole=peephole,
        )

    arguments = {"x": normal(B, X), "cs_prev": normal(B, H) * 3, "h_prev": normal(B, H)}
    assert_converts(call, arguments, opset)


@pytest.mark.parametrize("opset", [11, 15, 18])
def test_gru_cell(tfb, opset):
    def call(x, h_prev):
        return tfb.raw_ops.GRUBlockCell(
            x=x,
            h_prev=h_prev,
            w_ru=normal(X + H, 2 * H),
            w_c=normal(X + H, H),
            b_ru=normal(2 * H),
            b_c=normal(H),
        )

    assert_converts(call, {"x": normal(B, X), "h_prev": normal(B, H)}, opset)


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_relu", "rnn_tanh"])
@pytest.mark.parametrize("direction", ["unidirectional", "bidirectional"])
@pytest.mark.parametrize("version", ["", "V2", "V3", "V3-batch-major", "V3-skip"])
def test_cudnn(tfb, mode, direction, version):
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
    op = getattr(tfb.raw_ops, f"CudnnRNN{version}")
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


def refusal(function, *shapes) -> str:
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    traced = tf.function(function, input_signature=specs)
    with pytest.raises(NotImplementedError, match="tf_blockrnn.unfuse_model") as raised:
        tf2onnx.convert.from_function(traced, specs)
    return str(raised.value)


def test_graph_of_a_gradient_is_refused(tfb):
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tfb.gru(x, normal(X, 3 * H), normal(H, 3 * H), normal(3 * H))[0]
        return tape.gradient(y, x)

    said = refusal(call, [B, T, X])
    assert "GRUAfterSequenceGrad" in said or "output" in said


def test_saved_gates_are_refused(tfb):
    def call(x):
        return tfb.raw_ops.BlockLSTMV2(
            seq_len_max=tf.constant(T, tf.int64),
            x=x,
            cs_prev=normal(B, H),
            h_prev=normal(B, H),
            w=normal(X + H, 4 * H),
            wci=normal(H),
            wcf=normal(H),
            wco=normal(H),
            b=normal(4 * H),
        ).cs

    assert "BlockRNN>BlockLSTMV2" in refusal(call, [T, B, X])


def test_dropout_is_refused(tfb):
    dropout = np.ones((3, B, H), np.float32)

    def call(x):
        w_x, w_h, b = normal(X, 3 * H), normal(H, 3 * H), normal(3 * H)
        return tfb.gru(x, w_x, w_h, b, recurrent_dropout_factors=dropout)[0]

    assert "for inference" in refusal(call, [B, T, X])


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("zoneout", [0.25, np.ones((B, T, H), bool)], ids=["mean", "draws"])
def test_zoneout_is_refused(tfb, name, zoneout):
    width = {"lstm": 4 * H, "gru": 3 * H}[name]

    def call(x):
        w_x, w_h, b = normal(X, width), normal(H, width), normal(width)
        return getattr(tfb, name)(x, w_x, w_h, b, zoneout_h=zoneout)[0]

    assert "it has zoneout" in refusal(call, [B, T, X])


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
