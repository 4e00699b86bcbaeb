"""Packing of sequences into rows: where each lies, the way back, in NumPy, tensors and tf.data."""

from __future__ import annotations

import functools
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, run_modes, tolerances


def random_lengths(seed: int, count: int, steps: int) -> np.ndarray:
    """Lengths of 0..steps, both of which are among them."""
    rng = np.random.default_rng(seed)
    return rng.permutation([0, steps, *rng.integers(0, steps + 1, count - 2)])


def random_sequences(lengths, dims=(), dtype=np.float32, seed: int = 0) -> list[np.ndarray]:
    """Sequences of these lengths without zeros, so that padding can be told from them."""
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 100, [n, *dims]).astype(dtype) for n in lengths]


def naive_first_fit(lengths, steps: int) -> dict[int, tuple[int, int]]:
    """Row and start of each sequence, by the definition of first-fit decreasing."""
    rows, found = [], {}
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        row = next((r for r, used in enumerate(rows) if used + lengths[number] <= steps), len(rows))
        if row == len(rows):
            rows.append(0)
        found[number] = row, rows[row]
        rows[row] += lengths[number]
    return found


def fewest_rows(lengths, steps: int) -> int:
    """The least number of rows, from all ways to fill them one after another."""

    @functools.cache
    def best(left: frozenset[int]) -> int:
        if not left:
            return 0
        # One of them is in some row; with it go all subsets that fit.
        first, *others = sorted(left)
        subsets = itertools.chain.from_iterable(
            itertools.combinations(others, k) for k in range(len(others) + 1)
        )
        rows = [{first, *subset} for subset in subsets]
        return min(1 + best(left - row) for row in rows if sum(lengths[n] for n in row) <= steps)

    return best(frozenset(range(len(lengths))))


# ---- arrays


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.uint8, np.bool_, tf.bfloat16, "U4"])
@pytest.mark.parametrize("dims", [(), (3,), (2, 0), (2, 3)], ids=str)
def test_sequences_come_back(tfb, dims, dtype):
    dtype = np.dtype(dtype.as_numpy_dtype if dtype == tf.bfloat16 else dtype)
    steps = 17
    sequences = random_sequences(random_lengths(1, 60, steps), dims, dtype)
    packed = tfb.pack_sequences(sequences, steps)
    assert isinstance(packed, tfb.PackedSequences)
    assert packed.x.dtype == dtype and packed.x.shape[1:] == (steps, *dims)
    found = tfb.unpack_sequences(packed.x, packed.index)
    assert len(found) == len(sequences)
    for got, want in zip(found, sequences, strict=True):
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("seed", range(5))
def test_rows_hold_the_sequences_and_nothing_else(tfb, seed):
    steps = 23
    sequences = random_sequences(random_lengths(seed, 80, steps))
    x, resets, lengths, index = tfb.pack_sequences(sequences, steps)
    assert (resets.dtype, lengths.dtype, index.dtype) == (bool, np.int32, np.int32)
    # Each element of x is of one sequence, or a zero behind the row's length.
    inside = np.arange(steps) < lengths[:, None]
    np.testing.assert_array_equal(x != 0, inside)
    assert lengths.sum() == sum(map(len, sequences)) and lengths.min() > 0
    begins = {(row, start) for row, start, length in index.tolist() if length}
    assert begins == set(zip(*map(np.ndarray.tolist, np.nonzero(resets)), strict=True))
    assert resets[:, 0].all()


@pytest.mark.parametrize("seed", range(20))
def test_first_fit_decreasing(tfb, seed):
    """As its definition, equal lengths in the order in which they are given."""
    steps = (1, 4, 30, 1000)[seed % 4]
    lengths = random_lengths(seed, 100, steps)
    index = tfb.pack_sequences(random_sequences(lengths), steps).index
    want = naive_first_fit(lengths.tolist(), steps)
    assert index.tolist() == [[*want[n], lengths[n]] for n in range(len(lengths))]


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_as_few_as_promised(tfb, seed):
    """Dósa 2007: first-fit decreasing takes at most 11/9 of the fewest rows, and 6/9 of a row."""
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(5, 40))
    lengths = rng.integers(1, 1 + steps // (1 + seed % 3), size=10).tolist()
    rows = len(tfb.pack_sequences(random_sequences(lengths), steps).x)
    fewest = fewest_rows(lengths, steps)
    assert fewest <= rows <= (11 * fewest + 6) // 9


def test_many_sequences_fill_their_rows(tfb):
    """A hundred thousand, for which a loop over sequences and rows would take minutes."""
    steps = 512
    lengths = np.random.default_rng(0).integers(1, 400, 100_000)
    row, start, length = tfb.pack_sequences([np.empty(n, np.int8) for n in lengths], steps).index.T
    np.testing.assert_array_equal(length, lengths)
    assert lengths.sum() <= (row.max() + 1) * steps < 1.001 * lengths.sum()
    # No two of them lie on each other.
    order = np.lexsort((start, row))
    begin, end = (row * steps + start)[order], (row * steps + start + length)[order]
    assert (begin[1:] >= end[:-1]).all()


def test_empty_sequences(tfb):
    packed = tfb.pack_sequences([np.ones([0, 2])] * 3, steps=4)
    assert packed.x.shape == (1, 4, 2)
    assert packed.lengths.tolist() == [0] and not packed.resets.any()
    assert [one.shape for one in tfb.unpack_sequences(packed.x, packed.index)] == [(0, 2)] * 3
    # Behind a row that is full.
    packed = tfb.pack_sequences([[], [1.0, 2.0]], steps=2)
    assert packed.resets.tolist() == [[True, False]]
    assert [one.tolist() for one in tfb.unpack_sequences(packed.x, packed.index)] == [[], [1, 2]]


def test_other_arrays_of_the_same_lengths(tfb):
    lengths = random_lengths(2, 30, 9)
    inputs, targets = random_sequences(lengths, (4,)), random_sequences(lengths, (), np.int32, 1)
    packed = tfb.pack_sequences(inputs, 9)
    # Places of another making are kept too: here the rows in reverse order.
    index = packed.index * [-1, 1, 1] + [len(packed.x) - 1, 0, 0]
    for given, order in ((packed.index, 1), (index, -1)):
        other = tfb.pack_sequences(targets, 9, index=given)
        np.testing.assert_array_equal(other.index, given)
        np.testing.assert_array_equal(other.resets, packed.resets[::order])
        np.testing.assert_array_equal(other.lengths, packed.lengths[::order])
        for got, want in zip(tfb.unpack_sequences(other.x, given), targets, strict=True):
            np.testing.assert_array_equal(got, want)


def test_tensors_and_ragged_tensors(tfb):
    sequences = random_sequences(random_lengths(3, 20, 11), (2,))
    want = tfb.pack_sequences(sequences, 11)
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(sequences), list(map(len, sequences)))
    for given in (map(tf.constant, sequences), ragged, iter(sequences)):
        got = tfb.pack_sequences(given, tf.constant(11))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_ragged_tensors_of_uniform_steps(tfb):
    steps = tf.RaggedTensor.from_uniform_row_length(tf.range(1, 9), 2)
    ragged = tf.RaggedTensor.from_row_splits(steps, [0, 1, 4])
    packed = tfb.pack_sequences(ragged, 4)
    np.testing.assert_array_equal(packed.x, [[[3, 4], [5, 6], [7, 8], [1, 2]]])
    rows = list(tfb.pack_dataset(tf.data.Dataset.from_tensor_slices((ragged, ragged + 1)), 4))
    np.testing.assert_array_equal([rows[0][0]], [[packed.x[0], packed.x[0] + 1]])
    assert len(rows) == 1


def test_empty_lists_are_of_the_dtype_and_dims_of_the_others(tfb):
    for first, last in ([[], [[1, 2]]], [[[1, 2]], ()]):
        packed = tfb.pack_sequences([first, last, []], 2)
        np.testing.assert_array_equal(packed.x, [[[1, 2], [0, 0]]])
        assert packed.x.dtype == np.int64
    assert tfb.pack_sequences([[], []], 2).x.shape == (1, 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint64, np.int64])
@pytest.mark.parametrize("given", [np.asarray, tf.constant], ids=["array", "tensor"])
def test_an_index_of_any_integers(tfb, given, dtype):
    """Their sums are more than the small types have."""
    packed = np.arange(2 * 250).reshape([2, 250])
    index = np.array([[1, 120, 125], [0, 5, 100]], dtype)
    got = tfb.unpack_sequences(given(packed), index)
    for one, (row, start, length) in zip(got, index.tolist(), strict=True):
        np.testing.assert_array_equal(one, packed[row, start : start + length])
    with pytest.raises(ValueError, match="sequence 0 has row 1, start 120 and length 125"):
        tfb.unpack_sequences(given(packed[:, :240]), index)


def test_an_index_that_nothing_has(tfb):
    for dtype, wrong in (
        (np.int64, [0, 2**63 - 1, 2]),
        (np.uint64, [0, 0, 2**64 - 1]),
        (np.int64, [2**32, 0, 1]),
        (np.int64, [-(2**31) - 1, 0, 1]),
    ):
        got = max(wrong, key=abs)
        with pytest.raises(ValueError, match=f"index must have numbers that int32 has, got {got}$"):
            tfb.unpack_sequences(np.ones([1, 4]), np.array([wrong], dtype))


@pytest.mark.parametrize("wrong", [[-1, 0, 1], [0, -1, 1], [0, 2**31 - 1, 1]])
def test_an_index_that_no_tensor_has_where_ranks_are_unknown(tfb, wrong):
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def unpack(packed):
        return tfb.unpack_sequences(packed, np.array([wrong]))

    with pytest.raises(ValueError, match=f"has row {wrong[0]}, start {wrong[1]} and length 1"):
        unpack(np.ones([1, 4]))


SEQUENCES = [np.ones([3, 2], np.float32), np.ones([1, 2], np.float32)]
INDEX = np.array([[0, 0, 3], [0, 3, 1]])


@pytest.mark.parametrize(
    "sequences, options, message",
    [
        ([], {}, "there are no sequences"),
        (SEQUENCES, {"steps": 2}, "sequence 0 has 3 steps, more than the 2 of a row"),
        (SEQUENCES, {"steps": 0}, "steps must be above 0, got 0"),
        ([*SEQUENCES, np.float32(1)], {}, "sequence 2 must have shape [T, ...], got a scalar"),
        (
            [*SEQUENCES, np.ones([2, 2])],
            {},
            "sequence 2 must have the dtype float32, as sequence 0 has, got float64",
        ),
        (
            [*SEQUENCES, np.ones([2, 3], np.float32)],
            {},
            "sequence 2 must have the dims after the first, [2], as sequence 0 has, got [3]",
        ),
        ([*SEQUENCES, [[1, 2], [3]]], {}, "sequence 2 must have equal dims in all its parts"),
        (tf.ragged.constant([[[1], [2, 3]]]), {}, "got a ragged tensor of shape (1, None, None)"),
        ([[], [1.0], 3.0], {}, "sequence 2 must have shape [T, ...], got a scalar"),
        (SEQUENCES, {"index": INDEX[:1]}, "index is of 1 sequences, but there are 2"),
        (SEQUENCES, {"index": INDEX - [0, 0, 1]}, "sequence 0 has 3 steps, but 2 in index"),
        (SEQUENCES, {"index": INDEX + [0, 1, 0]}, "sequence 1 has row 0, start 4 and length 1"),
        (SEQUENCES, {"index": INDEX[:, :2]}, "got int64 of shape [2, 2]"),
        (SEQUENCES, {"index": INDEX / 1}, "got float64 of shape [2, 3]"),
        (SEQUENCES, {"index": INDEX + [0, 2**31, 0]}, "numbers that int32 has, got 2147483648"),
        (SEQUENCES, {"index": INDEX + [0, 2**31 - 4, 0]}, "row 0, start 2147483644 and length 3"),
    ],
)
def test_a_wrong_value_is_named(tfb, sequences, options, message):
    with pytest.raises(ValueError, match=f"^pack_sequences: .*{re.escape(message)}"):
        tfb.pack_sequences(sequences, **{"steps": 4, **options})


def test_a_wrong_type_is_named(tfb):
    with pytest.raises(TypeError, match="steps must be an integer, got a value of type float"):
        tfb.pack_sequences(SEQUENCES, 4.0)
    with pytest.raises(TypeError, match="sequence 1 must be an array of numbers or of text"):
        tfb.pack_sequences([SEQUENCES[0], np.array([None])], 4)

    @tf.function
    def pack(x):
        return tfb.pack_sequences([SEQUENCES[0], x], 4).x

    with pytest.raises(TypeError, match="sequence 1 is a symbolic tensor.* pack_dataset"):
        pack(SEQUENCES[1])
    symbolic = keras.Input([4])
    with pytest.raises(TypeError, match="^pack_sequences: sequences is a symbolic tensor"):
        tfb.pack_sequences(symbolic, 4)
    with pytest.raises(TypeError, match="^pack_sequences: sequence 0 is a symbolic tensor"):
        tfb.pack_sequences([symbolic], 4)
    with pytest.raises(TypeError, match="^unpack_sequences: packed is a symbolic tensor"):
        tfb.unpack_sequences(symbolic, INDEX)
    packed = tfb.pack_sequences(SEQUENCES, 4)
    for call in (
        lambda: tfb.pack_sequences(SEQUENCES, 4, index=packed),
        lambda: tfb.unpack_sequences(packed.x, packed),
    ):
        with pytest.raises(
            TypeError, match="index must be an array, got a Packed.*; pass its index"
        ):
            call()
    for wrong in (packed, (packed.x, None), tf.ragged.constant([[1]]), tf.sparse.eye(4)):
        message = f"packed must be an array or a dense tensor, got a {type(wrong).__name__}; pass x"
        with pytest.raises(TypeError, match=message):
            tfb.unpack_sequences(wrong, INDEX)
    for wrong in ([packed.x, packed.x], list(tf.ones([4, 4]))):
        with pytest.raises(TypeError, match="packed must be .*, got a list of arrays; pass x of"):
            tfb.unpack_sequences(wrong, INDEX)
    with pytest.raises(TypeError, match="packed must be an array, got a value of type dict"):
        tfb.unpack_sequences({"x": packed.x}, INDEX)
    with pytest.raises(TypeError, match="index must be an array, got a value of type NoneType"):
        tfb.unpack_sequences(packed.x, None)
    with pytest.raises(TypeError, match="steps must be an integer, got a value of type bool"):
        tfb.pack_sequences(SEQUENCES, True)
    for wrong in (None, 3, "text", {"x": SEQUENCES}):
        message = f"sequences must be a list of .* got a value of type {type(wrong).__name__}"
        with pytest.raises(TypeError, match=message):
            tfb.pack_sequences(wrong, 4)


def test_texts_have_the_dtype_of_the_longest(tfb):
    packed = tfb.pack_sequences([["a", "b"], ["long"], ["cd"]], 4)
    np.testing.assert_array_equal(packed.x, [["a", "b", "long", "cd"]])
    assert packed.x.dtype == "U4"


@pytest.mark.parametrize("given", [np.zeros, tf.zeros], ids=["array", "tensor"])
@pytest.mark.parametrize(
    "shape, message",
    [
        ([4], "packed must have shape [B, T, ...], got [4]"),
        ([0, 4], "sequence 0 has row 0, start 0 and length 3 in index, which is not within 4"),
        ([1, 3], "sequence 1 has row 0, start 3 and length 1 in index, which is not within 3"),
    ],
)
def test_what_does_not_have_the_rows_or_steps_is_refused(tfb, given, shape, message):
    with pytest.raises(ValueError, match=f"^unpack_sequences: {re.escape(message)}"):
        tfb.unpack_sequences(given(shape), INDEX)
    with pytest.raises(ValueError, match="unpack_sequences: index must be PackedSequences.index"):
        tfb.unpack_sequences(given([1, 4]), INDEX[0])


# ---- tensors


@pytest.mark.parametrize("mode", run_modes.MODES)
def test_unpacked_tensors_and_their_gradient(tfb, mode):
    sequences = random_sequences(random_lengths(4, 12, 7), (3,))
    packed = tfb.pack_sequences(sequences, 7)
    weights = [np.float32(number + 1) for number in range(len(sequences))]

    def compute(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            found = tfb.unpack_sequences(x * x, packed.index)
            loss = tf.add_n([w * tf.reduce_sum(one) for w, one in zip(weights, found, strict=True)])
        return found, tape.gradient(loss, x)

    found, gradient = run_modes.in_mode(mode, compute)(tf.constant(packed.x))
    for got, want in zip(found, sequences, strict=True):
        np.testing.assert_array_equal(got, want**2)
    # Of a step: twice its value and the weight of its sequence; of padding: nothing.
    want = [2 * w * one for w, one in zip(weights, sequences, strict=True)]
    want = tfb.pack_sequences(want, 7, index=packed.index).x
    compare.assert_close(gradient.numpy(), want, tolerances.bound("float", 1), "gradient")


def test_unpacked_tensors_of_unknown_shape(tfb):
    sequences = random_sequences(random_lengths(5, 12, 7), (3,))
    packed = tfb.pack_sequences(sequences, 7)
    for shape in ([None, None, 3], None):
        unpack = tf.function(
            lambda x: tfb.unpack_sequences(x, packed.index),
            input_signature=[tf.TensorSpec(shape, tf.float32)],
        )
        for got, want in zip(unpack(packed.x), sequences, strict=True):
            np.testing.assert_array_equal(got, want)
    assert tfb.unpack_sequences(tf.zeros([0, 4]), np.zeros([0, 3], int)) == []
    widthless = tfb.unpack_sequences(tf.zeros([1, 4, 0]), INDEX)
    assert [one.shape for one in widthless] == [(3, 0), (1, 0)]
    with pytest.raises(TypeError, match="index is a symbolic tensor; pass the NumPy array"):
        tf.function(tfb.unpack_sequences)(packed.x, tf.constant(packed.index))


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.xla)])
@pytest.mark.parametrize("shape", [None, [None, None], [2, None], [None, 4]], ids=str)
def test_unpacking_a_tensor_with_less_than_the_index_is_an_error_when_it_runs(tfb, shape, jit):
    index = np.array([[0, 0, 3], [1, 0, 2]])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    unpack = tf.function(
        lambda packed: tfb.unpack_sequences(packed, index),
        jit_compile=jit,
        input_signature=[tf.TensorSpec(shape, tf.float32)],
    )
    for got, want in zip(unpack(x), [[0, 1, 2], [4, 5]], strict=True):
        np.testing.assert_array_equal(got, want)
    for less in (x[:, :2], x[:1]):
        if tf.TensorShape(shape).is_compatible_with(less.shape):
            with pytest.raises(tf.errors.InvalidArgumentError, match="unpack_sequences_packed"):
                unpack(less)


@pytest.mark.parametrize("go_backwards", [False, True], ids=["forwards", "backwards"])
def test_a_packed_row_computes_what_its_sequences_compute_alone(tfb, go_backwards):
    rng = np.random.default_rng(6)
    sequences = [rng.normal(size=[n, 3]).astype("f") for n in (5, 1, 9, 0, 4, 2, 7, 3)]
    weights = [tf.constant(rng.normal(size=s), tf.float32) for s in ([3, 16], [4, 16], [16])]
    packed = tfb.pack_sequences(sequences, 12)
    outputs, _ = tfb.lstm(
        packed.x,
        *weights,
        lengths=packed.lengths,
        resets=packed.resets,
        go_backwards=go_backwards,
    )
    for got, alone in zip(tfb.unpack_sequences(outputs, packed.index), sequences, strict=True):
        want, _ = tfb.lstm(alone[None], *weights, go_backwards=go_backwards)
        bound = tolerances.composed_bound("float", 9 * (3 + 4))
        compare.assert_close(got.numpy(), want[0].numpy(), bound, f"{len(alone)} steps")


# ---- datasets


def dataset_of(sequences, dtype=tf.float32) -> tf.data.Dataset:
    spec = tf.TensorSpec([None, *sequences[0].shape[1:]], dtype)
    return tf.data.Dataset.from_generator(lambda: iter(sequences), output_signature=spec)


@pytest.mark.parametrize("dims", [(), (3,), (2, 3)], ids=str)
def test_rows_of_a_dataset_are_those_of_its_windows(tfb, dims):
    sequences = random_sequences(random_lengths(7, 50, 13), dims)
    data = tfb.pack_dataset(dataset_of(sequences), 13, window=20)
    assert data.element_spec == (
        tf.TensorSpec([13, *dims], tf.float32),
        tf.TensorSpec([13], tf.bool),
        tf.TensorSpec([], tf.int32),
    )
    want = [tfb.pack_sequences(sequences[i : i + 20], 13) for i in range(0, 50, 20)]
    rows = list(data)
    assert len(rows) == sum(len(one.x) for one in want)
    for part in range(3):
        got = [row[part].numpy() for row in rows]
        np.testing.assert_array_equal(got, np.concatenate([one[part] for one in want]))


def test_components_of_a_dataset_stay_together(tfb):
    lengths = random_lengths(8, 30, 8)
    numbers, text = random_sequences(lengths, (2,)), random_sequences(lengths, (), "U2")
    data = tf.data.Dataset.zip(
        ({"x": dataset_of(numbers), "more": (dataset_of(text, tf.string),)}, dataset_of(numbers))
    )
    packed = tfb.pack_sequences(numbers, 8)
    words = tfb.pack_sequences(text, 8, index=packed.index).x
    rows = list(tfb.pack_dataset(data, 8))
    assert len(rows) == len(packed.x)
    for row, ((inputs, targets), resets, length) in enumerate(rows):
        np.testing.assert_array_equal(inputs["x"], packed.x[row])
        np.testing.assert_array_equal(inputs["more"][0].numpy().astype("U2"), words[row])
        np.testing.assert_array_equal(targets, packed.x[row])
        np.testing.assert_array_equal(resets, packed.resets[row])
        assert length == packed.lengths[row]


def test_datasets_of_ragged_tensors_and_of_one_length(tfb):
    sequences = random_sequences(random_lengths(9, 20, 6), (2,))
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(sequences), list(map(len, sequences)))
    want = tfb.pack_sequences(sequences, 6).x
    for elements in (ragged, (ragged,), (ragged, ragged)):
        data = tfb.pack_dataset(tf.data.Dataset.from_tensor_slices(elements), 6)
        np.testing.assert_array_equal([tf.nest.flatten(row[0])[0] for row in data], want)
        tf.nest.assert_same_structure(data.element_spec[0], elements, expand_composites=False)
    # A dataset that knows the length of its elements batches them as dense tensors.
    data = tfb.pack_dataset(tf.data.Dataset.from_tensor_slices(tf.ones([5, 3])), 6)
    assert [(row[0].numpy().tolist(), int(row[2])) for row in data] == [
        ([1.0] * 6, 6),
        ([1.0] * 6, 6),
        ([1.0] * 3 + [0.0] * 3, 3),
    ]


def test_each_epoch_packs_anew(tfb):
    sequences = random_sequences(random_lengths(10, 40, 10))
    data = (
        dataset_of(sequences)
        .shuffle(40, seed=1)
        .apply(lambda shuffled: tfb.pack_dataset(shuffled, 10, window=10))
    )
    first, second = ([row[0].numpy() for row in data] for _ in range(2))
    assert np.sum(first) == np.sum(second) == sum(map(np.sum, sequences))
    assert len(first) != len(second) or (np.array(first) != second).any()


def test_a_model_is_fitted_to_a_packed_dataset(tfb):
    import keras

    keras.utils.set_random_seed(1)
    tokens = random_sequences(random_lengths(11, 64, 12), (), np.int32)
    pairs = tf.data.Dataset.zip((dataset_of(tokens, tf.int32),) * 2)
    data = tfb.pack_dataset(pairs, 12).map(
        lambda pair, resets, length: (
            {"tokens": pair[0], "resets": resets},
            pair[1],
            tf.cast(tf.sequence_mask(length, 12), tf.float32),
        )
    )
    inputs = {
        "tokens": keras.Input([None], dtype="int32", name="tokens"),
        "resets": keras.Input([None], dtype="bool", name="resets"),
    }
    embedded = keras.layers.Embedding(100, 16)(inputs["tokens"])
    states = tfb.layers.GRU(32, return_sequences=True)(embedded, resets=inputs["resets"])
    model = keras.Model(inputs, keras.layers.Dense(100)(states))
    model.compile(
        keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    losses = model.fit(data.shuffle(100).batch(4), epochs=4, shuffle=False, verbose=0).history[
        "loss"
    ]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    "elements, message",
    [
        (tf.zeros([3]), "component 0 of the elements must be a sequence"),
        (({"x": tf.zeros([3, 4])}, tf.zeros([3])), "component 1 of the elements must be a seq"),
        (tf.ragged.constant([[[1], [2, 3]]]), "component 0 .* known dims after the first"),
        (
            tf.ragged.constant([[[1], [2, 3]]]),
            r"component 0 .* pass dataset.unbatch\(\)$",
        ),
        (tf.sparse.eye(3), "component 0 .* dense or ragged .*; tf.sparse.to_dense in dataset.map"),
    ],
)
def test_a_dataset_of_something_else_is_refused(tfb, elements, message):
    with pytest.raises(ValueError, match=f"^pack_dataset: {message}"):
        tfb.pack_dataset(tf.data.Dataset.from_tensor_slices(elements), 4)


def test_wrong_elements_are_named(tfb):
    data = dataset_of([np.ones(2), np.ones(7)])
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match="pack_dataset: element 1 of a window has 7 steps, more than the 4 of a row",
    ):
        list(tfb.pack_dataset(data, 4))
    pairs = tf.data.Dataset.zip((data, dataset_of([np.ones(2), np.ones(3)])))
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"the components of element 1 of a window .* number of steps, got \[7, 3\]",
    ):
        list(tfb.pack_dataset(pairs, 8))
    with pytest.raises(
        ValueError, match=r"component 0 .*; if .* pass dataset.unbatch\(\); if a dim"
    ):
        tfb.pack_dataset(data.padded_batch(2), 8)
    unknown = tf.data.Dataset.from_generator(lambda: iter([[1], [2, 3]]), tf.int32)
    with pytest.raises(
        ValueError, match="a known number of dims, got .*; tf.ensure_shape.*dataset.map"
    ):
        tfb.pack_dataset(unknown, 8)
    known = unknown.map(lambda x: tf.ensure_shape(x, [None]))
    assert len(list(tfb.pack_dataset(known, 8))) == 1
    with pytest.raises(TypeError, match="dataset must be a tf.data.Dataset, got .* ndarray"):
        tfb.pack_dataset(np.ones([2, 3]), 4)
    with pytest.raises(TypeError, match="window must be an integer"):
        tfb.pack_dataset(data, 4, window=None)
    with pytest.raises(ValueError, match="window must be above 0, got 0"):
        tfb.pack_dataset(data, 4, window=0)


def test_an_index_in_which_sequences_overlap_is_refused(tfb):
    with pytest.raises(ValueError, match="overlap in row 0 of index"):
        tfb.pack_sequences([[1, 2], [3, 4]], 4, index=np.array([[0, 0, 2], [0, 1, 2]]))
