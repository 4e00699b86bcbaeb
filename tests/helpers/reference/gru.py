"""One step of the GRU, after the GEMMs of its gates: from pre-activations to the state, and back.

    r = σ(r_bar)    u = σ(u_bar)    h = u ∘ h_prev + (1 - u) ∘ c
    c = tanh(x W + b_x + r ∘ hc),  hc = h_prev W + b_h      the reset after the GEMM
    c = tanh(x W + b_x + (r ∘ h_prev) W)                    the reset before the GEMM

All arrays are [B, H]. Forward can have other functions in the place of σ and tanh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .numbers import activations

SAVED_AFTER = ("r", "u", "c", "hc")
SAVED_BEFORE = ("r", "u", "c")


def forward_after(
    from_x: Mapping, from_h: Mapping, h_prev, *, identity=False, functions=None
) -> dict:
    """r, u, c, hc and h by name; from_x and from_h: what x and h_prev give to r, u and c."""
    gate, candidate = functions or activations(identity)
    r, u = (gate(from_x[name] + from_h[name]) for name in "ru")
    hc = from_h["c"]
    c = candidate(from_x["c"] + r * hc)
    return {"r": r, "u": u, "c": c, "hc": hc, "h": u * h_prev + (1.0 - u) * c}


def forward_before(
    bars: Mapping, c_bar_of: Callable, h_prev, *, identity=False, functions=None
) -> dict:
    """r, u, c and h by name; bars of r and u, c_bar_of(r ∘ h_prev) gives the one of c."""
    gate, candidate = functions or activations(identity)
    r, u = gate(bars["r"]), gate(bars["u"])
    c = candidate(c_bar_of(r * h_prev))
    return {"r": r, "u": u, "c": c, "h": u * h_prev + (1.0 - u) * c}


def _from_h(saved: Mapping, h_prev, grads: Mapping):
    """d_c_bar, d_u_bar, and what h passes on to h_prev by itself."""
    u, c, d_h = saved["u"], saved["c"], grads.get("h", 0.0)
    d_c_bar = (grads.get("c", 0.0) + d_h * (1.0 - u)) * (1.0 - c * c)
    d_u_bar = (grads.get("u", 0.0) + d_h * (h_prev - c)) * u * (1.0 - u)
    return d_c_bar, d_u_bar, d_h * u


def backward_after(saved: Mapping, h_prev, grads: Mapping):
    """Returns d_from_x and d_from_h of r, u and c by name, and the direct part of d_h_prev.

    saved: what the forward returned, or what an op saved for backward. grads: the gradients of r,
    u, c and h, by name; a missing one counts as zeros.
    """
    d_c_bar, d_u_bar, d_h_prev = _from_h(saved, h_prev, grads)
    r = saved["r"]
    d_r_bar = (grads.get("r", 0.0) + d_c_bar * saved["hc"]) * r * (1.0 - r)
    d_from_x = {"r": d_r_bar, "u": d_u_bar, "c": d_c_bar}
    return d_from_x, {**d_from_x, "c": d_c_bar * r}, d_h_prev


def backward_before(saved: Mapping, h_prev, grads: Mapping, d_hr_of: Callable):
    """Returns d_bars of r, u and c by name, and d_h_prev but for what passes r's and u's weights.

    As backward_after; d_hr_of(d_c_bar) gives the gradient of r ∘ h_prev.
    """
    d_c_bar, d_u_bar, d_h_prev = _from_h(saved, h_prev, grads)
    r, d_hr = saved["r"], d_hr_of(d_c_bar)
    d_r_bar = (grads.get("r", 0.0) + d_hr * h_prev) * r * (1.0 - r)
    return {"r": d_r_bar, "u": d_u_bar, "c": d_c_bar}, d_h_prev + d_hr * r
