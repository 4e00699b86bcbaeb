"""TensorFlow's own whole-sequence op: tf.raw_ops.BlockLSTMV2 and BlockLSTMGradV2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import data
from bench.peers import base, tensorflow_base
from bench.shapes import Case

# BlockLSTMV2 has the gates i, f, g, o (IFCO), the canonical order.
_ORDER = (0, 1, 2, 3)


def block_lstm(tf: Any, raw_ops: Any, arrays: data.Arrays, grad_op: bool) -> tensorflow_base.Model:
    """BlockLSTMV2 of `raw_ops`, ours or TensorFlow's; backward by its Grad op or by the tape."""
    w, r, b = arrays.first.beside(_ORDER)
    x, w, b = (tf.Variable(value) for value in (arrays.x, np.concatenate([w, r]), b))
    steps, batch, units = arrays.cotangent.shape
    state, peephole = tf.zeros([batch, units]), tf.zeros([units])
    cotangent, nothing = tf.constant(arrays.cotangent), tf.zeros([steps, batch, units])

    def inputs(x: Any) -> dict[str, Any]:
        return {
            "seq_len_max": tf.constant(steps, tf.int64), "x": x, "cs_prev": state, "h_prev": state,
            "w": w, "wci": peephole, "wcf": peephole, "wco": peephole, "b": b,
        }  # fmt: skip

    def step() -> tuple[Any, ...]:
        given = inputs(x)
        out = raw_ops.BlockLSTMV2(**given)
        grads = raw_ops.BlockLSTMGradV2(
            **given, **out._asdict(), cs_grad=nothing, h_grad=cotangent, use_peephole=False
        )
        return out.h, grads.x_grad, grads.w_grad, grads.b_grad

    return tensorflow_base.Model(
        x=x,
        weights=[w, b],
        cotangent=cotangent,
        forward=lambda x: raw_ops.BlockLSTMV2(**inputs(x)).h,
        step=step if grad_op else None,
    )


class Peer:
    """Has no GRU: TensorFlow has no whole-sequence GRU op on the CPU."""

    def __init__(self, option: str, threads: int) -> None:
        self._tf = tensorflow_base.start(threads)

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        # Not by the tape: TensorFlow's registered gradient of BlockLSTMV2 calls BlockLSTMGrad,
        # which has another gate order, and gives wrong numbers (observed in 2.21, by the bench's
        # check of the outcomes).
        model = block_lstm(self._tf, self._tf.raw_ops, arrays, grad_op=True)
        return tensorflow_base.prepared(self._tf, model, case.kind == "train")

    def gemm(self, size: int) -> Callable[[], object]:
        return tensorflow_base.gemm(self._tf, size)
