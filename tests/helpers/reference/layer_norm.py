"""Layer normalisation and the cells with it, from the equations.

    norm(s)  = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta, over the last axis

An LSTM, whose cs, the state that the next step gets, is the normalised one:

    [ī f̄ c̄ ō] = norm_x(x · w_x) + norm_h(h_prev · w_h) + b
    cs = norm_c(σ(ī) ∘ tanh(c̄) + σ(f̄) ∘ cs_prev)        h = σ(ō) ∘ tanh(cs)

or, where the norm of cs is for the output only, the one before its norm. A GRU, with no norm of its
state:

    [r̄ ū c̄] = norm_x(x · w_x) + b_x        [r̂ û hc] = norm_h(h_prev · w_h) + b_h
    r = σ(r̄ + r̂)    u = σ(ū + û)    h = u ∘ h_prev + (1 − u) ∘ tanh(c̄ + r ∘ hc)

A row of gates is cut into dicts by the caller's order. float64 throughout.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import gru, lstm


def normalized(s, epsilon):
    """s_hat and 1 / √(var(s) + epsilon), which are what `norm_backward` needs."""
    count = max(s.shape[-1], 1)
    mean = s.sum(axis=-1, keepdims=True) / count
    rstd = 1.0 / np.sqrt(((s - mean) ** 2).sum(axis=-1, keepdims=True) / count + epsilon)
    return (s - mean) * rstd, rstd


def norm_backward(d, gamma, saved):
    """The gradients of s, gamma and beta, given that of norm(s); [B, N] rows."""
    s_hat, rstd = saved
    g = gamma * d
    # ∂s_hat/∂s as a matrix for each row: (1 − 1/N − s_hat s_hatᵀ/N) · rstd.
    n = max(s_hat.shape[-1], 1)
    jacobian = np.eye(n) - 1.0 / n - s_hat[:, :, None] * s_hat[:, None, :] / n
    d_s = rstd * np.einsum("bi,bij->bj", g, jacobian)
    return d_s, (d * s_hat).sum(axis=0), d.sum(axis=0)


def _norm(name, saved, weights):
    return weights[f"gamma_{name}"] * saved[0] + weights[f"beta_{name}"]


def lstm_forward(
    saved_x, saved_h, cs_prev, weights: Mapping, columns: Mapping, epsilon, output_only
):
    """h and cs of one step, and what `lstm_backward` needs.

    saved_x, saved_h: of x · w_x and h_prev · w_h, [B, 4H]; columns: of each gate, by its name.
    """
    z = _norm("x", saved_x, weights) + _norm("h", saved_h, weights) + weights["b"]
    gates = lstm.forward({name: z[:, where] for name, where in columns.items()}, cs_prev)
    saved_c = normalized(gates["cs"], epsilon)
    read = _norm("c", saved_c, weights)
    saved = (gates, cs_prev, read, saved_x, saved_h, saved_c)
    return gates["o"] * np.tanh(read), gates["cs"] if output_only else read, saved


def lstm_backward(saved, d_h, d_cs, weights: Mapping, columns: Mapping, output_only):
    """The gradients of of_x, of_h and cs_prev, and by name of the vectors among the weights."""
    gates, cs_prev, read, saved_x, saved_h, saved_c = saved
    co = np.tanh(read)
    d_read = d_h * gates["o"] * (1.0 - co**2) + (0.0 if output_only else d_cs)
    d_c, d_gamma_c, d_beta_c = norm_backward(d_read, weights["gamma_c"], saved_c)
    d_c = d_c + d_cs if output_only else d_c
    d_bars, d_cs_prev, _ = lstm.backward(gates, cs_prev, {"cs": d_c, "o": d_h * co})
    d_z = _joined(d_bars, columns, saved_x[0])
    d_x, d_h, grads = _norms_backward(d_z, d_z, weights, saved_x, saved_h)
    grads |= {"b": d_z.sum(axis=0), "gamma_c": d_gamma_c, "beta_c": d_beta_c}
    return d_x, d_h, d_cs_prev, grads


def _joined(parts: Mapping, columns: Mapping, like):
    """A row of gates, from those by name."""
    row = np.zeros_like(like)
    for name, where in columns.items():
        row[:, where] = parts[name]
    return row


def _norms_backward(d_x, d_h, weights: Mapping, saved_x, saved_h):
    """The gradients of of_x and of_h, and by name of the norms' vectors."""
    of_x, d_gamma_x, d_beta_x = norm_backward(d_x, weights["gamma_x"], saved_x)
    of_h, d_gamma_h, d_beta_h = norm_backward(d_h, weights["gamma_h"], saved_h)
    grads = {"gamma_x": d_gamma_x, "beta_x": d_beta_x, "gamma_h": d_gamma_h, "beta_h": d_beta_h}
    return of_x, of_h, grads


def gru_forward(saved_x, saved_h, h_prev, weights: Mapping, columns: Mapping):
    """h of one step, and what `gru_backward` needs.

    saved_x, saved_h: of x · w_x and h_prev · w_h, [B, 3H]; columns: of each gate, by its name.
    """
    from_x, from_h = (
        {name: row[:, where] for name, where in columns.items()}
        for row in (
            _norm("x", saved_x, weights) + weights["b_x"],
            _norm("h", saved_h, weights) + weights["b_h"],
        )
    )
    gates = gru.forward_after(from_x, from_h, h_prev)
    return gates["h"], (gates, h_prev, saved_x, saved_h)


def gru_backward(saved, d_h, weights: Mapping, columns: Mapping):
    """The gradients of of_x and of_h, that of h_prev but for what passes of_h, and by name of the
    vectors among the weights."""
    gates, h_prev, saved_x, saved_h = saved
    d_from_x, d_from_h, d_h_prev = gru.backward_after(gates, h_prev, {"h": d_h})
    d_x, d_state = _joined(d_from_x, columns, saved_x[0]), _joined(d_from_h, columns, saved_h[0])
    of_x, of_h, grads = _norms_backward(d_x, d_state, weights, saved_x, saved_h)
    grads |= {"b_x": d_x.sum(axis=0), "b_h": d_state.sum(axis=0)}
    return of_x, of_h, d_h_prev, grads
