"""torch.nn.LSTM and torch.nn.GRU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import data
from bench.peers import base
from bench.shapes import Case

_LSTM = (0, 1, 2, 3)  # PyTorch: i, f, g, o
_GRU = (0, 1, 2)  # PyTorch: r, z (update), n


class Peer:
    """Time-major, which is PyTorch's default and needs no transpose."""

    def __init__(self, option: str, threads: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise base.Absent("PyTorch is not installed") from error
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        self._torch = torch

    def _layer(self, case: Case, arrays: data.Arrays) -> Any:
        torch = self._torch
        kind, order = (torch.nn.LSTM, _LSTM) if case.cell == "lstm" else (torch.nn.GRU, _GRU)
        layer = kind(case.inputs, case.units)
        bias = data.bias(arrays.b, order)
        with torch.no_grad():
            layer.weight_ih_l0.copy_(torch.from_numpy(data.gates_below(arrays.w, order)))
            layer.weight_hh_l0.copy_(torch.from_numpy(data.gates_below(arrays.r, order)))
            layer.bias_ih_l0.copy_(torch.from_numpy(bias))
            layer.bias_hh_l0.copy_(torch.from_numpy(np.zeros_like(bias)))
        return layer

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        torch = self._torch
        layer = self._layer(case, arrays)
        x = torch.from_numpy(arrays.x)
        if case.kind == "infer":
            layer.eval()

            def infer() -> Any:
                with torch.inference_mode():
                    return layer(x)[0]

            return base.Prepared(infer, lambda: base.Outcome(infer().numpy()))

        cotangent = torch.from_numpy(arrays.cotangent)
        x.requires_grad_(True)
        wanted = [x, *layer.parameters()]

        def step() -> tuple[Any, Any]:
            h = layer(x)[0]
            # The gradients of sum(h * cotangent), without paying for the sum itself.
            return h, torch.autograd.grad(h, wanted, cotangent)

        def outcome() -> base.Outcome:
            h, grads = step()
            return base.Outcome(h.detach().numpy(), grads[0].numpy())

        return base.Prepared(step, outcome)

    def product(self, size: int) -> Callable[[], object]:
        torch = self._torch
        a, b = (torch.from_numpy(m) for m in base.square(size))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out)
