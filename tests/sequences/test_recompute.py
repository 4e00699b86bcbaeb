"""recompute=True: less is kept for the gradient, and no bit of it changes."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from itertools import product

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, children, compare, op_table, run_modes, tolerances
from helpers.covering import in_turn, pairwise
from helpers.second_cases import BOUND, Case
from helpers.sequence_functions import FUNCTIONS, call, random_inputs

# The engine's gradients are compared in tests/cpp/training_test.cc, each cell with many lengths of
# spans. Here: that the attr, each type and each option reach it through functions and gradients.
SAVING = [key for key, variant in FUNCTIONS.items() if variant.name != "simple_rnn"]
# One variant of each op.
KEYS = ("lstm", "gru-after", "gru-before", "layer-norm-gru", "layer-norm-lstm")
# Their functions put the gates in order before they call the op.
REORDERED = [key for key in SAVING if key.endswith("-urc")]

# (T, B, I, H), each of more blocks of steps than one: of 480 rows, as the input is wide. With one
# and two rows, some sequences have a last block of 16 rows or fewer, whose GEMMs stream their
# weights.
MANY_ROWS = (70, 24, 140, 3)
FEW_ROWS = ((965, 1, 140, 3), (1100, 1, 140, 5), (485, 2, 140, 3), (1100, 2, 150, 3))


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


def _row_options(dims, *names):
    """Lengths and a mask with padding at both ends, and steps masked between."""
    steps, batch = dims[:2]
    rng = np.random.default_rng([7, *dims])
    options = {}
    if "lengths" in names:
        lengths = rng.integers(0, steps + 1, batch)
        lengths[-1] = steps if batch > 1 else steps - 3
        options["lengths"] = tf.constant(lengths, tf.int32)
    if "mask" in names:
        mask = rng.random((steps, batch)) < 0.8
        mask[: steps // 5, ::3] = False
        mask[-(steps // 4) :, 1::3] = False
        options["mask"] = tf.constant(mask)
    if "backwards" in names:
        options["go_backwards"] = True
    return options


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


def _assert_same_bits_of_any_spans(tfb, key, tensors, options, spans, what):
    want = _gradients(tfb, key, tensors, options, recompute=False)
    assert np.any(want["w_h"].numpy())
    for recompute in spans:
        got = _gradients(tfb, key, tensors, options, recompute)
        _assert_same_bits(got, want, f"{key} {what} recompute={recompute}")


@pytest.mark.parametrize(
    "key, dtype, given",
    pairwise(
        [key for key in SAVING if key not in REORDERED],
        block_cells.DTYPES,
        ["dropout", "lengths backwards", "mask", "mask lengths backwards dropout"],
    ),
)
def test_the_gradients_have_the_same_bits(tfb, key, dtype, given):
    tensors = _tensors(key, MANY_ROWS, dtype, dropout="dropout" in given)
    options = _row_options(MANY_ROWS, *given.split())
    # Spans of one block, of two, and one for all; numbers that no block is a multiple of.
    spans = (True, 1, 23, 1000)
    _assert_same_bits_of_any_spans(tfb, key, tensors, options, spans, f"{dtype} {given}")


@pytest.mark.parametrize("key, dtype, dims", pairwise(KEYS, block_cells.DTYPES, FEW_ROWS))
def test_few_rows_have_the_same_bits(tfb, key, dtype, dims):
    tensors = _tensors(key, dims, dtype)
    for options in ({}, _row_options(dims, "lengths")):
        _assert_same_bits_of_any_spans(tfb, key, tensors, options, (True, 500), f"{dtype} {dims}")


def _of_unknown_sizes(function, tensors):
    unknown = {k: tf.TensorSpec([None] * v.shape.rank, v.dtype) for k, v in tensors.items()}
    return tf.function(function, input_signature=[unknown], autograph=False)


def _each_op_in(modes):
    """Variants and modes: each op in each mode, each of its variants at least once."""
    for key in KEYS:
        variants = [variant for variant in SAVING if variant.startswith(key)]
        for k in range(max(len(variants), len(modes))):
            yield variants[k % len(variants)], modes[k % len(modes)]


@pytest.mark.parametrize(
    "key, mode", list(_each_op_in(["graph", "jit", "unknown sizes", "projected"]))
)
def test_modes_have_the_same_bits(tfb, key, mode):
    """In graphs, compiled by XLA, in graphs of unknown sizes, and with x · w_x as the input."""
    dtype, projected = "bfloat16" if mode == "unknown sizes" else "float", mode == "projected"
    compiled = mode in run_modes.MODES
    tensors = _tensors(key, MANY_ROWS, dtype, dropout=compiled, projected=projected)
    options = _row_options(MANY_ROWS, "mask", "lengths") if compiled else {}
    want = _gradients(tfb, key, tensors, options, recompute=False)

    def gradients(given):
        return _gradients(tfb, key, given, options, recompute=True)

    if compiled:
        gradients = run_modes.in_mode(mode, gradients, autograph=False)
    elif mode == "unknown sizes":
        gradients = _of_unknown_sizes(gradients, tensors)
    _assert_same_bits(gradients(tensors), want, f"{key} {mode}")


@pytest.mark.parametrize("dims", [(0, 2, 3, 4), (3, 0, 3, 4), (3, 2, 0, 4), (1, 1, 1, 1)], ids=str)
def test_empty_and_short_sequences(tfb, dims):
    for key in SAVING:
        tensors = _tensors(key, dims, "float")
        want = _gradients(tfb, key, tensors, {}, recompute=False)
        _assert_same_bits(_gradients(tfb, key, tensors, {}, recompute=True), want, f"{key} {dims}")


CHILD = """
import hashlib, json, sys
import tensorflow as tf
import tf_blockrnn
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
sys.path.insert(0, sys.argv[2])
from helpers import compare
import test_recompute as own
digests = {}
for key in own.KEYS:
    for dims in (own.MANY_ROWS, (300, 4, 140, 70)):
        for recompute in (False, True):
            tensors = own._tensors(key, dims, "float")
            found = own._gradients(tf_blockrnn, key, tensors, {}, recompute)
            bits = b"".join(compare.bits(value) for value in found.values())
            digests[f"{key} {dims} {recompute}"] = hashlib.sha256(bits).hexdigest()
print(json.dumps(digests))
"""


def test_threads_do_not_change_the_bits(tfb):
    del tfb
    found = []
    for threads in (1, 3):
        result = children.run_python(["-c", CHILD, str(threads), str(children.TESTS / "sequences")])
        out = children.assert_ok(result, f"the run with {threads} threads")
        found.append(json.loads(out.strip().splitlines()[-1]))
    assert found[0] == found[1]
    for name, digest in found[0].items():
        assert digest == found[0][name.replace("True", "False")]
    assert len(set(found[0].values())) == len(found[0]) / 2


# Without options, and with each option of each op. A graph takes ten times as long; one function
# registers the gradients of the cells with layer normalisation, another one those of the others.
SECOND = {
    "lstm": "eager",
    "lstm mask dropout": "eager",
    "lstm all": "eager",
    "lstm products": "graph",
    "lstm zoneout": "eager",
    "lstm mean": "eager",
    "layer norm lstm": "eager",
    "layer norm lstm all": "eager",
    "layer norm lstm products": "eager",
    "layer norm gru all": "eager",
    "layer norm gru products": "graph",
    "gru after urc": "eager",
    "gru after products": "eager",
    "gru after zoneout": "eager",
    "gru after mean": "eager",
    "gru before all": "eager",
    "gru before products": "graph",
    "gru before zoneout": "eager",
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


def _saved(key):
    """What the forward op saves without recompute, and the biases that are read with it."""
    outputs, inputs = op_table.OPS[OPS[key]].outputs, op_table.OPS[f"{OPS[key]}Grad"].inputs
    saved = [name for name, output in outputs.items() if output.dims[0] == "K*T"]
    return saved, [name for name, one in inputs.items() if one.left_out_if == ("K", "1")]


def _grad_op(tfb, key):
    return getattr(tfb.raw_ops, f"{OPS[key]}Grad")


def _grad_arguments(key, tfb, recompute=10):
    given = _op_arguments(key)
    result = _sequence_op(tfb, key)(**given, recompute=recompute)._asdict()
    arguments = _ones(f"{OPS[key]}Grad", (1000, 2, 3, 4))
    known = {**given, **result, "h_grad": tf.ones_like(result["h"])}
    return arguments | {k: v for k, v in known.items() if k in arguments}


def _assert_refused(op, given, changed, recompute, message, mode="eager"):
    """A call that another one becomes by other values of some arguments."""
    refused = (tf.errors.InvalidArgumentError, ValueError)
    with pytest.raises(refused, match=message):
        run_modes.in_mode(
            mode, lambda c: op(**{**given, **c}, recompute=recompute)[0], autograph=False
        )(changed)


@pytest.mark.parametrize(
    "key, mode", [*in_turn(KEYS, ["jit", "graph"]), *((key, "eager") for key in KEYS)]
)
def test_the_grad_ops_refuse_states_of_another_size(tfb, key, mode):
    given, op = _grad_arguments(key, tfb), _grad_op(tfb, key)
    states = given["span_states"]
    for changed, recompute, message in (
        (states[1:], 10, rf"span_states must have shape \[N\] = \[{states.shape[0]}\], got"),
        (states, 11, r"span_states must have shape \[N\]"),
        (states, -2, "recompute"),
    ):
        _assert_refused(op, given, {"span_states": changed}, recompute, message, mode)
    assert np.all(np.isfinite(op(**given, recompute=10)[0]))


@pytest.mark.parametrize("key", KEYS)
def test_the_grad_ops_take_gates_or_states(tfb, key):
    """And the biases with the states."""
    op, name_of_op = _grad_op(tfb, key), f"{OPS[key]}Grad"
    with_gates, with_states = _grad_arguments(key, tfb, 0), _grad_arguments(key, tfb)
    saved, biases = _saved(key)
    for name in saved:
        for given, other, recompute in (
            (with_gates, with_states, 0),
            (with_states, with_gates, 10),
        ):
            want, got = list(given[name].shape), list(other[name].shape)
            meaning = " (K is 0 with recompute, else 1)"
            message = rf"{name_of_op}: {name} must have shape \[K\*T, .*\]"
            message += re.escape(f" = {want}{meaning}, got {got}")
            _assert_refused(op, given, {name: other[name]}, recompute, message)
    states = with_states["span_states"]
    message = f"{name_of_op}: span_states must have shape [N] = [0], got {list(states.shape)}"
    _assert_refused(op, with_gates, {"span_states": states}, 0, re.escape(message))
    for name in biases:
        none = {name: tf.zeros([0])}
        message = rf"{name_of_op}: {name} must have shape .*, or \[0\] where K = 1 .*, got \[0\]"
        _assert_refused(op, with_states, none, 10, message)
        want, got = op(**with_gates), op(**{**with_gates, **none})
        for value, other in zip(want, got, strict=True):
            assert compare.bits(value) == compare.bits(other), name


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


@dataclasses.dataclass(frozen=True)
class _Layer:
    name: str
    options: dict = dataclasses.field(default_factory=dict)


LAYERS = {
    "LSTM": _Layer("LSTM"),
    "LSTM-all": _Layer("LSTM", {"use_peephole": True, "cell_clip": 0.5, "projection": 3}),
    "GRU": _Layer("GRU"),
    "GRU-before": _Layer("GRU", {"reset_after": False}),
    "LayerNormGRU": _Layer("LayerNormGRU"),
    "LayerNormLSTM": _Layer("LayerNormLSTM"),
    "SimpleRNN": _Layer("SimpleRNN"),
}


def _layer(key, **options):
    from tf_blockrnn import layers

    return getattr(layers, LAYERS[key].name)(5, **LAYERS[key].options, **options)


def _layer_gradients(layer, x, mask):
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = layer(x, mask=mask, training=True)
        total = tf.reduce_sum(outputs * _weights(outputs))
    return tape.gradient(total, [x, *layer.trainable_variables])


@pytest.mark.types
@pytest.mark.parametrize("key, bidirectional", [*((key, True) for key in LAYERS), ("LSTM", False)])
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
    model = keras.Sequential([keras.Input((None, 3)), _layer("LSTM", recompute=4), _dense()])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.layers[0].recompute == 4
    x = np.ones([2, 6, 3], np.float32)
    assert compare.bits(loaded(x)) == compare.bits(model(x))


def _dense():
    return keras.layers.Dense(1)


@pytest.mark.parametrize("jit", [False, True])
def test_a_model_trains_as_without(tfb, jit):
    del tfb
    x = np.random.default_rng(2).normal(size=(24, 70, 140)).astype(np.float32)
    y = x[:, :1, 0]
    histories = []
    for recompute in (False, True):
        keras.utils.set_random_seed(5)
        model = keras.Sequential([_layer("LSTM", recompute=recompute), _dense()])
        model.compile("sgd", "mse", jit_compile=jit)
        histories.append(model.fit(x, y, epochs=3, verbose=0, shuffle=False).history["loss"])
    bound = tolerances.EPS["float"] * 100 if jit else 0.0
    compare_histories(histories, bound)


def compare_histories(histories, bound):
    want, got = (np.asarray(h) for h in histories)
    assert want[-1] < want[0]
    assert np.all(np.abs(got - want) <= bound * np.abs(want))


@pytest.mark.parametrize("key", LAYERS)
def test_layers_refuse_other_values(tfb, key):
    del tfb
    message = "recompute must be a bool or a number of steps above 0"
    for wrong in (0, -3, 1.5, "True", None):
        with pytest.raises(ValueError if isinstance(wrong, int) else TypeError, match=message):
            _layer(key, recompute=wrong)
