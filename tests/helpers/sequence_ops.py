"""What the tests know of the six ops of whole sequences, beside what block_cells.py has.

dims are (T, B, I, H). seq_len_max is not among them: an int64 scalar, 0..T.
"""

from __future__ import annotations

import functools

from helpers import block_cells
from helpers.block_cells import PEEPHOLE_CASES, Op, call, caller, oracle, random_inputs, tensors_of
from helpers.reference import block_ops

__all__ = ["Op", "call", "caller", "oracle", "random_inputs", "tensors_of"]  # of block_cells

LSTM = Op(
    "BlockLSTM",
    block_ops.block_lstm,
    (
        {},  # the defaults: forget_bias 1, cell_clip 3, no peephole
        {"use_peephole": True, "forget_bias": 0.5, "cell_clip": 0.25},
        {"use_peephole": True, "forget_bias": -1.5, "cell_clip": 0.0},
    ),
    block_ops.block_lstm_vjp,
)
LSTM_GRAD = Op("BlockLSTMGrad", block_ops.block_lstm_grad, PEEPHOLE_CASES)
_V2 = {"order": "ifco", "forget_bias": 0.0, "cell_clip": 0.0}
LSTM_V2 = Op(
    "BlockLSTMV2",
    functools.partial(block_ops.block_lstm, **_V2),
    ({}, {"use_peephole": True, "cell_clip": 0.25}),
    functools.partial(block_ops.block_lstm_vjp, **_V2),
)
LSTM_GRAD_V2 = Op(
    "BlockLSTMGradV2", functools.partial(block_ops.block_lstm_grad, order="ifco"), PEEPHOLE_CASES
)
GRU = Op("BlockGRU", block_ops.block_gru, vjp=block_ops.block_gru_vjp)
GRU_GRAD = Op("BlockGRUGrad", block_ops.block_gru_grad)
LSTM_OPS = (LSTM, LSTM_GRAD, LSTM_V2, LSTM_GRAD_V2)
GRU_OPS = (GRU, GRU_GRAD)
OPS = {op.name: op for op in (*LSTM_OPS, *GRU_OPS)}
FORWARD_OPS = tuple(op for op in OPS.values() if not op.backward)
# ((T, B, I, H), seq_len_max). Ones, primes, a vector's width less or more one, few rows with many
# units and many rows with few, sizes past one block of a blocked GEMM.
ODD_CASES = (
    ((1, 1, 1, 1), 1),
    ((2, 1, 1, 17), 2),
    ((5, 1, 17, 1), 4),
    ((3, 7, 1, 1), 3),
    ((4, 3, 5, 7), 3),
    ((7, 2, 8, 8), 7),
    ((3, 5, 7, 9), 2),
    ((6, 7, 17, 15), 6),
    ((3, 16, 16, 16), 3),
    ((5, 9, 15, 33), 5),
    ((4, 17, 33, 31), 3),
    ((2, 65, 70, 63), 2),
    ((3, 1, 130, 257), 3),
    ((2, 130, 65, 64), 1),
    ((40, 3, 4, 5), 37),
)
# (T, B, I, H): every dim 0 alone, and together.
EMPTY_DIMS = (
    (0, 3, 4, 5),
    (4, 0, 3, 5),
    (4, 3, 0, 5),
    (4, 3, 5, 0),
    (0, 0, 3, 5),
    (0, 3, 0, 5),
    (4, 3, 0, 0),
    (4, 0, 0, 5),
    (0, 0, 0, 0),
    (3, 65, 0, 33),
    (3, 65, 33, 0),
    (3, 0, 64, 65),
)


def op_cases():
    return block_cells.op_cases(OPS)
