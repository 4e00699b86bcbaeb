"""The outputs that Keras gives for masked steps, and their order, made from those of the ops.

The ops and Keras, 2 and 3, agree except for three rules:

- A masked step repeats the previous state. Before a row's first unmasked step, Keras has zeros and
  the op the initial state. They differ only if the initial state is not zero.
- With `zero_output_for_mask`, Keras outputs zeros at every masked step. Its unrolled loop, going
  backwards, takes the mask in the order of the inputs and the outputs in that of processing.
- Going backwards, Keras returns the outputs in the order of processing, the op in the order of the
  inputs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def last_output(
    layer: Any,
    state: tf.Tensor,
    mask: tf.Tensor | None,
    zero_state: bool,
    *,
    steps: int | tf.Tensor,
    axis: int = 1,
) -> tf.Tensor:
    """The output after the last step, [B, H].

    Args:
      layer: a Keras layer, for `go_backwards` and `zero_output_for_mask`.
      state: the last state, [B, H].
      mask: bool, [B, T].
      zero_state: whether the initial state is known to be zero.
      steps: T.
      axis: of the steps in the mask.
    """
    if mask is not None and layer.zero_output_for_mask:
        last = slice(None, 1) if layer.go_backwards else slice(-1, None)  # there may be no step
        kept = mask[last] if axis == 0 else mask[:, last]
        return _where(tf.reduce_any(kept, axis=axis), state)
    if zero_state:
        return state
    if mask is not None:
        return _where(tf.reduce_any(mask, axis=axis), state)
    if isinstance(steps, int) and steps > 0:
        return state
    return tf.where(steps > 0, state, tf.zeros([], state.dtype))


def all_outputs(
    layer: Any, outputs: tf.Tensor, mask: tf.Tensor | None, zero_state: bool, *, axis: int = 1
) -> tf.Tensor:
    """The outputs of all steps in Keras' order, from those of the op; else as `last_output`."""
    zeroes = mask is not None and layer.zero_output_for_mask
    in_other_order = zeroes and layer.go_backwards and layer.unroll
    if zeroes and not in_other_order:
        outputs = _where(mask, outputs)
    elif mask is not None and not zero_state:
        count = tf.cumsum(tf.cast(mask, tf.int32), axis=axis, reverse=bool(layer.go_backwards))
        outputs = _where(count > 0, outputs)
    outputs = tf.reverse(outputs, [axis]) if layer.go_backwards else outputs
    return _where(mask, outputs) if in_other_order else outputs


def _where(keep: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The values where `keep`, which lacks their last dim, is True, else zeros."""
    return tf.where(keep[..., tf.newaxis], values, tf.zeros([], values.dtype))
