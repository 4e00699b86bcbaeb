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


def _sigmoid(x):
    return 0.5 * (1.0 + np.tanh(0.5 * x))


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
    gate = {
        name: (np.tanh if name == "ci" else _sigmoid)(z[:, where])
        for name, where in columns.items()
    }
    c = gate["i"] * gate["ci"] + gate["f"] * cs_prev
    saved_c = normalized(c, epsilon)
    read = _norm("c", saved_c, weights)
    saved = (gate, cs_prev, read, saved_x, saved_h, saved_c)
    return gate["o"] * np.tanh(read), c if output_only else read, saved


def lstm_backward(saved, d_h, d_cs, weights: Mapping, columns: Mapping, output_only):
    """The gradients of of_x, of_h and cs_prev, and by name of the vectors among the weights."""
    gate, cs_prev, read, saved_x, saved_h, saved_c = saved
    co = np.tanh(read)
    d_read = d_h * gate["o"] * (1.0 - co**2) + (0.0 if output_only else d_cs)
    d_c, d_gamma_c, d_beta_c = norm_backward(d_read, weights["gamma_c"], saved_c)
    d_c = d_c + d_cs if output_only else d_c
    of_gates = {"i": d_c * gate["ci"], "f": d_c * cs_prev, "ci": d_c * gate["i"], "o": d_h * co}
    d_z = np.zeros_like(saved_x[0])
    for name, where in columns.items():
        slope = 1.0 - gate[name] ** 2 if name == "ci" else gate[name] * (1.0 - gate[name])
        d_z[:, where] = of_gates[name] * slope
    d_x, d_gamma_x, d_beta_x = norm_backward(d_z, weights["gamma_x"], saved_x)
    d_h, d_gamma_h, d_beta_h = norm_backward(d_z, weights["gamma_h"], saved_h)
    grads = {
        "b": d_z.sum(axis=0),
        **{"gamma_x": d_gamma_x, "beta_x": d_beta_x},
        **{"gamma_h": d_gamma_h, "beta_h": d_beta_h},
        **{"gamma_c": d_gamma_c, "beta_c": d_beta_c},
    }
    return d_x, d_h, d_c * gate["f"], grads


def gru_forward(saved_x, saved_h, h_prev, weights: Mapping, columns: Mapping):
    """h of one step, and what `gru_backward` needs.

    saved_x, saved_h: of x · w_x and h_prev · w_h, [B, 3H]; columns: of each gate, by its name.
    """
    n_x = _norm("x", saved_x, weights) + weights["b_x"]
    n_h = _norm("h", saved_h, weights) + weights["b_h"]
    from_x = {name: n_x[:, where] for name, where in columns.items()}
    from_h = {name: n_h[:, where] for name, where in columns.items()}
    r, u = (_sigmoid(from_x[name] + from_h[name]) for name in "ru")
    c = np.tanh(from_x["c"] + r * from_h["c"])
    saved = (r, u, c, from_h["c"], h_prev, saved_x, saved_h)
    return u * h_prev + (1.0 - u) * c, saved


def gru_backward(saved, d_h, weights: Mapping, columns: Mapping):
    """The gradients of of_x and of_h, that of h_prev but for what passes of_h, and by name of the
    vectors among the weights."""
    r, u, c, hc, h_prev, saved_x, saved_h = saved
    d_c = d_h * (1.0 - u) * (1.0 - c**2)
    d_gates = {"r": d_c * hc * r * (1.0 - r), "u": d_h * (h_prev - c) * u * (1.0 - u), "c": d_c}
    d_x, d_state = np.zeros_like(saved_x[0]), np.zeros_like(saved_h[0])
    for name, where in columns.items():
        d_x[:, where] = d_gates[name]
        d_state[:, where] = d_gates[name] * (r if name == "c" else 1.0)
    of_x, d_gamma_x, d_beta_x = norm_backward(d_x, weights["gamma_x"], saved_x)
    of_h, d_gamma_h, d_beta_h = norm_backward(d_state, weights["gamma_h"], saved_h)
    grads = {
        **{"b_x": d_x.sum(axis=0), "b_h": d_state.sum(axis=0)},
        **{"gamma_x": d_gamma_x, "beta_x": d_beta_x},
        **{"gamma_h": d_gamma_h, "beta_h": d_beta_h},
    }
    return of_x, of_h, d_h * u, grads
