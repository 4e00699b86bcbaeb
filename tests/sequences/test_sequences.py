"""The sequence functions: lengths, masks, layouts, directions, options, states, gradients.

lstm, gru, simple_rnn and those with layer normalisation; with recurrent dropout, zoneout,
projections and inputs that are projected already.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, covering, run_modes, sequence_functions, sequence_ops, tolerances
from helpers.block_cells import DTYPES
from helpers.sequence_functions import (
    DIMS,
    FUNCTIONS,
    PLAIN,
    check,
    cotangents_of,
    laid_out,
    options_of,
    random_inputs,
    run,
)

plain_functions = pytest.mark.parametrize("name", PLAIN)
all_functions = pytest.mark.parametrize("name", FUNCTIONS)
layouts = pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])
directions = pytest.mark.parametrize("go_backwards", [False, True], ids=["forwards", "backwards"])
ORDERS = list(itertools.product([True, False], repeat=2))  # time_major, go_backwards


@pytest.mark.parametrize(
    ("name", "kind", "dims", "order", "dropout", "projected"),
    covering.pairwise(
        FUNCTIONS,
        sequence_functions.patterns(DIMS),
        [DIMS, (1, *DIMS[1:])],
        ORDERS,
        [False, True],
        [False, True],
    ),
)
def test_masks_and_lengths_of_every_pattern(tfb, name, kind, dims, order, dropout, projected):
    pattern = sequence_functions.patterns(dims)[kind]
    how = {"dropout": dropout, "projected": projected, "lengths_type": np.int64}
    check(tfb, FUNCTIONS[name], dims, "double", pattern, *order, **how)


# (T, B, I, H): one row and a few, rows for more than one tile, few units and more than a panel.
ODD_DIMS = (
    (1, 1, 3, 7),
    (3, 2, 5, 33),
    (7, 2, 8, 8),
    (3, 5, 7, 9),
    (6, 7, 17, 15),
    (3, 16, 16, 16),
    (4, 20, 17, 40),
    (4, 17, 33, 31),
    (2, 65, 70, 63),
    (2, 130, 3, 66),
)


@pytest.mark.parametrize(
    ("name", "dtype", "dims", "order", "kind", "more"),
    covering.pairwise(
        FUNCTIONS,
        DTYPES,
        ODD_DIMS,
        ORDERS,
        ["none", "lengths and holes"],
        ["", "dropout", "dropout projected"],
    ),
)
def test_every_type_and_odd_sizes(tfb, name, dtype, dims, order, kind, more):
    pattern = sequence_functions.patterns(dims)[kind]
    how = {"dropout": "dropout" in more, "projected": "projected" in more}
    check(tfb, FUNCTIONS[name], dims, dtype, pattern, *order, **how)


@plain_functions
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_of_many_elements(tfb, name, mode):
    """An eager tape hands over other zeros for what is not used, from ten thousand elements on."""
    dims = (20, 64, 3, 17)
    function = PLAIN[name]
    inputs = random_inputs(function, dims, np.float32)

    def compute(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(tfb, function, tensors, time_major=True)
        return tape.gradient(outputs[0], tensors)

    compute = run_modes.in_mode(mode, compute)
    got = compute({k: tf.constant(v) for k, v in inputs.items()})
    oracle = sequence_functions.Oracle(function, inputs)
    ones = [np.ones((20, 64, 17)), *[None] * (1 + function.has_cs)]
    bound = tolerances.composed_bound("float", dims[0] * dims[1])
    for key, want in oracle.gradients(ones).items():
        if key in got:
            compare.assert_close(got[key].numpy(), want, bound, key)


@pytest.mark.parametrize(
    ("name", "dims", "kind", "order"),
    covering.pairwise(FUNCTIONS, sequence_ops.EMPTY_DIMS, ["none", "holes", "lengths"], ORDERS),
)
def test_empty_dims(tfb, name, dims, kind, order):
    pattern = sequence_functions.patterns(dims)[kind]
    check(tfb, FUNCTIONS[name], dims, "double", pattern, *order)


@plain_functions
def test_each_cotangent_alone(tfb, name):
    """Of the outputs, of the last h and of the last cs; what is not used counts as zero."""
    function, time_major = PLAIN[name], True
    pattern = sequence_functions.patterns(DIMS)["lengths and holes"]
    inputs = random_inputs(function, DIMS, np.float64)
    oracle = sequence_functions.Oracle(function, inputs, *pattern)
    cotangents = cotangents_of(oracle.outputs(), np.float64)
    bound = tolerances.composed_bound("double", DIMS[0] * 4 * DIMS[3])
    for used in range(len(cotangents)):
        alone = [c if k == used else None for k, c in enumerate(cotangents)]
        _, got = run(tfb, PLAIN[name], inputs, options_of(*pattern, time_major, False), alone)
        for key, want in oracle.gradients(alone).items():
            if key in got:
                assert np.any(want), key
                compare.assert_close(got[key], want, bound, f"{key} from output {used}")


def _bits(values):
    return [compare.bits(v) for v in values]


def _spoiled(inputs, kind):
    """NaN in x wherever a step is masked; the pattern, and which steps are not."""
    mask, lengths = sequence_functions.patterns(DIMS)[kind]
    keep = np.ones(DIMS[:2], bool) if mask is None else mask
    if lengths is not None:
        keep = keep & (np.arange(DIMS[0])[:, None] < lengths)
    x = np.where(keep[..., None], inputs["x"], np.float32(np.nan))
    return {**inputs, "x": x}, (mask, lengths), keep


SKIPPING = ("holes", "lengths", "rows without a step", "lengths and holes", "nothing")


def _clean_and_spoiled(tfb, name, kind, time_major):
    """Outputs and gradients of both; and which steps are unmasked."""
    inputs = random_inputs(PLAIN[name], DIMS, np.float32)
    spoiled, pattern, keep = _spoiled(inputs, kind)
    options = options_of(*pattern, time_major, False)
    cotangents = cotangents_of(run(tfb, PLAIN[name], inputs, options)[0], np.float32)
    clean, spoiled = (
        run(tfb, PLAIN[name], given, options, cotangents) for given in (inputs, spoiled)
    )
    return clean, spoiled, keep


@pytest.mark.parametrize(
    ("name", "time_major", "kind"), covering.pairwise(PLAIN, [True, False], SKIPPING)
)
def test_masked_steps_are_not_read(tfb, name, time_major, kind):
    """NaN in x at masked steps, as padding may hold, changes no bit; its own gradient is zero."""
    (want, want_gradients), (got, gradients), keep = _clean_and_spoiled(tfb, name, kind, time_major)
    assert _bits(got) == _bits(want)
    assert not np.any(gradients["x"][~keep])
    for key in gradients:
        assert compare.bits(gradients[key]) == compare.bits(want_gradients[key]), key


@plain_functions
def test_layouts_and_directions_agree(tfb, name):
    """Batch-major is time-major with dims exchanged; backwards is forwards over the reverse."""
    mask, lengths = sequence_functions.patterns(DIMS)["lengths and holes"]
    inputs = random_inputs(PLAIN[name], DIMS, np.float32)
    want, _ = run(tfb, PLAIN[name], inputs, options_of(mask, lengths, True, False))
    got, _ = run(tfb, PLAIN[name], inputs, options_of(mask, lengths, False, False))
    assert _bits(got) == _bits(want)

    want, _ = run(tfb, PLAIN[name], inputs, options_of(mask, None, True, True))
    reverse = {**inputs, "x": inputs["x"][::-1]}
    got, _ = run(tfb, PLAIN[name], reverse, options_of(mask[::-1], None, True, False))
    assert _bits([got[0][::-1], *got[1:]]) == _bits(want)


@all_functions
def test_what_is_left_out_is_zero(tfb, name):
    """The initial state, of which the cell state is wider with a projection, and a GRU's b_h."""
    function = FUNCTIONS[name]
    inputs = random_inputs(function, DIMS, np.float32)
    for key in {"h", "cs", "b_h"} & set(inputs):
        inputs[key] = np.zeros_like(inputs[key])
    want = sequence_functions.call(tfb, function, inputs, time_major=True)
    short = {k: v for k, v in inputs.items() if k != "b_h"}
    got = sequence_functions.call(tfb, function, short, time_major=True, with_state=False)
    assert _bits(got) == _bits(want)


def test_zeros_are_kept_where_they_are_few_and_eager(tfb):
    from tf_blockrnn._ops import sequence_util

    make = sequence_util.zeros_to_read
    few = make(3, 5, tf.float32)
    assert make(3, 5, tf.float32) is few
    np.testing.assert_array_equal(few, np.zeros([3, 5]))
    assert make(3, 5, tf.float64).dtype == tf.float64
    with tf.device("CPU:0"):
        assert make(3, 5, tf.float32) is not few  # another device could be meant
    assert make(101, 100, tf.float32) is not make(101, 100, tf.float32)

    @tf.function
    def in_graph(x):
        return make(tf.shape(x)[0], 5, tf.float32)

    assert in_graph(tf.ones([3])).shape == [3, 5]


@plain_functions
def test_defaults_are_batch_major_and_forwards(tfb, name):
    function = PLAIN[name]
    inputs = random_inputs(function, DIMS, np.float32)
    want, _ = run(tfb, PLAIN[name], inputs, options_of(None, None, False, False))
    inputs["x"] = np.swapaxes(inputs["x"], 0, 1)
    got = [np.asarray(v) for v in sequence_functions.call(tfb, function, inputs)]
    assert _bits([np.swapaxes(got[0], 0, 1), *got[1:]]) == _bits(want)


@plain_functions
def test_a_tape_does_not_change_the_outputs(tfb, name):
    """Without one nothing is saved for backward."""
    for dims in (DIMS, (7, 17, 15, 33)):
        pattern = sequence_functions.patterns(dims)["lengths and holes"]
        inputs = random_inputs(PLAIN[name], dims, np.float32)
        options = options_of(*pattern, True, False)
        without, _ = run(tfb, PLAIN[name], inputs, options)
        cotangents = cotangents_of(without, np.float32)
        assert _bits(run(tfb, PLAIN[name], inputs, options, cotangents)[0]) == _bits(without)


WRONG_LENGTHS = ([6, -1, 3, 0, 1], [7, 0, 0, 0, 0], [0, 0, 0, 0, 2**31 - 1])


@pytest.mark.parametrize(
    ("name", "mode", "wrong"), covering.pairwise(PLAIN, run_modes.MODES, WRONG_LENGTHS)
)
def test_lengths_out_of_range_are_refused(tfb, name, mode, wrong):
    inputs = random_inputs(PLAIN[name], DIMS, np.float32)

    def run(lengths):
        return sequence_functions.call(tfb, PLAIN[name], inputs, time_major=True, lengths=lengths)

    run = run_modes.in_mode(mode, run)
    for kind in (tf.int32, tf.int64):
        run(tf.constant([6, 0, 3, 0, 1], kind))
        with pytest.raises(tf.errors.InvalidArgumentError, match="lengths.* must .* got"):
            run(tf.constant(wrong, kind))


@all_functions
def test_factors_of_one_change_nothing_but_the_order_of_sums(tfb, name):
    function, dims = FUNCTIONS[name], (5, 9, 4, 21)
    inputs = random_inputs(function, dims, np.float32, dropout=True)
    ones = {**inputs, "dropout": np.ones_like(inputs.pop("dropout"))}
    options = options_of(None, None, True)
    cotangents = cotangents_of(run(tfb, function, inputs, options)[0], np.float32)
    want, want_gradients = run(tfb, function, inputs, options, cotangents)
    got, gradients = run(tfb, function, ones, options, cotangents)
    bound = tolerances.parity_bound("float", dims[0] * (dims[2] + dims[3]), backward=True)
    for mine, other in zip(got, want, strict=True):
        compare.assert_close(mine, other, bound)
    for key, value in want_gradients.items():
        compare.assert_close(gradients[key], value, bound, key)


@all_functions
def test_dropped_units_do_not_reach_the_next_step(tfb, name):
    """With every factor 0 each step is independent, as after a state of zeros."""
    function, options = FUNCTIONS[name], options_of(None, None, True)
    inputs = random_inputs(function, DIMS, np.float64, dropout=True)
    inputs["dropout"] = np.zeros_like(inputs["dropout"])
    outputs, _ = run(tfb, function, inputs, options)
    _, gradients = run(tfb, function, inputs, options, cotangents_of(outputs, np.float64))
    assert not np.any(gradients["w_h"])
    kept = function.name.endswith("gru") or bool(function.zoneout)
    assert np.any(gradients["h"]) == kept


@pytest.mark.parametrize(
    ("name", "mode", "time_major"), covering.pairwise(FUNCTIONS, ["graph", "jit"], [True, False])
)
def test_graph_of_unknown_shapes(tfb, name, mode, time_major):
    """One graph for all sizes, masks and lengths, with gradients: the bits are those of eager."""
    function = FUNCTIONS[name]

    def compute(tensors, mask, lengths):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            options = {"mask": mask, "lengths": lengths, "time_major": time_major}
            outputs = sequence_functions.call(tfb, function, tensors, **options)
            total = tf.add_n([tf.reduce_sum(o) for o in outputs])
        gradients = tape.gradient(total, tensors)
        assert gradients.pop("dropout") is None
        return outputs, gradients

    unknown = {k: tf.TensorSpec(None, tf.float32) for k in (*function.shapes(DIMS), "dropout")}
    signature = [unknown, tf.TensorSpec(None, tf.bool), tf.TensorSpec(None, tf.int32)]
    graph = run_modes.in_mode(mode, compute, input_signature=signature, autograph=False)
    sizes = (DIMS, (1, 1, 4, 4), (3, 0, 2, 4), (0, 2, 2, 4))
    for dims in run_modes.fewer(mode, sizes, slice(None, None, 2)):
        mask, lengths = sequence_functions.patterns(dims)["lengths and holes"]
        inputs = random_inputs(function, dims, np.float32, dropout=True)
        inputs["x"] = laid_out(inputs["x"], time_major)
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        arguments = (
            tensors,
            tf.constant(laid_out(mask, time_major)),
            tf.constant(lengths.astype(np.int32)),
        )
        pairs = (tf.nest.flatten(found(*arguments)) for found in (graph, compute))
        for mine, eager in zip(*pairs, strict=True):
            assert compare.bits(mine) == compare.bits(eager), dims


@pytest.mark.parametrize("lengths", [[0, 2], None])
def test_a_projection_of_no_units(tfb, lengths):
    """H = 0: a step gives zeros, and a row without steps keeps its state and its gradient."""
    batch, width = 2, 3
    steps = 0 if lengths is None else 2
    h_first = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    w_p = tf.zeros([width, 0])
    with tf.GradientTape() as tape:
        tape.watch(h_first)
        _, state = tfb.lstm(
            tf.ones([batch, steps, 5]),
            tf.zeros([5, 0]),
            tf.zeros([width, 0]),
            tf.zeros([0]),
            w_p=w_p,
            initial_state=(h_first, tf.zeros([batch, 0])),
            lengths=lengths,
        )
        weighted = tf.reduce_sum(state.h * [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    kept = np.array([[1.0], [0.0 if steps else 1.0]])
    np.testing.assert_array_equal(state.h, h_first * kept)
    np.testing.assert_array_equal(
        tape.gradient(weighted, h_first), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] * kept
    )


def test_what_does_not_fit_is_refused_in_an_empty_batch(tfb):
    """Weights that are left out are checked whatever the batch."""
    ops = tfb.raw_ops
    none, mask = tf.zeros([0]), tf.zeros([0], tf.bool)
    lengths = tf.zeros([0], tf.int64)
    inputs = {"x": tf.zeros([3, 0, 4]), "h_prev": tf.zeros([0, 2]), "mask": mask}
    inputs |= {"sequence_lengths": lengths, "recurrent_dropout": none}
    inputs |= {"resets": mask, "zoneout_h": mask}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"w_x .* I = 3H"):
        ops.GRUSequence(**inputs, w_x=none, w_h=tf.zeros([2, 6]), b=tf.zeros([6]))
