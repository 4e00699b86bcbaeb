"""Weights from and to Keras' layers and ours, against the layers' own forward pass."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from helpers import weight_stacks
from helpers.compare import assert_close, bits
from helpers.weight_stacks import Stack

ONE, NONE = ("b_x",), ()
# Every form that Keras' own layers have: what reads back as it was written.
STACKS = [
    stack
    for cell, reset_after in (
        ("gru", True),
        ("gru", False),
        ("lstm", True),
        ("rnn_tanh", True),
        ("rnn_relu", True),
    )  # fmt: skip
    for stack in (
        Stack(cell, reset_after=reset_after, biases=NONE),
        Stack(
            cell,
            layers=2,
            directions=2,
            reset_after=reset_after,
            biases=("b_x", "b_h") if cell == "gru" and reset_after else ONE,
        ),
    )
]
EXTENDED = [
    Stack("lstm", biases=ONE, peepholes=True),
    Stack("lstm", biases=NONE, proj=2),
    # The clip is an attribute of an op, a float32: 0.25 is the same number there.
    Stack("lstm", biases=ONE, peepholes=True, proj=2, cell_clip=0.25),
    Stack("lstm", layers=2, directions=2, biases=ONE, peepholes=True, proj=3),
]
stacks = pytest.mark.parametrize("stack", STACKS, ids=str)


@pytest.fixture(scope="module")
def weights(tfb):
    del tfb
    from tf_blockrnn import weights

    return weights


@pytest.fixture(autouse=True)
def _float32():
    """Whatever another test left as Keras' default."""
    keras.config.set_dtype_policy("float32")


def run_layers(layers, x: np.ndarray) -> np.ndarray:
    """The output of all steps, time-major as that of weight_stacks.run."""
    value = np.swapaxes(x, 0, 1)
    for layer in layers:
        value = layer(value)
    return np.swapaxes(keras.ops.convert_to_numpy(value), 0, 1)


def random_layer(kind, *arguments, inputs=3, **options):
    """A built layer with random weights; with Keras' zeros for biases an order would not show."""
    layer = kind(*arguments, dtype="float64", **options)
    layer.build((None, None, inputs))
    rng = np.random.default_rng(5)
    layer.set_weights([rng.uniform(-0.7, 0.7, w.shape) for w in layer.get_weights()])
    return layer


def assert_same_arrays(got, want):
    assert [bits(array) for array in got] == [bits(array) for array in want]


@stacks
def test_writes_what_keras_computes_with(weights, stack):
    described = weight_stacks.random_weights(stack)
    layers = weights.to_keras_layers(described, return_sequences=True)
    x = weight_stacks.inputs(stack)
    got = run_layers(layers, x)
    assert_close(got, weight_stacks.run(described, x).output, weight_stacks.bound(stack), stack)
    assert weights.from_keras(layers) == described
    for layer, arrays in zip(layers, weights.to_keras(described), strict=True):
        assert type(layer).__module__.startswith("keras.")
        assert_same_arrays(layer.get_weights(), arrays)


@pytest.mark.parametrize("use_bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GRU", {"reset_after": True}),
        ("GRU", {"reset_after": False}),
        ("LSTM", {}),
        ("SimpleRNN", {"activation": "relu"}),
    ],
)
def test_reads_what_keras_computes_with(weights, kind, options, bidirectional, use_bias):
    options = {**options, "use_bias": use_bias, "return_sequences": True, "dtype": "float64"}
    make = getattr(keras.layers, kind)
    if bidirectional:
        layer = random_layer(keras.layers.Bidirectional, make(4, **options))
    else:
        layer = random_layer(make, 4, **{k: v for k, v in options.items() if k != "dtype"})
    read = weights.from_keras(layer)
    stack = Stack(read.cell, directions=read.directions)
    x = weight_stacks.inputs(stack)
    want = weight_stacks.run(read, x).output
    assert_close(run_layers([layer], x), want, weight_stacks.bound(stack), kind)
    assert_same_arrays(weights.to_keras(read)[0], layer.get_weights())
    said = {"cell": read.cell, "bidirectional": bidirectional, "reset_after": read.reset_after}
    assert weights.from_keras(layer.get_weights(), **said) == read
    assert weights.from_keras([layer.get_weights()], **said) == read
    if use_bias:
        assert weights.from_keras(layer.get_weights(), **{**said, "reset_after": None}) == read


def test_cells_and_stacks_of_them(weights):
    layer = random_layer(keras.layers.GRU, 4)
    read = weights.from_keras(layer)
    assert weights.from_keras(layer.cell) == read
    cell = keras.layers.GRUCell(4, dtype="float64")
    around = keras.layers.RNN(cell, dtype="float64")
    around.build((None, None, 3))
    around.set_weights(layer.get_weights())
    assert weights.from_keras(around) == read
    cells = keras.layers.StackedRNNCells([keras.layers.LSTMCell(n) for n in (5, 2, 3)])
    stack = keras.layers.RNN(cells, return_sequences=True)
    stack.build((None, None, 3))
    read = weights.from_keras(stack)
    assert [one.units for _, _, one in read.named_directions()] == [5, 2, 3]
    assert weights.from_keras(cells) == read
    assert weights.from_keras([cells.cells[0], cells.cells[1], cells.cells[2]]) == read
    arrays = [array for layer in weights.to_keras(read) for array in layer]
    assert_same_arrays(arrays, stack.get_weights())


@pytest.mark.parametrize("stack", EXTENDED, ids=str)
def test_our_lstm_has_more(weights, stack):
    described = weight_stacks.random_weights(stack)
    layers = weights.to_keras_layers(described, package="tf_blockrnn", return_sequences=True)
    x = weight_stacks.inputs(stack)
    want = weight_stacks.run(described, x).output
    assert_close(run_layers(layers, x), want, weight_stacks.bound(stack), stack)
    assert weights.from_keras(layers) == described
    arrays = [layer.get_weights() for layer in layers]
    options = {"cell": "lstm", "cell_clip": stack.cell_clip, "bidirectional": stack.directions == 2}
    assert weights.from_keras(arrays, **options) == described
    with pytest.raises(weights.UnsupportedError, match='LSTM has .package="tf_blockrnn".'):
        weights.to_keras(described)
    if not stack.cell_clip:
        assert weights.from_keras(
            weights.to_keras(described, package="tf_blockrnn"), **options
        ) == (described)
        return
    with pytest.raises(
        weights.UnsupportedError, match="an array of a layer has no cell_clip, here it is 0.25; to"
    ):
        weights.to_keras(described, package="tf_blockrnn")


@pytest.mark.parametrize(
    "stack",
    [
        Stack("lstm", biases=ONE, zoneout_h=0.25, zoneout_c=0.125),
        Stack("gru", directions=2, zoneout_h=0.25),
        Stack("gru", biases=ONE, reset_after=False, zoneout_h=0.25),
    ],
    ids=str,
)
def test_our_layers_have_zoneout(weights, stack):
    described = weight_stacks.random_weights(stack)
    layers = weights.to_keras_layers(described, package="tf_blockrnn", return_sequences=True)
    x = weight_stacks.inputs(stack)
    want = weight_stacks.run(described, x).output
    assert_close(run_layers(layers, x), want, weight_stacks.bound(stack), stack)
    assert weights.from_keras(layers) == described
    for package, what in (("keras", "Keras"), ("tf_blockrnn", "an array of a layer")):
        with pytest.raises(weights.UnsupportedError, match=f"{what} has no zoneout_h, here"):
            weights.to_keras(described, package=package)
    other = dataclasses.replace(stack, zoneout_h=0.5)
    pair = [
        *layers,
        *weights.to_keras_layers(weight_stacks.random_weights(other), package="tf_blockrnn"),
    ]
    with pytest.raises(weights.UnsupportedError, match="must be of one kind, got"):
        weights.from_keras(pair)


def test_our_layers_and_keras_take_each_other_s(weights):
    described = weight_stacks.random_weights(STACKS[1])
    ours = weights.to_keras_layers(described, package="tf_blockrnn")
    assert [type(one.forward_layer).__module__.split(".")[0] for one in ours] == ["tf_blockrnn"] * 2
    assert weights.from_keras(ours) == described
    assert weights.from_keras(weights.to_keras_layers(described)) == described


@pytest.mark.parametrize("cell", weight_stacks.CELLS)
def test_two_biases_are_summed_where_keras_has_one(weights, cell):
    stack = Stack(cell, reset_after=False)
    described = weight_stacks.random_weights(stack)
    one = described.layers[0].forward
    read = weights.from_keras(weights.to_keras(described)[0], cell=cell)
    assert read.layers[0].forward.b_h is None
    assert bits(read.layers[0].forward.b_x) == bits(one.b_x + one.b_h)
    x = weight_stacks.inputs(stack)
    got = run_layers(weights.to_keras_layers(described, return_sequences=True), x)
    assert_close(got, weight_stacks.run(described, x).output, weight_stacks.bound(stack), cell)


@pytest.mark.parametrize("biases", [("b_x",), ("b_h",)])
def test_a_gru_s_missing_bias_becomes_zeros(weights, biases):
    described = weight_stacks.random_weights(Stack("gru", biases=biases))
    bias = weights.to_keras(described)[0][2]
    assert bias.shape == (2, 12) and np.any(bias[0]) == (biases == ("b_x",))
    assert np.any(bias[1]) == (biases == ("b_h",))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_keep_their_bits(tf, weights, dtype):
    kind = tf.as_dtype(dtype).as_numpy_dtype
    described = weight_stacks.random_weights(Stack("gru", directions=2, dtype=kind))
    layers = weights.to_keras_layers(described)
    assert layers[0].compute_dtype == dtype
    assert weights.from_keras(layers) == described
    mixed = weights.to_keras_layers(described.astype(np.float32), dtype="mixed_bfloat16")
    assert mixed[0].forward_layer.compute_dtype == "bfloat16"
    assert weights.from_keras(mixed) == described.astype(np.float32)


def test_layers_are_what_was_asked_for(weights, tmp_path):
    described = weight_stacks.random_weights(Stack("lstm", layers=2, directions=2, biases=ONE))
    layers = weights.to_keras_layers(described, merge_mode="sum", dropout=0.25)
    assert [one.forward_layer.return_sequences for one in layers] == [True, False]
    assert [one.merge_mode for one in layers] == ["concat", "sum"]
    assert {one.backward_layer.dropout for one in layers} == {0.25}
    assert {
        (one.forward_layer.go_backwards, one.backward_layer.go_backwards) for one in layers
    } == {(False, True)}
    model = keras.Sequential([keras.Input((None, 3), dtype="float64"), *layers])
    x = np.swapaxes(weight_stacks.inputs(Stack("lstm")), 0, 1)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert bits(loaded.predict(x, verbose=0)) == bits(model.predict(x, verbose=0))
    assert weights.from_keras(loaded.layers) == described


@pytest.mark.parametrize("package", ["keras", "tf_blockrnn"])
@pytest.mark.parametrize("cell", weight_stacks.CELLS)
def test_stateful_layers_go_on_where_they_were(weights, cell, package):
    """Two calls, each with half of the steps, compute what one does with all of them."""
    stack = Stack(cell, layers=2)
    described = weight_stacks.random_weights(stack)
    options = {"package": package, "return_sequences": True, "stateful": True}
    with pytest.raises(ValueError, match="stateful=True.* batch size must be static"):
        weights.to_keras_layers(described, **options)
    layers = weights.to_keras_layers(described, batch_size=weight_stacks.BATCH, **options)
    x = weight_stacks.inputs(stack)
    got = np.concatenate([run_layers(layers, half) for half in np.split(x, 2)])
    assert_close(got, weight_stacks.run(described, x).output, weight_stacks.bound(stack), stack)


def test_stateful_layers_of_two_directions(weights):
    """In a second call with the same steps each direction goes on after its own last one."""
    stack = Stack("gru", directions=2)
    described = weight_stacks.random_weights(stack)
    options = {"return_sequences": True, "stateful": True, "batch_size": weight_stacks.BATCH}
    layers = weights.to_keras_layers(described, **options)
    x = weight_stacks.inputs(stack)
    run_layers(layers, x)
    forward, backward = np.split(run_layers(layers, x), 2, axis=-1)
    want = weight_stacks.run(described, np.concatenate([x, x])).output
    want_forward, want_backward = np.split(want, 2, axis=-1)
    bound = weight_stacks.bound(stack)
    assert_close(forward, want_forward[len(x) :], bound, "forward")
    assert_close(backward, want_backward[: len(x)], bound, "backward")


def test_one_direction_alone_may_have_a_bias(weights):
    """As RecurrentWeights may say, and Keras may hold."""
    biased = weight_stacks.random_weights(Stack("lstm", biases=ONE)).layers[0].forward
    plain = weight_stacks.random_weights(Stack("lstm", biases=NONE)).layers[0].forward
    described = weights.RecurrentWeights("lstm", [weights.LayerWeights(biased, plain)])
    layers = weights.to_keras_layers(described, return_sequences=True)
    assert weights.from_keras(layers) == described
    x = weight_stacks.inputs(Stack("lstm"))
    want = weight_stacks.run(described, x).output
    assert_close(run_layers(layers, x), want, weight_stacks.bound(Stack("lstm", directions=2)))


def test_what_a_description_cannot_hold(weights):
    built = {
        "gelu": random_layer(keras.layers.GRU, 4, activation="gelu"),
        "hard": random_layer(keras.layers.LSTM, 4, recurrent_activation="hard_sigmoid"),
        "elu": random_layer(keras.layers.SimpleRNN, 4, activation="elu"),
        "back": random_layer(keras.layers.GRU, 4, go_backwards=True),
        "all": random_layer(keras.layers.GRU, 4, return_sequences=True),
        "sum": random_layer(
            keras.layers.Bidirectional,
            keras.layers.GRU(4, return_sequences=True, dtype="float64"),
            merge_mode="sum",
        ),
        "gru": random_layer(keras.layers.GRU, 4),
        "before": random_layer(keras.layers.GRU, 4, inputs=4, reset_after=False),
        "lstm": random_layer(keras.layers.LSTM, 4, inputs=4),
    }
    stacked = keras.layers.RNN(
        keras.layers.StackedRNNCells([keras.layers.GRUCell(2), keras.layers.GRUCell(2)])
    )
    built["two"] = random_layer(keras.layers.Bidirectional, stacked)
    reversed_pair = keras.layers.Bidirectional(
        keras.layers.GRU(4, go_backwards=True), backward_layer=keras.layers.GRU(4)
    )
    for source, named in (
        (built["gelu"], "activation must be tanh, got gelu"),
        (built["hard"], "recurrent_activation must be sigmoid, got hard_sigmoid"),
        (built["elu"], "activation must be tanh, got elu"),
        (built["back"], "has go_backwards, which is not a weight"),
        (reversed_pair, "its forward layer has go_backwards"),
        ([built["sum"], built["before"]], "merge_mode must be 'concat', got 'sum'"),
        ([built["all"], built["before"]], "must be of one kind, got"),
        ([built["all"], built["lstm"]], "must be of one kind, got"),
        ([built["gru"], built["before"]], "returns only its last step .return_sequences=False."),
        (built["two"], "each direction is a stack of its own"),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.from_keras(source)
    assert weights.from_keras(built["sum"]).directions == 2
    assert weights.from_keras(built["back"].cell) == weights.from_keras(
        built["back"].get_weights(), cell="gru"
    )


@keras.saving.register_keras_serializable("tests")
class Doubling(keras.layers.LSTM):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return 2 * super().call(sequences, initial_state, mask, training)


class OtherCell(keras.layers.LSTMCell):
    def call(self, inputs, states, training=False):
        output, states = super().call(inputs, states, training)
        return -output, states


class OtherStack(keras.layers.StackedRNNCells):
    def call(self, inputs, states, training=False, **options):
        output, states = super().call(inputs, states, training=training, **options)
        return inputs + output, states


class OtherLoop(keras.layers.GRU):
    def inner_loop(self, sequences, initial_state, mask, training=False):
        return super().inner_loop(-sequences, initial_state, mask, training)


class OtherDirections(keras.layers.Bidirectional):
    def call(self, *arguments, **options):
        return -super().call(*arguments, **options)


class OtherStart(keras.layers.GRU):
    def get_initial_state(self, batch_size):
        return [1 + state for state in super().get_initial_state(batch_size)]


class OtherMask(keras.layers.LSTM):
    def compute_mask(self, _, mask):
        return None


def patched(layer):
    """The layer with a call of its own."""
    layer.call = lambda sequences, **options: sequences
    return layer


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Doubling(4), "Doubling overrides call"),
        (lambda: keras.layers.RNN(OtherCell(4)), "OtherCell overrides call"),
        (lambda: keras.layers.RNN([OtherCell(4)]), "OtherCell overrides call"),
        (
            lambda: keras.layers.RNN(OtherStack([keras.layers.LSTMCell(4)])),
            "OtherStack overrides call",
        ),
        (lambda: OtherLoop(4), "OtherLoop overrides inner_loop"),
        (lambda: OtherStart(4), "OtherStart overrides get_initial_state"),
        (lambda: OtherMask(4), "OtherMask overrides compute_mask"),
        (lambda: patched(keras.layers.GRU(4)), "GRU overrides call"),
        (lambda: OtherDirections(keras.layers.GRU(4)), "OtherDirections overrides call"),
        (lambda: keras.layers.Bidirectional(Doubling(4)), "Doubling overrides call"),
    ],
)
def test_subclasses_that_compute_something_else(weights, make, words):
    layer = make()
    layer.build((None, 5, 4))
    with pytest.raises(weights.UnsupportedError, match=f"{words}, so its weights may have"):
        weights.from_keras(layer)
    inner = getattr(layer, "cell", None)
    if isinstance(inner, OtherCell):
        with pytest.raises(weights.UnsupportedError, match=words):
            weights.from_keras(inner)


@pytest.mark.parametrize("package", ["keras", "tf_blockrnn"])
def test_subclasses_that_compute_the_same(tfb, weights, package):
    """What a user adds, a default say, does not change what the weights mean."""
    module = keras.layers if package == "keras" else tfb.layers
    for name in ("GRU", "LSTM", "SimpleRNN"):
        mine = random_layer(type("Mine", (getattr(module, name),), {}), 4)
        plain = getattr(keras.layers, name)(4, dtype="float64")
        plain.build((None, None, 3))
        plain.set_weights(mine.get_weights())
        assert weights.from_keras(mine) == weights.from_keras(plain)


def test_what_is_no_source(weights):
    arrays = weights.to_keras(weight_stacks.random_weights(Stack("gru")))[0]
    plain = weights.to_keras(weight_stacks.random_weights(Stack("gru", biases=NONE)))[0]
    for source, arguments, error, named in (
        (keras.layers.GRU(4), {}, ValueError, "has no weights yet"),
        (random_layer(keras.layers.GRU, 4), {"cell": "gru"}, ValueError, "cell must not be given"),
        (arrays, {}, ValueError, "for arrays, cell must be one of"),
        (plain, {"cell": "gru"}, ValueError, "reset_after must be given for a gru without biases"),
        (
            arrays,
            {"cell": "gru", "reset_after": False},
            ValueError,
            r"with reset_after=False must have the shape \[G",
        ),
        (arrays, {"cell": "lstm"}, ValueError, r"bias of lstm must have the shape \[G \* H\], got"),
        (arrays[:1], {"cell": "gru"}, ValueError, "expected .kernel, recurrent_kernel, ..."),
        (arrays, {"cell": "gru", "bidirectional": True}, ValueError, "even number of arrays, got"),
        ([*arrays, *arrays], {"cell": "gru"}, ValueError, "then optionally bias"),
        ([a[..., :-1] for a in arrays], {"cell": "gru"}, ValueError, "kernel must have the shape"),
        (keras.layers.Dense(2), {}, TypeError, "expected a layer or cell of Keras'"),
        (
            keras.Sequential([]),
            {},
            TypeError,
            "got Sequential; pass the recurrent ones of its layers",
        ),
        (keras.layers.RNN(_Cell()), {}, TypeError, "got _Cell"),
        ([], {}, TypeError, "expected a layer or a list that is not empty"),
        (np.zeros(3), {}, TypeError, "expected a layer or a list that is not empty"),
    ):
        with pytest.raises(error, match=named):
            weights.from_keras(source, **arguments)
    with pytest.raises(ValueError, match="package must be one of keras, tf_blockrnn, got 'torch'"):
        weights.to_keras(weight_stacks.random_weights(Stack("gru")), package="torch")


class _Cell(keras.layers.Layer):
    state_size = output_size = 2

    def call(self, inputs, states):
        return inputs, states


def test_to_pytorch_and_back(weights):
    """Two biases, both directions, three layers: nothing is lost on the way."""
    described = weight_stacks.random_weights(Stack("gru", layers=3, directions=2))
    layers = weights.to_keras_layers(weights.from_torch(weights.to_torch(described)))
    assert weights.from_keras(layers) == described


@pytest.mark.parametrize("gates, cell", [(4, "lstm"), (3, "gru")])
def test_arrays_of_cudnn_layers(weights, gates, cell):
    """From first principles: what cuDNN computes with each block as its matrix, and two biases."""
    inputs, units, rng = 3, 4, np.random.default_rng(8)
    kernel = rng.uniform(-1, 1, [inputs, gates * units])
    recurrent = rng.uniform(-1, 1, [units, gates * units])
    bias = rng.uniform(-1, 1, [2 * gates * units])
    read = weights.from_keras([kernel, recurrent, bias], cell=cell)
    one = read.layers[0].forward
    names = "ifco" if cell == "lstm" else "urc"
    for number, name in enumerate(names):
        gate, columns = read.gates.index(name), slice(number * units, (number + 1) * units)
        # The memory of a block, row by row, is that of cuDNN's matrix [H, I] or [H, H].
        w_x = kernel[:, columns].ravel().reshape(units, inputs)
        w_h = recurrent[:, columns].ravel().reshape(units, units)
        np.testing.assert_array_equal(one.w_x[gate], w_x.T)
        np.testing.assert_array_equal(one.w_h[gate], w_h.T)
        assert bits(one.b_x[gate]) == bits(bias[columns])
        assert bits(one.b_h[gate]) == bits(bias[gates * units :][columns])
    assert read.reset_after is (True if cell == "gru" else None)
    both = [kernel, recurrent, bias, kernel + 1, recurrent, bias]
    assert weights.from_keras(both, cell=cell, bidirectional=True).layers[0].forward == one
    if cell == "gru":
        with pytest.raises(ValueError, match=r"reset_after=False must .* \[2, 12\] of a CuDNNGRU"):
            weights.from_keras([kernel, recurrent, bias], cell=cell, reset_after=False)


def test_layers_do_not_round_without_a_dtype(weights):
    described = weight_stacks.random_weights(Stack("gru"))
    assert weights.to_keras_layers(described)[0].get_weights()[0].dtype == np.float64
    single = weights.to_keras_layers(described, dtype="float32")
    assert weights.from_keras(single) == described.astype(np.float32)
    one = weights.DirectionWeights(np.full([3, 3, 4], 1e6), np.ones([3, 4, 4]))
    large = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], True)
    with pytest.raises(ValueError, match="w_x has values out of float16's range"):
        weights.to_keras_layers(large, dtype="float16")


@pytest.mark.parametrize("argument", ["reset_after", "activation", "units", "cell_clip"])
def test_layers_take_no_argument_that_the_weights_define(weights, argument):
    described = weight_stacks.random_weights(Stack("gru", biases=NONE))
    with pytest.raises(ValueError, match=f"{argument} must not be given: the weights define it"):
        weights.to_keras_layers(described, **{argument: None})
