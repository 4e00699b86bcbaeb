"""The named tuples of the public functions: the LSTM's state and the outputs of block ops."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class LSTMState(NamedTuple):
    """The state of an LSTM: output h, [B, P], and cell state cs, [B, H]."""

    h: tf.Tensor
    cs: tf.Tensor


class LSTMOutputs(NamedTuple):
    """The outputs of the LSTM's block ops, each [B, H] for a step, [T, B, H] for a sequence."""

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
    """The outputs of the GRU's block ops, each [B, H] for a step, [T, B, H] for a sequence."""

    r: tf.Tensor
    """Reset gate."""
    u: tf.Tensor
    """Update gate."""
    c: tf.Tensor
    """Candidate."""
    h: tf.Tensor
    """State."""
