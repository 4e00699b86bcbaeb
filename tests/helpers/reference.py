"""The oracle of the tests: the block cells in NumPy float64.

Written from the equations alone. It imports nothing of the project and shares nothing with it.
Every function takes anything that NumPy can make an array of and computes in float64.

The `*_vjp` functions are whole vector-Jacobian products: a cotangent for every output of the
forward op (None stands for zeros), a gradient for every input, weights and biases included.
"""

from __future__ import annotations

import numpy as np


def _f64(*arrays):
    return tuple(np.asarray(a).astype(np.float64) for a in arrays)


def _cotangents(arrays, like):
    return tuple(
        np.zeros_like(like) if a is None else np.asarray(a).astype(np.float64) for a in arrays
    )


def sigmoid(x):
    """1 / (1 + exp(-x)), by the branch whose exponential does not overflow."""
    x = np.asarray(x, np.float64)
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


def gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c):
    """Returns r, u, c, h, each [B, H]."""
    x, h_prev, w_ru, w_c, b_ru, b_c = _f64(x, h_prev, w_ru, w_c, b_ru, b_c)
    units = h_prev.shape[1]
    ru = sigmoid(np.concatenate([x, h_prev], axis=1) @ w_ru + b_ru)
    r, u = ru[:, :units], ru[:, units:]
    c = np.tanh(np.concatenate([x, h_prev * r], axis=1) @ w_c + b_c)
    h = u * h_prev + (1.0 - u) * c
    return r, u, c, h


def gru_block_cell_grad(x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, d_h):
    """Returns d_x, d_h_prev, d_c_bar, d_r_bar_u_bar of GRUBlockCellGrad."""
    del b_ru, b_c
    x, h_prev, w_ru, w_c, r, u, c, d_h = _f64(x, h_prev, w_ru, w_c, r, u, c, d_h)
    inputs = x.shape[1]
    d_c_bar = d_h * (1.0 - u) * (1.0 - c * c)
    d_u_bar = d_h * (h_prev - c) * u * (1.0 - u)
    d_xhr = d_c_bar @ w_c.T
    d_hr = d_xhr[:, inputs:]
    d_r_bar = d_hr * h_prev * r * (1.0 - r)
    d_r_bar_u_bar = np.concatenate([d_r_bar, d_u_bar], axis=1)
    d_xh = d_r_bar_u_bar @ w_ru.T
    d_x = d_xh[:, :inputs] + d_xhr[:, :inputs]
    d_h_prev = d_xh[:, inputs:] + d_hr * r + d_h * u
    return d_x, d_h_prev, d_c_bar, d_r_bar_u_bar


def gru_block_cell_vjp(x, h_prev, w_ru, w_c, b_ru, b_c, cotangents):
    """Gradients of the six inputs of GRUBlockCell.

    cotangents: those of r, u, c, h, each [B, H] or None.
    Returns d_x, d_h_prev, d_w_ru, d_w_c, d_b_ru, d_b_c.
    """
    x, h_prev, w_ru, w_c, b_ru, b_c = _f64(x, h_prev, w_ru, w_c, b_ru, b_c)
    r, u, c, _ = gru_block_cell(x, h_prev, w_ru, w_c, b_ru, b_c)
    d_r, d_u, d_c, d_h = _cotangents(cotangents, r)
    inputs = x.shape[1]
    # h reads u, c and h_prev; c reads r; so the order is h, c, r.
    d_u = d_u + d_h * (h_prev - c)
    d_c = d_c + d_h * (1.0 - u)
    d_h_prev = d_h * u
    d_c_bar = d_c * (1.0 - c**2)
    d_xhr = d_c_bar @ w_c.T
    d_x = d_xhr[:, :inputs]
    d_r = d_r + d_xhr[:, inputs:] * h_prev
    d_h_prev = d_h_prev + d_xhr[:, inputs:] * r
    d_ru_bar = np.concatenate([d_r * r * (1.0 - r), d_u * u * (1.0 - u)], axis=1)
    d_xh = d_ru_bar @ w_ru.T
    d_x = d_x + d_xh[:, :inputs]
    d_h_prev = d_h_prev + d_xh[:, inputs:]
    d_w_ru = np.concatenate([x, h_prev], axis=1).T @ d_ru_bar
    d_w_c = np.concatenate([x, h_prev * r], axis=1).T @ d_c_bar
    return d_x, d_h_prev, d_w_ru, d_w_c, d_ru_bar.sum(axis=0), d_c_bar.sum(axis=0)


def lstm_block_cell(
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    *,
    forget_bias=1.0,
    cell_clip=3.0,
    use_peephole=False,
):
    """Returns i, cs, f, o, ci, co, h, each [B, H]."""
    x, cs_prev, h_prev, w, wci, wcf, wco, b = _f64(x, cs_prev, h_prev, w, wci, wcf, wco, b)
    units = h_prev.shape[1]
    bars = np.concatenate([x, h_prev], axis=1) @ w + b
    i_bar, ci_bar, f_bar, o_bar = (bars[:, g * units : (g + 1) * units] for g in range(4))
    f_bar = f_bar + forget_bias
    if use_peephole:
        i_bar = i_bar + cs_prev * wci
        f_bar = f_bar + cs_prev * wcf
    i, f = sigmoid(i_bar), sigmoid(f_bar)
    ci = np.tanh(ci_bar)
    cs = ci * i + cs_prev * f
    if cell_clip > 0:  # False for NaN
        cs = np.clip(cs, -cell_clip, cell_clip)  # leaves NaN
    if use_peephole:
        o_bar = o_bar + cs * wco
    o = sigmoid(o_bar)
    co = np.tanh(cs)
    return i, cs, f, o, ci, co, o * co


def lstm_block_cell_grad(
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    i,
    cs,
    f,
    o,
    ci,
    co,
    cs_grad,
    h_grad,
    *,
    use_peephole,
):
    """Returns cs_prev_grad, dicfo, wci_grad, wcf_grad, wco_grad of LSTMBlockCellGrad."""
    del x, h_prev, w, b
    cs_prev, wci, wcf, wco, i, cs, f, o, ci, co, cs_grad, h_grad = _f64(
        cs_prev, wci, wcf, wco, i, cs, f, o, ci, co, cs_grad, h_grad
    )
    do = o * (1.0 - o) * h_grad * co
    dcs = (1.0 - co * co) * h_grad * o + cs_grad
    if use_peephole:
        dcs = dcs + do * wco
    dci = (1.0 - ci * ci) * dcs * i
    df = f * (1.0 - f) * dcs * cs_prev
    di = i * (1.0 - i) * dcs * ci
    dicfo = np.concatenate([di, dci, df, do], axis=1)
    cs_prev_grad = dcs * f
    if not use_peephole:
        return cs_prev_grad, dicfo, np.zeros_like(wci), np.zeros_like(wcf), np.zeros_like(wco)
    cs_prev_grad = cs_prev_grad + di * wci + df * wcf
    return (
        cs_prev_grad,
        dicfo,
        (di * cs_prev).sum(axis=0),
        (df * cs_prev).sum(axis=0),
        (do * cs).sum(axis=0),
    )


def lstm_block_cell_vjp(
    x,
    cs_prev,
    h_prev,
    w,
    wci,
    wcf,
    wco,
    b,
    cotangents,
    *,
    forget_bias=1.0,
    cell_clip=3.0,
    use_peephole=False,
):
    """Gradients of the eight inputs of LSTMBlockCell; the clip is straight-through.

    cotangents: those of i, cs, f, o, ci, co, h, each [B, H] or None.
    Returns d_x, d_cs_prev, d_h_prev, d_w, d_wci, d_wcf, d_wco, d_b.
    """
    x, cs_prev, h_prev, w, wci, wcf, wco, b = _f64(x, cs_prev, h_prev, w, wci, wcf, wco, b)
    i, cs, f, o, ci, co, _ = lstm_block_cell(
        x,
        cs_prev,
        h_prev,
        w,
        wci,
        wcf,
        wco,
        b,
        forget_bias=forget_bias,
        cell_clip=cell_clip,
        use_peephole=use_peephole,
    )
    d_i, d_cs, d_f, d_o, d_ci, d_co, d_h = _cotangents(cotangents, i)
    inputs = x.shape[1]
    # In the reverse order of the forward equations.
    d_o = d_o + d_h * co
    d_co = d_co + d_h * o
    d_cs = d_cs + d_co * (1.0 - co**2)
    d_o_bar = d_o * o * (1.0 - o)
    if use_peephole:
        d_cs = d_cs + d_o_bar * wco
    d_ci_bar = (d_ci + d_cs * i) * (1.0 - ci**2)
    d_i_bar = (d_i + d_cs * ci) * i * (1.0 - i)
    d_f_bar = (d_f + d_cs * cs_prev) * f * (1.0 - f)
    d_cs_prev = d_cs * f
    d_wci, d_wcf, d_wco = np.zeros_like(wci), np.zeros_like(wcf), np.zeros_like(wco)
    if use_peephole:
        d_cs_prev = d_cs_prev + d_i_bar * wci + d_f_bar * wcf
        d_wci = (d_i_bar * cs_prev).sum(axis=0)
        d_wcf = (d_f_bar * cs_prev).sum(axis=0)
        d_wco = (d_o_bar * cs).sum(axis=0)
    d_bars = np.concatenate([d_i_bar, d_ci_bar, d_f_bar, d_o_bar], axis=1)
    d_xh = d_bars @ w.T
    d_w = np.concatenate([x, h_prev], axis=1).T @ d_bars
    return (
        d_xh[:, :inputs],
        d_cs_prev,
        d_xh[:, inputs:],
        d_w,
        d_wci,
        d_wcf,
        d_wco,
        d_bars.sum(axis=0),
    )
