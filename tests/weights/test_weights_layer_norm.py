"""Weights of cells with layer normalisation: the description, and who refuses them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import weight_stacks
from helpers.weight_stacks import NORM_CELLS, Stack

from tf_blockrnn import weights

LSTM = Stack("layer_norm_lstm", layers=2, directions=2, norm_output_only=True)
GRU = Stack("layer_norm_gru", layers=2, directions=2)
STACKS = pytest.mark.parametrize("stack", [LSTM, GRU], ids=str)


def arrays(gates=4, **more):
    return {
        "w_x": np.ones([gates, 5, 3]),
        "w_h": np.ones([gates, 3, 3]),
        "norm_x": np.ones([2, gates, 3]),
        "norm_h": np.ones([2, gates, 3]),
        "norm_c": np.ones([2, 3]),
        **more,
    }


def stack_of(cell, given, **options):
    return weights.RecurrentWeights(
        cell, [weights.LayerWeights(weights.DirectionWeights(**given))], **options
    )


@STACKS
def test_what_there_is(stack):
    described = weight_stacks.random_weights(stack)
    assert described.cell == stack.cell and described.epsilon == 0.125
    assert described.norm_output_only is (True if stack is LSTM else None)
    assert described.gates == weights.GATES[stack.cell]
    narrow = described.astype(np.float32)
    assert (narrow.epsilon, narrow.norm_output_only) == (
        described.epsilon,
        described.norm_output_only,
    )
    one = described.layers[0].forward
    for name in ("norm_x", "norm_h", "norm_c")[: 3 if stack is LSTM else 2]:
        given = getattr(one, name)
        assert not given.flags.writeable
        assert np.array_equal(getattr(narrow.layers[0].forward, name), given.astype(np.float32))


@pytest.mark.parametrize("name", ["norm_x", "norm_h", "norm_c"])
def test_norms_are_part_of_equality_and_are_checked(name):
    given = arrays()
    one = weights.DirectionWeights(**given)
    assert one == weights.DirectionWeights(**given)
    for other in (None, given[name] * 2):
        assert one != weights.DirectionWeights(**{**given, name: other})
    with pytest.raises(ValueError, match=rf"^{name} must have the shape \[2, .*H\] = "):
        weights.DirectionWeights(**{**given, name: given[name][:1]})
    with pytest.raises(TypeError, match=f"^{name} must be of w_x's type float64, got float32"):
        weights.DirectionWeights(**{**given, name: given[name].astype(np.float32)})


def test_epsilon_and_the_form_are_part_of_equality():
    described = weight_stacks.random_weights(LSTM)
    assert described == weight_stacks.random_weights(LSTM)
    assert described != dataclasses.replace(described, epsilon=0.25)
    assert described != dataclasses.replace(described, norm_output_only=False)


def test_norms_and_their_arguments_must_fit_the_cell():
    lstm = {"epsilon": 1e-3, "norm_output_only": False}
    plain = {name: array for name, array in arrays().items() if not name.startswith("norm")}
    gru = arrays(gates=3)
    without_c = {name: array for name, array in gru.items() if name != "norm_c"}
    for cell, given, options, named in (
        ("layer_norm_lstm", plain, lstm, "layer 0, forward: layer_norm_lstm needs norm_x"),
        ("layer_norm_lstm", {**arrays(), "norm_h": None}, lstm, "layer_norm_lstm needs norm_h"),
        ("layer_norm_lstm", {**arrays(), "norm_c": None}, lstm, "layer_norm_lstm needs norm_c"),
        (
            "layer_norm_gru",
            gru,
            {"epsilon": 1},
            "layer 0, forward: norm_c is for layer_norm_lstm, not for layer_norm_gru",
        ),
        (
            "lstm",
            arrays(),
            {},
            "layer 0, forward: norm_x is for layer_norm_lstm and layer_norm_gru, not for",
        ),
        (
            "lstm",
            {**plain, "norm_c": np.ones([2, 3])},
            {},
            "norm_c is for layer_norm_lstm, not for lstm",
        ),
        ("lstm", plain, {"epsilon": 1e-3}, "epsilon is for layer_norm_lstm and layer_norm_gru"),
        ("lstm", plain, {"norm_output_only": False}, "norm_output_only is for layer_norm_lstm"),
        ("layer_norm_gru", without_c, {"epsilon": 1, "norm_output_only": True}, "norm_output_only"),
        ("layer_norm_gru", without_c, {}, "a layer_norm_gru needs epsilon"),
        ("layer_norm_lstm", arrays(), {"epsilon": 1}, "needs norm_output_only, True or False"),
        ("layer_norm_lstm", arrays(), {**lstm, "cell_clip": 1.0}, "cell_clip is for lstm"),
        (
            "layer_norm_gru",
            without_c,
            {"epsilon": 1, "reset_after": True},
            "reset_after is for gru",
        ),
        (
            "layer_norm_lstm",
            arrays(peepholes=np.ones([3, 3])),
            lstm,
            "peepholes is for lstm, not for layer_norm_lstm",
        ),
    ):
        with pytest.raises(ValueError, match=named):
            stack_of(cell, given, **options)
    for epsilon in (0, -1e-3, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="epsilon must be a finite number above 0, got"):
            stack_of("layer_norm_gru", without_c, epsilon=epsilon)


@pytest.mark.parametrize("cell", NORM_CELLS)
def test_formats_without_norms_read_none(cell):
    state = {"weight_ih_l0": np.ones([12, 2]), "weight_hh_l0": np.ones([12, 3])}
    with pytest.raises(ValueError, match=f"cell must be one of lstm, .*rnn_relu, got '{cell}'"):
        weights.from_torch(state, cell=cell)
    with pytest.raises(ValueError, match=f"rnn_mode must be one of .*rnn_relu, got '{cell}'"):
        weights.from_cudnn(np.ones(8, "f4"), rnn_mode=cell, num_units=1, input_size=1)
