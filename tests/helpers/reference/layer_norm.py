"""Layer normalisation, and an LSTM with it over a sequence, from the equations.

    norm(s)  = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta, over the last axis
    [ī f̄ c̄ ō] = norm_x(x · w_x) + norm_h(h_prev · w_h) + b
    cs = norm_c(σ(ī) ∘ tanh(c̄) + σ(f̄) ∘ cs_prev)        h = σ(ō) ∘ tanh(cs)

cs, the state that the next step gets, is the normalised one. float64 throughout.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

WEIGHTS = ("w_x", "w_h", "b", "gamma_x", "beta_x", "gamma_h", "beta_h", "gamma_c", "beta_c")


def _sigmoid(x):
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def norm(s, gamma, beta, epsilon):
    """The normalised s, and what `norm_backward` needs."""
    mean = s.mean(axis=-1, keepdims=True)
    rstd = 1.0 / np.sqrt(((s - mean) ** 2).mean(axis=-1, keepdims=True) + epsilon)
    s_hat = (s - mean) * rstd
    return gamma * s_hat + beta, (s_hat, rstd)


def norm_backward(d, gamma, saved):
    """The gradients of s, gamma and beta, given that of norm(s); [B, N] rows."""
    s_hat, rstd = saved
    g = gamma * d
    # ∂s_hat/∂s as a matrix for each row: (1 − 1/N − s_hat s_hatᵀ/N) · rstd.
    n = s_hat.shape[-1]
    jacobian = np.eye(n) - 1.0 / n - s_hat[:, :, None] * s_hat[:, None, :] / n
    d_s = rstd * np.einsum("bi,bij->bj", g, jacobian)
    return d_s, (d * s_hat).sum(axis=0), d.sum(axis=0)


def step(weights: Mapping[str, np.ndarray], x, h_prev, cs_prev, epsilon):
    """h and cs of one step, and what `step_backward` needs; x is [B, I]."""
    units = h_prev.shape[-1]
    n_x, saved_x = norm(x @ weights["w_x"], weights["gamma_x"], weights["beta_x"], epsilon)
    n_h, saved_h = norm(h_prev @ weights["w_h"], weights["gamma_h"], weights["beta_h"], epsilon)
    z = n_x + n_h + weights["b"]
    i, f, o = (_sigmoid(z[:, k * units : (k + 1) * units]) for k in (0, 1, 3))
    ci = np.tanh(z[:, 2 * units : 3 * units])
    cs, saved_c = norm(i * ci + f * cs_prev, weights["gamma_c"], weights["beta_c"], epsilon)
    co = np.tanh(cs)
    return o * co, cs, (x, h_prev, cs_prev, i, f, o, ci, co, saved_x, saved_h, saved_c)


def step_backward(weights, saved, d_h, d_cs):
    """The gradients of x, h_prev, cs_prev and, by name, of the weights."""
    x, h_prev, cs_prev, i, f, o, ci, co, saved_x, saved_h, saved_c = saved
    d_cs = d_cs + d_h * o * (1.0 - co**2)
    d_c, d_gamma_c, d_beta_c = norm_backward(d_cs, weights["gamma_c"], saved_c)
    d_z = np.concatenate(
        [
            d_c * ci * i * (1.0 - i),
            d_c * cs_prev * f * (1.0 - f),
            d_c * i * (1.0 - ci**2),
            d_h * co * o * (1.0 - o),
        ],
        axis=1,
    )
    d_sx, d_gamma_x, d_beta_x = norm_backward(d_z, weights["gamma_x"], saved_x)
    d_sh, d_gamma_h, d_beta_h = norm_backward(d_z, weights["gamma_h"], saved_h)
    grads = {
        "w_x": x.T @ d_sx,
        "w_h": h_prev.T @ d_sh,
        "b": d_z.sum(axis=0),
        "gamma_x": d_gamma_x,
        "beta_x": d_beta_x,
        "gamma_h": d_gamma_h,
        "beta_h": d_beta_h,
        "gamma_c": d_gamma_c,
        "beta_c": d_beta_c,
    }
    return d_sx @ weights["w_x"].T, d_sh @ weights["w_h"].T, d_c * f, grads


def lstm(weights, x, h_prev, cs_prev, *, epsilon=1e-3, mask=None):
    """h, [T, B, H], h_last, cs_last, and what `lstm_backward` needs; x is [T, B, I].

    mask: [T, B]; where it is False the state is carried.
    """
    h, cs, outputs, steps = h_prev, cs_prev, [], []
    for t in range(len(x)):
        new_h, new_cs, saved = step(weights, x[t], h, cs, epsilon)
        keep = np.ones((len(h), 1), bool) if mask is None else mask[t][:, None]
        h, cs = np.where(keep, new_h, h), np.where(keep, new_cs, cs)
        outputs.append(h)
        steps.append((saved, keep))
    return np.stack(outputs) if outputs else np.zeros((0, *h.shape)), h, cs, steps


def lstm_backward(weights, steps, d_outputs, d_h_last, d_cs_last):
    """The gradients of x, h_prev, cs_prev, and by name of the weights."""
    d_h, d_cs, d_x = d_h_last, d_cs_last, []
    sums = {name: np.zeros_like(weights[name]) for name in WEIGHTS}
    for (saved, keep), d_output in zip(reversed(steps), d_outputs[::-1], strict=True):
        d_h = d_h + d_output
        d_x_t, d_h_t, d_cs_t, grads = step_backward(
            weights, saved, np.where(keep, d_h, 0.0), np.where(keep, d_cs, 0.0)
        )
        for name, grad in grads.items():
            sums[name] += grad
        d_x.append(d_x_t)
        d_h, d_cs = np.where(keep, d_h_t, d_h), np.where(keep, d_cs_t, d_cs)
    return np.stack(d_x[::-1]), d_h, d_cs, sums
