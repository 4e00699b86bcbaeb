"""The oracle of the tests for whole sequences: NumPy float64, one step after the other.

A step is a cell of reference.py, or the GRU with the reset after the product, which stands here.
Nothing of the project is imported. Arrays of a sequence are [T, B, …]; everything is computed in
float64.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from helpers import reference


def _f64(*arrays):
    return tuple(np.asarray(a).astype(np.float64) for a in arrays)


def swap_gates(weights):
    """Columns ICFO to IFCO, and back: the second and third quarter change places."""
    quarters = np.split(np.asarray(weights), 4, axis=-1)
    return np.concatenate([quarters[k] for k in (0, 2, 1, 3)], axis=-1)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One step: step(x, *state) gives outputs, vjp(x, *state, cotangents) gradients of all inputs.

    vjp returns d_x, one gradient for each state, then those of the weights. `state_outputs` says
    which outputs are the next step's state.
    """

    step: Callable
    vjp: Callable
    state_outputs: tuple[int, ...]
    outputs: int


def lstm_cell(w, wci, wcf, wco, b, *, order="icfo", **attrs) -> Cell:
    """State cs, h; outputs i, cs, f, o, ci, co, h; weights w, wci, wcf, wco, b."""
    w, b = _f64(w, b)
    own = swap_gates if order == "ifco" else np.asarray
    weights = (own(w), wci, wcf, wco, own(b))

    def vjp(x, cs, h, cotangents):
        grads = reference.lstm_block_cell_vjp(x, cs, h, *weights, cotangents, **attrs)
        return (*grads[:3], own(grads[3]), *grads[4:7], own(grads[7]))

    return Cell(
        lambda x, cs, h: reference.lstm_block_cell(x, cs, h, *weights, **attrs), vjp, (1, 6), 7
    )


def gru_cell(w_ru, w_c, b_ru, b_c) -> Cell:
    """Reset before the product. State h; outputs r, u, c, h; weights w_ru, w_c, b_ru, b_c."""
    weights = (w_ru, w_c, b_ru, b_c)
    return Cell(
        lambda x, h: reference.gru_block_cell(x, h, *weights),
        lambda x, h, cotangents: reference.gru_block_cell_vjp(x, h, *weights, cotangents),
        (3,),
        4,
    )


def gru_after_step(x, h_prev, w_x, w_h, b_x, b_h):
    """Reset after the product: returns r, u, c, h. Columns of all weights: r, u, c."""
    x, h_prev, w_x, w_h, b_x, b_h = _f64(x, h_prev, w_x, w_h, b_x, b_h)
    units = h_prev.shape[1]
    from_x = x @ w_x + b_x
    from_h = h_prev @ w_h + b_h
    ru = reference.sigmoid(from_x[:, : 2 * units] + from_h[:, : 2 * units])
    r, u = ru[:, :units], ru[:, units:]
    c = np.tanh(from_x[:, 2 * units :] + r * from_h[:, 2 * units :])
    return r, u, c, (1.0 - u) * c + u * h_prev


def gru_after_vjp(x, h_prev, w_x, w_h, b_x, b_h, cotangents):
    """Gradients of the six inputs, for cotangents of r, u, c, h (None stands for zeros)."""
    x, h_prev, w_x, w_h, b_x, b_h = _f64(x, h_prev, w_x, w_h, b_x, b_h)
    units = h_prev.shape[1]
    r, u, c, _ = gru_after_step(x, h_prev, w_x, w_h, b_x, b_h)
    d_r, d_u, d_c, d_h = (
        np.zeros_like(r) if g is None else np.asarray(g).astype(np.float64) for g in cotangents
    )
    hc = h_prev @ w_h[:, 2 * units :] + b_h[2 * units :]
    d_u = d_u + d_h * (h_prev - c)
    d_c_bar = (d_c + d_h * (1.0 - u)) * (1.0 - c**2)
    d_r = d_r + d_c_bar * hc
    d_ru_bar = [d_r * r * (1.0 - r), d_u * u * (1.0 - u)]
    d_from_x = np.concatenate([*d_ru_bar, d_c_bar], axis=1)
    d_from_h = np.concatenate([*d_ru_bar, d_c_bar * r], axis=1)
    return (
        d_from_x @ w_x.T,
        d_from_h @ w_h.T + d_h * u,
        x.T @ d_from_x,
        h_prev.T @ d_from_h,
        d_from_x.sum(axis=0),
        d_from_h.sum(axis=0),
    )


def gru_after_cell(w_x, w_h, b_x, b_h) -> Cell:
    """State h; outputs r, u, c, h; weights w_x, w_h, b_x, b_h."""
    weights = (w_x, w_h, b_x, b_h)
    return Cell(
        lambda x, h: gru_after_step(x, h, *weights),
        lambda x, h, cotangents: gru_after_vjp(x, h, *weights, cotangents),
        (3,),
        4,
    )


def _steps(count: int, backwards: bool) -> list[int]:
    return list(range(count))[:: -1 if backwards else 1]


def _mask(x, mask):
    """[T, B, 1], true where a step counts."""
    return np.ones((*x.shape[:2], 1), bool) if mask is None else np.asarray(mask, bool)[..., None]


def forward(cell: Cell, x, state: Sequence, mask=None, backwards: bool = False):
    """Returns (outputs, last state, the states before each step).

    A masked step carries the state; what it puts out is the carried state, and zeros elsewhere.
    """
    x = np.asarray(x).astype(np.float64)
    state = _f64(*state)
    keep = _mask(x, mask)
    outputs = [np.zeros((*x.shape[:2], state[0].shape[1])) for _ in range(cell.outputs)]
    before = {}
    for t in _steps(len(x), backwards):
        before[t] = state
        results = list(cell.step(x[t], *state))
        for k, result in enumerate(results):
            carried = (
                state[cell.state_outputs.index(k)]
                if k in cell.state_outputs
                else np.zeros_like(result)
            )
            outputs[k][t] = results[k] = np.where(keep[t], result, carried)
        state = tuple(results[k] for k in cell.state_outputs)
    return outputs, state, before


def backward(
    cell: Cell, x, state: Sequence, cotangents: Sequence, last=None, mask=None, backwards=False
):
    """Gradients of x, of every initial state and of every weight.

    cotangents: for every output [T, B, H] or None. last: for every state after the last step
    [B, H] or None.
    """
    x = np.asarray(x).astype(np.float64)
    outputs, _, before = forward(cell, x, state, mask, backwards)
    keep = _mask(x, mask)
    zero = np.zeros_like(np.asarray(state[0]), np.float64)
    given = [
        np.zeros_like(o) if g is None else np.asarray(g).astype(np.float64)
        for o, g in zip(outputs, cotangents, strict=True)
    ]
    d_state = [
        zero if g is None else np.asarray(g).astype(np.float64)
        for g in (last or [None] * len(cell.state_outputs))
    ]
    d_x = np.zeros_like(x)
    # What a step of no rows gives: zeros of the weights' shapes.
    empty = cell.vjp(
        x[:0].reshape(0, x.shape[2]), *(s[:0] for s in _f64(*state)), [None] * len(given)
    )
    d_weights = [np.zeros_like(g) for g in empty[1 + len(cell.state_outputs) :]]
    for t in reversed(_steps(len(x), backwards)):
        at_step = [g[t] for g in given]
        for k, output in enumerate(cell.state_outputs):
            at_step[output] = at_step[output] + d_state[k]
        # A masked step passes what reaches its state on, and nothing else.
        passed = [np.where(keep[t], 0.0, at_step[output]) for output in cell.state_outputs]
        at_step = [np.where(keep[t], g, 0.0) for g in at_step]
        grads = cell.vjp(x[t], *before[t], at_step)
        d_x[t] = grads[0]
        d_state = [g + p for g, p in zip(grads[1:], passed, strict=False)]
        weight_grads = grads[1 + len(d_state) :]
        d_weights = [a + b for a, b in zip(d_weights, weight_grads, strict=True)]
    return d_x, *d_state, *d_weights


def _padded(array, steps: int):
    array = np.asarray(array)
    return np.concatenate([array, np.zeros((steps - len(array), *array.shape[1:]))])


def _block_forward(cell: Cell, seq_len_max, x, state):
    """Zeros past seq_len_max in every output."""
    x, valid = np.asarray(x), int(seq_len_max)
    outputs, _, _ = forward(cell, x[:valid], state)
    return tuple(_padded(o, len(x)) for o in outputs)


def _block_vjp(cell: Cell, seq_len_max, x, state, cotangents):
    x, valid = np.asarray(x), int(seq_len_max)
    cut = [None if g is None else np.asarray(g)[:valid] for g in cotangents]
    grads = backward(cell, x[:valid], state, cut)
    return _padded(grads[0], len(x)), *grads[1:]


def block_lstm(seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, *, order="icfo", **attrs):
    """Returns i, cs, f, o, ci, co, h, each [T, B, H]."""
    cell = lstm_cell(w, wci, wcf, wco, b, order=order, **attrs)
    return _block_forward(cell, seq_len_max, x, (cs_prev, h_prev))


def block_lstm_vjp(
    seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b, cotangents, *, order="icfo", **attrs
):
    """Gradients of x, cs_prev, h_prev, w, wci, wcf, wco, b for seven cotangents."""
    cell = lstm_cell(w, wci, wcf, wco, b, order=order, **attrs)
    return _block_vjp(cell, seq_len_max, x, (cs_prev, h_prev), cotangents)


def block_gru(seq_len_max, x, h_prev, w_ru, w_c, b_ru, b_c):
    """Returns r, u, c, h, each [T, B, H]."""
    return _block_forward(gru_cell(w_ru, w_c, b_ru, b_c), seq_len_max, x, (h_prev,))


def block_gru_vjp(seq_len_max, x, h_prev, w_ru, w_c, b_ru, b_c, cotangents):
    """Gradients of x, h_prev, w_ru, w_c, b_ru, b_c for four cotangents."""
    cell = gru_cell(w_ru, w_c, b_ru, b_c)
    return _block_vjp(cell, seq_len_max, x, (h_prev,), cotangents)


def block_lstm_grad(
    seq_len_max,
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
    h,
    cs_grad,
    h_grad,
    *,
    use_peephole,
    order="icfo",
):
    """BlockLSTMGrad from the residuals that it is given, whatever they are.

    Returns x_grad, cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad.
    """
    x, cs_prev, h_prev, w, b = _f64(x, cs_prev, h_prev, w, b)
    i, cs, f, o, ci, co, h, cs_grad, h_grad = _f64(i, cs, f, o, ci, co, h, cs_grad, h_grad)
    own = swap_gates if order == "ifco" else np.asarray
    w = own(w)
    inputs = x.shape[2]
    x_grad, w_grad, b_grad = np.zeros_like(x), np.zeros_like(w), np.zeros_like(b)
    peepholes = [np.zeros_like(np.asarray(p), np.float64) for p in (wci, wcf, wco)]
    d_cs, d_h = np.zeros_like(cs_prev), np.zeros_like(h_prev)
    for t in reversed(range(int(seq_len_max))):
        cs_before, h_before = (cs[t - 1], h[t - 1]) if t else (cs_prev, h_prev)
        d_cs, dicfo, *sums = reference.lstm_block_cell_grad(
            x[t],
            cs_before,
            h_before,
            w,
            wci,
            wcf,
            wco,
            b,
            i[t],
            cs[t],
            f[t],
            o[t],
            ci[t],
            co[t],
            cs_grad[t] + d_cs,
            h_grad[t] + d_h,
            use_peephole=use_peephole,
        )
        d_xh = dicfo @ w.T
        x_grad[t], d_h = d_xh[:, :inputs], d_xh[:, inputs:]
        w_grad += np.concatenate([x[t], h_before], axis=1).T @ dicfo
        b_grad += dicfo.sum(axis=0)
        peepholes = [a + s for a, s in zip(peepholes, sums, strict=True)]
    return x_grad, d_cs, d_h, own(w_grad), *peepholes, own(b_grad)


def block_gru_grad(seq_len_max, x, h_prev, w_ru, w_c, b_ru, b_c, r, u, c, h, h_grad):
    """BlockGRUGrad from the residuals that it is given, whatever they are.

    Returns x_grad, h_prev_grad, w_ru_grad, w_c_grad, b_ru_grad, b_c_grad.
    """
    x, h_prev, w_ru, w_c, b_ru, b_c = _f64(x, h_prev, w_ru, w_c, b_ru, b_c)
    r, u, c, h, h_grad = _f64(r, u, c, h, h_grad)
    x_grad, d_h = np.zeros_like(x), np.zeros_like(h_prev)
    w_ru_grad, w_c_grad = np.zeros_like(w_ru), np.zeros_like(w_c)
    b_ru_grad, b_c_grad = np.zeros_like(b_ru), np.zeros_like(b_c)
    for t in reversed(range(int(seq_len_max))):
        before = h[t - 1] if t else h_prev
        x_grad[t], d_h, d_c_bar, d_ru_bar = reference.gru_block_cell_grad(
            x[t], before, w_ru, w_c, b_ru, b_c, r[t], u[t], c[t], h_grad[t] + d_h
        )
        w_ru_grad += np.concatenate([x[t], before], axis=1).T @ d_ru_bar
        w_c_grad += np.concatenate([x[t], before * r[t]], axis=1).T @ d_c_bar
        b_ru_grad += d_ru_bar.sum(axis=0)
        b_c_grad += d_c_bar.sum(axis=0)
    return x_grad, d_h, w_ru_grad, w_c_grad, b_ru_grad, b_c_grad
