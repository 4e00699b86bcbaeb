"""What the tests of fusing compare: kinds of layers, states and predictions."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from helpers import tolerances
from helpers.compare import assert_close
from helpers.fuse_models import STEPS, UNITS

KINDS = ("GRU", "LSTM", "SimpleRNN", "GRUCell", "LSTMCell", "SimpleRNNCell")


def bound(calls=1):
    """For a model called so often on what it gave; they stack at most eight recurrent layers."""
    return tolerances.composed_bound("float32", calls * 8 * (2 * UNITS) * STEPS)


BOUND = bound()


def recurrent_types(model):
    """The types of recurrent layers, and of cells that are not inside of one."""
    found = []

    def walk(layer):
        if type(layer).__name__ in KINDS:
            found.append(type(layer))
        else:
            for part in layer._layers:
                walk(part)

    walk(model)
    return found


def state(model):
    return [(v.name, np.asarray(v)) for v in model.variables]


def assert_same_state(got, want):
    assert [name for name, _ in got] == [name for name, _ in want]
    for (name, value), (_, expected) in zip(got, want, strict=True):
        np.testing.assert_array_equal(value, expected, err_msg=name)


def assert_predicts(model, want, x, bound=BOUND):
    for mode in (model, tf.function(model)):
        got, wanted = (keras.tree.flatten(y) for y in (mode(x), want))
        for mine, its in zip(got, wanted, strict=True):
            assert_close(mine, its, bound)
