"""Lowering of the CudnnRNN ops: a stack of layers becomes a node for each layer and direction.

The layout of the flat params is that of the ops' help: for each layer and direction the matrices W
of the gates, [H, width], then R, [H, H]; after those of all layers, in the same order, the biases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from tf_blockrnn._onnx_export import recurrent, sequences
from tf_blockrnn._onnx_export.emitter import Emitter, Unsupported
from tf_blockrnn._onnx_export.recurrent import Cell
from tf_blockrnn._onnx_export.steps import Steps

# ONNX's node, its gates' places in cuDNN's order, and its attributes.
_MODES = {
    "lstm": ("LSTM", sequences.LSTM_IFCO, {}),
    "gru": ("GRU", sequences.GRU_RUC, {"linear_before_reset": 1}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
    "rnn_tanh": ("RNN", (0,), {"activations": ["Tanh"]}),
}


class _Params:
    """Reads the flat params from the front to the back."""

    def __init__(self, emit: Emitter, params: str):
        self._emit, self._params, self._next = emit, params, 0

    def take(self, *shape: int) -> str:
        start, self._next = self._next, self._next + int(np.prod(shape))
        flat = self._emit.slice(self._params, 0, start, self._next)
        return self._emit.op("Reshape", flat, self._emit.ints(*shape))


def _check(emit: Emitter, version: int) -> None:
    if version == 3 and emit.attr("num_proj"):
        raise Unsupported("it has a projection, ONNX's LSTM has none")
    if emit.attr("is_training") and emit.attr("dropout"):
        raise Unsupported("it has dropout; export the model for inference")


def _cells(emit: Emitter, directions: int) -> Iterator[Cell]:
    """For each layer and direction."""
    x, input_h, _, params = emit.inputs[:4]
    op_type, gates, attrs = _MODES[emit.attr("rnn_mode")]
    units, inputs = emit.known_dim(input_h, 2, "the state"), emit.known_dim(x, 2, "the input")
    mode, width = emit.attr("input_mode"), units * len(gates)
    skips = mode == "skip_input" or (mode == "auto_select" and inputs == units)
    read = _Params(emit, params)
    matrices = []
    for n in range(_layers_and_directions(emit)):
        if n < directions and skips:
            one = np.tile(np.eye(units), len(gates))
            w_x = emit.const(one, emit.numpy_dtype(x))
        else:
            columns = inputs if n < directions else directions * units
            w_x = emit.transpose(read.take(width, columns), 1, 0)
        matrices.append((w_x, emit.transpose(read.take(width, units), 1, 0)))
    for w_x, w_h in matrices:
        b_x, b_h = read.take(width), read.take(width)
        yield Cell(op_type, units, gates, w_x, w_h, b_x, b_h, attrs=attrs)


def _layers_and_directions(emit: Emitter) -> int:
    return emit.known_dim(emit.input(1), 0 if _is_time_major(emit) else 1, "the stack")


def _is_time_major(emit: Emitter) -> bool:
    return bool(emit.attr("time_major")) if emit.has_attr("time_major") else True


def _cudnn_rnn(version: int, emit: Emitter) -> None:
    _check(emit, version)
    x, *states = emit.inputs[:3]
    emit.numpy_dtype(x)
    time_major, is_lstm = _is_time_major(emit), emit.attr("rnn_mode") == "lstm"
    directions = 2 if emit.attr("direction") == "bidirectional" else 1
    cells = list(_cells(emit, directions))
    states = states if is_lstm else states[:1]
    if not time_major:
        x = emit.transpose(x, 1, 0, 2)
        states = [emit.transpose(state, 1, 0, 2) for state in states]
    before = [emit.split(state, 0, [1] * len(cells)) for state in states]
    steps = Steps(lens=emit.cast(emit.input(4), np.int32)) if version == 3 else Steps()

    last: list[list[str]] = [[] for _ in states]
    for first in range(0, len(cells), directions):
        outputs = []
        for n in range(first, first + directions):
            own = [emit.squeeze(state[n], 0) for state in before]
            result = recurrent.run(emit, cells[n], x, own, steps, go_backwards=n > first)
            outputs.append(result.h)
            for kind, state in zip(last, result.last, strict=True):
                kind.append(emit.unsqueeze(state, 0))
        x = emit.concat(outputs, 2)
    results = [x, *(emit.concat(kind, 0) for kind in last)]
    if not time_major:
        results = [emit.transpose(result, 1, 0, 2) for result in results]
    if not is_lstm:
        results.append(emit.const(0, emit.numpy_dtype(x)))
    emit.replace(dict(enumerate(results)))


LOWERINGS: dict[str, Callable[[Emitter], None]] = {
    "CudnnRNN": functools.partial(_cudnn_rnn, 1),
    "CudnnRNNV2": functools.partial(_cudnn_rnn, 2),
    "CudnnRNNV3": functools.partial(_cudnn_rnn, 3),
}
