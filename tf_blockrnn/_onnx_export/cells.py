"""Lowering of the ops of a single step, to elementwise ONNX ops: their outputs are the gates too.

x is [B, I], the states [B, H]; the equations are those of the ops' help.
"""

from __future__ import annotations

from collections.abc import Callable

from tf_blockrnn._onnx_export.emitter import Emitter


def _gru_cell(emit: Emitter) -> None:
    x, h_prev, w_ru, w_c, b_ru, b_c = emit.inputs
    dtype = emit.numpy_dtype(x)
    units = emit.known_dim(b_c, 0, "the state")
    gates = emit.op("Sigmoid", _dense(emit, [x, h_prev], w_ru, b_ru))
    r, u = emit.split(gates, 1, [units, units])
    c = emit.op("Tanh", _dense(emit, [x, emit.op("Mul", h_prev, r)], w_c, b_c))
    rest = emit.op("Sub", emit.const(1, dtype), u)
    h = emit.op("Add", emit.op("Mul", u, h_prev), emit.op("Mul", rest, c))
    emit.replace(dict(enumerate([r, u, c, h])))


def _lstm_cell(emit: Emitter) -> None:
    x, cs_prev, h_prev, w, wci, wcf, wco, b = emit.inputs
    dtype = emit.numpy_dtype(x)
    units = emit.known_dim(b, 0, "the state") // 4
    z_i, z_ci, z_f, z_o = emit.split(_dense(emit, [x, h_prev], w, b), 1, [units] * 4)
    z_f = emit.op("Add", z_f, emit.const(emit.attr("forget_bias"), dtype))

    def gate(z: str, cs: str, peephole: str) -> str:
        if emit.attr("use_peephole"):
            z = emit.op("Add", z, emit.op("Mul", cs, peephole))
        return emit.op("Sigmoid", z)

    i, f, ci = gate(z_i, cs_prev, wci), gate(z_f, cs_prev, wcf), emit.op("Tanh", z_ci)
    cs = emit.op("Add", emit.op("Mul", ci, i), emit.op("Mul", cs_prev, f))
    clip = emit.attr("cell_clip")
    if clip > 0:
        cs = emit.op("Clip", cs, emit.const(-clip, dtype), emit.const(clip, dtype))
    o, co = gate(z_o, cs, wco), emit.op("Tanh", cs)
    emit.replace(dict(enumerate([i, cs, f, o, ci, co, emit.op("Mul", o, co)])))


def _dense(emit: Emitter, columns: list[str], w: str, b: str) -> str:
    return emit.op("Add", emit.op("MatMul", emit.concat(columns, 1), w), b)


LOWERINGS: dict[str, Callable[[Emitter], None]] = {
    "GRUBlockCell": _gru_cell,
    "LSTMBlockCell": _lstm_cell,
}
