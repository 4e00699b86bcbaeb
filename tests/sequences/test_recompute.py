"""recompute=True: less is kept for the gradient, and no bit of it changes."""

from __future__ import annotations

import functools
import json
from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, compare, op_table, run_modes
from helpers.covering import pairwise
from helpers.second_cases import BOUND, Case
from helpers.sequence_functions import FUNCTIONS, call, random_inputs

# The engine's gradients are compared in tests/cpp/training_test.cc, each cell with many lengths of
# spans; malformed calls of the ops are made in tests/robustness. Here: that the attr, each type and
# each option reach the engine through functions and gradients.
SAVING = [key for key, variant in FUNCTIONS.items() if variant.name != "simple_rnn"]
# One variant of each op.
KEYS = ("lstm", "gru-after", "gru-before", "layer-norm-gru", "layer-norm-lstm")

# (T, B, I, H), of more blocks of steps than one: of 480 rows, as the input is wide.
MANY_ROWS = (70, 24, 140, 3)


def _gradients(tfb, key, tensors, options, recompute):
    """Outputs and the gradients of all inputs, with cotangents that differ everywhere."""
    variant = FUNCTIONS[key]
    watched = {k: v for k, v in tensors.items() if k != "dropout"}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        given = {**tensors, **watched}
        outputs = call(tfb, variant, given, time_major=True, recompute=recompute, **options)
        total = tf.add_n([tf.reduce_sum(output * _weights(output)) for output in outputs])
    found = tape.gradient(total, watched)
    return {**{f"output {k}": v for k, v in enumerate(outputs)}, **found}


def _weights(output):
    """Numbers that have the same bits however they are computed."""
    table = tf.cast(np.linspace(-0.4, 0.6, 97), output.dtype)
    return tf.reshape(tf.gather(table, tf.range(tf.size(output)) % 97), tf.shape(output))


def _assert_same_bits(got, want, what):
    for name, value in want.items():
        assert compare.bits(got[name]) == compare.bits(value), f"{name} of {what}"


def _tensors(key, dims, dtype, *, dropout=False, projected=False):
    kind = block_cells.numpy_type(dtype)
    values = random_inputs(FUNCTIONS[key], dims, kind, dropout=dropout, projected=projected)
    return {name: tf.constant(value) for name, value in values.items()}


def _row_options(dims, go_backwards):
    """Lengths and a mask with padding at both ends, and steps masked between."""
    steps, batch = dims[:2]
    rng = np.random.default_rng([7, *dims])
    lengths = rng.integers(0, steps + 1, batch)
    lengths[-1] = steps
    mask = rng.random((steps, batch)) < 0.8
    mask[: steps // 5, ::3] = False
    mask[-(steps // 4) :, 1::3] = False
    return {
        "lengths": tf.constant(lengths, tf.int32),
        "mask": tf.constant(mask),
        "go_backwards": go_backwards,
    }


def _attrs(function, *arguments):
    """The attr `recompute` of the ops of a function that have one."""
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments).graph
    ops = graph.get_operations()
    return [op.get_attr("recompute") for op in ops if "recompute" in op.node_def.attr]


def test_functions_pass_it_on(tfb):
    """Which no bits of the results would show."""
    for key, (recompute, attr) in product(KEYS, [(False, 0), (True, -1), (7, 7)]):
        options = {"time_major": True, "recompute": recompute}
        function = functools.partial(call, tfb, FUNCTIONS[key], **options)
        assert _attrs(function, _tensors(key, (3, 2, 3, 4), "float")) == [attr], key


def _of_unknown_sizes(function, tensors):
    unknown = {k: tf.TensorSpec([None] * v.shape.rank, v.dtype) for k, v in tensors.items()}
    return tf.function(function, input_signature=[unknown], autograph=False)


# Each op with each type in each mode: eagerly, in graphs, compiled by XLA, in graphs of unknown
# sizes, and with x · w_x as the input. The other variants once.
MODES = (*run_modes.MODES, "unknown sizes", "projected")
CASES = pairwise(KEYS, block_cells.DTYPES, MODES)
CASES += [(key, "float", "eager") for key in SAVING if key not in KEYS]


@pytest.mark.parametrize("key, dtype, mode", CASES)
def test_the_gradients_have_the_same_bits(tfb, key, dtype, mode):
    projected, known = mode == "projected", mode in run_modes.MODES
    tensors = _tensors(key, MANY_ROWS, dtype, dropout=known, projected=projected)
    options = _row_options(MANY_ROWS, mode == "eager") if known else {}
    want = _gradients(tfb, key, tensors, options, recompute=False)
    assert np.any(want["w_h"].numpy())
    # Spans of one block, of two; numbers that no block is a multiple of.
    for recompute in (True, 1, 23) if mode in ("eager", "projected") else (True,):

        def gradients(given, recompute=recompute):
            return _gradients(tfb, key, given, options, recompute)

        if known:
            gradients = run_modes.in_mode(mode, gradients, autograph=False)
        elif not projected:
            gradients = _of_unknown_sizes(gradients, tensors)
        what = f"{key} {dtype} {mode} recompute={recompute}"
        _assert_same_bits(gradients(tensors), want, what)


@pytest.mark.parametrize("dims", [(0, 2, 3, 4), (3, 0, 3, 4), (3, 2, 0, 4), (1, 1, 1, 1)], ids=str)
def test_empty_and_short_sequences(tfb, dims):
    for key in SAVING:
        tensors = _tensors(key, dims, "float")
        want = _gradients(tfb, key, tensors, {}, recompute=False)
        _assert_same_bits(_gradients(tfb, key, tensors, {}, recompute=True), want, f"{key} {dims}")


# All options of each op, zoneout, and a graph, which takes ten times as long.
SECOND = {
    "lstm all": "eager",
    "lstm products": "graph",
    "lstm zoneout": "eager",
    "layer norm lstm all": "eager",
    "layer norm gru products": "eager",
    "gru after urc": "eager",
    "gru before all": "eager",
    "gru before mean": "eager",
}


@pytest.mark.types
@pytest.mark.parametrize("case, mode", SECOND.items())
def test_second_derivatives_are_those_without(tfb, case, mode):
    want = Case(case).second(tfb, Case(case).tensors())
    call = Case(case, recompute=True)
    got = run_modes.in_mode(mode, lambda t: call.second(tfb, t), autograph=False)(call.tensors())
    for name, value in want.items():
        compare.assert_close(got[name], value, BOUND, name)


OPS = {
    "lstm": "LSTMSequence",
    "layer-norm-gru": "LayerNormGRUSequence",
    "layer-norm-lstm": "LayerNormLSTMSequence",
    "gru-before": "GRUSequence",
    "gru-after": "GRUAfterSequence",
}


def _ones(name, sizes):
    """Arguments of an op without what may be left out."""
    op = op_table.OPS[name]
    shapes = op.shapes(op_table.sizes_of(*sizes)) | dict.fromkeys(op.optional(), (0,))
    kinds = {"T": tf.float32, "bool": tf.bool, "Tlen": tf.int32}
    return {k: tf.ones(v, kinds[op.inputs[k].type]) for k, v in shapes.items()}


def _sequence_op(tfb, key):
    return getattr(tfb.raw_ops, OPS[key])


def _op_arguments(key):
    return _ones(OPS[key], (1000, 2, 3, 4))


def test_states_are_kept_and_gates_are_not(tfb):
    """-1 is half the square root of the steps, 15.8."""
    cases = [(-1, 63), (10, 100), (16, 63), (1000, 1), (4000, 1)]
    for key, (recompute, spans) in product(KEYS, cases):
        states = 2 if key.endswith("lstm") else 1
        result = _sequence_op(tfb, key)(**_op_arguments(key), recompute=recompute)._asdict()
        size = (spans - 1) * states * 2 * 4
        assert result.pop("span_states").shape == [size], f"{key} recompute={recompute}"
        for name in ("h", "h_last", "cs_last"):
            result.pop(name, None)
        assert result and all(value.shape[:2] == [0, 2] for value in result.values()), key


def test_nothing_is_kept_without_training(tfb):
    for key in KEYS:
        given = _op_arguments(key)
        result = _sequence_op(tfb, key)(**given, recompute=3, is_training=False)
        plain = _sequence_op(tfb, key)(**given, is_training=False)
        assert result.span_states.shape == [0], key
        assert compare.bits(result.h) == compare.bits(plain.h), key


def test_half_keeps_states_in_float32(tfb):
    given = {
        k: tf.cast(v, tf.half) if v.dtype.is_floating else v
        for k, v in _op_arguments("lstm").items()
    }
    kept = tfb.raw_ops.LSTMSequence(**given, recompute=10).span_states
    assert kept.shape == [99 * 2 * 2 * 2 * 4] and kept.dtype == tf.half


@pytest.mark.parametrize("name", ["lstm", "gru", "simple_rnn", "layer_norm_gru", "layer_norm_lstm"])
def test_functions_refuse_other_values(tfb, name):
    gates = {"gru": 3, "layer_norm_gru": 3, "simple_rnn": 1}.get(name, 4)
    weights = tf.ones([3, 2 * gates]), tf.ones([2, 2 * gates]), tf.ones([2 * gates])
    norms = {}
    if name.startswith("layer_norm"):
        wide, narrow = (tf.ones([2 * gates]),) * 2, (tf.ones([2]),) * 2
        norms = {"kernel_norm": wide, "recurrent_norm": wide}
        norms |= {"state_norm": narrow} if name == "layer_norm_lstm" else {}
    message = rf"^{name}: recompute must be a bool or a number of steps"
    for wrong in (0, -1, 2.5, None, "yes", 2**63):
        error = ValueError if isinstance(wrong, int) else TypeError
        with pytest.raises(error, match=message):
            getattr(tfb, name)(tf.ones([1, 4, 3]), *weights, recompute=wrong, **norms)


def test_a_simple_rnn_takes_it(tfb):
    tensors = _tensors("rnn-tanh", MANY_ROWS, "float")
    want = _gradients(tfb, "rnn-tanh", tensors, {}, recompute=False)
    _assert_same_bits(_gradients(tfb, "rnn-tanh", tensors, {}, recompute=5), want, "rnn")


# ---- layers


LAYERS = {
    "LSTM": {},
    "LSTM-all": {"use_peephole": True, "cell_clip": 0.5, "projection": 3},
    "GRU": {},
    "GRU-before": {"reset_after": False},
    "LayerNormGRU": {},
    "LayerNormLSTM": {},
    "SimpleRNN": {},
}


def _layer(key, **options):
    from tf_blockrnn import layers

    return getattr(layers, key.partition("-")[0])(5, **LAYERS[key], **options)


def _layer_gradients(layer, x, mask):
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, mask=mask, training=True)
        total = tf.reduce_sum(outputs * _weights(outputs))
    return tape.gradient(total, [x, *layer.trainable_variables])


@pytest.mark.types
@pytest.mark.parametrize("key, bidirectional", [*((key, False) for key in LAYERS), ("LSTM", True)])
def test_layers_have_the_same_gradients(tfb, key, bidirectional):
    del tfb
    steps, batch, width = 60, 20, 140
    x = tf.constant(np.random.default_rng(1).normal(size=(batch, steps, width)), tf.float32)
    mask = tf.sequence_mask([(7 * k) % (steps + 1) for k in range(batch)], steps)
    found = []
    for recompute in (False, True):
        keras.utils.set_random_seed(3)
        layer = _layer(key, recompute=recompute, return_sequences=True)
        if bidirectional:
            layer = keras.layers.Bidirectional(layer)
            assert layer.backward_layer.recompute == recompute
        if key != "SimpleRNN":  # whose op has no such attr
            assert set(_attrs(layer, x)) == {-1 if recompute else 0}
        found.append(_layer_gradients(layer, x, mask))
    for want, got in zip(*found, strict=True):
        assert compare.bits(got) == compare.bits(want)


def test_layers_keep_it_in_their_config(tfb):
    del tfb
    for key, recompute in product(LAYERS, [True, 7, np.int64(7)]):
        layer = _layer(key, recompute=recompute)
        config = json.loads(json.dumps(layer.get_config()))
        assert type(layer).from_config(config).recompute == recompute, key
        plain = _layer(key).get_config()
        assert "recompute" not in plain and not _layer(key).recompute, key
        assert config.keys() - plain.keys() == {"recompute"}, key


def test_a_saved_model_keeps_it(tfb, tmp_path):
    del tfb
    model = keras.Sequential([keras.Input((None, 3)), _layer("LSTM", recompute=4)])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].recompute == 4
    x = np.ones([2, 6, 3], np.float32)
    assert compare.bits(loaded(x)) == compare.bits(model(x))


@pytest.mark.parametrize("key", LAYERS)
def test_layers_refuse_other_values(tfb, key):
    del tfb
    message = "recompute must be a bool or a number of steps above 0"
    for wrong in (0, -3, 1.5, "True", None):
        with pytest.raises(ValueError if isinstance(wrong, int) else TypeError, match=message):
            _layer(key, recompute=wrong)
