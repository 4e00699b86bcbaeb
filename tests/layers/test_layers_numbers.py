"""GRU, LSTM and SimpleRNN and their cells against Keras' own: outputs, states and gradients.

Layers that `fuse_model` made and Keras' own under `enable_keras` take the same path; their tests
show that they do.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import sys
import types

import keras
import numpy as np
import pytest
from helpers import covering
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    MASK,
    TIME,
    UNITS,
    assert_same,
    initial_states,
    make_ours,
    make_peer,
    pair,
    randomise,
    sequence,
    share_weights,
    values,
)

all_kinds = pytest.mark.parametrize("kind", KINDS)


# Whether there is a mask, and whether outputs of masked steps are zero; `return_sequences`;
# `go_backwards`. All of these with all: they choose what is returned (`_ops/keras_rules.py`).
RULES = itertools.product(
    ((False, False), (True, False), (True, True)), (True, False), (True, np.False_)
)
# The given initial states: none, zeros, which get gradients too, or others.
STATES = (None, 0.0, 1.0)
DTYPES = ("float32", "float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16")
OPTIONS = (
    {},
    {"use_bias": False},
    {"unroll": True},
    {"stateful": True, "go_backwards": 0},
    {"implementation": 1},
)


# A cell in a loop that is one op, and in Keras' own, which takes several times as long.
FORMS = ("layer", "cell", "cell in a graph", "stepped", "stepped in a graph")


@pytest.mark.parametrize(
    ("kind", "rule", "given", "dtype", "options", "form"),
    covering.pairwise(KINDS, RULES, STATES, DTYPES, OPTIONS, FORMS),
)
def test_equals_keras(tf, kind, rule, given, dtype, options, form):
    (masked, zero), return_sequences, go_backwards = rule
    chosen = {
        "return_sequences": return_sequences,
        "go_backwards": go_backwards,
        "return_state": True,
        "zero_output_for_mask": zero,
    }
    cell = "stepped" if "stepped" in form else form != "layer"
    layers = pair(kind, dtype, **{**chosen, **options}, cell=cell)
    assert {w.dtype for w in layers[0].weights} == {w.dtype for w in layers[1].weights}
    states = None if given is None else [given * state for state in initial_states(kind)]
    mask = MASK if masked else None
    run = tf.function(values) if "graph" in form else values
    mine = run(layers[0], sequence(), states, mask=mask)
    its = values(layers[1], sequence(), states, mask=mask)
    assert_same(mine, its, dtype=layers[0].compute_dtype)


@all_kinds
@pytest.mark.parametrize("given", STATES)
def test_the_unrolled_loop_backwards_zeroes_by_the_mask_in_the_order_of_the_inputs(kind, given):
    """As Keras' does, so that `Bidirectional` gives other outputs with `unroll` than without."""
    chosen = {"unroll": True, "go_backwards": True, "zero_output_for_mask": np.True_}
    layers = pair(kind, return_sequences=True, return_state=True, **chosen)
    states = None if given is None else [given * state for state in initial_states(kind)]
    assert_same(*(values(layer, sequence(), states, mask=MASK) for layer in layers))
    layers[1].unroll = False
    other, its = (layer(sequence(), mask=MASK)[0] for layer in layers)
    assert np.abs(np.asarray(other) - its).max() > 0.01


@all_kinds
def test_other_forms_of_arguments(kind):
    ours, peer = pair(kind)
    x, states = sequence(), initial_states(kind)
    # A mask of numbers, one with a dim for the features, and one for all rows.
    for mask in (MASK.astype("int32"), MASK.astype("float32"), MASK[..., None], MASK[:1]):
        assert_same([ours(x, mask=mask)], [peer(x, mask=mask)])
    assert_same([ours(x.astype("float64"))], [peer(x)])
    if kind != "LSTM":
        assert_same([ours(x, initial_state=states[0])], [peer(x, initial_state=states[0])])
    one_for_all = [state[:1] for state in states]
    # Of the first row the gradient of the state nearly vanishes for tanh: what is left of a sum of
    # terms a hundred times as large has the rounding errors of those.
    for some in (slice(None), slice(2, 3)):
        given = (x[some], one_for_all)
        assert_same(*(values(layer, *given, mask=MASK[some]) for layer in (ours, peer)))
    integers = np.arange(BATCH * TIME * INPUT).reshape(BATCH, TIME, INPUT) % 3
    assert_same([ours(integers)], [peer(integers.astype("float32"))])


@all_kinds
def test_variables_are_inputs_and_tensors_weights(kind):
    """A learned sequence, say, and weights that are dropped or made by another network."""
    both = pair(kind)
    masks = keras.ops.convert_to_tensor(np.random.default_rng(4).random(64) > 0.5)
    for x in (keras.Variable(sequence()), sequence()):
        for states in (None, initial_states(kind)):
            assert_same(*([layer(x, initial_state=states)] for layer in both))
        for layer in both:
            for name in ("kernel", "recurrent_kernel", "bias"):
                weight = keras.ops.convert_to_tensor(getattr(layer.cell, name))
                kept = keras.ops.reshape(masks[: keras.ops.size(weight)], weight.shape)
                setattr(layer.cell, name, weight * keras.ops.cast(kept, weight.dtype))


def test_no_number_of_a_masked_step_gets_through():
    ours, peer = pair("GRU", return_sequences=True, zero_output_for_mask=True)
    x = sequence()
    x[~MASK] = np.nan
    assert_same([ours(x, mask=MASK)], [peer(x, mask=MASK)])


# ---- in a tf.function


@all_kinds
def test_graphs_of_unknown_sizes(tf, kind):
    ours, _ = pair(kind, return_sequences=True, return_state=True)
    states = initial_states(kind)
    unknown = [
        tf.TensorSpec([None, None, INPUT]),
        tf.TensorSpec([None, None], tf.bool),
        [tf.TensorSpec([None, UNITS]) for _ in states],
    ]

    @tf.function(input_signature=unknown)
    def given(x, mask, states):
        return values(ours, x, states, mask=mask)

    @tf.function(input_signature=unknown[:1])
    def plain(x):
        return values(ours, x)

    for rows, steps in ((BATCH, TIME), (1, 1)):
        x, mask, some = sequence(rows, steps), MASK[:rows, :steps], [s[:rows] for s in states]
        assert_same(given(x, mask, some), values(ours, x, some, mask=mask))
        assert_same(plain(x), values(ours, x))
    # Keras' own code takes a first step even where there is none, except in a graph.
    for rows, steps in ((0, TIME), (2, 0)):
        output, *last = plain(np.zeros((rows, steps, INPUT), np.float32))[: 1 + len(states)]
        assert output.shape == (rows, steps, UNITS)
        assert all(state.shape == (rows, UNITS) and not np.any(state) for state in last)


@pytest.mark.types
@all_kinds
@pytest.mark.parametrize("arguments", [{}, {"zero_output_for_mask": True}, {"go_backwards": True}])
def test_no_step_has_an_output(tf, kind, arguments):
    """Whatever the states are that the call is given, and returns."""
    states = initial_states(kind)
    specs = [tf.TensorSpec([BATCH, None, INPUT]), [tf.TensorSpec([BATCH, UNITS]) for _ in states]]
    given = [np.zeros((BATCH, 0, INPUT), np.float32), states]
    layers = pair(kind, return_state=True, **arguments)
    for more, of_mask in (([], []), ([np.zeros((BATCH, 0), bool)], [[BATCH, None]])):
        signature = [*specs, *(tf.TensorSpec(shape, tf.bool) for shape in of_mask)]

        def call(layer, signature=signature, more=more):
            def run(x, states, mask=None):
                return layer(x, initial_state=states, mask=mask)

            return tf.function(run, input_signature=signature)(*given, *more)

        found = [call(layer) for layer in layers]
        assert not np.any(found[0][0])
        assert_same(*found)


# ---- states from call to call


@all_kinds
def test_stateful_layers_go_on_and_start_again(tf, kind):
    ours, peer = pair(kind, stateful=True)
    x = sequence()
    compiled = tf.function(ours)
    for step in (1, 2):
        assert_same([ours(x, mask=MASK)], [peer(x, mask=MASK)], steps=step)
    assert_same([compiled(x)], [peer(x)], steps=3)
    for mine, its in zip(ours.states, peer.states, strict=True):
        assert_same([mine.value], [its.value], steps=3)
    third = ours(x)
    for layer in (ours, peer):
        layer.reset_state()
    first = ours(x)
    assert_same([first], [peer(x)])
    assert np.abs(np.asarray(first) - np.asarray(third)).max() > 1e-3


def test_threads_share_one_function_and_one_layer(tf):
    """Gradients on several threads at once are the bits of one thread's."""
    layer = make_ours("LSTM", return_sequences=True)
    layer.build((None, None, INPUT))
    randomise(layer)
    compiled = tf.function(lambda x: values(layer, x, training=True))
    work = [tf.constant(sequence(rows)) for rows in (1, 2, 3, 5)] * 2
    want = [[np.asarray(value) for value in compiled(x)] for x in work]
    eager = [[np.asarray(value) for value in values(layer, x)] for x in work]

    def run(number):
        return [compiled(work[number]), values(layer, work[number])]

    with concurrent.futures.ThreadPoolExecutor(len(work)) as pool:
        got = list(pool.map(run, range(len(work)), timeout=120))
    for number, found in enumerate(got):
        for mine, its in zip(found, (want[number], eager[number]), strict=True):
            for a, b in zip(mine, its, strict=True):
                np.testing.assert_array_equal(a, b)


# ---- in both directions


@pytest.mark.parametrize(
    ("kind", "mode"), covering.in_turn(KINDS, ("concat", "sum", "mul", "ave", None))
)
def test_bidirectional_equals_keras(kind, mode):
    """Sequences and single outputs, a mask, states in and out."""
    for every in (True, False):
        arguments = {"return_sequences": every, "return_state": True}
        layers = [
            keras.layers.Bidirectional(make(kind, **arguments), merge_mode=mode)
            for make in (make_ours, make_peer)
        ]
        share_weights(layers)
        assert layers[0].forward_layer.fused and layers[0].backward_layer.fused
        for mask, states in ((None, None), (MASK, initial_states(kind) * 2)):
            assert_same(*(values(layer, sequence(), states, mask=mask) for layer in layers))


# ---- what is refused, in words that name the layer


def _both_refuse(layers, *arguments, **call):
    """That Keras refuses it too; the error of the last layer."""
    for layer in layers:
        with pytest.raises(Exception) as raised:
            layer(*arguments, **call)
    return raised.value


@all_kinds
def test_a_mask_of_one_step_is_not_repeated(tf, kind):
    layers = pair(kind)[::-1]
    for shape in ((1, 1), (1, 1, 1), (BATCH, 1)):
        error = _both_refuse(layers, sequence(), mask=np.ones(shape, bool))
        assert "mask must have shape [B, T] = [5, 4] or None, got [5, 1]" in str(error)
    unknown = tf.function(
        lambda x, mask: layers[1](x, mask=mask),
        input_signature=[tf.TensorSpec([None, None, INPUT]), tf.TensorSpec([1, None], tf.bool)],
    )
    unknown(sequence(), MASK[:1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="mask must have shape"):
        unknown(sequence(), MASK[:1, :1])
    one_step = sequence(time=1)
    assert_same(*([layer(one_step, mask=MASK[:1, :1])] for layer in layers))


@all_kinds
def test_inputs_that_are_refused(tf, kind):
    layer = make_ours(kind, name="my")
    layer.build((None, None, INPUT))
    x = tf.complex(sequence(), sequence())
    error = _both_refuse(pair(kind)[::-1], x)
    assert isinstance(error, ValueError)
    assert "takes real numbers, got inputs of complex64." in str(error)
    ragged = tf.RaggedTensor.from_tensor(np.ones((BATCH, TIME, INPUT)), [1, 2, 3, 4, 0])
    with pytest.raises(ValueError, match=r'"my" takes a dense tensor, got a RaggedTensor.*mask='):
        layer(ragged)
    with pytest.raises(ValueError, match=r'"my" takes a dense tensor, got a Sparse.*to_dense\(x\)'):
        layer(tf.sparse.from_dense(sequence()))
    wide = np.ones((BATCH, TIME, 3), "float32")
    features = r'"my" was built for 2 input features, got 3.*\(5, 4, 3\)'
    with pytest.raises(ValueError, match=features):
        layer(wide)


def test_states_that_are_refused(tf):
    layers = pair("RNN-tanh")[::-1]
    error = _both_refuse(layers, sequence(), initial_state=initial_states("RNN-tanh") * 2)
    assert isinstance(error, ValueError)
    assert "SimpleRNN has one state, got 2 initial states" in str(error)
    # Keras 3.11 has no check of its own and fails in its step.
    error = {"3.11": tf.errors.InvalidArgumentError}.get(keras.__version__[:4], ValueError)
    with pytest.raises(error, match="batch size|Incompatible shapes"):
        pair("GRU", stateful=True)[0](sequence(2))


def test_legacy_keras(monkeypatch):
    monkeypatch.setitem(sys.modules, "tf_keras", types.ModuleType("tf_keras"))
    layer = make_ours("LSTM")
    symbolic = type("KerasTensor", (), {"__module__": "tf_keras.src.engine.keras_tensor"})()
    with pytest.raises(TypeError, match=r"tf_keras.layers.LSTM and call tf_blockrnn.enable_keras"):
        layer(symbolic)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(TypeError, match="enable_keras"):
        make_ours("GRU")
