"""This project: tf_blockrnn.lstm and gru, BlockLSTMV2 and BlockGRU, and the cuDNN stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import data
from bench.peers import base, stock_tf, tensorflow_base
from bench.shapes import GATES, Case

_RESET_UPDATE, _CANDIDATE = (0, 1), (2,)


def function_weights(cell: str, arrays: data.Arrays) -> list[np.ndarray]:
    """The arguments of tf_blockrnn.lstm or gru after x."""
    order = tuple(range(GATES[cell]))  # both functions take the canonical order
    w, r, bias = arrays.first.beside(order)
    return [w, r, bias, np.zeros_like(bias)] if cell == "gru" else [w, r, bias]


class Peer:
    """`option`: "function" is tf_blockrnn.lstm and gru, "block" is BlockLSTMV2 and BlockGRU,
    "cudnn" is CudnnRNNV3.

    The backward pass is the one that users get: the tape, with the gradients that the package
    registers.
    """

    def __init__(self, option: str, threads: int) -> None:
        self._tf = tensorflow_base.start(threads)
        self._option = option
        import tf_blockrnn

        self._library = tf_blockrnn

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        return tensorflow_base.prepared(self._tf, self.model(case, arrays), case.kind == "train")

    def model(self, case: Case, arrays: data.Arrays) -> tensorflow_base.Model:
        """What `prepare` traces."""
        if self._option == "function":
            return self._function(case, arrays)
        if self._option == "cudnn":
            return self._stack(case, arrays)
        if case.cell == "gru":
            return self._block_gru(arrays)
        return stock_tf.block_lstm(self._tf, self._library.raw_ops, arrays, grad_op=False)

    def _function(self, case: Case, arrays: data.Arrays) -> tensorflow_base.Model:
        tf = self._tf
        values = function_weights(case.cell, arrays)
        weights = [tf.Variable(tf.cast(value, case.dtype)) for value in values]
        function = getattr(self._library, case.cell)
        return tensorflow_base.Model(
            x=tf.Variable(tf.cast(arrays.x, case.dtype)),
            weights=weights,
            cotangent=tf.cast(arrays.cotangent, case.dtype),
            forward=lambda x: function(x, *weights, time_major=True, recompute=case.recompute)[0],
        )

    def _stack(self, case: Case, arrays: data.Arrays) -> tensorflow_base.Model:
        tf, raw_ops = self._tf, self._library.raw_ops
        order = tuple(range(GATES[case.cell]))  # cuDNN's gates are in the canonical order
        matrices, biases = [], []
        for weights in arrays.weights:
            w, r, bias = weights.below(order)
            matrices += [w, r]
            biases += [bias, np.zeros_like(bias)]
        params = tf.Variable(np.concatenate([part.ravel() for part in matrices + biases]))
        state = tf.zeros([case.layers * case.directions, case.batch, case.units])
        lengths = tf.constant(case.row_lengths(), tf.int32)

        def forward(x: Any) -> Any:
            return raw_ops.CudnnRNNV3(
                input=x,
                input_h=state,
                input_c=state,
                params=params,
                sequence_lengths=lengths,
                rnn_mode="rnn_tanh" if case.cell == "rnn" else case.cell,
                direction="bidirectional" if case.directions == 2 else "unidirectional",
                is_training=case.kind == "train",
            ).output

        return tensorflow_base.Model(
            x=tf.Variable(arrays.x),
            weights=[params],
            cotangent=tf.constant(arrays.cotangent),
            forward=forward,
        )

    def gemm(self, size: int) -> Callable[[], object]:
        """TensorFlow's GEMM, which on some processors is twice as fast as other libraries'."""
        return tensorflow_base.gemm(self._tf, size)

    def _block_gru(self, arrays: data.Arrays) -> tensorflow_base.Model:
        tf, raw_ops = self._tf, self._library.raw_ops

        def weights(gates: tuple[int, ...]) -> tuple[Any, Any]:
            w, r, bias = arrays.first.beside(gates)
            return tf.Variable(np.concatenate([w, r])), tf.Variable(bias)

        w_ru, b_ru = weights(_RESET_UPDATE)
        w_c, b_c = weights(_CANDIDATE)
        steps, batch, units = arrays.cotangent.shape
        state = tf.zeros([batch, units])

        def forward(x: Any) -> Any:
            return raw_ops.BlockGRU(
                seq_len_max=tf.constant(steps, tf.int64),
                x=x, h_prev=state, w_ru=w_ru, w_c=w_c, b_ru=b_ru, b_c=b_c,
            ).h  # fmt: skip

        return tensorflow_base.Model(
            x=tf.Variable(arrays.x),
            weights=[w_ru, w_c, b_ru, b_c],
            cotangent=tf.constant(arrays.cotangent),
            forward=forward,
        )
