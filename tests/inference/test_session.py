"""`inference.Session` against the ops: the bits, the structure of states, who owns which array."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest
from helpers.covering import in_turn
from helpers.session_oracle import (
    F32,
    ONE_DIRECTION,
    STACKS,
    assert_same,
    assert_same_state,
    by_ops,
    leaves,
    normal,
    random_state,
    types,
)
from helpers.weight_stacks import NORM_CELLS, Stack, random_weights

from tf_blockrnn import LSTMState
from tf_blockrnn import weights as w
from tf_blockrnn.inference import Session, Streams


@pytest.mark.parametrize("name, threads", in_turn(STACKS, [1, 2]))
def test_bits_of_the_ops(name, threads):
    weights = random_weights(STACKS[name])
    session = Session(weights, threads=threads)
    for batch, steps in ((1, 1), (3, 5), (2, 40)):
        x = normal(batch, steps, session.input_size)
        assert_same(session.run(x), by_ops(weights, x))
        lengths = np.random.default_rng(batch).integers(0, steps + 1, batch)
        state = random_state(session, batch)
        assert_same(
            session.run(x, lengths=lengths, state=state), by_ops(weights, x, lengths, state)
        )


@pytest.mark.parametrize(
    "cell, threads", in_turn(["lstm", "gru", "rnn_tanh", *NORM_CELLS], [2, 3, 4])
)
def test_directions_at_the_same_time_have_the_bits_of_the_ops(cell, threads):
    weights = random_weights(Stack(cell, layers=2, directions=2, inputs=9, units=64, dtype=F32))
    session = Session(weights, threads=threads)
    for batch, steps in ((1, 60), (20, 7)):
        x = normal(batch, steps, 9)
        lengths = np.random.default_rng(batch).integers(0, steps + 1, batch)
        state = random_state(session, batch)
        want = by_ops(weights, x, lengths, state)
        calls = [threading.Thread(target=session.run, args=(x,)) for _ in range(2)]
        for call in calls:
            call.start()
        for _ in range(3):
            assert_same(session.run(x, lengths=lengths, state=state), want)
        for call in calls:
            call.join()


@pytest.mark.parametrize("cell", ["lstm", "gru", *NORM_CELLS])
def test_steps_that_follow_closely_have_the_bits_of_one_thread(cell):
    """From the ninth on the session takes its threads for awake, and splits smaller steps."""
    weights = random_weights(Stack(cell, inputs=200, units=256, dtype=F32))
    alone, shared = Session(weights), Session(weights, threads=2)
    frames = [normal(1, 200, seed=n) for n in range(40)]
    results = []
    for session in (alone, shared):
        state, some = None, []
        for frame in frames:
            y, state = session.step(frame, state=state)
            some.append(y)
        results.append((np.stack(some), state))
    assert_same(*results)


@pytest.mark.parametrize("name", ONE_DIRECTION)
def test_step_has_the_bits_of_a_call_of_one_step(name):
    weights = random_weights(STACKS[name])
    session = Session(weights)
    x = normal(3, session.input_size)
    for state in (None, random_state(session, 3)):
        outputs, after = by_ops(weights, x[:, None], state=state)
        assert_same(session.step(x, state=state), (outputs[:, 0], after))


@pytest.mark.parametrize("name", ["lstm", "gru_after", "norm_lstm"])
def test_steps_equal_a_run(name):
    session = Session(random_weights(STACKS[name]))
    x = normal(3, 15, session.input_size)
    whole, last = session.run(x)
    state = None
    for t in range(x.shape[1]):
        y, state = session.step(x[:, t], state=state)
        np.testing.assert_allclose(y, whole[:, t], rtol=0, atol=2e-6)
    for one, other in zip(leaves(state), leaves(last), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


def test_structure_of_states():
    def found(name):
        return types(Session(random_weights(STACKS[name])).initial_state(2))

    lstm = (LSTMState, [np.ndarray] * 2)
    assert found("gru_after") is np.ndarray
    assert found("lstm") == found("norm_lstm") == lstm
    assert found("layers") == (list, [lstm] * 3)
    assert found("gru_both") == (tuple, [np.ndarray] * 2)
    assert found("both_layers") == (list, [(tuple, [lstm] * 2)] * 2)
    state = Session(random_weights(STACKS["proj"])).initial_state(2)
    assert state.h.shape == (2, 7) and state.cs.shape == (2, 18)
    assert not state.h.any() and not state.cs.any()


@pytest.mark.parametrize("name", ["lstm", "gru_after", "layers", "both_layers"])
def test_any_equal_structure_is_a_state(name):
    session = Session(random_weights(STACKS[name]))
    x, state = normal(3, 14, session.input_size), random_state(session, 3)
    wanted = session.run(x, state=state)

    def rebuilt(item, of, array):
        if isinstance(item, (tuple, list)):
            return of(rebuilt(below, of, array) for below in item)
        return array(item)

    forms = {
        "arrays that are apart": (tuple, np.copy),
        "lists and float64": (list, lambda a: a.astype(np.float64)),
        "nested lists": (list, np.ndarray.tolist),
        "columns first": (tuple, np.asfortranarray),
        "every other row": (list, lambda a: np.repeat(a, 2, axis=0)[::2]),
        "the other byte order": (list, lambda a: a.astype(">f4")),
    }
    for form, (of, array) in forms.items():
        assert_same(session.run(x, state=rebuilt(state, of, array)), wanted, form)


def test_h_and_cs_that_are_swapped_are_not_taken_for_the_state_they_come_from():
    session = Session(random_weights(STACKS["lstm"]))
    x, state = normal(1, session.input_size), random_state(session, 1)
    swapped = LSTMState(state.cs, state.h)
    wanted = session.step(x, state=LSTMState(state.cs.copy(), state.h.copy()))
    assert_same(session.step(x, state=swapped), wanted)
    assert not np.array_equal(session.step(x, state=state)[0], wanted[0])


def test_inputs_of_any_type_and_strides():
    session = Session(random_weights(STACKS["gru_after"]))
    whole = np.round(normal(4, 30, 2 * session.input_size) * 8)
    x = whole[::2, ::-3, ::2]
    wanted, _ = session.run(np.ascontiguousarray(x))
    import ml_dtypes

    for dtype in (*"bhilqefdg", ">f4", ml_dtypes.bfloat16):
        given = whole.astype(dtype)[::2, ::-3, ::2]
        np.testing.assert_array_equal(session.run(given)[0], wanted, str(dtype))
    np.testing.assert_array_equal(session.run(np.asfortranarray(x))[0], wanted)
    np.testing.assert_array_equal(session.run(x.tolist())[0], wanted)
    unaligned = np.frombuffer(b"\0" + np.ascontiguousarray(x).tobytes(), np.uint8)[1:]
    np.testing.assert_array_equal(
        session.run(unaligned.view(np.float32).reshape(x.shape))[0], wanted
    )
    one = np.ascontiguousarray(x[:, 0])
    y, _ = session.step(one)
    np.testing.assert_array_equal(session.step(x[:, 0].astype(np.float16))[0], y)
    np.testing.assert_array_equal(session.step(x[:, 0])[0], y)


def test_lengths_of_any_integer_type():
    session = Session(random_weights(STACKS["lstm"]))
    x, lengths = normal(3, 6, session.input_size), [6, 0, 2]
    wanted = session.run(x, lengths=lengths)
    assert_same(session.run(x, lengths=tuple(lengths)), wanted)
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"):
        given = np.array(lengths, dtype)
        assert_same(session.run(x, lengths=given), wanted)
        assert_same(session.run(x, lengths=np.repeat(given, 2)[::2]), wanted)


def test_read_only_inputs_are_taken_and_none_is_written():
    session = Session(random_weights(STACKS["layers"]))
    x, state = normal(2, 9, session.input_size), random_state(session, 2)
    lengths = np.array([9, 4])
    wanted, wanted_step = (
        session.run(x, lengths=lengths, state=state),
        session.step(x[:, 0].copy(), state=state),
    )
    arrays = [x, lengths, *leaves(state)]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    assert_same(session.run(x, lengths=lengths, state=state), wanted)
    frame = x[:, 0].copy()
    frame.flags.writeable = False
    assert_same(session.step(frame, state=state), wanted_step)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_arrays_that_are_returned_are_the_callers():
    session = Session(random_weights(STACKS["layers"]))
    x = normal(2, 9, session.input_size)
    results = [session.run(x), session.step(x[:, 0]), session.run(x), session.step(x[:, 0])]
    copies = [[leaf.copy() for leaf in [y, *leaves(state)]] for y, state in results]
    for _ in range(20):
        session.run(x + 1), session.step(x[:, 1])
    for result, copy in zip(results, copies, strict=True):
        assert_same_state(result, copy)
    arrays = [leaf for y, state in results for leaf in [y, *leaves(state)]]
    assert all(array.flags.writeable for array in arrays)
    for index, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[:index])


@pytest.mark.parametrize("name", ["lstm", "gru_both", "proj_layers", "norm_lstm_both", "relu"])
def test_empty_batches_and_no_steps(name):
    weights = random_weights(STACKS[name])
    session = Session(weights)
    outputs, state = session.run(np.zeros((0, 5, session.input_size)), lengths=[])
    assert outputs.shape == (0, 5, session.output_size)
    assert all(len(leaf) == 0 for leaf in leaves(state))
    before = random_state(session, 2)
    outputs, after = session.run(np.zeros((2, 0, session.input_size)), lengths=[0, 0], state=before)
    assert outputs.shape == (2, 0, session.output_size)
    assert_same_state(after, before)
    if STACKS[name].directions == 1:
        assert session.step(np.zeros((0, session.input_size)))[0].shape == (0, session.output_size)


def test_many_threads_call_one_session():
    session = Session(random_weights(STACKS["layers"]), threads=2)
    inputs = [normal(1 + n % 3, 5 + n, session.input_size, seed=n) for n in range(8)]
    wanted = [(session.run(x), session.step(x[:, 0])) for x in inputs]

    def work(n):
        for _ in range(30):
            assert_same(session.run(inputs[n]), wanted[n][0])
            assert_same(session.step(inputs[n][:, 0]), wanted[n][1])

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_the_packed_weights_go_with_the_session():
    from tf_blockrnn.inference import _library

    freed = []
    library = _library.library()
    real = library.blockrnn_session_destroy

    class Counting:
        def __getattr__(self, name):
            return getattr(library, name)

        @staticmethod
        def blockrnn_session_destroy(handle):
            freed.append(handle)
            real(handle)

    counting = Counting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_library, "library", lambda: counting)
        session = Session(random_weights(STACKS["lstm"]))
    handle, gone = session._handle, weakref.ref(session)
    assert handle and not freed
    del session
    gc.collect()
    assert gone() is None and freed == [handle]


def test_properties():
    session = Session(random_weights(STACKS["both_layers"]), threads=3)
    assert (session.cell, session.input_size, session.output_size) == ("lstm", 5, 24)
    assert (session.num_layers, session.precision, session.threads) == (2, "float32", 3)
    weights = sum(4 * 12 * (inputs + 12 + 1) for inputs in (5, 5, 24, 24))
    assert weights * 4 <= session.nbytes < 4 * weights * 4
    assert "lstm" in repr(session) and "threads=3" in repr(session)


def test_initial_states_that_are_weights():
    """They are the state where a call has none, also of a new stream."""
    weights = random_weights(Stack("lstm", inputs=5, units=8, layers=2)).astype(F32)
    h0, c0 = normal(8), normal(8)
    learned = w.LayerWeights(dataclasses.replace(weights.layers[1].forward, h0=h0, c0=c0))
    session = Session(dataclasses.replace(weights, layers=[weights.layers[0], learned]))
    x, zeros = normal(3, 7, 5), np.zeros((3, 8), "f4")
    state = [(zeros, zeros), tuple(np.tile(row, (3, 1)) for row in (h0, c0))]
    wanted = Session(weights).run(x, state=state)
    assert_same(session.run(x), wanted)
    assert_same(session.run(x, state=session.initial_state(3)), wanted)
    assert_same(session.step(x[:, 0]), Session(weights).step(x[:, 0], state=state))
    streams = Streams(session, 3)
    np.testing.assert_array_equal(
        streams.step([streams.join(), streams.join(state=session.initial_state(1))], x[:2, 0]),
        wanted[0][:2, 0],
    )
    zero = [(zeros, zeros)] * 2
    assert_same(session.run(x, state=zero), Session(weights).run(x))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_modules_and_states_of_pytorch(kind, options):
    import torch

    module = getattr(torch.nn, kind)(5, 8, batch_first=True, **options)
    session, x = Session(module), normal(3, 7, 5)
    h = normal(4 if options else 1, 3, 8)
    state = (h, -h) if kind == "LSTM" else h
    with torch.no_grad():
        y, last = module(*torch.utils._pytree.tree_map(torch.from_numpy, (x, state)))
    found, new = session.run(x, state=state)
    np.testing.assert_allclose(found, y.numpy(), rtol=0, atol=1e-6)
    for one, other in zip(
        *(part if kind == "LSTM" else [part] for part in (session.to_torch_state(new), last)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other.numpy(), rtol=0, atol=1e-6)
    stacked = session.to_torch_state(new)
    assert_same(session.run(x, state=stacked), session.run(x, state=new))
    assert_same_state(session.from_torch_state(stacked), new)
    other = Session(w.from_torch(module))  # which is not known to be of PyTorch
    with pytest.raises((TypeError, ValueError), match="Session.run: state"):
        other.run(x, state=stacked)
    assert_same(other.run(x, state=other.from_torch_state(stacked)), session.run(x, state=new))
    with pytest.raises(TypeError, match=r"must be .*\[\d, B, width\], got .*list of"):
        session.from_torch_state([stacked, stacked])
