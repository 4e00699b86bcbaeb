"""tf_blockrnn.lstm and gru: lengths, masks, layouts, directions, states, gradients."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    block_cells,
    compare,
    covering,
    run_modes,
    sequence_functions,
    sequence_ops,
    tolerances,
)

FUNCTIONS = sequence_functions.FUNCTIONS
DIMS = (6, 5, 3, 4)
all_functions = pytest.mark.parametrize("name", FUNCTIONS)
all_dtypes = pytest.mark.parametrize("dtype", block_cells.DTYPES)
layouts = pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])
directions = pytest.mark.parametrize("go_backwards", [False, True], ids=["forwards", "backwards"])


def _laid_out(array, time_major):
    return array if time_major or array is None else np.swapaxes(np.asarray(array), 0, 1)


def _options(mask, lengths, time_major, go_backwards, lengths_type=np.int32):
    options = {"time_major": time_major, "go_backwards": go_backwards}
    if mask is not None:
        options["mask"] = tf.constant(_laid_out(mask, time_major))
    if lengths is not None:
        options["lengths"] = tf.constant(lengths.astype(lengths_type))
    return options


def _run(tfb, name, inputs, options, cotangents=None):
    """Outputs [T, B, …] first, and the gradients by name when there are cotangents."""
    function, time_major = FUNCTIONS[name], options["time_major"]
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    tensors["x"] = tf.constant(_laid_out(inputs["x"], time_major))
    if cotangents is None:
        outputs = sequence_functions.call(tfb, function, tensors, **options)
        gradients = {}
    else:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(tfb, function, tensors, **options)
            used = [k for k, c in enumerate(cotangents) if c is not None]
        given = [
            tf.constant(_laid_out(c, time_major or c.ndim < 3)) for c in cotangents if c is not None
        ]
        gradients = tape.gradient([outputs[k] for k in used], tensors, output_gradients=given)
        gradients = {k: np.asarray(v) for k, v in gradients.items()}
        gradients["x"] = _laid_out(gradients["x"], time_major)
    values = [np.asarray(o) for o in outputs]
    return [_laid_out(values[0], time_major), *values[1:]], gradients


def _cotangents(outputs, dtype, seed=7):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(o)).astype(dtype) for o in outputs]


def _check(tfb, name, dims, dtype, pattern, options, seed=0):
    """Outputs and gradients of one call against the oracle."""
    mask, lengths = pattern
    kind = block_cells.numpy_type(dtype)
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], dims, kind, seed)
    oracle = sequence_functions.Oracle(
        FUNCTIONS[name], inputs, mask, lengths, options["go_backwards"]
    )
    want = oracle.outputs()
    cotangents = _cotangents(want, kind)
    got, gradients = _run(tfb, name, inputs, options, cotangents)
    order = {k: options[k] for k in ("time_major", "go_backwards")}
    what = f"{name} {dims} {dtype} {order}"
    t, b, i, h = dims
    bound = tolerances.bound(dtype, max(t, 1) * (i + h))
    for value, expected, part in zip(got, want, ("outputs", "h", "cs"), strict=False):
        assert value.dtype == kind, what
        compare.assert_close(value, expected, bound, f"{part} of {what}")
    bound = tolerances.composed_bound(dtype, max(t, 1) * max(i + h, 4 * h, b))
    for key, expected in oracle.gradients(cotangents).items():
        if key not in gradients:
            assert key in ("wci", "wcf", "wco") and "peephole" not in name
            continue
        compare.assert_close(gradients[key], expected, bound, f"gradient of {key}, {what}")


@all_functions
@layouts
@directions
def test_masks_and_lengths_of_every_pattern(tfb, name, time_major, go_backwards):
    for kind, pattern in sequence_functions.patterns(DIMS).items():
        options = _options(*pattern, time_major, go_backwards, np.int64)
        try:
            _check(tfb, name, DIMS, "double", pattern, options)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from error


# (T, B, I, H), time_major, go_backwards: few rows and many, few units and many, in every layout.
ODD_CALLS = (
    ((4, 3, 5, 7), False, False),
    ((7, 2, 8, 8), True, True),
    ((3, 5, 7, 9), False, True),
    ((6, 7, 17, 15), True, False),
    ((3, 16, 16, 16), False, True),
    ((5, 9, 15, 33), True, True),
    ((4, 17, 33, 31), False, False),
    ((2, 65, 70, 63), True, True),
)


@all_functions
@all_dtypes
def test_every_type_and_odd_sizes(tfb, name, dtype):
    for dims, time_major, go_backwards in ODD_CALLS:
        pattern = sequence_functions.patterns(dims)["lengths and holes"]
        options = _options(*pattern, time_major, go_backwards)
        _check(tfb, name, dims, dtype, pattern, options)


@all_functions
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_gradient_of_many_elements(tfb, name, mode):
    """An eager tape hands over other zeros for what is not used, from ten thousand elements on."""
    dims = (20, 64, 3, 17)
    function = FUNCTIONS[name]
    inputs = sequence_functions.random_inputs(function, dims, np.float32)

    def compute(tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(tfb, function, tensors, time_major=True)
        return tape.gradient(outputs[0], tensors)

    compute = run_modes.in_mode(mode, compute)
    got = compute({k: tf.constant(v) for k, v in inputs.items()})
    oracle = sequence_functions.Oracle(function, inputs)
    ones = [np.ones((20, 64, 17)), *[None] * function.states]
    bound = tolerances.composed_bound("float", dims[0] * dims[1])
    for key, want in oracle.gradients(ones).items():
        if key in got:
            compare.assert_close(got[key].numpy(), want, bound, key)


@pytest.mark.parametrize(
    ("name", "dims", "options"),
    covering.pairwise(
        FUNCTIONS,
        sequence_ops.EMPTY_DIMS,
        itertools.product(["none", "holes", "lengths"], [False, True], [False, True]),
    ),
)
def test_empty_dims(tfb, name, dims, options):
    kind, time_major, go_backwards = options
    pattern = sequence_functions.patterns(dims)[kind]
    _check(tfb, name, dims, "double", pattern, _options(*pattern, time_major, go_backwards))


@all_functions
@layouts
def test_one_step(tfb, name, time_major):
    dims = (1, 5, 3, 4)
    for pattern in sequence_functions.patterns(dims).values():
        _check(tfb, name, dims, "double", pattern, _options(*pattern, time_major, False))


@all_functions
@directions
def test_gradient_is_the_finite_difference(tfb, name, go_backwards):
    """Of the public function itself, through lengths and a mask with holes, float64."""
    dims, function = (4, 3, 2, 3), FUNCTIONS[name]
    mask = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    options = _options(mask, np.array([4, 3, 2]), False, go_backwards)
    if "cell_clip" in function.options:
        # A clip is straight-through, so differences tell nothing where it acts.
        options["cell_clip"] = 0.0
    inputs = sequence_functions.random_inputs(function, dims, np.float64)
    outputs, _ = _run(tfb, name, inputs, options)
    cotangents = _cotangents(outputs, np.float64)
    _, gradients = _run(tfb, name, inputs, options, cotangents)
    step = tolerances.FINITE_DIFFERENCE_STEP
    for key, value in inputs.items():
        want = np.zeros_like(value)
        for index in np.ndindex(*value.shape):
            totals = []
            for sign in (1, -1):
                moved = {**inputs, key: value.copy()}
                moved[key][index] += sign * step
                got, _ = _run(tfb, name, moved, options)
                totals.append(sum((c * o).sum() for c, o in zip(cotangents, got, strict=True)))
            want[index] = (totals[0] - totals[1]) / (2 * step)
        assert np.any(want), key
        compare.assert_close(gradients[key], want, tolerances.FINITE_DIFFERENCES, key)


@all_functions
def test_each_cotangent_alone(tfb, name):
    """Of the outputs, of the last h and of the last cs; what is not used counts as zero."""
    function, time_major = FUNCTIONS[name], True
    pattern = sequence_functions.patterns(DIMS)["lengths and holes"]
    inputs = sequence_functions.random_inputs(function, DIMS, np.float64)
    oracle = sequence_functions.Oracle(function, inputs, *pattern)
    cotangents = _cotangents(oracle.outputs(), np.float64)
    bound = tolerances.composed_bound("double", DIMS[0] * 4 * DIMS[3])
    for used in range(len(cotangents)):
        alone = [c if k == used else None for k, c in enumerate(cotangents)]
        _, got = _run(tfb, name, inputs, _options(*pattern, time_major, False), alone)
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
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], DIMS, np.float32)
    spoiled, pattern, keep = _spoiled(inputs, kind)
    options = _options(*pattern, time_major, False)
    cotangents = _cotangents(_run(tfb, name, inputs, options)[0], np.float32)
    clean, spoiled = (_run(tfb, name, given, options, cotangents) for given in (inputs, spoiled))
    return clean, spoiled, keep


@all_functions
@layouts
@pytest.mark.parametrize("kind", SKIPPING)
def test_masked_steps_are_not_read(tfb, name, time_major, kind):
    """NaN in x at masked steps, as padding may hold, changes no bit; its own gradient is zero."""
    (want, want_gradients), (got, gradients), keep = _clean_and_spoiled(tfb, name, kind, time_major)
    assert _bits(got) == _bits(want)
    assert not np.any(gradients["x"][~keep])
    for key in gradients:
        assert compare.bits(gradients[key]) == compare.bits(want_gradients[key]), key


@all_functions
def test_layouts_and_directions_agree(tfb, name):
    """Batch-major is time-major with dims exchanged; backwards is forwards over the reverse."""
    mask, lengths = sequence_functions.patterns(DIMS)["lengths and holes"]
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], DIMS, np.float32)
    want, _ = _run(tfb, name, inputs, _options(mask, lengths, True, False))
    got, _ = _run(tfb, name, inputs, _options(mask, lengths, False, False))
    assert _bits(got) == _bits(want)

    want, _ = _run(tfb, name, inputs, _options(mask, None, True, True))
    reverse = {**inputs, "x": inputs["x"][::-1]}
    got, _ = _run(tfb, name, reverse, _options(mask[::-1], None, True, False))
    assert _bits([got[0][::-1], *got[1:]]) == _bits(want)


@all_functions
def test_what_is_left_out_is_zero(tfb, name):
    function = FUNCTIONS[name]
    inputs = sequence_functions.random_inputs(function, DIMS, np.float32)
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


@all_functions
def test_defaults_are_batch_major_and_forwards(tfb, name):
    function = FUNCTIONS[name]
    inputs = sequence_functions.random_inputs(function, DIMS, np.float32)
    want, _ = _run(tfb, name, inputs, _options(None, None, False, False))
    inputs["x"] = np.swapaxes(inputs["x"], 0, 1)
    got = [np.asarray(v) for v in sequence_functions.call(tfb, function, inputs)]
    assert _bits([np.swapaxes(got[0], 0, 1), *got[1:]]) == _bits(want)


@all_functions
def test_lengths_that_are_no_integers_are_refused(tfb, name):
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], DIMS, np.float32)
    for lengths in ([1.0] * DIMS[1], np.full(DIMS[1], 2.5, np.float64)):
        options = {"time_major": True, "lengths": lengths}
        with pytest.raises(TypeError, match="lengths.*float"):
            _run(tfb, name, inputs, options)


@all_functions
def test_lengths_may_be_of_either_integer_type_or_a_list(tfb, name):
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], DIMS, np.float32)
    lengths = np.array([6, 0, 3, 1, 5])
    found = []
    for given in (lengths.astype(np.int32), lengths.astype(np.int64), lengths.tolist()):
        options = {"time_major": True, "lengths": given}
        found.append(_bits(sequence_functions.call(tfb, FUNCTIONS[name], inputs, **options)))
    assert found[0] == found[1] == found[2]


@all_functions
@layouts
def test_graph_of_unknown_shapes(tfb, name, time_major):
    """One graph for all sizes, masks and lengths, with gradients: the bits are those of eager."""
    function = FUNCTIONS[name]
    unknown = {
        k: tf.TensorSpec(None, tf.float32)
        for k in sequence_functions.random_inputs(function, DIMS, np.float32)
    }

    @tf.function(
        input_signature=[unknown, tf.TensorSpec(None, tf.bool), tf.TensorSpec(None, tf.int32)]
    )
    def graph(tensors, mask, lengths):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(
                tfb, function, tensors, mask=mask, lengths=lengths, time_major=time_major
            )
            total = tf.add_n([tf.reduce_sum(o) for o in outputs])
        return outputs, tape.gradient(total, tensors)

    for dims in (DIMS, (1, 1, 4, 2), (3, 0, 2, 2), (0, 2, 2, 3)):
        mask, lengths = sequence_functions.patterns(dims)["lengths and holes"]
        inputs = sequence_functions.random_inputs(function, dims, np.float32)
        laid_out = {**inputs, "x": _laid_out(inputs["x"], time_major)}
        outputs, gradients = graph(
            {k: tf.constant(v) for k, v in laid_out.items()},
            tf.constant(_laid_out(mask, time_major)),
            tf.constant(lengths.astype(np.int32)),
        )
        ones = [np.ones(o.shape, np.float32) for o in outputs]
        ones[0] = _laid_out(ones[0], time_major)
        options = _options(mask, lengths, time_major, False)
        want, want_gradients = _run(tfb, name, inputs, options, ones)
        got = [o.numpy() for o in outputs]
        assert _bits([_laid_out(got[0], time_major), *got[1:]]) == _bits(want), dims
        for key, value in want_gradients.items():
            value = _laid_out(value, time_major) if key == "x" else value
            assert compare.bits(gradients[key]) == compare.bits(value), (dims, key)


@all_functions
def test_a_tape_does_not_change_the_outputs(tfb, name):
    """Without one nothing is saved for backward."""
    for dims in (DIMS, (7, 17, 15, 33)):
        pattern = sequence_functions.patterns(dims)["lengths and holes"]
        inputs = sequence_functions.random_inputs(FUNCTIONS[name], dims, np.float32)
        options = _options(*pattern, True, False)
        without, _ = _run(tfb, name, inputs, options)
        cotangents = _cotangents(without, np.float32)
        assert _bits(_run(tfb, name, inputs, options, cotangents)[0]) == _bits(without)


@all_functions
@pytest.mark.parametrize("mode", run_modes.MODES)
@pytest.mark.parametrize("wrong", [[6, -1, 3, 0, 1], [7, 0, 0, 0, 0], [0, 0, 0, 0, 2**31 - 1]])
def test_lengths_out_of_range_are_refused(tfb, name, mode, wrong):
    inputs = sequence_functions.random_inputs(FUNCTIONS[name], DIMS, np.float32)

    def run(lengths):
        return sequence_functions.call(
            tfb, FUNCTIONS[name], inputs, time_major=True, lengths=lengths
        )

    run = run_modes.in_mode(mode, run)
    for kind in (tf.int32, tf.int64):
        run(tf.constant([6, 0, 3, 0, 1], kind))
        with pytest.raises(tf.errors.InvalidArgumentError, match="lengths.* must .* got"):
            run(tf.constant(wrong, kind))


def test_an_unknown_gate_order_is_refused(tfb):
    inputs = sequence_functions.random_inputs(FUNCTIONS["gru-after"], DIMS, np.float32)
    with pytest.raises(ValueError, match="gate_order.*rcu"):
        sequence_functions.call(
            tfb, FUNCTIONS["gru-after"], inputs, gate_order="rcu", time_major=True
        )


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_gru_is_keras(tfb, reset_after, masked):
    """Keras' layer with its own weights; a masked step of it repeats the output, too."""
    import keras

    _check_keras(tfb, keras.layers.GRU, reset_after, masked)


@pytest.mark.parametrize("masked", [False, True])
def test_lstm_is_keras(tfb, masked):
    import keras

    _check_keras(tfb, keras.layers.LSTM, None, masked)


def _check_keras(tfb, layer_type, reset_after, masked):
    dims = (6, 5, 3, 4)
    options = {} if reset_after is None else {"reset_after": reset_after}
    layer = layer_type(
        dims[3],
        return_sequences=True,
        return_state=True,
        use_cudnn=False,
        bias_initializer="random_normal",
        **options,
    )
    rng = np.random.default_rng(8)
    x = tf.constant(rng.normal(size=(5, 6, 3)).astype(np.float32))
    mask = sequence_functions.patterns(dims)["holes"][0].T if masked else None
    # Keras repeats zeros, not the state, before a row's first step; so every row has one there.
    if masked:
        mask[:, 0] = True
    want = layer(x, mask=None if mask is None else tf.constant(mask))
    w_x, w_h, b = (tf.convert_to_tensor(v) for v in layer.weights)
    if reset_after is None:
        outputs, state = tfb.lstm(x, w_x, w_h, b, mask=mask)
        got = [outputs, *state]
    else:
        biases = tf.unstack(b) if reset_after else [b]
        got = tfb.gru(x, w_x, w_h, *biases, mask=mask, gate_order="urc", **options)
    bound = tolerances.parity_bound("float", dims[0] * (dims[2] + dims[3]))
    for mine, theirs in zip(got, want, strict=True):
        compare.assert_close(np.asarray(mine), np.asarray(theirs), bound)
