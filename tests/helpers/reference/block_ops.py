"""The block ops on the reference's cells: GRUBlockCell, LSTMBlockCell, BlockGRU and BlockLSTM.

Every function takes the op's inputs by their names, anything that NumPy can make an array of, and
computes in float64. Weights are [I + H, columns]; a peephole that is not used may have any length.

The `*_vjp` functions are whole vector-Jacobian products: a cotangent for every output of the
forward op (None means zeros), a gradient for every input, weights and biases included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from . import gru, lstm, sequence
from .numbers import f64

LSTM_OUTPUTS = ("i", "cs", "f", "o", "ci", "co", "h")
GRU_OUTPUTS = ("r", "u", "c", "h")
_LSTM_GATES = {"icfo": ("i", "ci", "f", "o"), "ifco": ("i", "f", "ci", "o")}
_GRU_GATES = ("r", "u", "c")
_PEEPHOLES = ("wci", "wcf", "wco")


def _joined(grads: Mapping, columns=slice(None)):
    return np.concatenate([grads["w_x"], grads["w_h"]])[:, columns]


def _lstm_values(x, cs_prev, h_prev, w, wci, wcf, wco, b, *, use_peephole) -> dict:
    x, w = f64(x, w)
    inputs = x.shape[-1]
    values = {"x": x, "cs_prev": cs_prev, "h_prev": h_prev, "b": b}
    values |= {"w_x": w[:inputs], "w_h": w[inputs:]}
    if use_peephole:
        values |= {"wci": wci, "wcf": wcf, "wco": wco}
    return values


def _lstm_options(x, seq_len_max, order, **options) -> sequence.Options:
    return sequence.Options(
        _LSTM_GATES[order],
        lengths=(int(seq_len_max),) * np.shape(x)[1],
        **options,
    )


def block_lstm(
    *,
    seq_len_max,
    order="icfo",
    use_peephole=False,
    forget_bias=1.0,
    cell_clip=3.0,
    identity=False,
    **inputs,
):
    """Returns i, cs, f, o, ci, co, h, each [T, B, H]. identity: activations that do nothing."""
    options = _lstm_options(
        *(inputs["x"], seq_len_max, order),
        forget_bias=forget_bias,
        cell_clip=cell_clip,
        identity=identity,
    )
    found = sequence.forward("lstm", _lstm_values(**inputs, use_peephole=use_peephole), options)
    return tuple(found[name] for name in LSTM_OUTPUTS)


def _block_lstm_backward(inputs: Mapping, options, use_peephole, outputs, cotangents: Mapping):
    values = _lstm_values(**inputs, use_peephole=use_peephole) | outputs
    values |= {f"{name}_grad": g for name, g in cotangents.items() if g is not None}
    grads = sequence.backward("lstm", values, options)
    peepholes = [grads.get(n, np.zeros(np.shape(inputs[n]))) for n in _PEEPHOLES]
    states = (grads["cs_prev"], grads["h_prev"])
    return grads["x"], *states, _joined(grads), *peepholes, grads["b"]


def block_lstm_vjp(*, seq_len_max, cotangents: Sequence, order="icfo", use_peephole=False, **rest):
    """Gradients of x, cs_prev, h_prev, w, wci, wcf, wco, b for seven cotangents.

    rest: the other inputs, forget_bias and cell_clip.
    """
    how = {"seq_len_max": seq_len_max, "order": order, "use_peephole": use_peephole}
    outputs = dict(zip(LSTM_OUTPUTS, block_lstm(**how, **rest), strict=True))
    inputs = {k: v for k, v in rest.items() if k not in ("forget_bias", "cell_clip")}
    options = _lstm_options(inputs["x"], seq_len_max, order)
    given = dict(zip(LSTM_OUTPUTS, cotangents, strict=True))
    return _block_lstm_backward(inputs, options, use_peephole, outputs, given)


def block_lstm_grad(*, seq_len_max, cs_grad, h_grad, use_peephole, order="icfo", **rest):
    """BlockLSTMGrad from the residuals that it is given, whatever they are.

    Returns x_grad, cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad.
    """
    outputs = {name: rest.pop(name) for name in LSTM_OUTPUTS}
    options = _lstm_options(rest["x"], seq_len_max, order)
    given = {"cs": cs_grad, "h": h_grad}
    return _block_lstm_backward(rest, options, use_peephole, outputs, given)


def _gru_call(x, h_prev, w_ru, w_c, b_ru, b_c, *, seq_len_max, **options):
    """The values and the options of a sequence."""
    x, w_ru, w_c, b_ru, b_c = f64(x, w_ru, w_c, b_ru, b_c)
    w, inputs = np.concatenate([w_ru, w_c], axis=1), x.shape[-1]
    values = {"x": x, "h_prev": h_prev, "b_x": np.concatenate([b_ru, b_c])}
    values |= {"w_x": w[:inputs], "w_h": w[inputs:]}
    lengths = (int(seq_len_max),) * x.shape[1]
    return values, sequence.Options(_GRU_GATES, lengths=lengths, **options)


def block_gru(**inputs):
    """Returns r, u, c, h, each [T, B, H]. identity=True: activations that do nothing."""
    found = sequence.forward("gru", *_gru_call(**inputs))
    return tuple(found[name] for name in GRU_OUTPUTS)


def _block_gru_backward(inputs: Mapping, outputs: Mapping, cotangents: Mapping):
    values, options = _gru_call(**inputs)
    values |= outputs | {f"{name}_grad": g for name, g in cotangents.items() if g is not None}
    grads = sequence.backward("gru", values, options)
    gates = slice(0, np.size(inputs["b_ru"])), slice(np.size(inputs["b_ru"]), None)
    weights = [_joined(grads, columns) for columns in gates]
    return grads["x"], grads["h_prev"], *weights, *(grads["b_x"][columns] for columns in gates)


def block_gru_vjp(*, cotangents: Sequence, **inputs):
    """Gradients of x, h_prev, w_ru, w_c, b_ru, b_c for four cotangents."""
    outputs = dict(zip(GRU_OUTPUTS, block_gru(**inputs), strict=True))
    return _block_gru_backward(inputs, outputs, dict(zip(GRU_OUTPUTS, cotangents, strict=True)))


def block_gru_grad(*, h_grad, **rest):
    """BlockGRUGrad from the residuals that it is given, whatever they are.

    Returns x_grad, h_prev_grad, w_ru_grad, w_c_grad, b_ru_grad, b_c_grad.
    """
    outputs = {name: rest.pop(name) for name in GRU_OUTPUTS}
    return _block_gru_backward(rest, outputs, {"h": h_grad})


def _one_step(function, arguments: Mapping, cotangents=None):
    """A cell as a sequence of one step."""
    arguments = {**arguments, "x": np.asarray(arguments["x"])[None]}
    if cotangents is not None:
        arguments["cotangents"] = [None if c is None else np.asarray(c)[None] for c in cotangents]
    return function(seq_len_max=1, **arguments)


def gru_block_cell(**inputs):
    """Returns r, u, c, h, each [B, H]."""
    return tuple(output[0] for output in _one_step(block_gru, inputs))


def gru_block_cell_vjp(*, cotangents: Sequence, **inputs):
    """Gradients of x, h_prev, w_ru, w_c, b_ru, b_c for the cotangents of r, u, c, h."""
    d_x, *rest = _one_step(block_gru_vjp, inputs, cotangents)
    return d_x[0], *rest


def lstm_block_cell(**inputs):
    """Returns i, cs, f, o, ci, co, h, each [B, H]."""
    return tuple(output[0] for output in _one_step(block_lstm, inputs))


def lstm_block_cell_vjp(*, cotangents: Sequence, **inputs):
    """Gradients of the eight inputs of LSTMBlockCell; the clip is straight-through."""
    d_x, *rest = _one_step(block_lstm_vjp, inputs, cotangents)
    return d_x[0], *rest


def gru_block_cell_grad(*, x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h):
    """Returns d_x, d_h_prev, d_c_bar, d_r_bar_u_bar of GRUBlockCellGrad."""
    del b_ru, b_c
    h_prev, w_ru, w_c, r, u, c, d_h = f64(h_prev, w_ru, w_c, r, u, c, d_h)
    inputs = np.shape(x)[1]
    d_bars, d_h_prev = gru.backward_before(
        {"r": r, "u": u, "c": c}, h_prev, {"h": d_h}, lambda d_c_bar: d_c_bar @ w_c[inputs:].T
    )
    d_r_bar_u_bar = np.concatenate([d_bars["r"], d_bars["u"]], axis=1)
    d_x = d_r_bar_u_bar @ w_ru[:inputs].T + d_bars["c"] @ w_c[:inputs].T
    return d_x, d_h_prev + d_r_bar_u_bar @ w_ru[inputs:].T, d_bars["c"], d_r_bar_u_bar


def lstm_block_cell_grad(*, use_peephole, **inputs):
    """Returns cs_prev_grad, dicfo, wci_grad, wcf_grad, wco_grad of LSTMBlockCellGrad."""
    inputs = dict(zip(inputs, f64(*inputs.values()), strict=True))
    peepholes = tuple(inputs[name] for name in _PEEPHOLES)
    d_bars, cs_prev_grad, d_peepholes = lstm.backward(
        inputs,
        inputs["cs_prev"],
        {"cs": inputs["cs_grad"], "m": inputs["h_grad"]},
        peepholes=peepholes if use_peephole else None,
    )
    dicfo = np.concatenate([d_bars[gate] for gate in _LSTM_GATES["icfo"]], axis=1)
    return cs_prev_grad, dicfo, *(d_peepholes or [np.zeros_like(p) for p in peepholes])
