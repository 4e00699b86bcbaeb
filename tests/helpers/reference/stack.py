"""The cuDNN RNN family: a stack of layers, each of one or two sequences.

Written from the layout of the parameters and of the states, not from the code under test. Arrays
are time-major. `backward` is checked against differences of `forward` and against PyTorch.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from . import sequence

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
    def layer_directions(self) -> int:
        return self.layers * self.directions

    def matrices(self, number: int) -> list[tuple[int, int]]:
        """Shapes of the matrices of a layer direction, in their order."""
        if number >= self.directions:
            columns = self.directions * self.width
        else:
            columns = 0 if self.skip else self.inputs
        shapes = [(self.units, columns)] * self.gates
        shapes += [(self.units, self.width)] * self.gates
        return shapes + [(self.num_proj, self.units)] * (self.num_proj > 0)

    def canonical_shapes(self) -> tuple[list[tuple[int, int]], list[tuple[int]]]:
        """Shapes of all weights and of all biases, in canonical order."""
        weights = [shape for k in range(self.layer_directions) for shape in self.matrices(k)]
        return weights, [(self.units,)] * (2 * self.gates * self.layer_directions)

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


# The cells and their gates in canonical order, as sequence.py names them.
_CELLS = {
    "rnn_relu": ("rnn", ("h",)),
    "rnn_tanh": ("rnn", ("h",)),
    "gru": ("gru_after", ("r", "u", "c")),
    "lstm": ("lstm", ("i", "f", "ci", "o")),
}


def _weight_views(net: Network, params: np.ndarray) -> list[dict[str, np.ndarray]]:
    """For each layer direction, views of its weights as a sequence has them: [columns, G·H]."""
    weights, biases = canonical(net, params)
    per_layer, g = len(net.matrices(0)), net.gates
    columns = g * net.units
    offsets = np.cumsum([0, *(w.size for w in weights), *(b.size for b in biases)])

    def joined(begin: int, end: int, *shape: int) -> np.ndarray:
        """Blocks that lie one after the other, as one array."""
        return params[offsets[begin] : offsets[end]].reshape(shape)

    found = []
    for k in range(net.layer_directions):
        first, first_bias = k * per_layer, len(weights) + 2 * g * k
        views = {"w_h": joined(first + g, first + 2 * g, columns, net.width).T}
        if not (net.skip and k < net.directions):
            views["w_x"] = joined(first, first + g, columns, weights[first].shape[1]).T
        if net.num_proj:
            views["w_p"] = weights[first + 2 * g]
        views["b_x" if net.mode == "gru" else "b"] = joined(first_bias, first_bias + g, columns)
        views["b_h"] = joined(first_bias + g, first_bias + 2 * g, columns)
        found.append(views)
    return found


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
        self._lengths = (steps,) * batch if lengths is None else tuple(int(n) for n in lengths)
        self.alive = np.arange(steps)[:, None] < np.array(self._lengths, int)
        self.masks = masks
        self.layer_inputs, self.sequences = [], []
        weights = _weight_views(net, self.params)
        for layer in range(net.layers):
            x = np.where(self.alive[..., None], x, 0.0)
            self.layer_inputs.append(x)
            first = layer * net.directions
            for k in range(first, first + net.directions):
                values = {"x": x, "h_prev": input_h[k], **weights[k]}
                if self.lstm:
                    values["cs_prev"] = input_c[k]
                cell, _ = _CELLS[net.mode]
                self.sequences.append(values | sequence.forward(cell, values, self._options(k)))
            x = np.concatenate([values["h"] for values in self.sequences[first:]], axis=-1)
            if layer + 1 < net.layers:
                x = stored(x)
                if masks is not None:
                    x = x * masks[layer]
        self.output = x
        self.output_h = np.stack([values["h_last"] for values in self.sequences])
        self.output_c = np.zeros(())
        if self.lstm:
            self.output_c = np.stack([values["cs_last"] for values in self.sequences])

    def _options(self, k: int) -> sequence.Options:
        net = self.net
        return sequence.Options(
            _CELLS[net.mode][1],
            backwards=k % net.directions == 1,
            lengths=self._lengths,
            skip_input=net.skip and k < net.directions,
            relu=net.mode == "rnn_relu",
            stored=self.stored,
        )

    def outputs(self) -> dict[str, np.ndarray]:
        return {"output": self.output, "output_h": self.output_h, "output_c": self.output_c}

    def states_before(self, k: int) -> np.ndarray:
        """[T, B, P]: h as each step of a layer direction reads it; zeros where there is no step."""
        return sequence.states_before(self.sequences[k], self._options(k))

    def backward(self, d_output, d_output_h, d_output_c) -> dict[str, np.ndarray]:
        """Gradients of all inputs; None counts as zeros."""
        net = self.net
        d_params = np.zeros_like(self.params)
        weights = _weight_views(net, d_params)
        zeros_c = np.zeros((*self.output_h.shape[:2], net.units))
        dh = np.zeros_like(self.output_h) if d_output_h is None else np.array(d_output_h, float)
        dc = zeros_c if d_output_c is None or not self.lstm else np.array(d_output_c, float)
        dx = np.zeros_like(self.output) if d_output is None else np.array(d_output, float)
        for layer in reversed(range(net.layers)):
            if self.masks is not None and layer + 1 < net.layers:
                dx = dx * self.masks[layer]
            parts = np.split(dx, net.directions, axis=-1)
            dx = 0.0
            for direction, part in enumerate(parts):
                k = layer * net.directions + direction
                given = {"h_grad": part, "h_last_grad": dh[k]}
                if self.lstm:
                    given["cs_last_grad"] = dc[k]
                grads = sequence.backward(
                    _CELLS[net.mode][0], self.sequences[k] | given, self._options(k)
                )
                dx = dx + grads["x"]
                dh[k] = grads["h_prev"]
                if self.lstm:
                    dc[k] = grads["cs_prev"]
                for name, view in weights[k].items():
                    view[...] = grads[name if name in grads else "b"]
        return {
            "input_backprop": dx,
            "input_h_backprop": dh,
            "input_c_backprop": dc,
            "params_backprop": d_params,
        }
