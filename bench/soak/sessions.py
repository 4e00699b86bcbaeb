"""Sessions and streams, which many threads call at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench.soak import figures
from tf_blockrnn import inference, weights

_INPUTS = 24
_BATCHES, _STEPS = (1, 2, 3, 8, 16), (1, 2, 7, 20, 50)
_SHORT_BATCHES, _SHORT_STEPS = (1, 3), (1, 5)
# Cell, precision, units, layers. Of the first the session is renewed, too.
_KINDS = (
    ("lstm", "float32", 96, 2),
    ("gru", "bfloat16", 64, 1),
    ("layer_norm_lstm", "float32", 40, 1),
    ("gru", "int8", 64, 2),
)
_GATES = {"lstm": 4, "gru": 3, "layer_norm_lstm": 4}
_RENEWED = 16  # rounds
_CALLS = 40  # of a thread in a round
_SHORT_CALLS = 10
_LARGEST_CALLS = 5


def _weights(cell: str, units: int, layers: int) -> weights.RecurrentWeights:
    rng, gates = np.random.default_rng(2), _GATES[cell]

    def array(*shape: int) -> np.ndarray:
        return rng.uniform(-0.3, 0.3, shape)

    def layer(inputs: int) -> weights.LayerWeights:
        arrays = {"w_x": array(gates, inputs, units), "w_h": array(gates, units, units)}
        if cell.startswith("layer_norm"):
            arrays |= {name: array(2, gates, units) for name in ("norm_x", "norm_h")}
            arrays["norm_c"] = array(2, units)
        return weights.LayerWeights(weights.DirectionWeights(**arrays))

    sizes = [_INPUTS] + [units] * (layers - 1)
    options = {
        "gru": {"reset_after": True},
        "layer_norm_lstm": {"epsilon": 1e-3, "norm_output_only": False},
    }
    return weights.RecurrentWeights(cell, [layer(size) for size in sizes], **options.get(cell, {}))


def _input(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal((*shape, _INPUTS)).astype(np.float32)


def _flat(state: Any) -> Iterator[np.ndarray]:
    """The arrays of a state."""
    if isinstance(state, np.ndarray):
        yield state
    else:
        for part in state:
            yield from _flat(part)


def _in_threads(count: int, work: Callable[[int], list[str]]) -> list[str]:
    """What `work` returns in each of new threads, which end afterwards."""
    start = threading.Barrier(count)

    def started(caller: int) -> list[str]:
        start.wait()  # otherwise one thread might do the work of several
        return work(caller)

    with ThreadPoolExecutor(count) as pool:
        return [digest for some in pool.map(started, range(count)) for digest in some]


class Session:
    """A round is calls of `run` and `step` by 8 new threads on one session.

    Rounds go through the sessions in order. One session is replaced every 16 rounds.
    """

    _THREADS = 8

    def __init__(self, threads: int, short: bool) -> None:
        self._threads, self._calls = threads, _SHORT_CALLS if short else _CALLS
        self._batches, self._steps = (_SHORT_BATCHES, _SHORT_STEPS) if short else (_BATCHES, _STEPS)
        self._weights = [_weights(cell, *sizes) for cell, _, *sizes in _KINDS]
        self._sessions = [self._new(number) for number in range(len(_KINDS))]

    def _new(self, number: int) -> inference.Session:
        """A session that has its scratch memory for all threads."""
        session = inference.Session(self._weights[number], _KINDS[number][1], self._threads)
        x = _input(np.random.default_rng(0), self._batches[-1], self._steps[-1])

        def work(caller: int) -> list[str]:
            for _ in range(_LARGEST_CALLS):
                session.run(x)
            return []

        _in_threads(self._THREADS, work)
        return session

    def warm_up(self) -> None:
        for number in range(len(_KINDS)):
            self.round(number)

    def round(self, number: int) -> list[str]:
        turn = number % len(_KINDS)
        session = self._sessions[turn]

        def work(caller: int) -> list[str]:
            rng = np.random.default_rng((number, caller))
            for _ in range(self._calls):
                self._call(session, rng)
            return [figures.digest(self._outcomes())]

        digests = _in_threads(self._THREADS, work)
        if number % _RENEWED == 0:
            renewed = number // _RENEWED % len(_KINDS)
            self._sessions[renewed] = self._new(renewed)
        return digests

    def _call(self, session: inference.Session, rng: np.random.Generator) -> None:
        """A sequence with or without lengths and a state, and steps from where it ends."""
        batch, steps = rng.choice(self._batches), rng.choice(self._steps)
        lengths = rng.integers(0, steps + 1, batch) if rng.random() < 0.5 else None
        state = session.initial_state(batch) if rng.random() < 0.5 else None
        _, state = session.run(_input(rng, batch, steps), lengths=lengths, state=state)
        for _ in range(rng.integers(4)):
            _, state = session.step(_input(rng, batch), state=state)

    def probe(self) -> str:
        return figures.digest(self._outcomes())

    def _outcomes(self) -> Iterator[np.ndarray]:
        for session in self._sessions:
            rng = np.random.default_rng(1)
            state = session.initial_state(5)
            y, state = session.run(_input(rng, 5, 11), lengths=[11, 3, 0, 1, 7], state=state)
            yield y
            for _ in range(3):
                y, state = session.step(_input(rng, 5), state=state)
                yield y
            yield from _flat(state)


class Streams:
    """A round is 4 new threads whose streams join, make steps and leave in a random order."""

    _THREADS, _OF_A_THREAD, _FRAMES = 4, 12, 20

    def __init__(self, threads: int, short: bool) -> None:
        cell, precision, *sizes = _KINDS[0]
        self._session = inference.Session(_weights(cell, *sizes), precision, threads)
        self._streams = inference.Streams(self._session, self._THREADS * (self._OF_A_THREAD + 1))
        self._calls = _SHORT_CALLS if short else 3 * _CALLS

    def warm_up(self) -> None:
        for number in range(3):
            self.round(number)

    def round(self, number: int) -> list[str]:
        def work(caller: int) -> list[str]:
            rng = np.random.default_rng((number, caller))
            ids: list[int] = []
            for _ in range(self._calls):
                self._change(ids, rng)
            digest = figures.digest(self._among(ids, rng))
            for stream in ids:
                self._streams.leave(stream)
            return [digest]

        digests = _in_threads(self._THREADS, work)
        if len(self._streams):
            raise RuntimeError(f"{len(self._streams)} streams are left")
        return digests

    def _change(self, ids: list[int], rng: np.random.Generator) -> None:
        """A join, a leave, a copied state or a step of some of the streams."""
        kind = rng.integers(6)
        if not ids or (kind == 0 and len(ids) < self._OF_A_THREAD):
            state = self._session.initial_state(1) if rng.random() < 0.5 else None
            ids.append(self._streams.join(state))
        elif kind == 1:
            self._streams.leave(ids.pop(rng.integers(len(ids))))
        elif kind == 2:
            source, target = rng.choice(ids, 2)
            self._streams.set_state(target, self._streams.state(source))
        else:
            self._streams.step(*self._some(ids, rng))

    def _some(self, ids: list[int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        some = rng.permutation(np.array(ids, np.int64))[: rng.integers(1, len(ids) + 1)]
        return some, _input(rng, len(some))

    def _frames(self) -> np.ndarray:
        return _input(np.random.default_rng(1), self._FRAMES, 1)

    def _among(self, ids: list[int], rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The outputs of the probe's stream, whose steps are computed with those of others."""
        stream = self._streams.join()
        for frame in self._frames():
            others, x = self._some(ids, rng) if ids else ([], frame[:0])
            place = rng.integers(len(others) + 1)
            y = self._streams.step(
                np.insert(np.array(others, np.int64), place, stream),
                np.insert(x, place, frame[0], axis=0),
            )
            yield y[place]
        self._streams.leave(stream)

    def probe(self) -> str:
        """Of the stream alone, in the session."""
        outputs, state = [], None
        for frame in self._frames():
            y, state = self._session.step(frame, state=state)
            outputs.append(y)
        return figures.digest(outputs)
