"""Real uses of Keras' recurrent layers: the numbers are those of stock Keras.

Each scenario runs on stock Keras and on our layers: predictions before and after one step of
training, the loss, and the weights after it. Layers under enable_keras and fused in place share
their computation with ours (`layers/_fused_call.py`). They run the scenarios that differ in what is
theirs alone: which calls and layers they reach, and what is handed on.
"""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
from scenarios import classes_of, running
from scenarios.running import ALL

ENABLED = {
    "each class": ["mixed stack", "GRU of the first paper"],
    "the arguments of the call": [
        "states given, masked",
        "a mask as an input",
        "words, both directions",
        "states of both directions",
        "translation, LSTM",
    ],
    "attributes that act in the call": [
        "zeros, backwards",
        "states returned",
        "stateful GRU",
        "stateful, both directions",
        "unrolled",
        "mixed float16",
    ],
    "training, and random masks drawn as Keras draws them": [
        "both dropouts",
        "dropout, a mask per gate",
        "words, recurrent dropout",
    ],
    "left to Keras: activations, and cells": [
        "another activation",
        "hard sigmoid",
        "RNN of a stack of cells",
        "decoder of a cell",
    ],
    "calls within other layers, and several of one layer": [
        "sentences of words",
        "siamese",
        "custom layer",
    ],
    "how a model runs": ["eager", "XLA", "own training step"],
}
FUSED = {
    "each class, with all that its layer keeps": [
        "mixed stack",
        "GRU of the first paper",
        "no bias",
        "zeros, backwards",
        "mixed float16",
        "frozen part",
    ],
    "each kind of cell": [
        "RNN of a stack of cells",
        "RNN of StackedRNNCells",
        "RNN of a GRUCell of the first paper",
        "cells in both directions",
        "decoder of a cell",
    ],
    "where layers are": [
        "two kinds of layers",
        "sentences of words",
        "nested models",
        "subclass with arguments",
        "plain subclass",
        "layers in containers",
        "layers made in build",
        "custom layer",
        "siamese",
    ],
    "states, and random generators": [
        "stateful, both directions",
        "states returned",
        "translation, GRU",
        "cell with dropout",
        "both dropouts",
        "words, recurrent dropout",
    ],
    "not fused": ["another activation", "hard sigmoid"],
}


def _names(selection):
    return [name for names in selection.values() for name in names]


def _with_tiers(selection):
    """The first scenario of each reason is core, the others run in test-types."""
    return [
        pytest.param(name, marks=[pytest.mark.types] if place else [])
        for names in selection.values()
        for place, name in enumerate(names)
    ]


@pytest.mark.types  # the others compute the same layers, for a part of the scenarios
@pytest.mark.parametrize("name", ALL)
def test_our_layers(tfb, name):
    del tfb
    running.assert_equal(running.ours(name), running.stock(name), ALL[name].tolerance)


@pytest.mark.parametrize("name", _with_tiers(ENABLED))
def test_enable_keras(tfb, name):
    """The numbers to the bit show that the ops ran: Keras' own differ in their last bits."""
    scenario = ALL[name]
    stock, ours = running.stock(name), running.ours(name)
    with tfb.enable_keras():
        model = running.make(scenario, classes_of(keras.layers))
        found = running.run(scenario, model, **scenario.compile)
    running.assert_equal(found, stock, scenario.tolerance)
    if not running.cells(model):
        for mine, expected in zip(found.before, ours.before, strict=True):
            np.testing.assert_array_equal(mine, expected)
    parts = running.recurrent(model)
    assert not any(type(part).__module__.startswith("tf_blockrnn") for part in parts)


@pytest.mark.types
@pytest.mark.parametrize("name", _names(FUSED))
def test_fuse_model(tfb, name):
    scenario = ALL[name]
    model = running.make(scenario, classes_of(keras.layers))
    names = [weight.path for weight in model.weights]
    with warnings.catch_warnings():
        if scenario.fused == 0:
            warnings.filterwarnings("ignore", ".*did not fuse")
        assert tfb.fuse_model(model) is model
    running.check_fused(scenario, model)
    assert [weight.path for weight in model.weights] == names
    found = running.run(scenario, model, **scenario.compile)
    running.assert_equal(found, running.stock(name), scenario.tolerance)
