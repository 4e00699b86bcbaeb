"""Constructor arguments, one layer or a plain stack at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras

from . import BATCH, FEATURES, STEPS, UNITS, Scenario, series


def _one(kind: str, **arguments: Any) -> Callable[[SimpleNamespace], keras.Model]:
    def build(r):
        return keras.Sequential(
            [
                keras.Input((STEPS, FEATURES)),
                getattr(r, kind)(UNITS, **arguments),
                keras.layers.Dense(2),
            ]
        )

    return build


def _stack(*kinds: str, **arguments: Any) -> Callable[[SimpleNamespace], keras.Model]:
    def build(r):
        model = keras.Sequential([keras.Input((None, FEATURES))])
        for kind in kinds:
            model.add(getattr(r, kind)(UNITS, return_sequences=True, **arguments))
        model.add(keras.layers.TimeDistributed(keras.layers.Dense(2)))
        return model

    return build


def _cells(make: Callable[[SimpleNamespace], Any], **arguments: Any) -> Callable:
    def build(r):
        inputs = keras.Input((STEPS, FEATURES))
        y = keras.layers.RNN(make(r), **arguments)(inputs)
        return keras.Model(inputs, keras.layers.Dense(2)(y))

    return build


def _of_policy(policy: str) -> Callable[[SimpleNamespace], keras.Model]:
    return lambda r: keras.Sequential(
        [
            keras.Input((STEPS, FEATURES), dtype="float32"),
            r.LSTM(UNITS, return_sequences=True, dtype=policy),
            r.GRU(UNITS, dtype=policy),
            keras.layers.Dense(2, dtype="float64" if policy == "float64" else "float32"),
        ]
    )


_REGULARIZED = {
    "kernel_regularizer": keras.regularizers.L2(0.1),
    "recurrent_regularizer": keras.regularizers.L1(0.1),
    "bias_regularizer": "l2",
    "activity_regularizer": keras.regularizers.L2(0.1),
}
_CONSTRAINED = {
    "kernel_constraint": "non_neg",
    "recurrent_constraint": keras.constraints.MaxNorm(0.5),
}
_BOTH_DROPOUTS = {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 3}

SCENARIOS = [
    Scenario("GRU of the first paper", _one("GRU", reset_after=False), series),
    Scenario("SimpleRNN of ReLUs", _one("SimpleRNN", activation="relu"), series),
    Scenario("mixed stack", _stack("SimpleRNN", "GRU", "LSTM"), series),
    Scenario("one step", _stack("LSTM", "GRU"), lambda: series(BATCH, 1, FEATURES)),
    Scenario("one row", _stack("LSTM", "GRU"), lambda: series(1, STEPS, FEATURES)),
    Scenario("backwards", _stack("LSTM", "GRU", "SimpleRNN", go_backwards=True), series),
    Scenario("unrolled", _one("LSTM", unroll=True), series),
    Scenario("no bias", _stack("LSTM", "GRU", "SimpleRNN", use_bias=False), series),
    Scenario("activation by function", _one("LSTM", activation=keras.ops.tanh), series),
    Scenario("another activation", _one("LSTM", activation="relu"), series, fused=0),
    Scenario("hard sigmoid", _one("GRU", recurrent_activation="hard_sigmoid"), series, fused=0),
    Scenario("both dropouts", _stack("GRU", "SimpleRNN", **_BOTH_DROPOUTS), series),
    Scenario("dropout, a mask per gate", _one("LSTM", implementation=1, **_BOTH_DROPOUTS), series),
    Scenario("regularizers", _one("LSTM", **_REGULARIZED), series),
    Scenario("constraints", _one("GRU", **_CONSTRAINED), series),
    Scenario("frozen layer", _one("LSTM", trainable=False), series),
    Scenario("float64", _of_policy("float64"), series),
    Scenario("mixed bfloat16", _of_policy("mixed_bfloat16"), series, tolerance=0.03),
    Scenario("mixed float16", _of_policy("mixed_float16"), series, tolerance=0.004),
    Scenario(
        "RNN of a GRUCell of the first paper",
        _cells(lambda r: r.GRUCell(UNITS, reset_after=False)),
        series,
    ),
    Scenario(
        "RNN of a stack of cells",
        _cells(lambda r: [r.LSTMCell(UNITS), r.GRUCell(UNITS), r.SimpleRNNCell(UNITS)]),
        series,
    ),
    Scenario(
        "RNN of StackedRNNCells",
        _cells(lambda r: keras.layers.StackedRNNCells([r.GRUCell(4), r.GRUCell(UNITS)])),
        series,
    ),
    Scenario(
        "cell with dropout",
        _cells(lambda r: r.LSTMCell(UNITS, dropout=0.3, seed=3), unroll=True),
        series,
    ),
]
