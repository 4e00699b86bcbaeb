"""Sessions in bfloat16 and int8: against an oracle of docs/low_precision.md, and the same bits."""

from __future__ import annotations

import ctypes
import dataclasses
from itertools import product

import numpy as np
import pytest
from helpers import tolerances
from helpers.children import assert_ok, run_python
from helpers.compare import assert_close
from helpers.covering import in_turn
from helpers.low_precision_oracle import PAGE, Gemm, direction
from helpers.markdown import promised, python_blocks
from helpers.session_oracle import (
    F32,
    ONE_DIRECTION,
    STACKS,
    assert_same,
    normal,
    random_state,
)
from helpers.weight_stacks import WITH_CELL_STATE, Stack, random_weights

from tf_blockrnn import weights as w
from tf_blockrnn.inference import Session, _library

LOW = ("bfloat16", "int8")
# A stack for each way in which a cell calls GEMMs, which is all that depends on the precision:
# these are compared with the oracle in both. What the other stacks add (layers, directions, biases,
# peepholes, zoneout) does not depend on it: they have one of the two in each test, in turn.
CELLS = ("lstm", "gru_after", "gru_before", "tanh", "relu", "proj", "norm_lstm", "norm_gru")
OTHERS = [name for name in STACKS if name not in CELLS]
TWO_DIRECTIONS = [name for name in STACKS if name not in ONE_DIRECTION]
# Whose rows must not depend on one that is not finite.
FINITE = ("lstm", "gru_after", "gru_before", "tanh", "proj", "norm_lstm", "norm_gru")
# Enough work for several threads, with units and rows that they do not share evenly.
LARGE = {
    "large_lstm": Stack("lstm", inputs=70, units=150, dtype=F32),
    "large_gru": Stack("gru", layers=2, inputs=70, units=150, dtype=F32),
    "large_gru_before": Stack("gru", inputs=70, units=150, reset_after=False, dtype=F32),
    "large_norm_lstm": Stack("layer_norm_lstm", inputs=70, units=150, dtype=F32),
    "large_norm_gru": Stack("layer_norm_gru", layers=2, inputs=70, units=150, dtype=F32),
    "large_hard_lstm": Stack(
        "lstm", inputs=70, units=150, proj=90, activation="relu", hard_sigmoid=0.2, dtype=F32
    ),
    "large_hard_gru": Stack("gru", layers=2, inputs=70, units=150, hard_sigmoid=0.2, dtype=F32),
    "large_relu_gru_before": Stack(
        "gru", inputs=70, units=150, reset_after=False, activation="relu", dtype=F32
    ),
    "large_proj": Stack("lstm", directions=2, inputs=70, units=150, proj=90, dtype=F32),
}


def _weights(name):
    """Those of a stack; of a large one divided by 4, so that its gates do not saturate."""
    if name in STACKS:
        return random_weights(STACKS[name])
    return _quarter(random_weights(LARGE[name]))


def _quarter(weights):
    """The same weights, divided by 4."""

    def quarter(one):
        return one and dataclasses.replace(one, w_x=one.w_x / 4, w_h=one.w_h / 4)

    layers = [
        dataclasses.replace(layer, forward=quarter(layer.forward), backward=quarter(layer.backward))
        for layer in weights.layers
    ]
    return dataclasses.replace(weights, layers=layers)


def _lengths(batch, steps, seed=3):
    """Of each row; the first is all steps, the second none."""
    lengths = np.random.default_rng(seed).integers(0, steps + 1, batch)
    lengths[:2] = [steps, 0][:batch]
    return lengths


def _has_steps(name):
    return (STACKS | LARGE)[name].directions == 1


def _isa():
    library = _library.library()
    library.blockrnn_cpu_isa.restype = ctypes.c_char_p
    return library.blockrnn_cpu_isa().decode()


def _rows(state, rows):
    """The state of some rows."""
    if isinstance(state, np.ndarray):
        return state[rows]
    parts = [_rows(part, rows) for part in state]
    return state._make(parts) if hasattr(state, "_make") else type(state)(parts)


def _layer_states(weights, state):
    """For each layer, for each of its directions, (h, c)."""
    found = [state] if weights.num_layers == 1 else state
    by_direction = [
        [one] if layer.backward is None else one
        for layer, one in zip(weights.layers, found, strict=True)
    ]
    if weights.cell in WITH_CELL_STATE:
        return by_direction
    return [[(h, np.zeros_like(h)) for h in one] for one in by_direction]


def _assert_oracle(weights, precision, x, lengths, state):
    """Each layer of a stack, from what the session has as the outputs of the layer below."""
    whole = Session(weights, precision)
    gemm = Gemm(precision, rounds_rows="bf16" in _isa())
    before, run = _layer_states(weights, state), whole.run(x, lengths=lengths, state=state)
    after = _layer_states(weights, run[1])
    below = x
    for number, layer in enumerate(weights.layers):
        part = dataclasses.replace(weights, layers=weights.layers[: number + 1])
        start = state
        if weights.num_layers > 1:
            start = state[: number + 1] if number else state[0]
        outputs, _ = Session(part, precision).run(x, lengths=lengths, state=start)
        if number + 1 == weights.num_layers:
            np.testing.assert_array_equal(outputs, run[0])
        width = layer.forward.output_size
        for index, one in enumerate(layer):
            own = outputs[..., index * width : (index + 1) * width]
            got_h, got_c = after[number][index]
            want = direction(
                weights, one, below, own, lengths, before[number][index], index == 1, gemm
            )
            what = f"layer {number}, direction {index}"
            terms = one.input_size + width + one.units * (one.w_p is not None)
            bound = tolerances.bound("float", terms)
            assert 2 * np.sum(want.decided) >= np.sum(want.runs), what
            assert_close(own[want.decided], want.outputs[want.decided], bound, what)
            assert not own[~want.runs].any(), what
            np.testing.assert_array_equal(got_h, want.h, what)
            if weights.cell in WITH_CELL_STATE:
                bound = tolerances.bound("float", terms * x.shape[1])
                assert_close(got_c, want.c, bound, f"cs of {what}")
        below = outputs


@pytest.mark.parametrize("name, precision", [*product(CELLS, LOW), *in_turn(OTHERS, LOW)])
def test_oracle(name, precision):
    weights = random_weights(STACKS[name])
    session = Session(weights, precision)
    for batch, steps in ((1, 1), (20, 14)):
        x, lengths = normal(batch, steps, session.input_size), _lengths(batch, steps)
        _assert_oracle(weights, precision, x, lengths, random_state(session, batch))
        every = np.full(batch, steps)
        _assert_oracle(weights, precision, x, every, session.initial_state(batch))
        assert_same(
            session.run(x), session.run(x, lengths=every, state=session.initial_state(batch))
        )


@pytest.mark.parametrize("name, precision", in_turn(LARGE, LOW))
def test_oracle_of_large_layers(name, precision):
    weights = _weights(name)
    session = Session(weights, precision)
    x = normal(5, 6, session.input_size)
    _assert_oracle(weights, precision, x, _lengths(5, 6), random_state(session, 5))


@pytest.mark.parametrize("name, precision", in_turn(CELLS, LOW))
def test_near_float32(name, precision):
    """Of a model's usual weights; and not the same, so that they are in this precision."""
    weights = _quarter(_weights(name))
    x = normal(3, 20, weights.input_size)
    (got, _), (want, _) = Session(weights, precision).run(x), Session(weights).run(x)
    error = np.abs(got - want).max()
    assert 0 < error <= tolerances.LOW_PRECISION_OUTPUTS[precision] * max(1, np.abs(want).max())


@pytest.mark.parametrize("name, precision", in_turn(ONE_DIRECTION, LOW))
def test_steps_have_the_bits_of_a_run(name, precision):
    session = Session(random_weights(STACKS[name]), precision)
    for batch, steps in ((1, 20), (3, 15), (20, 30)):
        x, state = normal(batch, steps, session.input_size), random_state(session, batch)
        whole = session.run(x, state=state)
        outputs = []
        for t in range(steps):
            y, state = session.step(x[:, t], state=state)
            outputs.append(y)
        assert_same((np.stack(outputs, 1), state), whole)


@pytest.mark.parametrize("name, precision", in_turn([*TWO_DIRECTIONS, *LARGE], LOW, first=1))
def test_bits_on_any_number_of_threads(name, precision):
    weights = _weights(name)
    one, two, three = (Session(weights, precision, threads) for threads in (1, 2, 3))
    for batch, steps in ((1, 40), (3, 5), (20, 14)):
        x, lengths = normal(batch, steps, one.input_size), _lengths(batch, steps)
        state = random_state(one, batch)
        want = one.run(x, lengths=lengths, state=state)
        for session in (two, three):
            assert_same(session.run(x, lengths=lengths, state=state), want)
            if _has_steps(name):
                assert_same(session.step(x[:, 0], state=state), one.step(x[:, 0], state=state))


@pytest.mark.parametrize("name, precision", in_turn([*CELLS, *LARGE, "both_layers"], LOW))
def test_bits_of_a_row_alone(name, precision):
    session = Session(_weights(name), precision)
    for batch, steps in ((2, 1), (9, 5), (20, 14)):
        x, lengths = normal(batch, steps, session.input_size), _lengths(batch, steps)
        state = random_state(session, batch)
        together = session.run(x, lengths=lengths, state=state)
        for b in range(batch):
            rows = slice(b, b + 1)
            alone = session.run(x[rows], lengths=lengths[rows], state=_rows(state, rows))
            assert_same(alone, (together[0][rows], _rows(together[1], rows)), f"row {b}")
        if _has_steps(name):
            y, after = session.step(x[:, 0], state=state)
            for b in range(batch):
                rows = slice(b, b + 1)
                alone = session.step(x[rows, 0], state=_rows(state, rows))
                assert_same(alone, (y[rows], _rows(after, rows)), f"row {b}")


@pytest.mark.parametrize("name, precision", in_turn(FINITE, LOW))
def test_a_row_that_is_not_finite_leaves_the_others_alone(name, precision):
    session = Session(random_weights(STACKS[name]), precision)
    x = normal(8, 6, session.input_size)
    want, _ = session.run(x)
    others = np.arange(8) != 3
    for special in (np.nan, np.inf, -np.inf):
        x[3, 2, 1] = special
        got, _ = session.run(x)
        np.testing.assert_array_equal(got[others], want[others])
        np.testing.assert_array_equal(got[3, :2], want[3, :2])
        if precision == "int8":
            assert np.isnan(got[3, 2:]).all()
        else:
            assert not np.array_equal(got[3, 2:], want[3, 2:])


FROZEN = {
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "GRU reset before": ("GRU", {"reset_after": False}),
    "RNN": ("SimpleRNN", {}),
    "LayerNormLSTM": ("LayerNormLSTM", {}),
    "LayerNormGRU": ("LayerNormGRU", {}),
}


@pytest.mark.parametrize("kind", FROZEN)
@pytest.mark.parametrize("precision", LOW)
def test_bits_of_a_frozen_model(tfb, kind, precision):
    import keras

    keras.utils.set_random_seed(0)
    name, options = FROZEN[kind]
    layer = getattr(tfb.layers, name)(24, return_sequences=True, **options)
    model = keras.Sequential([keras.Input((None, 7)), layer])
    x = normal(9, 20, 7)
    got, _ = Session(layer, precision).run(x)
    np.testing.assert_array_equal(got, tfb.freeze(model, precision)(x).numpy())


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums(sign):
    """Of as many terms as int8 takes, each as large as it can be."""
    depth = 133144
    w_x = np.full((1, depth, 3), sign, np.float32) * [1, 1, 0.25]
    one = w.DirectionWeights(w_x.astype(np.float32), np.zeros((1, 3, 3), np.float32))
    session = Session(w.RecurrentWeights("rnn_relu", [w.LayerWeights(one)]), "int8")
    y, _ = session.step(np.full((2, depth), sign, np.float32))
    np.testing.assert_allclose(y, depth * np.array([[1, 1, 0.25]] * 2), rtol=1e-6)


def test_memory():
    weights = random_weights(LARGE["large_gru"])
    full, half, quarter = (Session(weights, precision).nbytes for precision in ("float32", *LOW))
    assert half <= 0.52 * full and quarter <= 0.28 * full


def test_the_oracle_of_the_page_holds_on_every_instruction_set(tfb):
    oracle = python_blocks(PAGE.read_text(encoding="utf-8"))[0]
    for isa in tfb.build_info()["cpu_isas_available"]:
        result = run_python(["-c", oracle], fresh=True, TF_BLOCKRNN_CPU_ISA=isa)
        assert assert_ok(result, isa).splitlines() == promised(oracle), isa
