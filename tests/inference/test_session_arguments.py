"""What a session refuses, its sources, and where `out` may be."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
from helpers.session_oracle import assert_same, assert_same_state, leaves, normal, refused
from helpers.weight_stacks import Stack, random_weights

from tf_blockrnn import weights as w
from tf_blockrnn.inference import Session, Streams

LSTM = Stack("lstm", inputs=5, units=8, dtype="float32")
GRU = Stack("gru", inputs=5, units=8, dtype="float32")


@pytest.fixture(scope="module")
def lstm():
    return Session(random_weights(LSTM))


_wrong_type = functools.partial(refused, kind=TypeError)


def test_malformed_sessions(tmp_path):
    weights = random_weights(LSTM)
    for precision in ("float16", "FLOAT32", None, 8, b"int8", ["int8"]):
        check = refused if isinstance(precision, str) else _wrong_type
        check(f"int8, got {precision!r}", Session, weights, precision)
    for threads in (0, -1, 1025, 1.0, "2", None, True):
        check = refused if type(threads) is int else _wrong_type
        message = f"Session: threads must be an integer in 1..1024, got {threads!r}"
        check(message, Session, weights, threads=threads)
    deep = w.DirectionWeights(np.ones((1, 133145, 1)), np.ones((1, 1, 1)))
    message = "layer 0: inputs, units and outputs must be at most 133144 in int8"
    deep = w.RecurrentWeights("rnn_relu", [w.LayerWeights(deep)])
    refused(f"Session: {message}, whose sums are int32, got 133145", Session, deep, "int8")
    for source in (None, 3, [], [weights], weights.layers[0], np.ones(3)):
        _wrong_type("Session: source must be a weights.RecurrentWeights", Session, source)
    refused("Session: source: the mapping has no recurrent layer", Session, {})
    refused("there is no such file", Session, tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", format=np.array(3))
    refused("other.npz: the file's format must be one str", Session, tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no weights")
    refused("Session: source", Session, tmp_path / "text.npz")
    huge = weights.layers[0].forward.astype(np.float64)
    huge = w.DirectionWeights(huge.w_x * 1e300, huge.w_h)
    refused("w_x", Session, w.RecurrentWeights("lstm", [w.LayerWeights(huge)]))


@pytest.mark.parametrize("method", ["run", "step"])
def test_malformed_inputs(lstm, method):
    call = getattr(lstm, method)
    where = "Session.run: x" if method == "run" else "Session.step: x_t"
    middle = (3,) if method == "run" else ()
    good = (2, *middle, 5)
    real = f"{where} must be an array of a real floating or integer type"
    for bad in (
        np.ones(good, complex),
        np.ones(good, object),
        np.ones(good, bool),
        np.full(good, "1"),
        np.zeros(good, "M8[s]"),
        None,
        "x",
    ):
        _wrong_type(real, call, bad)
    refused(real, call, [[1.0, 2.0], [3.0]])
    symbols = "[B, T, I] = [B, T, 5]" if method == "run" else "[B, I] = [B, 5]"
    for shape in ((5,), (), (2, *middle, 4), (2, *middle, 1, 5), (0,)):
        refused(f"{where} must have the shape {symbols}, got {list(shape)}", call, np.ones(shape))


def test_malformed_states(lstm):
    x = normal(2, 5)
    h, cs = np.zeros((2, 8)), np.zeros((2, 8))
    for state in (h, {"h": h, "cs": cs}, 3, np.zeros((2, 2, 8))):
        _wrong_type("Session.step: state must be a pair (h, cs), got", lstm.step, x, state=state)
    for state in ((h,), (h, cs, h)):
        refused("Session.step: state must be a pair (h, cs), got", lstm.step, x, state=state)
    shape = "must have the shape [B, width] = [2, 8], got"
    refused(f"state.cs {shape} [1, 8]", lstm.step, x, state=(h, cs[:1]))
    refused(f"state.h {shape} [8]", lstm.step, x, state=(h[0], cs))
    real = "must be an array of a real"
    _wrong_type(f"state.h {real}", lstm.step, x, state=(h.astype(complex), cs))
    _wrong_type(f"state.cs {real}", lstm.step, x, state=(h, None))
    stack = Session(random_weights(Stack("gru", layers=2, directions=2, inputs=5, units=8)))
    x, good = normal(2, 3, 5), stack.initial_state(2)
    refused("state must be a list or tuple of 2 layers' states", stack.run, x, state=good[:1])
    _wrong_type("state[1] must be a pair (forward, backward)", stack.run, x, state=[good[0], h])
    bad = [good[0], (good[1][0], h[:, :7])]
    refused("Session.run: state[1][1] must have the shape", stack.run, x, state=bad)


def test_malformed_lengths(lstm):
    x, where = normal(2, 3, 5), "Session.run: lengths"
    refused(f"{where}[1] must be in 0..3, got 4", lstm.run, x, lengths=[3, 4])
    refused(f"{where}[0] must be in 0..3, got -1", lstm.run, x, lengths=np.array([-1, 0], np.int8))
    refused(f"{where}[0] must be in 0..3", lstm.run, x, lengths=np.array([2**64 - 1, 0], np.uint64))
    refused(f"{where} must have the shape [B] = [2], got [3]", lstm.run, x, lengths=[1, 2, 3])
    refused(f"{where} must have the shape [B] = [2], got []", lstm.run, x, lengths=3)
    for bad in ([1.0, 2.0], [True, False], ["1", "2"], [None, 1]):
        _wrong_type(f"{where} must be integers", lstm.run, x, lengths=bad)


def test_lengths_state_and_out_are_keywords(lstm):
    x = normal(2, 3, 5)
    with pytest.raises(TypeError, match="positional"):
        lstm.run(x, [3, 3])
    with pytest.raises(TypeError, match="positional"):
        lstm.step(x[:, 0], lstm.initial_state(2))


def test_a_session_of_two_directions_has_no_step():
    session = Session(random_weights(Stack("gru", directions=2)))
    refused("Session.step: source must have layers of one direction", session.step, normal(1, 3))
    refused("Streams: session must have layers of one direction", Streams, session, 3)


def test_initial_state_and_copies(lstm):
    refused("Session.initial_state: batch must be an integer", lstm.initial_state, -1)
    for batch in (1.5, None, True):
        _wrong_type("Session.initial_state: batch must be an integer", lstm.initial_state, batch)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copied(lstm)


# ---- out


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("method", ["run", "step"])
def test_out(method, cell, layers):
    session = Session(random_weights(Stack(cell, layers=layers, inputs=5, units=8)))
    x = normal(2, 14, 5) if method == "run" else normal(2, 5)
    _, state = session.step(normal(2, 5, seed=5))
    wanted_y, wanted = getattr(session, method)(x, state=state)
    y = np.full_like(wanted_y, np.nan)
    got_y, after = getattr(session, method)(x, state=state, out=y)
    assert got_y is y
    np.testing.assert_array_equal(y, wanted_y)
    assert_same_state(after, wanted)

    apart = [np.full((2, 8), np.nan, np.float32) for _ in leaves(state)]
    of_parts = iter(apart)

    def filled(item):
        if isinstance(item, (tuple, list)):
            return [filled(below) for below in item]
        return next(of_parts)

    before = [leaf.copy() for leaf in leaves(state)]
    # Arrays that are apart, those of the session, and the state itself, which comes last.
    for target in (filled(state), session.initial_state(2), state):
        y[...] = np.nan
        got_y, after = getattr(session, method)(x, state=state, out=(y, target))
        assert got_y is y and after is target
        np.testing.assert_array_equal(y, wanted_y)
        assert_same_state(target, wanted)
        if target is not state:
            assert_same_state(state, before)


def test_a_new_state_that_shares_memory_with_another_part_of_the_old_one():
    """In place only where every part is in its own place: a layer would read the one below's."""
    session = Session(random_weights(Stack("gru", layers=2, inputs=5, units=8)))
    memory = np.random.default_rng(3).uniform(-0.3, 0.3, (3, 2, 8)).astype(np.float32)
    x, state = normal(2, 5), [memory[0], memory[1]]
    wanted_y, wanted = session.step(x, state=[part.copy() for part in state])
    target = [memory[1], memory[2]]
    y, after = session.step(x, state=state, out=(np.empty((2, 8), np.float32), target))
    np.testing.assert_array_equal(y, wanted_y)
    np.testing.assert_array_equal(after, wanted)


def test_malformed_out(lstm):
    x, y = normal(2, 5), np.empty((2, 8), np.float32)
    where = "Session.step: out"
    for bad in (np.empty((2, 8)), np.empty((2, 8), ">f4"), [[0.0] * 8] * 2, "y", 1):
        _wrong_type(where, lstm.step, x, out=bad)
    message = f"{where} must be a NumPy array of float32, got one of float64"
    _wrong_type(message, lstm.step, x, out=np.empty((2, 8)))
    for shape in ((2, 7), (1, 8), (16,), (2, 8, 1)):
        refused(
            f"{where} must have the shape [B, P] = [2, 8], got {list(shape)}",
            lstm.step,
            x,
            out=np.empty(shape, np.float32),
        )
    refused("must be C-contiguous", lstm.step, x, out=np.empty((8, 2), np.float32).T)
    read_only = y.copy()
    read_only.flags.writeable = False
    refused("writeable=False", lstm.step, x, out=read_only)
    refused("Session.step: out must be an array or a pair", lstm.step, x, out=(y,))
    state = lstm.initial_state(2)
    refused("out[1].cs must have the shape", lstm.step, x, out=(y, (state.h, state.cs[:1])))
    _wrong_type("out[1] must be a pair (h, cs)", lstm.step, x, out=(y, state.h))
    run = np.empty((2, 3, 7), np.float32)
    refused(
        "Session.run: out must have the shape [B, T, D · P] = [2, 3, 8]",
        lstm.run,
        normal(2, 3, 5),
        out=run,
    )


def test_out_may_not_share_memory_with_inputs():
    session = Session(random_weights(Stack("lstm", inputs=8, units=8, dtype="float32")))
    x, state = normal(2, 8), session.initial_state(2)
    before, y = x.copy(), np.empty((2, 8), np.float32)
    share = "must not share memory with"
    refused(f"Session.step: out {share} x_t", session.step, x, out=x)
    refused(f"Session.step: out {share} state", session.step, x, state=state, out=state.cs)
    wide = np.zeros((2, 16), np.float32)
    refused(f"{share} x_t", session.step, wide[:, ::2], out=wide.reshape(-1)[:16].reshape(2, 8))
    apart = (np.zeros((2, 8), np.float32), np.zeros((2, 8), np.float32))
    refused(f"{share} state", session.step, x, state=apart, out=apart[1])
    refused(f"out[1].h {share} x_t", session.step, x, out=(y, (x, state.cs)))
    refused(f"out[1].cs {share} Session.step: out[0]", session.step, x, out=(y, (state.h, y)))
    refused(
        f"out[1].cs {share} Session.step: out[1].h", session.step, x, out=(y, (state.h, state.h))
    )
    np.testing.assert_array_equal(x, before)
    # Beside one another is no overlap, and one array in two rows of another is none either.
    memory = np.zeros((4, 2, 8), np.float32)
    memory[0] = x
    got, _ = session.step(memory[0], state=(memory[2], memory[3]), out=memory[1])
    np.testing.assert_array_equal(got, session.step(x)[0])


# ---- sources


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_of_other_types(dtype):
    import ml_dtypes

    weights = random_weights(LSTM).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    session, x = Session(weights), normal(2, 13, 5)
    np.testing.assert_array_equal(session.run(x)[0], Session(weights.astype(np.float32)).run(x)[0])
    if dtype == "float64":  # rounded, and not computed in float64
        precise = random_weights(Stack("lstm", inputs=5, units=8))
        assert precise.astype(np.float32).astype(np.float64) != precise
        assert Session(precise).run(x)[0].dtype == np.float32


def test_sources(tmp_path):
    import keras

    layers = [keras.layers.GRU(6, return_sequences=True), keras.layers.GRU(4)]
    model = keras.Sequential([keras.Input((None, 5)), *layers])
    x = normal(3, 7, 5)
    weights = w.from_keras(layers)
    wanted = Session(weights).run(x)
    w.to_npz(weights, tmp_path / "stack.npz")
    for source in (layers, tuple(layers), tmp_path / "stack.npz", str(tmp_path / "stack.npz")):
        assert_same(Session(source).run(x), wanted)
    np.testing.assert_allclose(wanted[0][:, -1], model(x).numpy(), rtol=0, atol=1e-6)
    single = Session(layers[0]).run(x)
    np.testing.assert_array_equal(single[1], wanted[1][0])
    single[1][...] = 0  # the caller's
    model.save(tmp_path / "model.keras")
    for source in (model, tmp_path / "model.keras"):
        assert_same(Session(source).run(x), wanted)
    with pytest.raises(TypeError, match="Session: source"):
        Session(keras.layers.Dense(3))


def test_the_weights_are_copied():
    layer = random_weights(LSTM).layers[0].forward
    arrays = {"w_x": layer.w_x.copy(), "w_h": layer.w_h.copy()}
    session = Session(w.RecurrentWeights("lstm", [w.LayerWeights(w.DirectionWeights(**arrays))]))
    x = normal(1, 4, 5)
    before = session.run(x)[0]
    arrays["w_x"][...] = 0
    np.testing.assert_array_equal(session.run(x)[0], before)
