"""Weights from and to Keras' layers and ours, against the layers' own forward pass."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers import covering, weight_stacks
from helpers.compare import assert_close, bits
from helpers.weight_formats import run_keras
from helpers.weight_stacks import Stack

from tf_blockrnn import layers, weights
from tf_blockrnn.layers import _fusing

ONE, NONE = ("b_x",), ()
K = keras.layers


def random_layer(kind, *arguments, inputs=3, **options):
    """A built layer with random weights; with Keras' zeros for biases an order would not show."""
    layer = kind(*arguments, dtype="float64", **options)
    layer.build((None, None, inputs))
    rng = np.random.default_rng(5)
    layer.set_weights([rng.uniform(-0.7, 0.7, w.shape) for w in layer.get_weights()])
    return layer


def assert_same_arrays(got, want):
    assert [bits(array) for array in got] == [bits(array) for array in want]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("reset_after", [True, False])
def test_arrays_tell_what_their_shapes_do(reset_after, bidirectional):
    layer = keras.layers.GRU(4, reset_after=reset_after, return_sequences=True, dtype="float64")
    if bidirectional:
        layer = random_layer(keras.layers.Bidirectional, layer)
    else:
        layer = random_layer(keras.layers.GRU, 4, reset_after=reset_after)
    read, arrays = weights.from_keras(layer), layer.get_weights()
    said = {"cell": "gru", "bidirectional": bidirectional}
    assert read.reset_after is reset_after
    for given in (arrays, [arrays]):
        assert weights.from_keras(given, **said) == read


def test_cells_and_stacks_of_them():
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


def test_layers_are_what_was_asked_for(tmp_path):
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


@pytest.mark.parametrize(
    ("cell", "package"), covering.in_turn(weight_stacks.CELLS, ["keras", "tf_blockrnn"])
)
def test_stateful_layers_go_on_where_they_were(cell, package):
    """Two calls, each with half of the steps, compute what one does with all of them."""
    stack = Stack(cell, layers=2)
    described = weight_stacks.random_weights(stack)
    options = {"package": package, "return_sequences": True, "stateful": True}
    with pytest.raises(ValueError, match="stateful=True.* batch size must be static"):
        weights.to_keras_layers(described, **options)
    layers = weights.to_keras_layers(described, batch_size=weight_stacks.BATCH, **options)
    x = weight_stacks.inputs(stack)
    got = np.concatenate([run_keras(layers, half) for half in np.split(x, 2)])
    assert_close(got, weight_stacks.run(described, x).output, weight_stacks.bound(stack), stack)


def test_stateful_layers_of_two_directions():
    """In a second call with the same steps each direction goes on after its own last one."""
    stack = Stack("gru", directions=2)
    described = weight_stacks.random_weights(stack)
    options = {"return_sequences": True, "stateful": True, "batch_size": weight_stacks.BATCH}
    layers = weights.to_keras_layers(described, **options)
    x = weight_stacks.inputs(stack)
    run_keras(layers, x)
    forward, backward = np.split(run_keras(layers, x), 2, axis=-1)
    want = weight_stacks.run(described, np.concatenate([x, x])).output
    want_forward, want_backward = np.split(want, 2, axis=-1)
    bound = weight_stacks.bound(stack)
    assert_close(forward, want_forward[len(x) :], bound, "forward")
    assert_close(backward, want_backward[: len(x)], bound, "backward")


def test_one_direction_alone_may_have_a_bias():
    """As RecurrentWeights may say, and Keras may hold."""
    biased = weight_stacks.random_weights(Stack("lstm", biases=ONE)).layers[0].forward
    plain = weight_stacks.random_weights(Stack("lstm", biases=NONE)).layers[0].forward
    described = weights.RecurrentWeights("lstm", [weights.LayerWeights(biased, plain)])
    layers = weights.to_keras_layers(described, return_sequences=True)
    assert weights.from_keras(layers) == described
    x = weight_stacks.inputs(Stack("lstm"))
    want = weight_stacks.run(described, x).output
    assert_close(run_keras(layers, x), want, weight_stacks.bound(Stack("lstm", directions=2)))


def test_a_fallback_is_reported_where_the_layers_are_asked_for(monkeypatch):
    monkeypatch.setattr(_fusing, "_warned", set())
    described = weight_stacks.random_weights(Stack("lstm", biases=ONE, activation="relu"))
    with pytest.warns(UserWarning, match="falls back to Keras' own") as caught:
        weights.to_keras_layers(described, package="tf_blockrnn")
    assert caught[0].filename == __file__


def test_what_a_description_cannot_hold():
    made = random_layer
    sequences = {"return_sequences": True, "dtype": "float64"}
    back = made(K.GRU, 4, go_backwards=True)
    summed = made(K.Bidirectional, K.GRU(4, **sequences), merge_mode="sum")
    before, lstm = made(K.GRU, 4, inputs=4, reset_after=False), made(K.LSTM, 4, inputs=4)
    every = made(K.GRU, 4, return_sequences=True)
    stacked = K.RNN(K.StackedRNNCells([K.GRUCell(2), K.GRUCell(2)]))
    reversed_pair = K.Bidirectional(K.GRU(4, go_backwards=True), backward_layer=K.GRU(4))
    other = made(K.LSTM, 4, recurrent_activation="hard_tanh")
    normed = made(layers.LayerNormGRU, 4, recurrent_activation="hard_sigmoid")
    for source, named in (
        (made(K.GRU, 4, activation="gelu"), "activation must be tanh or relu, got gelu"),
        (other, "recurrent_activation must be sigmoid or hard_sigmoid, got hard_tanh"),
        (normed, "recurrent_activation must be sigmoid, got hard_sigmoid"),
        (made(K.SimpleRNN, 4, activation="elu"), "activation must be tanh or relu, got elu"),
        (back, "has go_backwards, which is not a weight"),
        (reversed_pair, "its forward layer has go_backwards"),
        ([summed, before], "merge_mode must be 'concat', got 'sum'"),
        ([every, before], "must be of one kind, got"),
        ([every, lstm], "must be of one kind, got"),
        ([made(K.GRU, 4), before], "returns only its last step .return_sequences=False."),
        (made(K.Bidirectional, stacked), "each direction is a stack of its own"),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.from_keras(source)
    assert weights.from_keras(summed).directions == 2
    assert weights.from_keras(back.cell) == weights.from_keras(back.get_weights(), cell="gru")


def overriding(base: type, method: str) -> type:
    """A subclass with a method of its own, whatever that does."""

    def own(self, *arguments, **options):
        return getattr(base, method)(self, *arguments, **options)

    made = type(f"Other{base.__name__}", (base,), {method: own})
    return keras.saving.register_keras_serializable("tests")(made)


def patched(layer):
    """The layer with a call of its own."""
    layer.call = lambda sequences, **options: sequences
    return layer


OtherCell, OtherLSTM = overriding(K.LSTMCell, "call"), overriding(K.LSTM, "call")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: OtherLSTM(4), "OtherLSTM overrides call"),
        (lambda: K.RNN(OtherCell(4)), "OtherLSTMCell overrides call"),
        (lambda: K.RNN([OtherCell(4)]), "OtherLSTMCell overrides call"),
        (
            lambda: K.RNN(overriding(K.StackedRNNCells, "call")([K.LSTMCell(4)])),
            "OtherStackedRNNCells overrides call",
        ),
        *(
            (lambda method=method: overriding(K.GRU, method)(4), f"OtherGRU overrides {method}")
            for method in ("inner_loop", "get_initial_state", "compute_mask")
        ),
        (lambda: patched(K.GRU(4)), "GRU overrides call"),
        (
            lambda: overriding(K.Bidirectional, "call")(K.GRU(4)),
            "OtherBidirectional overrides call",
        ),
        (lambda: K.Bidirectional(OtherLSTM(4)), "OtherLSTM overrides call"),
    ],
)
def test_subclasses_that_compute_something_else(make, words):
    layer = make()
    layer.build((None, 5, 4))
    with pytest.raises(weights.UnsupportedError, match=f"{words}, so its weights may have"):
        weights.from_keras(layer)
    inner = getattr(layer, "cell", None)
    if isinstance(inner, OtherCell):
        with pytest.raises(weights.UnsupportedError, match=words):
            weights.from_keras(inner)


@pytest.mark.parametrize("package", ["keras", "tf_blockrnn"])
def test_subclasses_that_compute_the_same(tfb, package):
    """What a user adds, a default say, does not change what the weights mean."""
    module = keras.layers if package == "keras" else tfb.layers
    for name in ("GRU", "LSTM", "SimpleRNN"):
        mine = random_layer(type("Mine", (getattr(module, name),), {}), 4)
        plain = getattr(keras.layers, name)(4, dtype="float64")
        plain.build((None, None, 3))
        plain.set_weights(mine.get_weights())
        assert weights.from_keras(mine) == weights.from_keras(plain)


def test_what_is_no_source():
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
        (keras.layers.RNN(_Cell()), {}, weights.UnsupportedError, "its cell is of the class _Cell"),
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


@pytest.mark.parametrize("gates, cell", [(4, "lstm"), (3, "gru")])
def test_arrays_of_cudnn_layers(gates, cell):
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


def test_layers_do_not_round_without_a_dtype():
    described = weight_stacks.random_weights(Stack("gru"))
    assert weights.to_keras_layers(described)[0].get_weights()[0].dtype == np.float64
    for dtype, compute in (("float32", "float32"), ("mixed_bfloat16", "bfloat16")):
        single = weights.to_keras_layers(described, dtype=dtype)
        assert single[0].compute_dtype == compute
        assert weights.from_keras(single) == described.astype(np.float32)
    one = weights.DirectionWeights(np.full([3, 3, 4], 1e6), np.ones([3, 4, 4]))
    large = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], True)
    with pytest.raises(ValueError, match="w_x has values out of float16's range"):
        weights.to_keras_layers(large, dtype="float16")


@pytest.mark.parametrize("argument", ["reset_after", "activation", "units", "cell_clip"])
def test_layers_take_no_argument_that_the_weights_define(argument):
    described = weight_stacks.random_weights(Stack("gru", biases=NONE))
    with pytest.raises(ValueError, match=f"{argument} must not be given: the weights define it"):
        weights.to_keras_layers(described, **{argument: None})
