"""The gradients that importing this package adds to TensorFlow's own ops; none is replaced.

Kernels for TensorFlow's CudnnRNN ops on CPUs come with the library (cc/kernels/register_kernels.h).
"""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn.gru_block_cell import gradient as gru_block_cell_gradient
from tf_blockrnn.lstm_block_cell import gradient as lstm_block_cell_gradient

_GRADIENTS = {
    "GRUBlockCell": gru_block_cell_gradient,
    "LSTMBlockCell": lstm_block_cell_gradient,
}


def extend() -> None:
    """Registers gradients for TensorFlow's GRUBlockCell and LSTMBlockCell, which have none.

    Called on import, unless TF_BLOCKRNN_EXTEND_TF=0. The gradients run this package's Grad ops.
    """
    for op, gradient in _GRADIENTS.items():
        try:
            tf.RegisterGradient(op)(gradient)
        except KeyError:
            pass  # there is one already: TensorFlow's, or another package's
