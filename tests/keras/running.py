"""Runs scenarios on stock Keras and on the ops, and compares what comes of it."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from helpers import tolerances
from helpers.compare import assert_close, bits
from scenarios import ALL, STEPS, STOCK, UNITS, Scenario, classes_of


class Result(NamedTuple):
    before: list[np.ndarray]
    loss: float
    weights: list[np.ndarray]
    after: list[np.ndarray]


def make(scenario: Scenario, classes: SimpleNamespace = STOCK) -> keras.Model:
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


def run(scenario: Scenario, model: keras.Model, **compile: bool) -> Result:
    """Predictions before and after one step of training, the loss, and the weights after it."""
    x = scenario.inputs()
    before = model(x)  # eager, and the step in a graph
    model.compile(keras.optimizers.SGD(0.1), "mse", **{"jit_compile": False, **compile})
    loss = model.train_on_batch(x, keras.tree.map_structure(lambda y: y * 0.5 + 0.1, before))
    after = model.predict_on_batch(x) if model.jit_compile else model(x)
    weights = [np.asarray(weight) for weight in model.weights]
    return Result(*(keras.tree.flatten(part) for part in (before, loss, weights, after)))


@functools.cache
def stock(name: str, jit_compile: bool = False) -> Result:
    """On Keras' own layers: step by step, the fastest way without a graph, or compiled by XLA."""
    options = {"jit_compile": True} if jit_compile else {"run_eagerly": True}
    return run(ALL[name], make(ALL[name]), **options)


@functools.cache
def ours(name: str) -> Result:
    """On our layers, in a graph."""
    import tf_blockrnn

    model = make(ALL[name], classes_of(tf_blockrnn.layers))
    check_fused(ALL[name], model)
    return run(ALL[name], model)


def assert_equal(found: Result, expected: Result, tolerance: float) -> None:
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


def cells(model: keras.Model) -> list[keras.Layer]:
    """The cells that no recurrent layer made for itself."""
    parts = model._flatten_layers()
    own = {id(part.cell) for part in parts if isinstance(part, _LAYERS)}
    return [part for part in parts if isinstance(part, _CELLS) and id(part) not in own]


def recurrent(model: keras.Model) -> list[keras.Layer]:
    """What may run on an op."""
    layers = [part for part in model._flatten_layers() if isinstance(part, _LAYERS)]
    return layers + cells(model)


def recurrent_types(model: keras.Model) -> list[type]:
    return [type(part) for part in recurrent(model)]


def check_fused(scenario: Scenario, model: keras.Model) -> None:
    found = [part for part in recurrent(model) if getattr(part, "fused", False)]
    expected = len(recurrent(model)) if scenario.fused is None else scenario.fused
    assert expected or scenario.fused == 0
    assert len(found) == expected


# ---- models before and after fuse_model


def bound(calls: int = 1) -> float:
    """For a model called so often on what it gave; they stack at most eight recurrent layers."""
    return tolerances.composed_bound("float32", calls * 8 * (2 * UNITS) * STEPS)


BOUND = bound()


def state_bits(model: keras.Model) -> list:
    """Without the states of seeds, which a call may move on."""
    return [(v.path, bits(np.asarray(v))) for v in model.variables if "seed" not in v.path]


def assert_predicts(model: keras.Model, want, x) -> None:
    for mode in (model, tf.function(model)):
        got, wanted = (keras.tree.flatten(y) for y in (mode(x), want))
        for mine, its in zip(got, wanted, strict=True):
            assert_close(mine, its, BOUND)
