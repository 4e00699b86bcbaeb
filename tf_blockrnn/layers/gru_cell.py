"""A Keras GRU cell on the ops GRUAfterSequence and GRUSequence."""

import contextlib
import weakref

import keras
import tensorflow as tf

from tf_blockrnn import raw_ops
from tf_blockrnn._ops import sequence_util, tensors
from tf_blockrnn.layers import _fused_call, _fusing
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._like_keras import like_keras
from tf_blockrnn.layers.gru import SPEC


@like_keras(keras.layers.GRUCell)
class GRUCell(FusedCell, ExtendedGRUCell):
    """A `keras.layers.GRUCell` that computes a step in one fused op.

    {cell_of_keras}
    {gru}

    {cell_support}

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      {zoneout_h}

    {cell_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' cell refuses; a rate of zoneout that is not in 0..1.

    Example:
      >>> import numpy as np
      >>> import keras
      >>> import tf_blockrnn
      >>> cell = tf_blockrnn.layers.GRUCell(4)
      >>> layer = keras.layers.RNN(cell, return_sequences=True)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 5, 4)
      >>> cell.fused
      True
    """

    _SPEC = SPEC
    # The graph in which keras.layers.RNN is building its loop, while it does.
    _loop_graph: weakref.ref | None = None

    def get_dropout_mask(self, step_input):
        # keras.layers.RNN calls this before its loop, whether there is dropout or not.
        if not tf.executing_eagerly():
            self._loop_graph = weakref.ref(tf.compat.v1.get_default_graph())
        return super().get_dropout_mask(step_input)

    def reset_dropout_mask(self):
        # keras.layers.RNN calls this after its loop.
        self._loop_graph = None
        super().reset_dropout_mask()

    def _run_op(self, x, w_x, states, options):
        if self.reset_after:
            return super()._run_op(x, w_x, states, options)
        none = tensors.none(x.dtype)
        w_ru_h, w_c_h, b_ru, b_c, w_ru_x, w_c_x = self._packed(with_kernel=w_x is not None)
        if w_x is None:
            x = _in_order_ruc(x, axis=2)
        dropout = options.get("recurrent_dropout_factors")
        zoneout = sequence_util.zoneout("GRUCell: zoneout_h", options.get("zoneout_h"))
        step = raw_ops.GRUSequence(
            x=x,
            h_prev=states[0],
            w_ru_x=w_ru_x,
            w_ru_h=w_ru_h,
            w_c_x=w_c_x,
            w_c_h=w_c_h,
            b_ru=b_ru,
            b_c=b_c,
            mask=tensors.none(tf.bool),
            sequence_lengths=tensors.none(tf.int32),
            resets=tensors.none(tf.bool),
            recurrent_dropout=none if dropout is None else _in_order_ruc(dropout, axis=0),
            zoneout_h=zoneout.kept,
            zoneout_rate_h=zoneout.rate,
            time_major=True,
            is_training=sequence_util.is_training(),
        )
        return step.h, [step.h_last]

    def _packed(self, with_kernel: bool) -> list[tf.Tensor]:
        """The weights as the op GRUSequence takes them, which resets before the GEMM.

        [w_ru_h, w_c_h, b_ru, b_c, w_ru_x, w_c_x]; the last two `[0]` without the kernel.
        """
        with self._outside_of_loop():
            dtype = self.compute_dtype
            weights = [
                _fusing.weight_in_dtype(self.recurrent_kernel, dtype),
                _fused_call.bias_or_zeros(self, SPEC.gates),
            ]
            if with_kernel:
                weights.append(_fusing.weight_in_dtype(self.kernel, dtype))
            packed = []
            for weight in weights:
                z, r, c = tf.split(weight, SPEC.gates, axis=-1)
                packed += [tf.concat([r, z], axis=-1), c]
        return packed if with_kernel else [*packed, *[tensors.none(tf.as_dtype(dtype))] * 2]

    def _outside_of_loop(self) -> contextlib.AbstractContextManager:
        """The graph in which keras.layers.RNN runs its `tf.while_loop`, inside that loop's body.

        There the packed weights are a loop invariant: packing costs as much as a small step. In
        every other place, which includes loops of other code, the weights are packed where they
        are used, because they may be assigned between two steps.
        """
        wanted = self._loop_graph and self._loop_graph()
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not wanted and getattr(graph, "is_control_flow_graph", False):
            graph = graph.outer_graph
        if wanted is None or graph is not wanted:
            return contextlib.nullcontext()
        return graph.as_default()


def _in_order_ruc(gates: tf.Tensor, axis: int) -> tf.Tensor:
    """Gates z, r, c along an axis in the order r, z, c."""
    z, r, c = tf.split(gates, SPEC.gates, axis=axis)
    return tf.concat([r, z, c], axis=axis)
