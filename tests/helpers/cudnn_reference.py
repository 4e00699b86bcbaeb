"""The cuDNN RNN family in NumPy float64: what the ops must compute, forward and backward.

Written from the equations and from the layout of the parameters, not from the code under test.
Everything is time-major inside, and a row that has ended is carried along by a mask, which is not
how the ops do it. `backward` is checked against differences of `forward` and against PyTorch.
"""

from __future__ import annotations

import dataclasses

import numpy as np

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


@dataclasses.dataclass(frozen=True)
class Network:
    """The sizes of a stack: L layers of D directions, I inputs, H units, P of them handed on."""

    mode: str
    layers: int
    directions: int
    inputs: int
    units: int
    num_proj: int = 0
    skip: bool = False  # layer 0 adds its input to every gate, without a matrix

    @property
    def gates(self) -> int:
        return GATES[self.mode]

    @property
    def width(self) -> int:
        """P: the size of one direction's output and of its state h."""
        return self.num_proj or self.units

    @property
    def pseudo_layers(self) -> int:
        return self.layers * self.directions

    def matrices(self, pseudo: int) -> list[tuple[int, int]]:
        """Shapes of the matrices of a pseudo-layer, in their order."""
        if pseudo >= self.directions:
            columns = self.directions * self.width
        else:
            columns = 0 if self.skip else self.inputs
        shapes = [(self.units, columns)] * self.gates
        shapes += [(self.units, self.width)] * self.gates
        return shapes + [(self.num_proj, self.units)] * (self.num_proj > 0)

    def canonical_shapes(self) -> tuple[list[tuple[int, int]], list[tuple[int]]]:
        """Shapes of all weights and of all biases, in canonical order."""
        weights = [shape for k in range(self.pseudo_layers) for shape in self.matrices(k)]
        return weights, [(self.units,)] * (2 * self.gates * self.pseudo_layers)

    def params_size(self) -> int:
        weights, biases = self.canonical_shapes()
        return sum(rows * columns for rows, columns in weights) + self.units * len(biases)


def canonical(net: Network, params: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Views of the flat params: all weights, then all biases."""
    views, begin = [], 0
    weights, biases = net.canonical_shapes()
    for shape in (*weights, *biases):
        end = begin + int(np.prod(shape))
        views.append(params[begin:end].reshape(shape))
        begin = end
    assert begin == params.size, f"{params.size} params for a network of {begin}"
    return views[: len(weights)], views[len(weights) :]


@dataclasses.dataclass
class _Cell:
    """The parameters of one pseudo-layer; gates first: w is [G, H, width]."""

    w: np.ndarray | None
    r: np.ndarray
    b_w: np.ndarray
    b_r: np.ndarray
    projection: np.ndarray | None


def _cells(net: Network, params: np.ndarray) -> list[_Cell]:
    weights, biases = canonical(net, params)
    per_layer, g = len(net.matrices(0)), net.gates
    cells = []
    for k in range(net.pseudo_layers):
        own = weights[k * per_layer : (k + 1) * per_layer]
        own_biases = biases[2 * g * k : 2 * g * (k + 1)]
        skipped = net.skip and k < net.directions
        cells.append(
            _Cell(
                None if skipped else np.stack(own[:g]),
                np.stack(own[g : 2 * g]),
                np.stack(own_biases[:g]),
                np.stack(own_biases[g:]),
                own[2 * g] if net.num_proj else None,
            )
        )
    return cells


def _sigmoid(x):
    return 0.5 * (1.0 + np.tanh(0.5 * x))


@dataclasses.dataclass
class _Step:
    """What one step of a cell leaves for its gradient."""

    t: int
    h_prev: np.ndarray
    c_prev: np.ndarray | None
    gates: tuple[np.ndarray, ...]


def _step(mode, cell, zx, h, c):
    """New h and c, and the gates; zx = W x + b_W is [B, G, H]."""
    zh = np.einsum("bp,ghp->bgh", h, cell.r) + cell.b_r
    if mode == "lstm":
        z = zx + zh
        i, f, o = _sigmoid(z[:, 0]), _sigmoid(z[:, 1]), _sigmoid(z[:, 3])
        g = np.tanh(z[:, 2])
        c = f * c + i * g
        m = o * np.tanh(c)
        h = m if cell.projection is None else m @ cell.projection.T
        return h, c, (i, f, g, o, c)
    if mode == "gru":
        r, u = _sigmoid(zx[:, 0] + zh[:, 0]), _sigmoid(zx[:, 1] + zh[:, 1])
        hc = zh[:, 2]
        new = np.tanh(zx[:, 2] + r * hc)
        return (1 - u) * new + u * h, None, (r, u, new, hc)
    z = (zx + zh)[:, 0]
    h = np.maximum(z, 0) if mode == "rnn_relu" else np.tanh(z)
    return h, None, (h,)


def _step_backward(mode, cell, step, dh, dc):
    """(dzx, dzh, dh_prev, dc_prev, m): the gradients; m is what the projection was applied to."""
    m, dh_carry = None, 0.0
    if mode == "lstm":
        i, f, g, o, c = step.gates
        if cell.projection is not None:
            m = o * np.tanh(c)
            dh_own = dh @ cell.projection
        else:
            dh_own = dh
        do = dh_own * np.tanh(c) * o * (1 - o)
        dc = dc + dh_own * o * (1 - np.tanh(c) ** 2)
        di, df = dc * g * i * (1 - i), dc * step.c_prev * f * (1 - f)
        dg = dc * i * (1 - g**2)
        dzx = dzh = np.stack([di, df, dg, do], axis=1)
        dc = dc * f
    elif mode == "gru":
        r, u, new, hc = step.gates
        dnew = dh * (1 - u) * (1 - new**2)
        dr = dnew * hc * r * (1 - r)
        du = dh * (step.h_prev - new) * u * (1 - u)
        dzx = np.stack([dr, du, dnew], axis=1)
        dzh = np.stack([dr, du, dnew * r], axis=1)
        dh_carry = dh * u
    else:
        (h,) = step.gates
        slope = (h > 0).astype(np.float64) if mode == "rnn_relu" else 1 - h**2
        dzx = dzh = (dh * slope)[:, None]
    dh_prev = np.einsum("bgh,ghp->bp", dzh, cell.r) + dh_carry
    return dzx, dzh, dh_prev, dc, m


def _order(steps: int, direction: int):
    return range(steps) if direction == 0 else range(steps - 1, -1, -1)


class Run:
    """One forward pass; `backward` gives its gradients.

    x [T, B, I], input_h [L·D, B, P], input_c [L·D, B, H] (read for lstm only); lengths [B] or
    None; masks: for every layer but the last an array [T, B, D·P], 0 or 1 / (1 - p), or None;
    stored: what becomes of a layer's output on its way to the next layer and, in the rnn modes, to
    the next step; nothing else is rounded.
    """

    def __init__(
        self, net, x, input_h, input_c, params, lengths=None, masks=None, stored=lambda v: v
    ):
        self.net, self.lstm, self.stored = net, net.mode == "lstm", stored
        x, input_h, input_c, self.params = (
            np.asarray(v).astype(np.float64) for v in (x, input_h, input_c, params)
        )
        steps, batch = x.shape[:2]
        lengths = np.full(batch, steps) if lengths is None else np.asarray(lengths)
        self.alive = np.arange(steps)[:, None] < lengths
        self.masks = masks
        self.cells = _cells(net, self.params)
        self.layer_inputs, self.steps = [], {}
        self.output_h = input_h.copy()
        self.output_c = input_c.copy() if self.lstm else np.zeros(())
        for layer in range(net.layers):
            x = np.where(self.alive[..., None], x, 0.0)
            self.layer_inputs.append(x)
            parts = [
                self._run(layer * net.directions + d, d, x, input_h, input_c)
                for d in range(net.directions)
            ]
            x = np.concatenate(parts, axis=-1)
            if layer + 1 < net.layers:
                x = stored(x)
                if masks is not None:
                    x = x * masks[layer]
        self.output = x

    def _run(self, k, direction, x, input_h, input_c):
        cell, net = self.cells[k], self.net
        zx = x[:, :, None, :] if cell.w is None else np.einsum("tbi,ghi->tbgh", x, cell.w)
        zx = zx + cell.b_w
        h, c = input_h[k], input_c[k] if self.lstm else None
        out = np.zeros((*x.shape[:2], net.width))
        self.steps[k] = []
        for t in _order(x.shape[0], direction):
            alive = self.alive[t][:, None]
            h_new, c_new, gates = _step(net.mode, cell, zx[t], h, c)
            if net.gates == 1:
                h_new = self.stored(h_new)
            self.steps[k].append(_Step(t, h, c, gates))
            out[t] = np.where(alive, h_new, 0.0)
            h = np.where(alive, h_new, h)
            c = np.where(alive, c_new, c) if self.lstm else None
        self.output_h[k] = h
        if self.lstm:
            self.output_c[k] = c
        return out

    def outputs(self) -> dict[str, np.ndarray]:
        return {"output": self.output, "output_h": self.output_h, "output_c": self.output_c}

    def backward(self, d_output, d_output_h, d_output_c) -> dict[str, np.ndarray]:
        """Gradients of all inputs; None counts as zeros."""
        net = self.net
        d_params = np.zeros_like(self.params)
        zeros_c = np.zeros((*self.output_h.shape[:2], net.units))
        dh = np.zeros_like(self.output_h) if d_output_h is None else np.array(d_output_h, float)
        dc = zeros_c if d_output_c is None or not self.lstm else np.array(d_output_c, float)
        dx = np.zeros_like(self.output) if d_output is None else np.array(d_output, float)
        for layer in reversed(range(net.layers)):
            if self.masks is not None and layer + 1 < net.layers:
                dx = dx * self.masks[layer]
            parts = np.split(dx, net.directions, axis=-1)
            dx = sum(
                self._run_backward(layer * net.directions + d, parts[d], dh, dc, d_params)
                for d in range(net.directions)
            )
        return {
            "input_backprop": dx,
            "input_h_backprop": dh,
            "input_c_backprop": dc,
            "params_backprop": d_params,
        }

    def _run_backward(self, k, d_out, dh_all, dc_all, d_params):
        """The gradient of the layer's input; turns dh_all[k], dc_all[k] into the first state's."""
        net, cell, x = self.net, self.cells[k], self.layer_inputs[k // self.net.directions]
        steps, batch = x.shape[:2]
        dzx = np.zeros((steps, batch, net.gates, net.units))
        dzh, h_prev = dzx.copy(), np.zeros((steps, batch, net.width))
        d_projection = np.zeros((net.width, net.units))
        dh, dc = dh_all[k], dc_all[k]
        for step in reversed(self.steps[k]):
            t, alive = step.t, self.alive[step.t][:, None]
            total = np.where(alive, d_out[t] + dh, 0.0)
            zx, zh, dh_new, dc_new, m = _step_backward(
                net.mode, cell, step, total, np.where(alive, dc, 0.0)
            )
            dzx[t], dzh[t], h_prev[t] = zx, zh, step.h_prev
            if m is not None:
                d_projection += total.T @ m
            dh = np.where(alive, dh_new, dh)
            dc = np.where(alive, dc_new, dc)
        dh_all[k], dc_all[k] = dh, dc
        self._add_params(k, d_params, x, (dzx, dzh, h_prev, d_projection))
        return dzx.sum(axis=2) if cell.w is None else np.einsum("tbgh,ghi->tbi", dzx, cell.w)

    def _add_params(self, k, d_params, x, gradients):
        dzx, dzh, h_prev, d_projection = gradients
        net, g = self.net, self.net.gates
        weights, biases = canonical(net, d_params)
        per_layer = len(net.matrices(0))
        own, own_biases = weights[k * per_layer :], biases[2 * g * k :]
        for gate in range(g):
            if self.cells[k].w is not None:
                own[gate][:] = np.einsum("tbh,tbi->hi", dzx[:, :, gate], x)
            own[g + gate][:] = np.einsum("tbh,tbp->hp", dzh[:, :, gate], h_prev)
            own_biases[gate][:] = dzx[:, :, gate].sum(axis=(0, 1))
            own_biases[g + gate][:] = dzh[:, :, gate].sum(axis=(0, 1))
        if net.num_proj:
            own[2 * g][:] = d_projection
