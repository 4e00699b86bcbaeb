"""Weights of layers with layer normalisation: ours, TensorFlow Addons' and haste's."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from helpers import norm_cells, weight_stacks
from helpers.compare import assert_close, bits
from helpers.weight_formats import run_keras
from helpers.weight_stacks import Stack

from tf_blockrnn import layers, weights

LSTM = Stack("layer_norm_lstm", biases=("b_x",))
GRU = Stack("layer_norm_gru")
HASTE = norm_cells.HASTE_EPSILON


def assert_same_arrays(got, want):
    assert [bits(array) for array in got] == [bits(array) for array in want]


# ---- our layers


@pytest.mark.parametrize(
    ("stack", "kind"),
    [(LSTM, layers.LayerNormLSTMCell), (GRU, layers.LayerNormGRUCell)],
    ids=["lstm", "gru"],
)
def test_cells_and_stacks_of_them(stack, kind):
    described = weight_stacks.random_weights(dataclasses.replace(stack, layers=2))
    made = weights.to_keras_layers(described, package="tf_blockrnn")
    cells = [one.cell for one in made]
    assert weights.from_keras(cells) == described
    assert weights.from_keras(keras.layers.StackedRNNCells(cells)) == described
    around = keras.layers.RNN(kind(4, norm_epsilon=0.125, dtype="float64"))
    around.build((None, None, 3))
    around.set_weights(made[0].get_weights())
    assert weights.from_keras(around).layers == described.layers[:1]
    assert weights.from_keras(around).epsilon == 0.125


def test_arrays_have_the_defaults_of_the_layers():
    for cell, kind in (
        ("layer_norm_lstm", layers.LayerNormLSTM),
        ("layer_norm_gru", layers.LayerNormGRU),
    ):
        layer = kind(4)
        layer.build((None, None, 3))
        read = weights.from_keras(layer.get_weights(), cell=cell)
        assert read == weights.from_keras(layer)
        assert (read.epsilon, read.norm_output_only or False) == (1e-3, False)


def test_a_stack_has_one_epsilon_and_one_form():
    for options in ({"norm_epsilon": 0.5}, {"norm_output_only": True}):
        made = [layers.LayerNormLSTM(3, return_sequences=True, **own) for own in ({}, options)]
        for layer in made:
            layer.build((None, None, 3))
        with pytest.raises(weights.UnsupportedError, match="must be of one kind, got"):
            weights.from_keras(made)


@pytest.mark.parametrize("missing", [1, 2, 6])
def test_arrays_without_norms_are_refused(missing):
    arrays = weights.to_keras(weight_stacks.random_weights(LSTM), package="tf_blockrnn")[0]
    for read in (weights.from_addons, lambda a: weights.from_keras(a, cell="layer_norm_lstm")):
        with pytest.raises(
            ValueError, match="gamma and beta of kernel_norm, recurrent_norm, state"
        ):
            read(arrays[:-missing])
    with pytest.raises(ValueError, match="expected .kernel, recurrent_kernel., then optionally"):
        weights.from_keras(arrays, cell="lstm")


def test_arguments_are_for_arrays_and_weights_define_those_of_layers():
    layer = layers.LayerNormLSTM(4)
    layer.build((None, None, 3))
    for name, value in (("epsilon", 1e-3), ("norm_output_only", False)):
        with pytest.raises(ValueError, match=f"^{name} must not be given with layers"):
            weights.from_keras(layer, **{name: value})
        given = "norm_epsilon" if name == "epsilon" else name
        with pytest.raises(ValueError, match=f"^{given} must not be given: the weights define"):
            weights.to_keras_layers(
                weights.from_keras(layer), package="tf_blockrnn", **{given: value}
            )
    with pytest.raises(ValueError, match="epsilon is for layer_norm_lstm"):
        weights.from_keras(layer.get_weights()[:3], cell="lstm", epsilon=1e-3)


def test_a_subclass_that_computes_something_else_is_refused():
    class Other(layers.LayerNormLSTMCell):
        def call(self, inputs, states, training=False):
            return super().call(inputs, states, training=training)

    cell = Other(4)
    cell.build((None, 3))
    with pytest.raises(weights.UnsupportedError, match="Other overrides call"):
        weights.from_keras(cell)


# ---- TensorFlow Addons


def test_arrays_of_addons_are_those_of_our_layers():
    for biases in ((), ("b_x",)):
        described = weight_stacks.random_weights(Stack("layer_norm_lstm", biases=biases))
        (ours,) = weights.to_keras(described, package="tf_blockrnn")
        assert_same_arrays(weights.to_addons(described)[0], ours)
        assert weights.from_addons(ours).epsilon == 1e-3


def test_addons_sum_two_biases():
    described = weight_stacks.random_weights(Stack("layer_norm_lstm"))
    one = described.layers[0].forward
    bias = weights.to_addons(described)[0][2]
    assert bits(bias) == bits(np.concatenate(list(one.b_x + one.b_h)))


def test_what_addons_refuse():
    for source in (None, [], {"kernel": 1}):
        with pytest.raises(TypeError, match="from_addons: expected a list of arrays that"):
            weights.from_addons(source)
    with pytest.raises(ValueError, match="epsilon must be a number in 1e-30..1e30, got 0"):
        weights.from_addons(weights.to_addons(weight_stacks.random_weights(LSTM)), epsilon=0)


# ---- haste


def assert_same_names_and_arrays(got, want):
    assert list(got) == list(want)
    assert_same_arrays(got.values(), want.values())


COMPUTED = {"layer_norm_lstm": norm_cells.haste_lstm, "layer_norm_gru": norm_cells.haste_gru}
cells = pytest.mark.parametrize("cell", COMPUTED)
forms = pytest.mark.parametrize("form", ["torch", "tf"])


@cells
@forms
def test_haste(cell, form):
    """The description computes what haste does, and so do our layers."""
    arrays = norm_cells.haste_arrays(cell, form)
    read = weights.from_haste(arrays)
    assert (read.cell, read.epsilon) == (cell, 1e-5)
    assert read.norm_output_only is (True if cell == "layer_norm_lstm" else None)
    [(again,)] = weights.to_haste(read, form=form)
    assert_same_names_and_arrays(again, arrays)
    stack = Stack(cell, epsilon=HASTE)
    x, bound = weight_stacks.inputs(stack), weight_stacks.bound(stack)
    want = COMPUTED[cell](arrays, x)
    assert_close(weight_stacks.run(read, x).output, want, bound, "read")
    made = weights.to_keras_layers(read, package="tf_blockrnn", return_sequences=True)
    assert made[0].cell.norm_epsilon == 1e-5
    assert_close(run_keras(made, x), want, bound, "our layer")


@cells
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_haste_keeps_bits(tf, cell, dtype):
    arrays = norm_cells.haste_arrays(cell, dtype=tf.as_dtype(dtype).as_numpy_dtype)
    arrays["bias"][:2] = -0.0
    read = weights.from_haste(arrays)
    assert read.dtype.name == dtype
    assert_same_names_and_arrays(weights.to_haste(read)[0][0], arrays)


@cells
def test_haste_directions_prefixes_and_tensors(cell):
    torch = pytest.importorskip("torch")
    forward, backward = (norm_cells.haste_arrays(cell, "tf", seed) for seed in (0, 1))
    read = weights.from_haste(forward, backward)
    assert read.directions == 2
    assert weights.from_haste(*weights.to_haste(read)[0]) == read
    named = {f"model/fw/{name}:0": array for name, array in forward.items()} | {"step": 3}
    assert weights.from_haste(named, prefix="model/fw/") == weights.from_haste(forward)
    arrays = norm_cells.haste_arrays(cell)
    state = {f"rnn.{name}": torch.nn.Parameter(torch.from_numpy(a)) for name, a in arrays.items()}
    assert weights.from_haste(state, prefix="rnn.") == weights.from_haste(arrays)


def with_direction(described, **changes):
    (layer,) = described.layers
    one = dataclasses.replace(layer.forward, **changes)
    return dataclasses.replace(described, layers=[weights.LayerWeights(one)])


@cells
def test_betas_and_biases_are_added_where_the_sum_is_exact(cell):
    stack = Stack(cell, epsilon=HASTE, norm_output_only=True)
    described = weight_stacks.random_weights(stack)
    one = described.layers[0].forward
    # Multiples of 1/64 below 1: float64 holds any sum of them.
    exact = {
        name: np.rint(getattr(one, name) * 64) / 64 for name in ("b_x", "b_h", "norm_x", "norm_h")
    }
    described = with_direction(described, **exact)
    x = weight_stacks.inputs(stack)
    want = weight_stacks.run(described, x).output
    for form in ("torch", "tf"):
        [(arrays,)] = weights.to_haste(described, form=form)
        assert_close(COMPUTED[cell](arrays, x), want, weight_stacks.bound(stack), form)
    # A zero changes no other number; nor does the bias that is missing.
    zeros = {name: np.stack([exact[name][0], exact[name][1] * 0]) for name in ("norm_x", "norm_h")}
    third = np.full_like(one.b_x, 1 / 3)
    [(arrays,)] = weights.to_haste(with_direction(described, **zeros, b_x=third, b_h=None))
    assert np.all(arrays["bias"] == 1 / 3) and not np.any(arrays.get("recurrent_bias", 0))
    none = with_direction(described, **zeros, b_x=None, b_h=None)
    assert not np.any(weights.to_haste(none)[0][0]["bias"])
    rounded = np.stack([zeros["norm_x"][0], np.full_like(one.b_x, 1e-9)])
    with pytest.raises(weights.UnsupportedError, match="layer 0, forward: haste has one bias in"):
        weights.to_haste(with_direction(described, **{**zeros, "norm_x": rounded}, b_x=third))
    huge = np.full_like(one.b_x, 1.7e308)
    overflowing = np.stack([zeros["norm_x"][0], huge])
    with pytest.raises(weights.UnsupportedError, match="whose sum would be rounded"):
        weights.to_haste(with_direction(described, **{**zeros, "norm_x": overflowing}, b_x=huge))


def test_an_lstm_of_haste_has_one_bias():
    described = weights.from_haste(norm_cells.haste_arrays("layer_norm_lstm"))
    third = np.full((4, 4), 1 / 3)
    with pytest.raises(weights.UnsupportedError, match="in place of b_x, b_h, beta of norm_x"):
        weights.to_haste(with_direction(described, b_h=third))
    only = with_direction(described, b_x=None, b_h=third)
    assert np.all(weights.to_haste(only)[0][0]["bias"] == 1 / 3)


def test_what_haste_cannot_have():
    lstm = weights.from_haste(norm_cells.haste_arrays("layer_norm_lstm"))
    gru = weights.from_haste(norm_cells.haste_arrays("layer_norm_gru"))
    for described, named in (
        (
            dataclasses.replace(lstm, norm_output_only=False),
            "the output alone reads the normalised",
        ),
        (
            dataclasses.replace(lstm, epsilon=1e-3),
            "haste's epsilon is 1e-05, these weights have 0.0",
        ),
        (dataclasses.replace(gru, epsilon=1.1e-5), "these weights have 1.1e-05"),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.to_haste(described)
    # What an engine computes with is the nearest float32.
    rounded = dataclasses.replace(gru, epsilon=float(np.float32(1e-5)))
    assert weights.to_haste(rounded)
    with pytest.raises(ValueError, match="form must be one of torch, tf, got 'keras'"):
        weights.to_haste(gru, form="keras")


def without(arrays, *names):
    return {name: array for name, array in arrays.items() if name not in names}


def test_malformed_arrays_of_haste():
    lstm, gru = (norm_cells.haste_arrays(cell) for cell in COMPUTED)
    for source, named in (
        *((without(lstm, name), f"there is no {name}$") for name in lstm if name[0] != "r"),
        (without(lstm, "recurrent_kernel", "kernel") | {"kernel": np.ones([3, 16])}, "I . H, 4H"),
        (lstm | {"gamma": np.ones([2, 15])}, r"gamma of a layer_norm_lstm must have the shape"),
        (lstm | {"gamma": np.ones([16])}, r"gamma of a layer_norm_lstm must have the shape"),
        (gru | {"gamma": np.ones([2, 16])}, r"gamma of a layer_norm_gru must have the shape"),
        (lstm | {"gamma_h": np.ones(5)}, r"gamma_h must have the shape \[H\] = \[4\], got \[5\]"),
        (lstm | {"kernel": np.ones([3, 12])}, r"kernel must have the shape \[n, 4H\] = \[n, 16\]"),
        (lstm | {"recurrent_kernel": np.ones([5, 16])}, r"recurrent_kernel must have the shape"),
        (lstm | {"bias": np.ones(12)}, r"bias must have the shape \[4H\] = \[16\], got \[12\]"),
        (gru | {"recurrent_bias": np.ones(9)}, r"recurrent_bias must have the shape \[3H\]"),
        (without(gru, "recurrent_bias"), r"from_haste: bias must have the shape \[6H"),
    ):
        with pytest.raises(ValueError, match=named):
            weights.from_haste(source)
    for source, named in (
        (lstm | {"recurrent_bias": np.ones(16)}, "LayerNormLSTM has no recurrent_bias"),
        (gru | {"recurrent_scale": np.ones(4)}, "have no recurrent_scale; prefix selects"),
        ({"a.kernel": 1}, "have no a.kernel"),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.from_haste(source)
    with pytest.raises(ValueError, match="there is no kernel under the prefix 'b.'"):
        weights.from_haste({"a.kernel": 1}, prefix="b.")
    with pytest.raises(ValueError, match="the directions differ: layer_norm_gru and layer_norm_l"):
        weights.from_haste(lstm, gru)
    with pytest.raises(TypeError, match="expected a mapping of names to arrays, got list"):
        weights.from_haste([1])
