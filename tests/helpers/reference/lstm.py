"""One step of the LSTM, after its GEMMs: from pre-activations to the state, and back.

    i = σ(i_bar + wci ∘ cs_prev)    f = σ(f_bar + forget_bias + wcf ∘ cs_prev)    ci = tanh(ci_bar)
    cs = clip(i ∘ ci + f ∘ cs_prev)    o = σ(o_bar + wco ∘ cs)    co = tanh(cs)    m = o ∘ co

h is m, or its projection. All arrays are [B, H], the peepholes [H]. Forward can have other
functions in the place of σ and tanh.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .numbers import activations

SAVED = ("i", "cs", "f", "o", "ci", "co")


def forward(
    bars: Mapping[str, np.ndarray],
    cs_prev,
    *,
    peepholes=None,
    forget_bias=0.0,
    cell_clip=0.0,
    identity=False,
    functions=None,
) -> dict[str, np.ndarray]:
    """i, cs, f, o, ci and co by name.

    bars: the pre-activations of i, ci, f and o. peepholes: (wci, wcf, wco) or None.
    """
    gate, candidate = functions or activations(identity)
    i_bar, f_bar, o_bar = bars["i"], bars["f"] + forget_bias, bars["o"]
    if peepholes is not None:
        i_bar = i_bar + cs_prev * peepholes[0]
        f_bar = f_bar + cs_prev * peepholes[1]
    i, f, ci = gate(i_bar), gate(f_bar), candidate(bars["ci"])
    cs = i * ci + f * cs_prev
    if cell_clip > 0:  # False for NaN
        cs = np.clip(cs, -cell_clip, cell_clip)  # leaves NaN
    if peepholes is not None:
        o_bar = o_bar + cs * peepholes[2]
    return {"i": i, "cs": cs, "f": f, "o": gate(o_bar), "ci": ci, "co": candidate(cs)}


def backward(saved: Mapping[str, np.ndarray], cs_prev, grads: Mapping, *, peepholes=None):
    """Returns d_bars of i, ci, f and o by name, d_cs_prev, and [d_wci, d_wcf, d_wco].

    saved: what `forward` returned, or what an op saved for backward. grads: the gradients of any
    of its values and of m, by name; a missing one counts as zeros. The clip is straight-through.
    """
    i, cs, f, o, ci, co = (saved[name] for name in SAVED)
    d_m = grads.get("m", 0.0)
    d_o_bar = (grads.get("o", 0.0) + d_m * co) * o * (1.0 - o)
    d_cs = grads.get("cs", 0.0) + (grads.get("co", 0.0) + d_m * o) * (1.0 - co * co)
    if peepholes is not None:
        d_cs = d_cs + d_o_bar * peepholes[2]
    d_bars = {
        "i": (grads.get("i", 0.0) + d_cs * ci) * i * (1.0 - i),
        "ci": (grads.get("ci", 0.0) + d_cs * i) * (1.0 - ci * ci),
        "f": (grads.get("f", 0.0) + d_cs * cs_prev) * f * (1.0 - f),
        "o": d_o_bar,
    }
    d_cs_prev = d_cs * f
    if peepholes is None:
        return d_bars, d_cs_prev, []
    d_cs_prev = d_cs_prev + d_bars["i"] * peepholes[0] + d_bars["f"] * peepholes[1]
    d_peepholes = [d_bars["i"] * cs_prev, d_bars["f"] * cs_prev, d_o_bar * cs]
    return d_bars, d_cs_prev, [d.sum(axis=0) for d in d_peepholes]
