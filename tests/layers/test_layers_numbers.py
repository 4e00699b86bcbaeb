"""GRU, LSTM and SimpleRNN against Keras' own: outputs, states and gradients."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
from helpers import covering, tolerances
from helpers.compare import assert_close
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
    values,
)

DTYPES = ("float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16")


@pytest.fixture(autouse=True)
def _package(tfb):
    keras.utils.set_random_seed(7)


# ---- masks, order and initial states

# Whether there is a mask, and whether outputs of masked steps are zero.
MASKS = ((False, False), (True, False), (True, True))


# All of these with all, which choose what is returned (`_ops/keras_rules.py`).
RULES = itertools.product(MASKS, [True, False], [True, False])


@pytest.mark.parametrize(("kind", "rule", "given"), covering.pairwise(KINDS, RULES, [True, False]))
def test_masks_order_and_states_equal_keras(kind, rule, given):
    (masked, zero), return_sequences, go_backwards = rule
    ours, peer = pair(
        kind,
        return_sequences=return_sequences,
        go_backwards=go_backwards,
        return_state=True,
        zero_output_for_mask=zero,
    )
    states = initial_states(kind) if given else None
    mask = MASK if masked else None
    assert_same(*(values(layer, sequence(), states, mask=mask) for layer in (ours, peer)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_types_equal_keras(kind, dtype):
    ours, peer = pair(kind, dtype, return_sequences=True, return_state=True)
    assert {w.dtype for w in ours.weights} == {w.dtype for w in peer.weights}
    both = [values(layer, sequence(), initial_states(kind), mask=MASK) for layer in (ours, peer)]
    assert_same(*both, dtype=ours.compute_dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments", [{"use_bias": False}, {"unroll": True}, {"return_sequences": True}], ids=str
)
def test_options_equal_keras(kind, arguments):
    ours, peer = pair(kind, **arguments)
    assert_same(values(ours, sequence()), values(peer, sequence()))
    assert_same(values(ours, sequence(), mask=MASK), values(peer, sequence(), mask=MASK))


@pytest.mark.parametrize("kind", KINDS)
def test_other_forms_of_arguments(tf, kind):
    ours, peer = pair(kind)
    x, states = sequence(), initial_states(kind)
    # A mask of numbers, one with a dim for the features, and a Python list of states.
    forms = (MASK.astype("int32"), MASK.astype("float32"), MASK[..., None], MASK[:1])
    for mask in forms:  # the last one for all rows
        assert_same([ours(x, mask=mask)], [peer(x, mask=mask)])
    assert_same([ours(x.astype("float64"))], [peer(x)])
    if kind != "LSTM":
        assert_same([ours(x, initial_state=states[0])], [peer(x, initial_state=states[0])])
    one_for_all = [state[:1] for state in states]
    for rows in (x, x[:1]):
        both = [values(layer, rows, one_for_all, mask=MASK[: len(rows)]) for layer in (ours, peer)]
        assert_same(*both)
    integers = np.arange(BATCH * TIME * INPUT).reshape(BATCH, TIME, INPUT) % 3
    assert_same([ours(integers)], [peer(integers.astype("float32"))])


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backwards", [1, np.True_, 0])
def test_numbers_are_truth_values(kind, backwards):
    both = pair(kind, go_backwards=backwards, return_sequences=True)
    for states in (None, initial_states(kind)):
        assert_same(*(values(layer, sequence(), states, mask=MASK) for layer in both))


@pytest.mark.parametrize("kind", KINDS)
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


def _both_refuse(layers, *arguments, **call):
    for layer in layers:
        with pytest.raises(Exception) as raised:
            layer(*arguments, **call)
    return raised.value


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_complex_inputs_are_refused(tf, kind):
    x = tf.complex(sequence(), sequence())
    error = _both_refuse(pair(kind)[::-1], x)
    assert isinstance(error, ValueError)
    assert "Inputs and states must be real numbers, got complex64" in str(error)


def test_a_simple_rnn_has_one_state():
    layers = pair("RNN-tanh")[::-1]
    error = _both_refuse(layers, sequence(), initial_state=initial_states("RNN-tanh") * 2)
    assert isinstance(error, ValueError)
    assert "SimpleRNN has one state, got 2 initial states" in str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_a_learned_initial_state_gets_its_gradient(tf, kind):
    """The outputs before a row's first step are zeros that depend on nothing, also at state 0."""
    ours, peer = pair(kind, return_sequences=True)
    states = [np.zeros_like(state) for state in initial_states(kind)]
    both = [values(layer, sequence(), states, mask=MASK) for layer in (ours, peer)]
    assert_same(*both)
    made = [layer.get_initial_state(BATCH) for layer in (ours, peer)]
    both = [
        values(layer, sequence(), m, mask=MASK) for layer, m in zip((ours, peer), made, strict=True)
    ]
    assert_same(*both)


def test_no_number_of_a_masked_step_gets_through():
    ours, peer = pair("GRU", return_sequences=True, zero_output_for_mask=True)
    x = sequence()
    x[~MASK] = np.nan
    assert_same([ours(x, mask=MASK)], [peer(x, mask=MASK)])


# ---- in a tf.function


@pytest.mark.parametrize("kind", KINDS)
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

    for rows, steps in ((BATCH, TIME), (2, 3), (1, 1)):
        x, mask, some = sequence(rows, steps), MASK[:rows, :steps], [s[:rows] for s in states]
        assert_same(given(x, mask, some), values(ours, x, some, mask=mask))
        assert_same(plain(x), values(ours, x))


@pytest.mark.parametrize("kind", KINDS)
def test_empty_batches_and_sequences(tf, kind):
    ours, _ = pair(kind, return_state=True)
    empty = tf.function(ours, input_signature=[tf.TensorSpec([None, None, INPUT])])
    output, *states = empty(np.zeros((0, 4, INPUT), np.float32))
    assert output.shape == (0, UNITS) and all(s.shape == (0, UNITS) for s in states)
    # Keras' own code takes a first step even where there is none, except in a graph.
    output, *states = empty(np.zeros((2, 0, INPUT), np.float32))
    assert not np.any(output) and not np.any(states)


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", [{}, {"zero_output_for_mask": True}, {"go_backwards": True}])
def test_no_step_has_an_output(tf, kind, arguments):
    """Whatever the states are that the call is given, and returns."""
    states = initial_states(kind)
    specs = [tf.TensorSpec([BATCH, None, INPUT]), [tf.TensorSpec([BATCH, UNITS]) for _ in states]]
    given = np.zeros((BATCH, 0, INPUT), np.float32), states
    for mask in (None, np.zeros((BATCH, 0), bool)):
        of_mask = [] if mask is None else [tf.TensorSpec([BATCH, None], tf.bool)]
        found = []
        for layer in pair(kind, return_state=True, **arguments):

            def call(x, states, mask=None, layer=layer):
                return layer(x, initial_state=states, mask=mask)

            graph = tf.function(call, input_signature=specs + of_mask)
            found.append(graph(*given, *([] if mask is None else [mask])))
        assert not np.any(found[0][0])
        assert_same(*found)


# ---- states from call to call


@pytest.mark.parametrize("kind", KINDS)
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
    # Keras 3.11 has no check of its own and fails in its step.
    kind_of_error = {"3.11": tf.errors.InvalidArgumentError}.get(keras.__version__[:4], ValueError)
    with pytest.raises(kind_of_error, match="batch size|Incompatible shapes"):
        ours(x[:2])


# ---- in both directions

MERGE_MODES = ("sum", "mul", "ave", None)


@pytest.mark.parametrize(
    ("kind", "mode"),
    [*(("LSTM", mode) for mode in MERGE_MODES), *((kind, "concat") for kind in KINDS)],
)
def test_bidirectional_equals_keras(kind, mode):
    """Sequences and single outputs, a mask, states in and out, in every merge mode."""
    for every in (True, False):
        arguments = {"return_sequences": every, "return_state": True}
        layers = [
            keras.layers.Bidirectional(make(kind, **arguments), merge_mode=mode)
            for make in (make_ours, make_peer)
        ]
        for layer in layers:
            layer.build((BATCH, TIME, INPUT))
        randomise(layers[0])
        layers[1].set_weights(layers[0].get_weights())
        assert layers[0].forward_layer.fused and layers[0].backward_layer.fused
        for mask, states in ((None, None), (MASK, initial_states(kind) * 2)):
            assert_same(*(values(layer, sequence(), states, mask=mask) for layer in layers))


def test_a_backward_layer_of_its_own():
    """One direction on the op and one on Keras' maths."""
    outputs = []
    for make in (make_ours, make_peer):
        keras.utils.set_random_seed(3)
        layer = keras.layers.Bidirectional(
            make("LSTM", return_sequences=True),
            backward_layer=make_peer(
                "LSTM", activation="relu", go_backwards=True, return_sequences=True
            ),
        )
        outputs.append(layer(sequence(), mask=MASK))
    assert_same(outputs[:1], outputs[1:])


# ---- Keras' own numbers for an implementation=1


@pytest.mark.parametrize("kind", ["GRU", "GRU-before", "LSTM"])
def test_both_implementations_are_one(kind):
    ours, peer = pair(kind, implementation=1)
    assert ours.cell.implementation == 1
    assert_same(values(ours, sequence()), values(peer, sequence()))


def test_tolerance_would_see_a_wrong_gate_order():
    """What the comparisons above rest on: a permuted weight is far outside of the bound."""
    ours, peer = pair("LSTM")
    kernel, *rest = ours.get_weights()
    ours.set_weights([np.roll(kernel, UNITS, axis=1), *rest])
    with pytest.raises(AssertionError, match="relative error"):
        assert_close(ours(sequence()), peer(sequence()), tolerances.composed_bound("float32", 20))
