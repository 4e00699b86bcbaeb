"""The description of weights itself: what it holds, what it refuses, and how it is loaded."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re

import numpy as np
import pytest
from helpers import children, weight_stacks
from helpers.compare import assert_close
from helpers.weight_stacks import Stack

from tf_blockrnn import weights


def arrays(gates=3, inputs=5, units=4, proj=0):
    width = proj or units
    return {
        "w_x": np.ones([gates, inputs, units]),
        "w_h": np.ones([gates, width, units]),
        "b_x": np.ones([gates, units]),
        "b_h": np.ones([gates, units]),
        **({"w_p": np.ones([proj, units])} if proj else {}),
    }


def lstm_arrays(**sizes):
    return {**arrays(gates=4, **sizes), "peepholes": np.ones([3, 4])}


def norms(gates=4):
    both = {name: np.ones([2, gates, 4]) for name in ("norm_x", "norm_h")}
    return both | ({"norm_c": np.ones([2, 4])} if gates == 4 else {})


def with_norms(gates=4, **more):
    """Of a cell with layer normalisation; None takes an array away."""
    one = weights.DirectionWeights(**{**arrays(gates), **norms(gates), **more})
    return [weights.LayerWeights(one)]


def test_sizes_and_gates():
    one = weights.DirectionWeights(**lstm_arrays(proj=2))
    layer = weights.LayerWeights(one, one)
    above = weights.DirectionWeights(**lstm_arrays(inputs=4, proj=2))
    stack = weights.RecurrentWeights("lstm", [layer, weights.LayerWeights(above)], cell_clip=2)
    assert (one.gates, one.input_size, one.units, one.output_size) == (4, 5, 4, 2)
    assert (layer.directions, layer.output_size) == (2, 4)
    assert (stack.num_layers, stack.directions, stack.input_size) == (2, None, 5)
    assert stack.gates == ("i", "f", "c", "o") and stack.cell_clip == 2.0
    assert [(n, name) for n, name, _ in stack.named_directions()] == [
        (0, "forward"),
        (0, "backward"),
        (1, "forward"),
    ]


def test_bias_is_the_sum_or_the_only_one():
    given = arrays()
    only = {name: given[name] for name in ("w_x", "w_h")}
    assert np.array_equal(weights.DirectionWeights(**given).bias, 2 * given["b_x"])
    for name in ("b_x", "b_h"):
        one = weights.DirectionWeights(**only, **{name: given[name] * 3})
        assert one.has_bias and np.array_equal(one.bias, given[name] * 3)
    none = weights.DirectionWeights(**only)
    assert none.bias is None and not none.has_bias


@pytest.mark.parametrize("name", list(lstm_arrays(proj=2) | norms()))
def test_each_shape_and_type_is_checked_by_name(name):
    given = lstm_arrays(proj=2) | norms()
    for wrong in (given[name][..., :-1], given[name][None]):
        # w_x sets the sizes: what does not fit it then is another array.
        named = r"w_h|b_x|w_p|w_x must have" if name == "w_x" else f"^({name}|w_h) must have"
        with pytest.raises(ValueError, match=named):
            weights.DirectionWeights(**{**given, name: wrong})
    with pytest.raises(TypeError, match=f"^{name} must be of the type float16, .*, got int64"):
        weights.DirectionWeights(**{**given, name: given[name].astype(np.int64)})
    named = "of w_x's type float32" if name == "w_x" else f"^{name} must be of w_x's type float64"
    with pytest.raises(TypeError, match=named):
        weights.DirectionWeights(**{**given, name: given[name].astype(np.float32)})


def test_errors_give_both_shapes():
    given = {**arrays(), "b_h": np.ones([3, 7])}
    with pytest.raises(ValueError) as error:
        weights.DirectionWeights(**given)
    assert str(error.value) == (
        "b_h must have the shape [G, H] = [3, 4] beside w_x [G, I, H] = [3, 5, 4], got [3, 7]"
    )


def test_types_that_no_framework_has_are_refused():
    given = {name: array.astype(np.longdouble) for name, array in arrays().items()}
    with pytest.raises(TypeError, match="w_x must be of the type .*, got (longdouble|float128)"):
        weights.DirectionWeights(**given)


def test_byte_order_is_the_machine_s():
    given = arrays()
    swapped = {name: array.astype(">f8") for name, array in given.items()}
    one = weights.DirectionWeights(**swapped)
    assert one.dtype.isnative and one == weights.DirectionWeights(**given)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_cast_does_not_make_infinities(dtype):
    large = 1e6 if dtype == "float16" else 1e300
    one = weights.DirectionWeights(**{**arrays(), "b_h": np.full([3, 4], -large)})
    gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], True)
    with pytest.raises(ValueError, match=f"b_h has values out of {dtype}'s range, such as -1e"):
        gru.astype(dtype)
    infinite = weights.DirectionWeights(**{**arrays(), "b_h": np.full([3, 4], np.inf)})
    assert np.all(np.isinf(infinite.astype(dtype).b_h))


def test_directions_must_be_alike():
    one = weights.DirectionWeights(**arrays())
    for other, named in (
        (weights.DirectionWeights(**arrays(inputs=6)), "I of forward, which is 5, got 6"),
        (weights.DirectionWeights(**arrays(units=2)), "H of forward, which is 4, got 2"),
        (weights.DirectionWeights(**arrays(gates=1)), "number of gates of forward"),
    ):
        with pytest.raises(ValueError, match=f"backward must have the {named}"):
            weights.LayerWeights(one, other)
    with pytest.raises(TypeError, match="the type of forward, which is float64, got float32"):
        weights.LayerWeights(one, one.astype(np.float32))
    with pytest.raises(TypeError, match="backward must be a DirectionWeights, got ndarray"):
        weights.LayerWeights(one, one.w_x)


def norm_stack(cell, layers, epsilon=None, norm_output_only=None, **more):
    made = weights.RecurrentWeights
    return made(cell, layers, epsilon=epsilon, norm_output_only=norm_output_only, **more)


@pytest.mark.parametrize(
    ("cell", "gates", "changed", "options", "words"),
    [
        *(
            (
                "layer_norm_lstm",
                4,
                {name: None},
                (1, False),
                f"layer_norm_lstm needs {name}",
            )
            for name in ("norm_x", "norm_h", "norm_c")
        ),
        (
            "layer_norm_gru",
            3,
            {"norm_c": np.ones([2, 4])},
            (1,),
            "layer 0, forward: norm_c is for layer_norm_lstm, not for layer_norm_gru",
        ),
        ("lstm", 4, {}, (), "norm_x is for layer_norm_lstm and layer_norm_gru, not for"),
        ("lstm", 4, {"norm_x": None, "norm_h": None}, (), "norm_c is for layer_norm_lstm, not for"),
        ("lstm", 4, dict.fromkeys(norms()), (1,), "epsilon is for layer_norm_lstm and layer_norm_"),
        ("lstm", 4, dict.fromkeys(norms()), (None, False), "norm_output_only is for layer_norm_l"),
        ("layer_norm_gru", 3, {}, (1, True), "norm_output_only is for layer_norm_lstm"),
        ("layer_norm_gru", 3, {}, (), "a layer_norm_gru needs epsilon"),
        ("layer_norm_lstm", 4, {}, (1,), "needs norm_output_only, True or False"),
        (
            "layer_norm_lstm",
            4,
            {"peepholes": np.ones([3, 4])},
            (1, False),
            "peepholes is for lstm, not for layer_norm_lstm",
        ),
        *(
            ("layer_norm_gru", 3, {}, (epsilon,), "epsilon must be a number in 1e-30..1e30, got")
            for epsilon in (0, -1e-3, 1e-31, 1e31, float("nan"), float("inf"))
        ),
    ],
)
def test_norms_and_their_arguments_must_fit_the_cell(cell, gates, changed, options, words):
    layers = with_norms(gates, **changed)
    with pytest.raises(ValueError, match=words):
        norm_stack(cell, layers, *options)


def test_options_of_other_cells_are_not_for_those_with_norms():
    with pytest.raises(ValueError, match="cell_clip is for lstm"):
        norm_stack("layer_norm_lstm", with_norms(), 1, False, cell_clip=1.0)
    with pytest.raises(ValueError, match="reset_after is for gru"):
        norm_stack("layer_norm_gru", with_norms(3), 1, reset_after=True)


def test_a_stack_must_fit_its_cell():
    gru = weights.LayerWeights(weights.DirectionWeights(**arrays()))
    lstm = weights.LayerWeights(weights.DirectionWeights(**arrays(gates=4)))
    peep = arrays(gates=3) | {"peepholes": np.ones([3, 4])}
    peep = weights.LayerWeights(weights.DirectionWeights(**peep))
    projected = weights.LayerWeights(weights.DirectionWeights(**arrays(proj=2)))
    single = gru.forward.astype(np.float32)
    plain = ("lstm", [lstm], None, 0.0, 0.0, 0.0, None, None)
    bound = "cell_clip must be 0 for none or a bound of 1e-30 or more"
    fitting = weights.LayerWeights(weights.DirectionWeights(**arrays(inputs=4)).astype(np.float32))
    for arguments, named in (
        (("elman", [gru]), "cell must be one of lstm, gru, .*, layer_norm_gru, got 'elman'"),
        (("gru", [], True), "layers must not be empty"),
        (("gru", [gru]), "a gru needs reset_after"),
        (("lstm", [lstm], True), "reset_after is for gru, not for lstm"),
        (("lstm", [gru]), "layer 0, forward: w_x must have 4 gates for lstm, got 3"),
        (("gru", [peep], True), "layer 0, forward: peepholes is for lstm, not for gru"),
        (("gru", [projected], True), "layer 0, forward: w_p is for lstm, not for gru"),
        (("gru", [gru], True, 1.0), "cell_clip is for lstm"),
        *(
            (("lstm", [lstm], None, clip), re.escape(f"{bound}, got {clip}"))
            for clip in (-1.0, 1e-31, float("nan"))
        ),
        (("lstm", [lstm], None, 0.0, 1.5), "zoneout_h must be a rate in 0..1, got 1.5"),
        (
            ("lstm", [lstm], None, 0.0, 0.0, float("nan")),
            "zoneout_c must be a rate in 0..1, got nan",
        ),
        (("gru", [gru], True, 0.0, 0.1, 0.1), "zoneout_c is for lstm, not for gru"),
        ((*plain, "gelu"), "activation must be tanh or relu, got gelu"),
        *(
            (
                (*plain, "relu", slope),
                "hard_sigmoid must be 0 for sigmoid or a slope in 1e-30..1e30",
            )
            for slope in (-0.2, 1e-31, 1e31, float("nan"))
        ),
        (("gru", [gru, gru], True), "layer 1: I must be the width of layer 0's output, 4, got 5"),
    ):
        with pytest.raises(ValueError, match=named):
            weights.RecurrentWeights(*arguments)
    for arguments, named in (
        ((None, [gru]), "cell must be one of lstm, gru, .*, got None"),
        (("gru", [gru, fitting], True), "layer 1, forward: all layers must be of the first one's"),
        (("gru", [gru.forward], True), "layers must be of LayerWeights, got DirectionWeights"),
        (("gru", [gru], "before"), "reset_after must be True or False, got 'before'"),
        (("lstm", [lstm], None, "3"), f"{bound}, got '3'"),
        ((*plain, 3), "activation must be tanh or relu, got 3"),
        (("lstm", [lstm], None, None), f"{bound}, got None"),
    ):
        with pytest.raises(TypeError, match=named):
            weights.RecurrentWeights(*arguments)
    assert weights.RecurrentWeights("gru", [weights.LayerWeights(single)], 1).reset_after is True
    for clip in (1e39, float("inf")):  # more than any number of float32
        assert weights.RecurrentWeights("lstm", [lstm], cell_clip=clip).cell_clip == 0


def test_nothing_can_be_changed():
    given = arrays()
    one = weights.DirectionWeights(**given)
    given["w_x"][:] = 7
    assert np.all(one.w_x == 1), "the caller's array is the description's"
    with pytest.raises(ValueError, match="read-only"):
        one.w_x[0] = 2
    with pytest.raises(AttributeError):
        one.w_x = given["w_x"]
    stack = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], True)
    with pytest.raises(AttributeError):
        stack.cell = "lstm"
    assert isinstance(stack.layers, tuple)


@pytest.mark.parametrize(
    ("stack", "options"),
    [
        (
            Stack("lstm", layers=2, directions=2, peepholes=True, proj=2),
            {
                **{"cell_clip": 1.0, "zoneout_h": 0.5, "zoneout_c": 0.5},
                **{"activation": "relu", "hard_sigmoid": 0.2},
            },
        ),
        (Stack("layer_norm_lstm"), {"epsilon": 0.25, "norm_output_only": True}),
    ],
    ids=str,
)
def test_everything_counts_for_equality(stack, options):
    one, same = (weight_stacks.random_weights(stack) for _ in range(2))
    assert one == same and not one != same
    assert one != weight_stacks.random_weights(stack, seed=1)
    for name, value in options.items():
        other = dataclasses.replace(one, **{name: value})
        assert one != other and getattr(other.astype(np.float32), name) == value
    forward = one.layers[0].forward
    for name, array in vars(forward).items():
        if array is not None and name != "w_x":
            assert forward != dataclasses.replace(forward, **{name: array * 2}), name


def test_equal_is_bit_for_bit():
    one = weight_stacks.random_weights(Stack("lstm", layers=2, directions=2))
    assert one != one.astype(np.float32)
    assert one.astype(np.float32).astype(np.float32) == one.astype(np.float32)
    given = arrays()
    base = weights.DirectionWeights(**given)
    for name, other in (("b_h", None), ("b_x", np.where([[True]], given["b_x"], 0) * -1.0)):
        assert base != weights.DirectionWeights(**{**given, name: other})
    zeros = {name: array * 0 for name, array in given.items()}
    negative = {**zeros, "w_x": -zeros["w_x"]}
    assert weights.DirectionWeights(**zeros) != weights.DirectionWeights(**negative)
    nans = {**given, "w_x": given["w_x"] * np.nan}
    assert weights.DirectionWeights(**nans) == weights.DirectionWeights(**nans)
    assert base != "something else"


def test_empty_sizes_are_sizes():
    one = weights.DirectionWeights(**arrays(inputs=0, units=0))
    assert (one.input_size, one.units) == (0, 0)


def test_importing_loads_no_framework():
    """torch and onnx are for who has them, and layers take a second."""
    code = (
        "import sys, tf_blockrnn.weights as w\n"
        "assert w.RecurrentWeights and 'from_torch' in dir(w)\n"
        "unwanted = ('torch', 'onnx', 'onnxruntime', 'tf_blockrnn.layers')\n"
        "assert w.from_keras and w.from_torch and w.from_onnx\n"
        "loaded = [name for name in unwanted if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    children.assert_ok(children.run_code(code), "importing tf_blockrnn.weights")


def test_names():
    for name in weights.__all__:
        assert getattr(weights, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'from_nowhere'"):
        weights.from_nowhere  # noqa: B018


# What docs/gru_variants.md says of the GRU's forms.


def test_an_update_gate_of_negated_weights_is_that_of_the_other_form():
    stack = Stack("gru", reset_after=False, biases=("b_x",))
    described = weight_stacks.random_weights(stack)
    one, x = described.layers[0].forward, weight_stacks.inputs(stack)
    h = np.zeros([x.shape[1], stack.units])
    sign = np.array([1.0, -1.0, 1.0])  # r, u, c
    w_x, w_h, b = (a * sign.reshape(3, *[1] * (a.ndim - 1)) for a in (one.w_x, one.w_h, one.b_x))
    for x_t in x:
        r, z = (1 / (1 + np.exp(-(x_t @ w_x[g] + h @ w_h[g] + b[g]))) for g in (0, 1))
        h = (1 - z) * h + z * np.tanh(x_t @ w_x[2] + (r * h) @ w_h[2] + b[2])
    (layer,) = weights.to_keras_layers(described)
    assert_close(layer(np.swapaxes(x, 0, 1)), h, weight_stacks.bound(stack))


@pytest.mark.parametrize("reset_after", [True, False])
def test_when_two_biases_are_one(reset_after):
    """Those of r and z always; those of c only with reset before."""
    stack = Stack("gru", reset_after=reset_after)
    one, x = weight_stacks.random_weights(stack).layers[0].forward, weight_stacks.inputs(stack)

    def state(moved):
        b_x, b_h = np.array(one.b_x), np.array(one.b_h)
        b_x[moved] += b_h[moved]
        b_h[moved] = 0
        layers = [weights.LayerWeights(weights.DirectionWeights(one.w_x, one.w_h, b_x, b_h))]
        return weight_stacks.run(weights.RecurrentWeights("gru", layers, reset_after), x).h

    bound = weight_stacks.bound(stack)
    assert_close(state([0, 1]), state([]), bound)
    if reset_after:
        assert np.max(np.abs(state([2]) - state([]))) > 1e-3
    else:
        assert_close(state([2]), state([]), bound)


@pytest.mark.parametrize(
    "name",
    ["keras", "torch", "onnx", "haste", "addons", "npz", "cudnn", "tf1"],
)
def test_a_source_of_another_form_is_put_to_the_reader_of_all(tfb, name):
    options = {
        "cudnn": {"rnn_mode": "lstm", "num_units": 4, "input_size": 5},
        "tf1": {"cell": "LSTMCell"},
    }
    read = functools.partial(getattr(weights, f"from_{name}"), **options.get(name, {}))
    for source in (None, 3, weight_stacks.random_weights(Stack("lstm"))):
        words = rf"from_{name}: expected .*, got {type(source).__name__}; weights.read takes"
        with pytest.raises(TypeError, match=words):
            read(source)


def test_what_is_no_weights(tfb):
    writers = [name for name in weights.__all__ if name.startswith("to_") and name != "to_tf1"]
    for name, wrong in itertools.product(writers, ({}, [], None)):
        with pytest.raises(TypeError, match="weights must be RecurrentWeights, got"):
            getattr(weights, name)(wrong, *(["out.npz"] if name == "to_npz" else []))
    one = weights.DirectionWeights(np.ones([4, 5, 4]), np.ones([4, 4, 4]))
    with pytest.raises(TypeError, match="layers must be a list of LayerWeights, got DirectionW"):
        weights.RecurrentWeights("lstm", one)
    with pytest.raises(ValueError, match="a matrix for each gate, got .*; weights.from_keras and"):
        weights.DirectionWeights(np.ones([5, 16]), np.ones([4, 16]))
