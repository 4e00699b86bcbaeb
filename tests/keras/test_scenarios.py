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

pytestmark = pytest.mark.types

ENABLED = (
    "GRU of the first paper",
    "states given, masked",
    "words, both directions",
    "zeros, backwards",
    "stateful, both directions",
    "mixed float16",
    "dropout, a mask per gate",
    "another activation",
    "RNN of a stack of cells",
    "sentences of words",
    "own training step",
)
FUSED = (
    "mixed stack",
    "frozen part",
    "RNN of StackedRNNCells",
    "decoder of a cell",
    "two kinds of layers",
    "layers in containers",
    "layers made in build",
    "custom layer",
    "cell with dropout",
    "hard sigmoid",
)


@pytest.mark.parametrize("name", ALL)
def test_our_layers(tfb, name):
    del tfb
    running.assert_equal(running.ours(name), running.stock(name), ALL[name].tolerance)


@pytest.mark.parametrize("name", ENABLED)
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


@pytest.mark.parametrize("name", FUSED)
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
