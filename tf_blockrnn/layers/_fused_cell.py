"""Base of the fused cells: a Keras cell whose step is a call of a sequence op with one step.

Code of users calls a cell step by step, and so does `keras.layers.RNN` where its loop stays Keras'
(`_cell_loop`). The sequence ops take Keras' weights as they are, so a step of a cell and a layer
over a sequence run the same ops, and a cell keeps nothing between two calls that depends on its
weights.
"""

from typing import Any

import tensorflow as tf

from tf_blockrnn import _keras_private
from tf_blockrnn._ops import tensors, xla
from tf_blockrnn.layers import _cell_arguments, _dropout, _fused_call, _fusing, _zoneout


class FusedCell:
    """Mixin over a Keras cell that runs on the fused op where the op supports its configuration.

    A subclass defines `_SPEC`. It needs no attribute that Keras' cell lacks, so a cell can become
    one, and stop being one, by assigning its `__class__`.

    Example:
      >>> from tf_blockrnn import layers
      >>> layers.GRUCell(4, recurrent_dropout=0.1).fused
      True
    """

    # That of the layer with the same equations.
    _SPEC: _fused_call.LayerSpec

    @property
    def fused(self) -> bool:
        """Whether this cell runs on the fused op."""
        return self.why_not_fused is None

    @property
    def why_not_fused(self) -> str | None:
        """The reason why this cell uses Keras' own operations, or None if it runs on the op."""
        return _fused_call.why_no_step(self, self._SPEC)

    supports_jit = _keras_private.supports_jit(lambda cell: cell.fused)

    def call(self, inputs, states, training=False):
        states, in_list = _cell_arguments.checked(self, inputs, states)
        if not self._runs_op(inputs):
            return super().call(inputs, states if in_list else states[0], training=training)
        inputs = tensors.as_tensor(inputs)
        states = [tensors.as_tensor(state) for state in states]
        _cell_arguments.check_shapes(self, inputs, states, in_list)
        states = [_fusing.in_dtype(state, self.compute_dtype) for state in states]
        x = _fusing.in_dtype(inputs, self.compute_dtype)
        dropped = self._drop(x, states[0], training)
        zoneout = _zoneout.draws_or_rates(self, training, [1, tensors.dim(x, 0, 2)])
        options = _fused_call.op_options(dropped.state_factors, zoneout, time_major=True)
        x = tf.expand_dims(dropped.x, 0)  # [1, B, I]: one step
        _, states = self._SPEC.run_op(self, x, dropped.w_x, states, options)
        return states[0], states if in_list else states[0]

    def _runs_op(self, inputs: Any) -> bool:
        """Whether the op computes a step of these inputs; Keras' operations compute the others."""
        if _fused_call.is_without_ops() or not self.fused or xla.why_not_here():
            return False
        # Of sparse inputs the ops have no GEMM. Another rank some of Keras' cells accept, and the
        # others have an error.
        is_sparse = isinstance(inputs, tf.SparseTensor)
        return not is_sparse and tensors.as_tensor(inputs).shape.rank in (None, 2)

    def _drop(self, x: tf.Tensor, h_prev: tf.Tensor, training: Any) -> _dropout.Dropped:
        """What the op reads after the dropouts; x is [B, I]."""
        w_x = _fusing.weight_in_dtype(self.kernel, self.compute_dtype)
        # There is one mask of the inputs, or with implementation 1 one for each gate.
        x_masks, h_masks = (_dropout.as_list(masks) for masks in self._masks(x, h_prev, training))
        return _dropout.dropped(x, w_x, x_masks, h_masks)

    def _masks(self, x: tf.Tensor, h_prev: tf.Tensor, training: Any) -> tuple[Any, Any]:
        """Keras' masks of the inputs and of the state, each None where no dropout acts.

        Keras draws a mask at its first use and stores it on the cell until `reset_dropout_mask`.
        """
        drops = [training and 0.0 < rate < 1.0 for rate in (self.dropout, self.recurrent_dropout)]
        return (
            super().get_dropout_mask(x) if drops[0] else None,
            super().get_recurrent_dropout_mask(h_prev) if drops[1] else None,
        )
