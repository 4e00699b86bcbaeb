"""This project's inference sessions: whole calls, NumPy in and NumPy out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import data
from bench.peers import base
from bench.shapes import Case


class Peer:
    """`option` is the precision of the weights. A call of one step is `Session.step`."""

    def __init__(self, option: str, threads: int) -> None:
        from tf_blockrnn import inference, weights

        self._inference, self._weights = inference, weights
        self._precision, self._threads = option, threads

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        weights = self._weights
        layers = [
            weights.LayerWeights(weights.DirectionWeights(one.w, one.r, one.b))
            for one in arrays.weights
        ]
        more = {"reset_after": True} if case.cell == "gru" else {}
        source = weights.RecurrentWeights(case.cell, layers, **more)
        session = self._inference.Session(source, self._precision, self._threads)
        # Sessions take [B, T, I]: the transpose is made here, outside of the measured call.
        x = np.ascontiguousarray(arrays.x.swapaxes(0, 1))
        call: Callable[[], Any]
        if case.steps == 1:
            frame = x[:, 0]

            def call() -> Any:
                return session.step(frame)
        else:

            def call() -> Any:
                return session.run(x)

        def outcome() -> base.Outcome:
            h = call()[0].reshape(case.batch, case.steps, -1)
            return base.Outcome(h.swapaxes(0, 1))

        return base.Prepared(call, outcome)
