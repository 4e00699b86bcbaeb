"""Sequences of several lengths, and steps to be skipped."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np

from . import FEATURES, STEPS, UNITS, WORDS, Scenario, padded, series, words


def _after_embedding(make: Callable[[SimpleNamespace], list]) -> Callable:
    def build(r):
        y = inputs = keras.Input((None,), dtype="int32")
        for layer in [keras.layers.Embedding(WORDS, FEATURES, mask_zero=True), *make(r)]:
            y = layer(y)
        return keras.Model(inputs, keras.layers.Dense(2)(y))

    return build


def _after_masking(kind: str, **arguments: Any) -> Callable:
    return lambda r: keras.Sequential(
        [
            keras.Input((STEPS, FEATURES)),
            keras.layers.Masking(),
            getattr(r, kind)(UNITS, **arguments),
            keras.layers.Dense(2),
        ]
    )


def _mask_as_an_input(r: SimpleNamespace) -> keras.Model:
    x, mask = keras.Input((STEPS, FEATURES)), keras.Input((STEPS,), dtype="bool")
    y = r.LSTM(UNITS, return_sequences=True)(x, mask=mask)
    return keras.Model([x, mask], r.GRU(2)(y, mask=mask))


_BOTH = {"return_sequences": True, "zero_output_for_mask": True}

SCENARIOS = [
    Scenario(
        "words, a stack",
        _after_embedding(lambda r: [r.LSTM(UNITS, return_sequences=True), r.GRU(UNITS)]),
        words,
    ),
    Scenario(
        "words, both directions",
        _after_embedding(lambda r: [keras.layers.Bidirectional(r.LSTM(UNITS))]),
        words,
    ),
    Scenario(
        "words, tags",
        _after_embedding(
            lambda r: [keras.layers.Bidirectional(r.GRU(UNITS, return_sequences=True))]
        ),
        words,
    ),
    Scenario(
        "words, RNN of a cell",
        _after_embedding(lambda r: [keras.layers.RNN(r.LSTMCell(UNITS))]),
        words,
    ),
    Scenario(
        "words, recurrent dropout",
        _after_embedding(lambda r: [r.GRU(UNITS, recurrent_dropout=0.3, seed=2)]),
        words,
    ),
    Scenario("zeros where masked", _after_masking("GRU", **_BOTH), padded),
    Scenario("zeros, backwards", _after_masking("LSTM", go_backwards=True, **_BOTH), padded),
    Scenario("a mask as an input", _mask_as_an_input, lambda: [series(), words() > 0]),
    Scenario("everything masked", _after_masking("GRU"), lambda: np.zeros_like(series())),
]
