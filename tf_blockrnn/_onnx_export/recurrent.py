"""ONNX's LSTM, GRU and RNN nodes with the weights in the layout of our ops.

ONNX's weights are W [D, G·H, I], R [D, G·H, H] and B [D, 2·G·H] for D directions and G gates, the
gates in the orders i, o, f, c and z, r, h (https://onnx.ai/onnx/operators/onnx__LSTM.html); ours
are [I, G·H] and [H, G·H].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_blockrnn._onnx_export.emitter import Emitter
from tf_blockrnn._onnx_export.steps import Steps


@dataclasses.dataclass(frozen=True)
class Cell:
    """The weights of one direction, with columns in our order.

    gates: for each of ONNX's gates in its order, its place in ours.
    """

    op_type: str
    units: int
    gates: Sequence[int]
    w_x: str
    w_h: str
    b_x: str
    b_h: str = ""  # zeros
    peepholes: str = ""  # [3·H], in ONNX's order i, o, f
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Result:
    """Time-major outputs [T, B, H] and the last states [B, H]."""

    h: str
    last: list[str]


def run(
    emit: Emitter, cell: Cell, x: str, states: Sequence[str], steps: Steps, go_backwards: bool
) -> Result:
    """Emits a node. x is [T, B, I]; states are h and, of an LSTM, c."""
    width = cell.units * len(cell.gates)

    def matrix(w: str) -> str:
        columns = emit.take_blocks(w, 1, cell.units, cell.gates)
        return emit.unsqueeze(emit.transpose(columns, 1, 0), 0)

    def bias(b: str) -> str:
        if not b:
            return emit.const([0.0] * width, emit.numpy_dtype(cell.b_x))
        return emit.take_blocks(b, 0, cell.units, cell.gates)

    inputs = [
        steps.gathered(emit, x),
        matrix(cell.w_x),
        matrix(cell.w_h),
        emit.unsqueeze(emit.concat([bias(cell.b_x), bias(cell.b_h)], 0), 0),
        steps.lens,
        *(emit.unsqueeze(state, 0) for state in states),
    ]
    if cell.peepholes:
        inputs.append(emit.unsqueeze(cell.peepholes, 0))
    y, *last = emit.ops(
        cell.op_type,
        inputs,
        1 + len(states),
        hidden_size=cell.units,
        direction="reverse" if go_backwards else "forward",
        **cell.attrs,
    )
    h = steps.scattered(emit, emit.squeeze(y, 1), states[0])
    last = [
        steps.last(emit, emit.squeeze(state, 0), before)
        for state, before in zip(last, states, strict=True)
    ]
    return Result(h, last)
