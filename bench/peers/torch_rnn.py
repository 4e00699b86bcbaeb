"""torch.nn.LSTM, torch.nn.GRU and torch.nn.RNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import data
from bench.peers import base
from bench.shapes import GATES, Case

_PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Peer:
    """Time-major, which is PyTorch's default and needs no transpose.

    `option`: nothing, or "call" for whole calls, NumPy in and NumPy out, then ",int8" for weights
    in int8, or nothing.
    """

    def __init__(self, option: str, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self._torch = torch
        more = option.split(",")
        self._calls, self._int8 = "call" in more, "int8" in more

    def _layer(self, case: Case, arrays: data.Arrays) -> Any:
        torch = self._torch
        kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[case.cell]
        layer = kind(
            case.inputs, case.units, num_layers=case.layers, bidirectional=case.directions == 2
        )
        order = tuple(range(GATES[case.cell]))  # i, f, g, o and r, z (update), n
        with torch.no_grad():
            for number, weights in enumerate(arrays.weights):
                level, direction = divmod(number, case.directions)
                w, r, bias = weights.below(order)
                values = (w, r, bias, np.zeros_like(bias))
                for name, value in zip(_PARAMETERS, values, strict=True):
                    parameter = getattr(layer, f"{name}_l{level}{'_reverse' * direction}")
                    parameter.copy_(torch.from_numpy(value))
        return layer.to(getattr(torch, case.dtype))

    def _forward(self, case: Case, layer: Any) -> Callable[[Any], Any]:
        """x -> h; rows of different lengths are packed, as PyTorch requires, and padded again."""
        if case.lengths == "full":
            return lambda x: layer(x)[0]
        rnn = self._torch.nn.utils.rnn
        lengths = self._torch.tensor(case.row_lengths())

        def forward(x: Any) -> Any:
            packed = rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
            return rnn.pad_packed_sequence(layer(packed)[0], total_length=case.steps)[0]

        return forward

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        torch = self._torch
        dtype = getattr(torch, case.dtype)
        layer = self._layer(case, arrays)
        if self._calls:
            return self._whole_calls(layer, arrays)
        forward = self._forward(case, layer)
        x = torch.from_numpy(arrays.x).to(dtype)
        if case.kind == "infer":
            layer.eval()

            def infer() -> Any:
                with torch.inference_mode():
                    return forward(x)

            return base.Prepared(infer, lambda: base.Outcome(infer().float().numpy()))

        cotangent = torch.from_numpy(arrays.cotangent).to(dtype)
        x.requires_grad_(True)
        wanted = [x, *layer.parameters()]

        def step() -> tuple[Any, Any]:
            h = forward(x)
            # The gradients of sum(h * cotangent), without computing the sum itself.
            return h, torch.autograd.grad(h, wanted, cotangent)

        def outcome() -> base.Outcome:
            h, grads = step()
            return base.Outcome(h.detach().float().numpy(), grads[0].float().numpy())

        return base.Prepared(step, outcome)

    def _whole_calls(self, layer: Any, arrays: data.Arrays) -> base.Prepared:
        torch = self._torch
        layer.eval()
        if self._int8:
            quantise = torch.ao.quantization.quantize_dynamic
            # It replaces the layers within a module, so the layer is put into one.
            layer = quantise(torch.nn.Sequential(layer), {type(layer)}, torch.qint8)[0]

        def call() -> np.ndarray:
            with torch.inference_mode():
                return layer(torch.from_numpy(arrays.x))[0].numpy()

        return base.Prepared(call, lambda: base.Outcome(call()))

    def gemm(self, size: int) -> Callable[[], object]:
        torch = self._torch
        a, b = (torch.from_numpy(m) for m in base.square(size))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)
