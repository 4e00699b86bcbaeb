"""What a session must compute: the ops, layer after layer, with the same weights.

And with which weights and states sessions are tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tf_blockrnn
from helpers.weight_stacks import NORM_CELLS, WITH_CELL_STATE, Stack

F32 = "float32"
STACKS = {
    "lstm": Stack("lstm", inputs=9, units=33, dtype=F32),
    "gru_after": Stack("gru", inputs=9, units=33, dtype=F32),
    "gru_before": Stack("gru", inputs=9, units=33, reset_after=False, dtype=F32),
    "tanh": Stack("rnn_tanh", inputs=9, units=33, dtype=F32),
    "relu": Stack("rnn_relu", inputs=9, units=33, dtype=F32),
    "peepholes": Stack("lstm", inputs=5, units=17, peepholes=True, cell_clip=0.3, dtype=F32),
    "no_bias": Stack("gru", inputs=5, units=16, biases=(), dtype=F32),
    "one_bias": Stack("lstm", inputs=5, units=16, biases=("b_h",), dtype=F32),
    "layers": Stack("lstm", layers=3, inputs=5, units=20, dtype=F32),
    "gru_layers": Stack("gru", layers=2, inputs=5, units=20, reset_after=False, dtype=F32),
    "both": Stack("lstm", directions=2, inputs=5, units=12, dtype=F32),
    "gru_both": Stack("gru", directions=2, inputs=5, units=12, dtype=F32),
    "both_layers": Stack("lstm", layers=2, directions=2, inputs=5, units=12, dtype=F32),
    "proj": Stack("lstm", inputs=5, units=18, proj=7, dtype=F32),
    "proj_both": Stack("lstm", layers=2, directions=2, inputs=5, units=18, proj=7, dtype=F32),
    "proj_layers": Stack(
        "lstm", layers=2, inputs=5, units=18, proj=7, peepholes=True, cell_clip=0.5, dtype=F32
    ),
    "zoneout": Stack(
        "lstm", inputs=5, units=18, proj=7, zoneout_h=0.25, zoneout_c=0.125, dtype=F32
    ),
    "gru_zoneout": Stack("gru", directions=2, inputs=5, units=12, zoneout_h=0.25, dtype=F32),
    "gru_before_zoneout": Stack(
        "gru", layers=2, inputs=5, units=20, reset_after=False, zoneout_h=0.25, dtype=F32
    ),
    "relu_both_layers": Stack("rnn_relu", layers=2, directions=2, inputs=4, units=6, dtype=F32),
    "norm_lstm": Stack("layer_norm_lstm", inputs=9, units=33, dtype=F32),
    "norm_lstm_output": Stack(
        "layer_norm_lstm", inputs=5, units=17, biases=(), norm_output_only=True, dtype=F32
    ),
    "norm_lstm_both": Stack("layer_norm_lstm", layers=2, directions=2, units=12, dtype=F32),
    "norm_gru": Stack("layer_norm_gru", layers=2, inputs=9, units=33, dtype=F32),
    "norm_gru_both": Stack("layer_norm_gru", directions=2, units=12, biases=("b_h",), dtype=F32),
}
ONE_DIRECTION = [name for name, stack in STACKS.items() if stack.directions == 1]


def columns(array: np.ndarray) -> np.ndarray:
    """[G, …, H] as the ops have it, […, G · H]."""
    return np.ascontiguousarray(np.concatenate(list(array), axis=-1))


def direction(weights, one, x, initial_state=None, **steps):
    """(outputs, state) of one layer direction by the ops; steps: their arguments of sequences."""
    zeros = np.zeros((one.gates, one.units), one.dtype)
    b_x, b_h = (columns(zeros if bias is None else bias) for bias in (one.b_x, one.b_h))
    steps["initial_state"] = initial_state
    # The ops without zoneout do not know the word.
    rates = {"zoneout_h": weights.zoneout_h, "zoneout_c": weights.zoneout_c}
    steps |= {name: rate for name, rate in rates.items() if rate}
    matrices, has_cs = (x, columns(one.w_x), columns(one.w_h)), weights.cell in WITH_CELL_STATE
    if weights.cell in NORM_CELLS:
        names = {"kernel_norm": one.norm_x, "recurrent_norm": one.norm_h, "state_norm": one.norm_c}
        steps |= {
            name: tuple(row.reshape(-1) for row in norm)
            for name, norm in names.items()
            if norm is not None
        }
        steps["epsilon"] = weights.epsilon
    if weights.cell == "layer_norm_lstm":
        steps["norm_output_only"] = weights.norm_output_only
    elif weights.cell == "lstm":
        peepholes = None if one.peepholes is None else tuple(one.peepholes)
        steps |= {"peepholes": peepholes, "w_p": one.w_p, "cell_clip": weights.cell_clip or None}
    elif weights.cell == "gru":
        steps["reset_after"] = weights.reset_after
    elif weights.cell.startswith("rnn"):
        steps["activation"] = weights.cell.removeprefix("rnn_")
    biases = [b_x, b_h] if weights.cell.endswith("gru") else [b_x + b_h]
    name = "simple_rnn" if weights.cell.startswith("rnn") else weights.cell
    outputs, state = getattr(tf_blockrnn, name)(*matrices, *biases, **steps)
    if has_cs:
        return outputs.numpy(), tf_blockrnn.LSTMState(*(part.numpy() for part in state))
    return outputs.numpy(), state.numpy()


def by_ops(weights, x, lengths=None, state=None):
    """(outputs, state) of x, [B, T, I], in the structure of a session's states."""
    layers, single = [], weights.num_layers == 1
    lengths = None if lengths is None else np.asarray(lengths, np.int64)
    for number, layer in enumerate(weights.layers):
        given = state if single or state is None else state[number]
        found = []
        for index, one in enumerate(layer):
            before = given if given is None or layer.backward is None else given[index]
            steps = {"lengths": lengths, "go_backwards": index == 1}
            found.append(direction(weights, one, x, before, **steps))
        x = np.concatenate([outputs for outputs, _ in found], axis=-1)
        states = tuple(after for _, after in found)
        layers.append(states if layer.backward is not None else states[0])
    return x, layers[0] if single else layers


def leaves(state) -> list[np.ndarray]:
    """The arrays of a state."""
    if isinstance(state, (tuple, list)):
        return [leaf for item in state for leaf in leaves(item)]
    return [state]


def types(state) -> Any:
    """The structure of a state: its types, without the arrays."""
    if isinstance(state, (tuple, list)):
        return type(state), [types(item) for item in state]
    return np.ndarray


def random_state(session, batch: int, seed: int = 2):
    """A state of random numbers, within what a cell state may be."""
    rng = np.random.default_rng(seed)
    state = session.initial_state(batch)
    for leaf in leaves(state):
        leaf[...] = rng.uniform(-0.3, 0.3, leaf.shape)
    return state


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_same_state(got, want, what: str = "") -> None:
    """Bit for bit, in whatever structure."""
    for one, other in zip(leaves(got), leaves(want), strict=True):
        np.testing.assert_array_equal(one, other, what)


def assert_same(got, want, what: str = "") -> None:
    """Outputs and states are the same bits, in the same structure."""
    np.testing.assert_array_equal(got[0], want[0], what)
    assert types(got[1]) == types(want[1]), what
    assert_same_state(got[1], want[1], what)


def refused(message: str, call: Callable, *arguments, kind: type = ValueError, **more) -> None:
    """That a call fails with these words."""
    with pytest.raises(kind) as error:
        call(*arguments, **more)
    assert message in str(error.value), str(error.value)
