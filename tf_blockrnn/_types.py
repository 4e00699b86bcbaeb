"""The named tuples of the public functions: the LSTM's state, outputs of block ops, packed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


class LSTMState(NamedTuple):
    """The state of an LSTM: output h, [B, P], and cell state cs, [B, H]; P is H unless projected.

    A plain tuple in this order does, too; TensorFlow's ops have the other order.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> state = tf_blockrnn.LSTMState(h=tf.zeros([1, 2]), cs=tf.ones([1, 2]))
      >>> step = tf_blockrnn.lstm_block_cell(
      ...     tf.ones([1, 3]), w=tf.zeros([5, 8]), b=tf.zeros([8]), state=state)
      >>> print(f"{step.cs[0, 0]:.2f}")
      0.50
    """

    h: tf.Tensor
    cs: tf.Tensor


class LSTMOutputs(NamedTuple):
    """The outputs of the LSTM's block ops, each [B, H] for a step, [T, B, H] for a sequence.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> steps = tf_blockrnn.block_lstm(tf.ones([3, 1, 2]), w=tf.ones([4, 8]), b=tf.zeros([8]))
      >>> last = tf_blockrnn.LSTMState(h=steps.h[-1], cs=steps.cs[-1])
      >>> last.h.shape
      TensorShape([1, 2])
    """

    i: tf.Tensor
    """Input gate."""
    cs: tf.Tensor
    """Cell state."""
    f: tf.Tensor
    """Forget gate."""
    o: tf.Tensor
    """Output gate."""
    ci: tf.Tensor
    """Cell input."""
    co: tf.Tensor
    """tanh of the cell state."""
    h: tf.Tensor
    """Output."""


class GRUOutputs(NamedTuple):
    """The outputs of the GRU's block ops, each [B, H] for a step, [T, B, H] for a sequence.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> weights = {"w_ru": tf.ones([4, 4]), "w_c": tf.ones([4, 2])}
      >>> steps = tf_blockrnn.block_gru(
      ...     tf.ones([3, 1, 2]), **weights, b_ru=tf.zeros([4]), b_c=tf.zeros([2]))
      >>> steps.u.shape
      TensorShape([3, 1, 2])
    """

    r: tf.Tensor
    """Reset gate."""
    u: tf.Tensor
    """Update gate."""
    c: tf.Tensor
    """Candidate."""
    h: tf.Tensor
    """State."""


class PackedSequences(NamedTuple):
    """Sequences of many lengths in rows of T steps, one after another; see `pack_sequences`.

    Example:
      >>> import numpy as np, tf_blockrnn
      >>> packed = tf_blockrnn.pack_sequences([np.ones([3, 2]), np.ones([1, 2])], steps=5)
      >>> packed.x.shape, packed.resets.shape, packed.lengths.shape, packed.index.shape
      ((1, 5, 2), (1, 5), (1,), (2, 3))
    """

    x: np.ndarray
    """The rows, [B, T, ...]; zeros after the last sequence of a row."""
    resets: np.ndarray
    """True at the first step of each sequence, also at step 0 of a row; bool [B, T]."""
    lengths: np.ndarray
    """The number of steps of each row that are used, int32 [B]."""
    index: np.ndarray
    """Row, first step and length of each sequence in the original order, int32 [N, 3]."""
