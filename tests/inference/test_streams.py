"""`inference.Streams`: each stream computes what its session does with that stream alone."""

from __future__ import annotations

import concurrent.futures
import pickle

import numpy as np
import pytest
from helpers.session_oracle import assert_same_state, refused, types
from helpers.weight_stacks import Stack, random_weights

from tf_blockrnn.inference import Session, Streams

F32 = "float32"
STACKS = {
    "lstm": Stack("lstm", inputs=5, units=19, dtype=F32),
    "gru": Stack("gru", inputs=5, units=19, dtype=F32),
    "gru_before": Stack("gru", layers=2, inputs=5, units=19, reset_after=False, dtype=F32),
    "hard_lstm": Stack("lstm", inputs=5, units=19, hard_sigmoid=0.2, dtype=F32),
    "relu_gru": Stack("gru", inputs=5, units=19, activation="relu", hard_sigmoid=0.2, dtype=F32),
    "relu": Stack("rnn_relu", inputs=5, units=19, dtype=F32),
    "norm_lstm": Stack("layer_norm_lstm", layers=2, inputs=5, units=19, dtype=F32),
    "norm_gru": Stack("layer_norm_gru", inputs=5, units=19, dtype=F32),
    "proj": Stack("lstm", layers=2, inputs=5, units=18, proj=7, peepholes=True, dtype=F32),
}


def _streams(name="lstm", capacity=12, **options):
    return Streams(Session(random_weights(STACKS[name]), **options), capacity)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("name", STACKS)
def test_bits_of_each_stream_alone(name, precision):
    streams = _streams(name, precision=precision)
    session, rng = streams.session, np.random.default_rng(0)
    alone = {}
    for time in range(30):
        if time % 3 == 0 and len(streams) < 12:
            alone[streams.join()] = session.initial_state(1)
        if time % 7 == 6:
            gone = list(alone)[time % len(alone)]
            streams.leave(gone)
            del alone[gone]
        assert streams.ids == tuple(alone) and len(streams) == len(alone)
        ids = rng.permutation(list(alone))[: rng.integers(0, len(alone) + 1)]
        frames = rng.standard_normal((len(ids), 5)).astype(np.float32)
        y = streams.step(ids, frames)
        assert y.shape == (len(ids), session.output_size)
        for row, stream in enumerate(ids.tolist()):
            want, alone[stream] = session.step(frames[row : row + 1], state=alone[stream])
            np.testing.assert_array_equal(y[row], want[0])
    for stream, want in alone.items():
        state = streams.state(stream)
        assert types(state) == types(want)
        assert_same_state(state, want)


def test_a_new_stream_begins_with_zeros_or_the_given_state():
    streams = _streams("gru", capacity=1)
    x = np.ones((1, 5), np.float32)
    first = streams.join()
    y = streams.step([first], x)
    again = streams.step([first], x)
    assert not np.array_equal(y, again)
    state = streams.state(first)
    streams.leave(first)
    second = streams.join()
    assert second != first
    np.testing.assert_array_equal(streams.step([second], x), y)
    streams.leave(second)
    third = streams.join(state)
    after = streams.step([third], x)
    np.testing.assert_array_equal(after, streams.session.step(x, state=state)[0])
    streams.set_state(third, state.tolist())
    np.testing.assert_array_equal(streams.step([third], x), after)
    streams.set_state(third)
    np.testing.assert_array_equal(streams.step([third], x), y)
    streams.state(third)[...] = 9  # a copy
    assert not (streams.state(third) == 9).any()


def test_ids_and_frames_of_any_type():
    streams = _streams(capacity=3)
    a, b = streams.join(), streams.join()
    frames = np.arange(10.0).reshape(2, 5)
    start = [streams.state(stream) for stream in (a, b)]
    wanted = streams.step([b, a], frames)
    for ids in ((b, a), np.array([b, a], np.uint8), np.array([b, 0, a, 0], np.int64)[::2]):
        for stream, state in zip((a, b), start, strict=True):
            streams.set_state(stream, state)
        np.testing.assert_array_equal(streams.step(ids, frames.astype(int)), wanted)
    assert streams.step([], np.zeros((0, 5))).shape == (0, 19)


def test_malformed_arguments_change_nothing():
    streams = _streams(capacity=3)
    a, b, gone = (streams.join() for _ in range(3))
    refused("Streams.join: capacity must be above the number of streams, got 3", streams.join)
    streams.leave(gone)
    x = np.ones((2, 5), np.float32)
    streams.step([a, b], x)
    before = [streams.state(stream) for stream in (a, b)]
    left = "must be of streams that have joined and not left"
    for ids, message in (
        ([a, a], f"Streams.step: ids must differ, got {a} more than once"),
        ([a, gone], f"{left}, got {gone}"),
        ([a, 99], f"{left}, got 99"),
        ([-1, a], f"{left}, got -1"),
        ([[a, b]], "ids must have the shape [n]"),
        (a, "ids must have the shape [n]"),
        ([a], "Streams.step: frames must have the shape [n, I] = [1, 5], got [2, 5]"),
    ):
        refused(message, streams.step, ids, x)
    for ids in ([0.0, 1.0], [True, False], None):
        refused("ids must be integers", streams.step, ids, x, kind=TypeError)
    refused("frames must have the shape", streams.step, [a, b], x[:, :4])
    real = "frames must be an array of a real"
    refused(real, streams.step, [a, b], x.astype(complex), kind=TypeError)
    for call in (streams.leave, streams.state, streams.set_state):
        refused(f"stream must be one that has joined and not left, got {gone}", call, gone)
        refused("stream must be an integer", call, None, kind=TypeError)
    state = streams.state(a)
    pair = "Streams.set_state: state must be a pair (h, cs)"
    refused(pair, streams.set_state, a, state.h, kind=TypeError)
    refused(
        "Streams.join: state.h must have the shape", streams.join, (np.zeros((2, 19)), state.cs)
    )
    assert streams.ids == (a, b)
    assert_same_state([streams.state(stream) for stream in (a, b)], before)
    session = "Streams: session must be an inference.Session, got int"
    refused(session, Streams, 3, 4, kind=TypeError)
    for capacity in (0, -1, 2.0, None, True):
        kind = ValueError if type(capacity) is int else TypeError
        message = "Streams: capacity must be an integer"
        refused(message, Streams, streams.session, capacity, kind=kind)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(streams)


def test_many_threads_have_streams():
    streams = _streams(capacity=8, threads=2)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(10):
            stream, state = streams.join(), None
            for _ in range(10):
                x = rng.standard_normal((1, 5)).astype(np.float32)
                want, state = streams.session.step(x, state=state)
                np.testing.assert_array_equal(streams.step([stream], x), want)
            streams.leave(stream)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(streams) == 0
