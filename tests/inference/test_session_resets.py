"""`Session.run` with resets: each sequence of a row is what a call of it alone computes."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
from helpers.covering import in_turn
from helpers.session_oracle import (
    STACKS,
    assert_same,
    assert_same_state,
    leaves,
    normal,
    random_state,
    refused,
    types,
)
from helpers.weight_stacks import WITH_CELL_STATE, Stack, random_weights

from tf_blockrnn import weights as w
from tf_blockrnn.inference import Session

_LOW = ("bfloat16", "int8")
_GRU = Stack("gru", inputs=5, units=8, dtype="float32")


def _spans(resets, length):
    """(begin, end) of each sequence of a row, of at least one step."""
    begins = [0, *(t for t in range(1, length) if resets[t])]
    return list(zip(begins, [*begins[1:], length], strict=True)) if length else []


def _is_backward(stack, index):
    """Whether a leaf of a state belongs to a backward direction."""
    states = 2 if stack.cell in WITH_CELL_STATE else 1
    return stack.directions == 2 and index // states % 2 == 1


def _by_pieces(session, stack, x, resets, lengths, state):
    """What a session computes of each sequence alone, with the structure of a call of all."""
    outputs = np.zeros((*x.shape[:2], session.output_size), np.float32)
    last = session.initial_state(len(x))
    for row, length in enumerate(lengths):
        spans = _spans(resets[row], length)
        for after, before in zip(leaves(last), leaves(state), strict=True):
            after[row] = before[row]
        for number, (begin, end) in enumerate(spans):
            given = session.initial_state(1)
            for index, leaf in enumerate(leaves(given)):
                backward = _is_backward(stack, index)
                is_first = (
                    number == len(spans) - 1 if backward else begin == 0 and not resets[row, 0]
                )
                leaf[...] = leaves(state)[index][row] if is_first else 0
            outputs[row : row + 1, begin:end], after = session.run(
                x[row : row + 1, begin:end], state=given
            )
            for index, leaf in enumerate(leaves(after)):
                if number == (0 if _is_backward(stack, index) else len(spans) - 1):
                    leaves(last)[index][row] = leaf[0]
    return outputs, last


def _assert_close(got, want):
    assert types(got[1]) == types(want[1])
    for one, other in zip([got[0], *leaves(got[1])], [want[0], *leaves(want[1])], strict=True):
        bound = 2e-6 * max(1, np.abs(other).max(initial=0))
        np.testing.assert_allclose(one, other, rtol=0, atol=bound)


def _drawn(session, batch=5, steps=17, share=0.3):
    """x, resets, lengths and a state of a call; one row is empty, two begin with a reset."""
    rng = np.random.default_rng(batch)
    resets = rng.random((batch, steps)) < share
    resets[:, 0] = np.arange(batch) % 2 == 0
    lengths = rng.integers(steps // 2, steps + 1, batch)
    lengths[0], lengths[-1] = steps, 0
    return normal(batch, steps, session.input_size), resets, lengths, random_state(session, batch)


@pytest.mark.parametrize("name, threads", in_turn(STACKS, [1, 2]))
def test_each_sequence_is_that_of_its_own_call(name, threads):
    stack = STACKS[name]
    session = Session(random_weights(stack), threads=threads)
    x, resets, lengths, state = _drawn(session)
    got = session.run(x, resets=resets, lengths=lengths, state=state)
    _assert_close(got, _by_pieces(session, stack, x, resets, lengths, state))
    assert np.abs(got[0] - session.run(x, lengths=lengths, state=state)[0]).max() > 1e-3
    for row, length in enumerate(lengths):
        assert not got[0][row, length:].any()

    whole, zeros = np.full(len(x), x.shape[1]), session.initial_state(len(x))
    got = session.run(x, resets=resets)
    _assert_close(got, _by_pieces(session, stack, x, resets, whole, zeros))


@pytest.mark.parametrize("name, precision", in_turn(STACKS, _LOW))
def test_low_precisions_have_the_bits_of_the_sequences(name, precision):
    stack = STACKS[name]
    session = Session(random_weights(stack), precision)
    x, resets, lengths, state = _drawn(session)
    got = session.run(x, resets=resets, lengths=lengths, state=state)
    assert_same(got, _by_pieces(session, stack, x, resets, lengths, state))


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn_tanh", "layer_norm_lstm", "layer_norm_gru"])
def test_threads_do_not_change_bits(cell):
    weights = random_weights(
        Stack(cell, layers=2, directions=2, inputs=9, units=64, dtype="float32")
    )
    one, three = Session(weights), Session(weights, threads=3)
    x, resets, lengths, state = _drawn(one, batch=7, steps=40, share=0.1)
    want = one.run(x, resets=resets, lengths=lengths, state=state)
    for _ in range(3):
        assert_same(three.run(x, resets=resets, lengths=lengths, state=state), want)


@pytest.mark.parametrize(
    "name", ["lstm", "gru_before", "both_layers", "proj_both", "norm_gru_both"]
)
def test_no_reset_has_the_bits_of_a_call_without(name):
    session = Session(random_weights(STACKS[name]))
    x, resets, lengths, state = _drawn(session)
    for given in (None, lengths):
        want = session.run(x, lengths=given, state=state)
        none = np.zeros_like(resets)
        assert_same(session.run(x, resets=none, lengths=given, state=state), want)
    # Resets past the rows' lengths alone.
    past = np.arange(x.shape[1]) >= lengths[:, None]
    assert past.any()
    assert_same(session.run(x, resets=past, lengths=lengths, state=state), want)


@pytest.mark.parametrize("name", ["lstm", "gru_both"])
def test_a_reset_at_step_0_drops_the_state_of_the_forward_direction_alone(name):
    stack = STACKS[name]
    session = Session(random_weights(stack))
    x, state = normal(3, 6, session.input_size), random_state(session, 3)
    resets = np.zeros((3, 6), bool)
    resets[1, 0] = True
    dropped = random_state(session, 3)
    for index, leaf in enumerate(leaves(dropped)):
        if not _is_backward(stack, index):
            leaf[1] = 0
    got, want = session.run(x, resets=resets, state=state), session.run(x, state=dropped)
    _assert_close(got, want)
    assert np.abs(got[0][1] - session.run(x, state=state)[0][1]).max() > 1e-3


def test_initial_states_of_the_weights_are_those_of_the_first_sequence_alone():
    weights = random_weights(_GRU)
    one = dataclasses.replace(weights.layers[0].forward, h0=np.full(8, 0.5, np.float32))
    with_h0 = Session(dataclasses.replace(weights, layers=[w.LayerWeights(one)]))
    x, resets = normal(1, 6, 5), np.arange(6)[None] == 3
    outputs, last = with_h0.run(x, resets=resets)
    _assert_close((outputs[:, :3], last), (with_h0.run(x[:, :3])[0], last))
    _assert_close((outputs[:, 3:], last), Session(weights).run(x[:, 3:]))


def test_every_step_is_a_sequence():
    session = Session(random_weights(_GRU))
    x = normal(2, 5, 5)
    outputs, last = session.run(x, resets=np.ones((2, 5), bool))
    alone, _ = session.run(x.reshape(10, 1, 5))
    _assert_close((outputs, last), (alone.reshape(2, 5, 8), outputs[:, -1]))


@pytest.mark.parametrize("name", ["layers", "both_layers"])
def test_forms_of_resets_and_out(name):
    session = Session(random_weights(STACKS[name]))
    x, resets, lengths, state = _drawn(session)
    want = session.run(x, resets=resets, lengths=lengths, state=state)
    columns, wide = np.asfortranarray(resets), np.repeat(resets, 2, axis=1)[:, ::2]
    read_only = resets.copy()
    read_only.flags.writeable = False
    for given in (columns, wide, read_only, resets.tolist()):
        assert_same(session.run(x, resets=given, lengths=lengths, state=state), want)
    y = np.full_like(want[0], np.nan)
    got = session.run(x, resets=resets, lengths=lengths, state=state, out=(y, state))
    assert got[0] is y and got[1] is state
    assert_same((y, state), want)


@pytest.mark.parametrize("name", ["lstm", "gru_both", "layers"])
@pytest.mark.parametrize("batch, steps", [(0, 4), (3, 0), (0, 0)])
def test_empty_calls(name, batch, steps):
    session = Session(random_weights(STACKS[name]))
    x, state = normal(batch, steps, session.input_size), random_state(session, batch)
    outputs, last = session.run(x, resets=np.ones((batch, steps), bool), state=state)
    assert outputs.shape == (batch, steps, session.output_size)
    assert_same_state(last, state)


def test_malformed_resets():
    session, where = Session(random_weights(_GRU)), "Session.run: resets"
    x, wrong_type = normal(2, 3, 5), functools.partial(refused, kind=TypeError)
    good = np.zeros((2, 3), bool)
    shape = f"{where} must have the shape [B, T] = [2, 3], got"
    for bad in (good.T, good[:1], good[:, :2], good[..., None], good[0], np.array(True)):
        refused(f"{shape} {list(bad.shape)}", session.run, x, resets=bad)
    refused(f"{shape} [0]", session.run, x, resets=[])
    for kind in ("int64", "uint8", "float32", "object", "U1"):
        message = f"{where} must be bools, got the type"
        wrong_type(message, session.run, x, resets=good.astype(kind))
    wrong_type(f"{where} must be bools", session.run, x, resets=[[0, 1, 0], [0, 0, 1]])
    refused(f"{where} must be bools, got list", session.run, x, resets=[[True], [True, False]])
    with pytest.raises(TypeError, match="positional"):
        session.run(x, None, good)
