"""Real uses of Keras' recurrent layers: the numbers are those of stock Keras.

Each scenario runs on stock Keras, under enable_keras, fused in place and on our layers: predictions
before and after one step of training, the loss, and the weights after it.
"""

from __future__ import annotations

import functools
import warnings
from types import SimpleNamespace
from typing import NamedTuple

import keras
import numpy as np
import pytest
from scenarios import Scenario, classes_of, everything

ALL = {scenario.name: scenario for scenario in everything()}


class Result(NamedTuple):
    before: list[np.ndarray]
    loss: float
    weights: list[np.ndarray]
    after: list[np.ndarray]


def _make(scenario: Scenario, classes: SimpleNamespace) -> keras.Model:
    keras.utils.set_random_seed(9)  # the seeds of dropouts
    model = scenario.build(classes)
    model(scenario.inputs())
    draw = np.random.default_rng(8)  # biases too, which Keras starts at zero
    for weight in model.weights:
        if weight.trainable or "bias" in weight.path or "kernel" in weight.path:
            weight.assign(draw.uniform(-0.5, 0.5, weight.shape))
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False):
            layer.reset_state()
    return model


def _run(scenario: Scenario, model: keras.Model, **compile: bool) -> Result:
    x = scenario.inputs()
    before = model(x)  # eager, and the step in a graph
    model.compile(scenario.optimizer(), "mse", **{"jit_compile": False, **compile})
    loss = model.train_on_batch(x, keras.tree.map_structure(lambda y: y * 0.5 + 0.1, before))
    after = model(x)
    weights = [np.asarray(weight) for weight in model.weights]
    return Result(*(keras.tree.flatten(part) for part in (before, loss, weights, after)))


@functools.cache
def _stock(name: str) -> Result:
    """On Keras' own layers, step by step, which is the fastest way without a graph."""
    scenario = ALL[name]
    return _run(scenario, _make(scenario, classes_of(keras.layers)), run_eagerly=True)


def _assert_equal(found: Result, expected: Result, tolerance: float) -> None:
    for part in Result._fields:
        pairs = zip(getattr(found, part), getattr(expected, part), strict=True)
        for number, (mine, its) in enumerate(pairs):
            np.testing.assert_allclose(
                np.asarray(mine, "float64"),
                np.asarray(its, "float64"),
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{part} {number}",
            )


_LAYERS = (keras.layers.GRU, keras.layers.LSTM, keras.layers.SimpleRNN)
_CELLS = (keras.layers.GRUCell, keras.layers.LSTMCell, keras.layers.SimpleRNNCell)


def _cells(model: keras.Model) -> list[keras.Layer]:
    """The cells that no recurrent layer made for itself."""
    parts = model._flatten_layers()
    own = {id(part.cell) for part in parts if isinstance(part, _LAYERS)}
    return [part for part in parts if isinstance(part, _CELLS) and id(part) not in own]


def _recurrent(model: keras.Model) -> list[keras.Layer]:
    """What may run on an op."""
    layers = [part for part in model._flatten_layers() if isinstance(part, _LAYERS)]
    return layers + _cells(model)


def _check_fused(scenario: Scenario, model: keras.Model) -> None:
    found = [part for part in _recurrent(model) if getattr(part, "fused", False)]
    expected = len(_recurrent(model)) if scenario.fused is None else scenario.fused
    assert expected or scenario.fused == 0
    assert len(found) == expected


@functools.cache
def _ours(name: str) -> Result:
    """On our layers, in a graph."""
    import tf_blockrnn

    scenario = ALL[name]
    model = _make(scenario, classes_of(tf_blockrnn.layers))
    _check_fused(scenario, model)
    return _run(scenario, model, **scenario.compile)


@pytest.mark.parametrize("name", ALL)
def test_our_layers(tfb, name):
    del tfb
    _assert_equal(_ours(name), _stock(name), ALL[name].tolerance)


@pytest.mark.parametrize("name", ALL)
def test_enable_keras(tfb, name):
    """The numbers to the bit show that the ops ran: Keras' own differ in their last bits."""
    scenario = ALL[name]
    stock, ours = _stock(name), _ours(name)
    with tfb.enable_keras():
        model = _make(scenario, classes_of(keras.layers))
        found = _run(scenario, model, **scenario.compile)
    _assert_equal(found, stock, scenario.tolerance)
    if not _cells(model):
        for mine, expected in zip(found.before, ours.before, strict=True):
            np.testing.assert_array_equal(mine, expected)
    assert not any(type(part).__module__.startswith("tf_blockrnn") for part in _recurrent(model))


@pytest.mark.parametrize("name", ALL)
def test_fuse_model(tfb, name):
    scenario = ALL[name]
    model = _make(scenario, classes_of(keras.layers))
    names = [weight.path for weight in model.weights]
    with warnings.catch_warnings():
        if scenario.fused == 0:
            warnings.filterwarnings("ignore", ".*did not fuse")
        assert tfb.fuse_model(model) is model
    _check_fused(scenario, model)
    assert [weight.path for weight in model.weights] == names
    _assert_equal(_run(scenario, model, **scenario.compile), _stock(name), scenario.tolerance)
