"""The gradients that this package adds to TensorFlow's own ops; none is replaced.

Kernels for TensorFlow's CudnnRNN ops on CPUs come with the library (cc/kernels/tensorflow_call.cc).
"""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn import _tf_private
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops.cudnn_rnn import VERSIONS, backprop_gradient
from tf_blockrnn._ops.gru_block_cell import gradient as gru_block_cell_gradient
from tf_blockrnn._ops.lstm_block_cell import gradient as lstm_block_cell_gradient


def _of_update_slice(op: tf.Operation, grad: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
    _, update, begin = op.inputs
    of_rest = _tf_private.update_slice(grad, tf.zeros_like(update), begin)
    return of_rest, tf.slice(grad, begin, tf.shape(update, out_type=begin.dtype)), None


_GRADIENTS = {
    "GRUBlockCell": gru_block_cell_gradient,
    "LSTMBlockCell": lstm_block_cell_gradient,
    **{f"CudnnRNNBackprop{version}": backprop_gradient for version in VERSIONS},
    "XlaDynamicUpdateSlice": _of_update_slice,
}


def extend() -> None:
    """Registers gradients for TensorFlow's ops that have none.

    They are GRUBlockCell and LSTMBlockCell, whose gradients run this package's Grad ops, the
    CudnnRNNBackprop ops, so that CudnnRNN has second derivatives, and XlaDynamicUpdateSlice, which
    is the gradient of tf.slice in what XLA compiles, so that there are third ones. Called when the
    library is loaded, unless TF_BLOCKRNN_EXTEND_TF=0.
    """
    for op, gradient in _GRADIENTS.items():
        util.register_gradient(op)(gradient)
