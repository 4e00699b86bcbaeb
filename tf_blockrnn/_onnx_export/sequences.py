"""Lowering of the ops over whole sequences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tf_blockrnn._onnx_export import recurrent, steps
from tf_blockrnn._onnx_export.emitter import Emitter, Unsupported
from tf_blockrnn._onnx_export.recurrent import Cell

# For each of ONNX's gates in its order, its place in the order named.
LSTM_IFCO = (0, 3, 1, 2)  # of i, o, f, c
LSTM_ICFO = (0, 3, 2, 1)
GRU_RUC = (1, 0, 2)  # of z, r, h: z is u
GRU_URC = (0, 1, 2)


def _columns(emit: Emitter, w: str, b: str, gates: int) -> int:
    """H, from the weights of the state or else the bias."""
    shape = emit.shape(w)
    if shape is not None and len(shape) == 2 and shape[1] > 0:
        return shape[1] // gates
    return emit.known_dim(b, 0, "the state") // gates


def _input_weights(emit: Emitter, w_x: str, b: str, width: int) -> str:
    """w_x, or where x is multiplied by it already, a unit matrix."""
    if emit.is_given(w_x):
        return w_x
    return emit.const(np.eye(width), emit.numpy_dtype(b))


def _check_dropout(emit: Emitter, dropout: str, *zoneout: str) -> None:
    if emit.is_given(dropout):
        raise Unsupported("it has recurrent dropout; export the model for inference")
    rates = [f"zoneout_rate_{state}" for state in ("h", "c")]
    if any(map(emit.is_given, zoneout)) or any(emit.has_attr(r) and emit.attr(r) for r in rates):
        raise Unsupported("it has zoneout, ONNX's recurrent nodes have none")


def add_to_block(emit: Emitter, b: str, units: int, gates: int, block: int, value: float) -> str:
    """The bias [G·H] with a number added to one gate's."""
    added = np.zeros(gates * units)
    added[block * units : (block + 1) * units] = value
    return emit.op("Add", b, emit.const(added, emit.numpy_dtype(b))) if value else b


def peepholes_iof(emit: Emitter, rows: list[str]) -> str:
    """ONNX's [3·H] from wci, wcf, wco, each [H]."""
    wci, wcf, wco = rows
    return emit.concat([wci, wco, wcf], 0)


def _emit(emit: Emitter, cell: Cell, states: list[str], of_steps: list[str]) -> None:
    """The node of a sequence op; its outputs are h, then the last states.

    of_steps: its inputs mask, sequence_lengths and resets.
    """
    mask, lengths, resets = of_steps
    if emit.is_given(resets):
        raise Unsupported(
            "it has resets, and ONNX's nodes run each row as one sequence", keras_has_it=False
        )
    if emit.attr("precision") != "float32":
        raise Unsupported(
            f"its weights are frozen in {emit.attr('precision')}; export the model that was frozen"
        )
    time_major, backwards = bool(emit.attr("time_major")), bool(emit.attr("go_backwards"))
    x = emit.input(0)
    emit.numpy_dtype(x)  # refuses what ONNX Runtime does not compute in
    if not time_major:
        x = emit.transpose(x, 1, 0, 2)
    which = steps.read(emit, mask, lengths, time_major, backwards)
    result = recurrent.run(emit, cell, x, states, which, backwards)
    h = result.h if time_major else emit.transpose(result.h, 1, 0, 2)
    emit.replace(dict(enumerate([h, *result.last])))


def _lstm(emit: Emitter) -> None:
    _, h_prev, cs_prev, w_x, w_h, b, peepholes, mask, lengths, resets, w_p, *rest = emit.inputs
    _check_dropout(emit, *rest)
    if emit.is_given(w_p):
        raise Unsupported("it has a projection, ONNX's LSTM has none")
    if emit.attr("cell_clip") > 0:
        raise Unsupported("it has a cell_clip, ONNX's LSTM clips other values")
    units = _columns(emit, w_h, b, 4)
    rows = ""
    if emit.is_given(peepholes):
        split = emit.split(peepholes, 0, [1, 1, 1])
        rows = peepholes_iof(emit, [emit.squeeze(row, 0) for row in split])
    cell = Cell(
        op_type="LSTM",
        units=units,
        gates=LSTM_IFCO,
        w_x=_input_weights(emit, w_x, b, 4 * units),
        w_h=w_h,
        b_x=add_to_block(emit, b, units, 4, 1, emit.attr("forget_bias")),
        peepholes=rows,
    )
    _emit(emit, cell, [h_prev, cs_prev], [mask, lengths, resets])


def _gru_cell(emit: Emitter, w_x: str, w_h: str, b_x: str, **after: Any) -> Cell:
    """after: what a Cell has besides with the reset after the GEMM."""
    units = _columns(emit, w_h, b_x, 3)
    return Cell(
        op_type="GRU",
        units=units,
        gates=GRU_URC if emit.attr("gate_order") == "urc" else GRU_RUC,
        w_x=_input_weights(emit, w_x, b_x, 3 * units),
        w_h=w_h,
        b_x=b_x,
        **after,
    )


def _gru_after(emit: Emitter) -> None:
    _, h_prev, w_x, w_h, b_x, b_h, mask, lengths, resets, *rest = emit.inputs
    _check_dropout(emit, *rest)
    cell = _gru_cell(emit, w_x, w_h, b_x, b_h=b_h, attrs={"linear_before_reset": 1})
    _emit(emit, cell, [h_prev], [mask, lengths, resets])


def _gru(emit: Emitter) -> None:
    _, h_prev, w_x, w_h, b, mask, lengths, resets, *rest = emit.inputs
    _check_dropout(emit, *rest)
    cell = _gru_cell(emit, w_x, w_h, b)
    _emit(emit, cell, [h_prev], [mask, lengths, resets])


def _rnn(emit: Emitter) -> None:
    _, h_prev, w_x, w_h, b, mask, lengths, resets, dropout = emit.inputs
    _check_dropout(emit, dropout)
    units = _columns(emit, w_h, b, 1)
    cell = Cell(
        op_type="RNN",
        units=units,
        gates=(0,),
        w_x=_input_weights(emit, w_x, b, units),
        w_h=w_h,
        b_x=b,
        attrs={"activations": ["Relu" if emit.attr("activation") == "relu" else "Tanh"]},
    )
    _emit(emit, cell, [h_prev], [mask, lengths, resets])


# ---- the block ops: time-major, [x, h] in one matrix, a common length


def _all_rows(emit: Emitter, x: str, seq_len_max: str) -> steps.Steps:
    """The first seq_len_max steps of every row."""
    length, steps_of_x = emit.constant_or_none(seq_len_max), emit.shape(x)
    if length is not None and steps_of_x is not None and steps_of_x[0] == int(length):
        return steps.Steps()
    lens = emit.op("Expand", emit.cast(seq_len_max, np.int32), emit.dim(x, 1))
    return steps.Steps(lens=lens)


def _emit_block(emit: Emitter, cell: Cell, states: list[str], h_output: int) -> None:
    seq_len_max, x = emit.inputs[:2]
    emit.numpy_dtype(x)
    which = _all_rows(emit, x, seq_len_max)
    result = recurrent.run(emit, cell, x, states, which, go_backwards=False)
    emit.replace({h_output: result.h})


def _block_lstm(gates: tuple[int, ...], emit: Emitter) -> None:
    _, _, cs_prev, h_prev, w, wci, wcf, wco, b = emit.inputs
    if emit.attr("cell_clip") > 0:
        raise Unsupported("it has a cell_clip, ONNX's LSTM clips other values")
    units = emit.known_dim(b, 0, "the state") // 4
    inputs = emit.known_dim(w, 0, "the input") - units
    w_x, w_h = emit.split(w, 0, [inputs, units])
    bias = emit.attr("forget_bias") if emit.has_attr("forget_bias") else 0.0
    cell = Cell(
        op_type="LSTM",
        units=units,
        gates=gates,
        w_x=w_x,
        w_h=w_h,
        b_x=add_to_block(emit, b, units, 4, gates[2], bias),
        peepholes=peepholes_iof(emit, [wci, wcf, wco]) if emit.attr("use_peephole") else "",
    )
    _emit_block(emit, cell, [h_prev, cs_prev], h_output=6)


def _block_gru(emit: Emitter) -> None:
    _, _, h_prev, w_ru, w_c, b_ru, b_c = emit.inputs
    units = emit.known_dim(b_c, 0, "the state")
    inputs = emit.known_dim(w_c, 0, "the input") - units
    w_x, w_h = emit.split(emit.concat([w_ru, w_c], 1), 0, [inputs, units])
    b_x = emit.concat([b_ru, b_c], 0)
    cell = Cell("GRU", units, GRU_RUC, w_x, w_h, b_x)
    _emit_block(emit, cell, [h_prev], h_output=3)


LOWERINGS: dict[str, Callable[[Emitter], None]] = {
    "LSTMSequence": _lstm,
    "GRUSequence": _gru,
    "GRUAfterSequence": _gru_after,
    "RNNSequence": _rnn,
    "BlockLSTM": functools.partial(_block_lstm, LSTM_ICFO),
    "BlockLSTMV2": functools.partial(_block_lstm, LSTM_IFCO),
    "BlockGRU": _block_gru,
}
