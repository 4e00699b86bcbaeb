"""What a session must compute: the ops, layer after layer, with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np

import tf_blockrnn


def columns(array: np.ndarray) -> np.ndarray:
    """[G, …, H] as the ops have it, […, G · H]."""
    return np.ascontiguousarray(np.concatenate(list(array), axis=-1))


def _direction(weights, one, x, lengths, state, backwards):
    zeros = np.zeros((one.gates, one.units), np.float32)
    b_x, b_h = (columns(zeros if bias is None else bias) for bias in (one.b_x, one.b_h))
    arguments: dict[str, Any] = {"go_backwards": backwards}
    if lengths is not None:
        arguments["sequence_lengths"] = np.asarray(lengths, np.int64)
    if state is not None:
        arguments["initial_state"] = state
    matrices = x, columns(one.w_x), columns(one.w_h)
    if weights.cell == "lstm":
        if one.peepholes is not None:
            arguments["peepholes"] = tuple(one.peepholes)
        outputs, state = tf_blockrnn.lstm(
            *matrices, b_x + b_h, w_p=one.w_p, cell_clip=weights.cell_clip or None, **arguments
        )
        return outputs.numpy(), tf_blockrnn.LSTMState(*(part.numpy() for part in state))
    if weights.cell == "gru" and weights.reset_after:
        outputs, state = tf_blockrnn.gru(*matrices, b_x, b_h, **arguments)
    elif weights.cell == "gru":
        outputs, state = tf_blockrnn.gru(*matrices, b_x, b_h, reset_after=False, **arguments)
    else:
        activation = weights.cell.removeprefix("rnn_")
        outputs, state = tf_blockrnn.simple_rnn(
            *matrices, b_x + b_h, activation=activation, **arguments
        )
    return outputs.numpy(), state.numpy()


def by_ops(weights, x, lengths=None, state=None):
    """(outputs, state) of x, [B, T, I], in the structure of a session's states."""
    layers, single = [], weights.num_layers == 1
    for number, layer in enumerate(weights.layers):
        given = state if single or state is None else state[number]
        found = []
        for index, one in enumerate(layer):
            before = given if given is None or layer.backward is None else given[index]
            found.append(_direction(weights, one, x, lengths, before, index == 1))
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
