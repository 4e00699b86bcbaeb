"""States that are given, returned, or kept from batch to batch."""

from __future__ import annotations

from types import SimpleNamespace

import keras

from . import BATCH, FEATURES, STEPS, UNITS, WORDS, Scenario, series, words


def _returned(r: SimpleNamespace) -> keras.Model:
    inputs = keras.Input((None, FEATURES))
    y, h, c = r.LSTM(UNITS, return_sequences=True, return_state=True)(inputs)
    z, state = r.GRU(UNITS, return_state=True)(y)
    return keras.Model(inputs, [y, h, c, z, state])


def _given(r: SimpleNamespace) -> keras.Model:
    """An image caption's start: the first state is made of something else."""
    inputs, image = keras.Input((None, FEATURES)), keras.Input((7,))
    states = [keras.layers.Dense(UNITS)(image) for _ in range(2)]
    y = r.LSTM(UNITS, return_sequences=True)(inputs, initial_state=states)
    return keras.Model([inputs, image], keras.layers.Dense(2)(y))


def _given_and_masked(r: SimpleNamespace) -> keras.Model:
    inputs, state = keras.Input((None,), dtype="int32"), keras.Input((UNITS,))
    y = keras.layers.Embedding(WORDS, FEATURES, mask_zero=True)(inputs)
    y = r.GRU(UNITS, return_sequences=True)(y, initial_state=state)
    return keras.Model([inputs, state], keras.layers.Dense(2)(y))


def _translation(kind: str):
    def build(r):
        make = getattr(r, kind)
        source, target = (keras.Input((None,), dtype="int32", name=n) for n in ("source", "target"))
        embed = keras.layers.Embedding(WORDS, FEATURES, mask_zero=True)
        _, *states = make(UNITS, return_state=True)(embed(source))
        decoded = make(UNITS, return_sequences=True)(embed(target), initial_state=states)
        return keras.Model([source, target], keras.layers.Dense(WORDS)(decoded))

    return build


def _both_directions(r: SimpleNamespace) -> keras.Model:
    inputs = keras.Input((None, FEATURES))
    y, *states = keras.layers.Bidirectional(
        r.LSTM(UNITS, return_sequences=True, return_state=True)
    )(inputs)
    z = keras.layers.Bidirectional(r.LSTM(UNITS))(y, initial_state=states)
    return keras.Model(inputs, z)


def _kept(kind: str, **arguments):
    def build(r):
        layer = getattr(r, kind)(UNITS, stateful=True, **arguments)
        return keras.Sequential(
            [keras.Input((STEPS, FEATURES), batch_size=BATCH), layer, keras.layers.Dense(2)]
        )

    return build


def _kept_in_both_directions(r: SimpleNamespace) -> keras.Model:
    layer = keras.layers.Bidirectional(r.GRU(UNITS, stateful=True))
    return keras.Sequential([keras.Input((STEPS, FEATURES), batch_size=BATCH), layer])


def _state_of_a_cell(r: SimpleNamespace) -> keras.Model:
    inputs, state = keras.Input((None, FEATURES)), keras.Input((UNITS,))
    y = keras.layers.RNN(r.GRUCell(UNITS), return_sequences=True, return_state=True)(
        inputs, initial_state=state
    )
    return keras.Model([inputs, state], y)


SCENARIOS = [
    Scenario("states returned", _returned, series),
    Scenario("states given", _given, lambda: [series(), series(BATCH, 7)]),
    Scenario("states given, masked", _given_and_masked, lambda: [words(), series(BATCH, UNITS)]),
    Scenario("translation, LSTM", _translation("LSTM"), lambda: [words(), words()[:, ::-1]]),
    Scenario("translation, GRU", _translation("GRU"), lambda: [words(), words()[:, ::-1]]),
    Scenario("states of both directions", _both_directions, series),
    Scenario("stateful GRU", _kept("GRU", return_sequences=True), series),
    Scenario("stateful, both directions", _kept_in_both_directions, series),
    Scenario("state of a cell", _state_of_a_cell, lambda: [series(), series(BATCH, UNITS)]),
]
