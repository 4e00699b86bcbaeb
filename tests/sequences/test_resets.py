"""Sequences that begin in the middle of rows: `resets` of the sequence functions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, covering, run_modes, sequence_functions, sequence_ops
from helpers.block_cells import DTYPES
from helpers.sequence_functions import (
    DIMS,
    FUNCTIONS,
    PLAIN,
    RESETS,
    check,
    cotangents_of,
    options_of,
    random_inputs,
    resets_of,
    run,
)

plain_functions = pytest.mark.parametrize("name", PLAIN)
directions = pytest.mark.parametrize("go_backwards", [False, True], ids=["forwards", "backwards"])
ORDERS = list(itertools.product([True, False], repeat=2))  # time_major, go_backwards
PATTERNS = ("none", "nothing", "left padding", "right padding", "holes", "lengths", "all lengths 0")
# Rows for more than one tile, units for more than a panel, steps for more than a block.
LARGER = ((30, 3, 4, 5), (9, 20, 17, 40), (70, 2, 3, 9))


@pytest.mark.parametrize(
    ("name", "kind", "resets", "order", "dropout", "projected"),
    covering.pairwise(
        FUNCTIONS,
        (*PATTERNS, "lengths and holes"),
        RESETS[1:],
        ORDERS,
        [False, True],
        [False, True],
    ),
)
def test_with_masks_and_lengths(tfb, name, kind, resets, order, dropout, projected):
    pattern = sequence_functions.patterns(DIMS)[kind]
    how = {"dropout": dropout, "projected": projected, "resets": resets_of(DIMS, resets)}
    check(tfb, FUNCTIONS[name], DIMS, "double", pattern, *order, **how)


@pytest.mark.parametrize(
    ("name", "dtype", "dims", "order", "kind", "resets"),
    covering.pairwise(
        FUNCTIONS, DTYPES, LARGER, ORDERS, ["none", "lengths and holes"], ["few", "many"]
    ),
)
def test_every_type_and_larger_sizes(tfb, name, dtype, dims, order, kind, resets):
    pattern = sequence_functions.patterns(dims)[kind]
    check(tfb, FUNCTIONS[name], dims, dtype, pattern, *order, resets=resets_of(dims, resets))


@pytest.mark.parametrize(
    ("name", "dims", "order"), covering.pairwise(FUNCTIONS, sequence_ops.EMPTY_DIMS, ORDERS)
)
def test_empty_dims(tfb, name, dims, order):
    check(tfb, FUNCTIONS[name], dims, "double", (None, None), *order, resets=resets_of(dims, "all"))


def _pieces(resets):
    """(row, begin, end) of what lies between resets, [T, B]."""
    steps = len(resets)
    for row in range(resets.shape[1]):
        begins = [0, *(t for t in range(1, steps) if resets[t, row])]
        yield from ((row, *span) for span in zip(begins, [*begins[1:], steps], strict=True))


# Draws of zoneout follow from a call's sizes, which a piece alone has not.
@directions
@pytest.mark.parametrize("name", [n for n in FUNCTIONS if FUNCTIONS[n].zoneout != "draws"])
def test_each_piece_is_a_sequence_of_its_own(tfb, name, go_backwards):
    """Outputs, last states and gradients, in float32."""
    function, dims = FUNCTIONS[name], (12, 3, 5, 7)
    inputs, resets = random_inputs(function, dims, np.float32), resets_of(dims, "few")
    resets[0] = [True, False, True]
    options = options_of(None, None, True, go_backwards, resets=resets)
    cotangents = cotangents_of(run(tfb, function, inputs, options)[0], np.float32)
    got, gradients = run(tfb, function, inputs, options, cotangents)
    sums = {}
    for row, begin, end in _pieces(resets):
        first = end == dims[0] if go_backwards else begin == 0 and not resets[0, row]
        last = begin == 0 if go_backwards else end == dims[0]
        alone = {k: v for k, v in inputs.items() if k not in ("x", "h", "cs")}
        alone["x"] = inputs["x"][begin:end, row : row + 1]
        states = [key for key in ("h", "cs") if key in inputs]
        for key in states:
            alone[key] = inputs[key][row : row + 1] * first
        of_states = [c[row : row + 1] * last for c in cotangents[1:]]
        want, found = run(
            tfb, function, alone, options_of(None, None, True, go_backwards),
            [cotangents[0][begin:end, row : row + 1], *of_states],
        )  # fmt: skip
        compare.assert_close(got[0][begin:end, row], want[0][:, 0], 2e-6, f"outputs of {row}")
        for value, of_piece in zip(got[1:], want[1:], strict=True):
            if last:
                compare.assert_close(value[row], of_piece[0], 2e-6, f"last state of {row}")
        compare.assert_close(
            gradients["x"][begin:end, row], found.pop("x")[:, 0], 2e-6, f"x_grad of {row}"
        )
        for key in states:
            want_first = found.pop(key)[0]
            if first:
                compare.assert_close(gradients[key][row], want_first, 2e-6, f"{key}_grad of {row}")
        sums = {key: sums.get(key, 0) + value.astype(float) for key, value in found.items()}
    for key in ("h", "cs"):
        if key in gradients and not go_backwards:
            assert not np.any(gradients[key][resets[0]]), key
    for key, value in sums.items():
        compare.assert_close(gradients[key], value, 1e-5, f"gradient of {key}")


@pytest.mark.parametrize(
    ("name", "order", "kind"), covering.pairwise(FUNCTIONS, ORDERS, ["none", "lengths and holes"])
)
def test_resets_that_are_none_change_no_bit(tfb, name, order, kind):
    function, dims = FUNCTIONS[name], (9, 4, 5, 7)
    pattern = sequence_functions.patterns(dims)[kind]
    inputs = random_inputs(function, dims, np.float32)
    plain = options_of(*pattern, *order)
    cotangents = cotangents_of(run(tfb, function, inputs, plain)[0], np.float32)
    with_resets = options_of(*pattern, *order, resets=np.zeros(dims[:2], bool))
    want, want_gradients = run(tfb, function, inputs, plain, cotangents)
    got, gradients = run(tfb, function, inputs, with_resets, cotangents)
    for one, other in zip(got, want, strict=True):
        assert compare.bits(one) == compare.bits(other)
    for key, value in want_gradients.items():
        assert compare.bits(gradients[key]) == compare.bits(value), key


@directions
@plain_functions
def test_nothing_crosses_a_reset(tfb, name, go_backwards):
    """NaN in one piece stays in it, forward and backward."""
    function, dims = PLAIN[name], (10, 2, 5, 7)
    inputs = random_inputs(function, dims, np.float32)
    resets = np.zeros(dims[:2], bool)
    resets[[4, 8], 0] = True
    inputs["x"][5, 0] = np.nan
    options = options_of(None, None, True, go_backwards, resets=resets)
    cotangents = cotangents_of(run(tfb, function, inputs, options)[0], np.float32)
    got, gradients = run(tfb, function, inputs, options, cotangents)
    inside = np.zeros(dims[:2], bool)
    inside[4:8, 0] = True
    assert np.isnan(got[0][5, 0]).all()
    assert np.isnan(gradients["x"][5, 0]).all()
    assert np.isfinite(got[0][~inside]).all()
    assert np.isfinite(gradients["x"][~inside]).all()
    assert all(np.isfinite(state).all() for state in got[1:])
    for key in {"h", "cs"} & set(gradients):
        assert np.isfinite(gradients[key]).all(), key


RECOMPUTED = [name for name in FUNCTIONS if not name.startswith("rnn")]


@pytest.mark.parametrize(
    ("name", "order", "kind", "span", "resets"),
    covering.pairwise(
        RECOMPUTED, ORDERS, ["none", "lengths and holes"], [True, 1, 3, 50], ["few", "many", "all"]
    ),
)
def test_recompute_changes_no_bit(tfb, name, order, kind, span, resets):
    function, dims = FUNCTIONS[name], (30, 3, 4, 9)
    pattern = sequence_functions.patterns(dims)[kind]
    inputs = random_inputs(function, dims, np.float32)
    options = options_of(*pattern, *order, resets=resets_of(dims, resets))
    cotangents = cotangents_of(run(tfb, function, inputs, options)[0], np.float32)
    want, want_gradients = run(tfb, function, inputs, options, cotangents)
    got, gradients = run(tfb, function, inputs, {**options, "recompute": span}, cotangents)
    for one, other in zip(got, want, strict=True):
        assert compare.bits(one) == compare.bits(other)
    for key, value in want_gradients.items():
        assert compare.bits(gradients[key]) == compare.bits(value), key


@pytest.mark.parametrize(
    ("name", "order", "span", "share"),
    covering.pairwise(
        ("lstm", "lstm-projection", "gru-after", "gru-before", "layer-norm-lstm"),
        ORDERS,
        [9, 17],
        [0.01, 0.06],
    ),
)
def test_recompute_of_several_spans_changes_no_bit(tfb, name, order, span, share):
    """Of more rows than a block has; long pieces, and short ones beside them."""
    function, dims = FUNCTIONS[name], (120, 20, 140, 6)
    inputs = random_inputs(function, dims, np.float32)
    resets = np.random.default_rng(3).random(dims[:2]) < share
    options = options_of(None, None, *order, resets=resets)
    cotangents = cotangents_of(run(tfb, function, inputs, options)[0], np.float32)
    _, want = run(tfb, function, inputs, options, cotangents)
    _, got = run(tfb, function, inputs, {**options, "recompute": span}, cotangents)
    for key, value in want.items():
        assert compare.bits(got[key]) == compare.bits(value), key


# XLA makes a program for each: of every cell one.
@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "graph") for name in PLAIN]
    + [(name, "jit") for name in ("lstm", "gru-after-urc", "gru-before", "layer-norm-lstm")],
)
def test_one_graph_for_all_resets(tfb, name, mode):
    """Shapes are unknown to the graph where it is not XLA's; the bits are those of eager calls."""
    function, dims = PLAIN[name], (6, 3, 4, 5)
    inputs = {k: tf.constant(v) for k, v in random_inputs(function, dims, np.float32).items()}

    def compute(given, resets):
        with tf.GradientTape() as tape:
            tape.watch(given)
            outputs = sequence_functions.call(tfb, function, given, resets=resets)
        return outputs, tape.gradient(outputs[0], given)

    given = {**inputs, "x": tf.transpose(inputs["x"], [1, 0, 2])}
    shape = [None, None] if mode == "graph" else [3, 6]
    of_inputs = {k: tf.TensorSpec([None] * v.shape.rank if mode == "graph" else v.shape, v.dtype)
                 for k, v in given.items()}  # fmt: skip
    traced = tf.function(
        compute,
        jit_compile=mode == "jit",
        input_signature=[of_inputs, tf.TensorSpec(shape, tf.bool)],
    )
    for kind in RESETS:
        resets = tf.constant(resets_of(dims, kind).T)
        want, want_gradients = compute(given, resets)
        got, gradients = traced(given, resets)
        for one, other in zip(got, want, strict=True):
            assert compare.bits(one) == compare.bits(other), kind
        for key, value in want_gradients.items():
            assert compare.bits(gradients[key]) == compare.bits(value), (kind, key)


@pytest.mark.parametrize(
    ("name", "mode", "wrong"),
    covering.pairwise(
        ("lstm", "gru-after", "gru-before", "layer-norm-gru"),
        run_modes.MODES,
        [(5, 3), (6, 4), (6,), (6, 3, 1), "float32", "int32"],
    ),
)
def test_wrong_resets_are_refused(tfb, name, mode, wrong):
    dims = (6, 3, 4, 5)
    inputs = random_inputs(PLAIN[name], dims, np.float32)

    def compute(resets):
        return sequence_functions.call(tfb, PLAIN[name], inputs, time_major=True, resets=resets)

    compute = run_modes.in_mode(mode, compute)
    function = PLAIN[name].name
    if isinstance(wrong, str):
        with pytest.raises(TypeError, match=f"{function}: resets must be of .*bool.* got {wrong}"):
            compute(tf.zeros([6, 3], wrong))
    else:
        # A graph that is built refuses a shape by a ValueError.
        refusals = (tf.errors.InvalidArgumentError, ValueError)
        with pytest.raises(refusals, match=r"resets must have .* got "):
            compute(tf.zeros(wrong, tf.bool))
    compute(tf.zeros([6, 3], tf.bool))
