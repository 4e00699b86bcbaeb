"""The dropouts of a recurrent layer, with the masks that Keras itself would draw.

The masks come from the cell's seed generator, in Keras' order and number, so equal seeds give equal
numbers. Keras stores them on the cell, where another thread would find them; those of a layer's
call are local to it here. Only a loop over cells reads them from the cells, as Keras' loop does.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_blockrnn._ops import tensors
from tf_blockrnn.layers import _fusing


class Dropped(NamedTuple):
    """What an op reads after the dropouts.

    x: [B, T, I], or x · w_x if w_x is None.
    state_factors: [G, B, H] for each of G gates, or None without recurrent dropout.
    """

    x: tf.Tensor
    w_x: tf.Tensor | None
    state_factors: tf.Tensor | None


def mask_count(cell: Any) -> int:
    """How many masks Keras draws for each dropout: one for all gates, or one for each."""
    return getattr(cell, "dropout_mask_count", None) or 1


def apply(
    cell: Any,
    sequences: tf.Tensor,
    state: tf.Tensor,
    training: Any,
    drops_at_one: bool,
    masks_of_cell: bool = False,
) -> Dropped:
    """Applies the dropout of inputs and draws the masks of the recurrent dropout.

    Without training Keras draws masks that it does not use; then the seed is advanced by the same
    number of draws.

    Args:
      cell: a Keras cell of the layer.
      sequences: the inputs, [B, T, I].
      state: the first initial state, [B, H], or [1, H] for all rows.
      training: whether the dropouts act.
      drops_at_one: whether Keras' cell drops everything at a rate of 1; most then drop nothing.
      masks_of_cell: whether Keras has drawn the masks already, which are those that the cell holds.
    """
    x = _fusing.in_dtype(sequences, cell.compute_dtype)
    w_x = _fusing.weight_in_dtype(cell.kernel, cell.compute_dtype)
    rates = cell.dropout, cell.recurrent_dropout
    if not any(rates):
        return Dropped(x, w_x, None)
    if not training:
        for rate in () if masks_of_cell else rates:
            _skip_masks(cell, rate)
        return Dropped(x, w_x, None)
    acts = [0.0 < rate < 1.0 or (rate == 1.0 and drops_at_one) for rate in rates]
    batch = tensors.dim(x, 0, 3)
    if masks_of_cell:
        input_masks = as_list(cell.get_dropout_mask(x[:, 0])) if acts[0] else None
        state_masks = as_list(cell.get_recurrent_dropout_mask(state)) if acts[1] else None
    else:
        shapes = (
            [batch, tensors.dim(x, 2, 3)],
            [tensors.dim(state, axis, 2) for axis in (0, 1)],
        )
        input_masks, state_masks = (
            _draw_masks(cell, rate, shape, x.dtype) if acted else None
            for rate, shape, acted in zip(rates, shapes, acts, strict=True)
        )
    if state_masks is not None and tensors.known_dim(state, 0) == 1 and batch != 1:
        state_masks = [tf.broadcast_to(mask, [batch, state.shape[1]]) for mask in state_masks]
    if input_masks is not None:
        input_masks = [mask[:, tf.newaxis] for mask in input_masks]
    return dropped(x, w_x, input_masks, state_masks)


def dropped(
    x: tf.Tensor,
    w_x: tf.Tensor,
    input_masks: Sequence[tf.Tensor] | None,
    state_masks: Sequence[tf.Tensor] | None,
) -> Dropped:
    """What an op reads after dropouts with these masks.

    Args:
      x: the inputs, [..., I].
      w_x: the kernel, [I, G·H].
      input_masks: one for all gates or one for each, of shapes that broadcast to x.
      state_masks: one for each gate, [B, H].
    """
    factors = None if state_masks is None else tf.stack(state_masks)
    if input_masks is None:
        return Dropped(x, w_x, factors)
    if len(input_masks) == 1:
        return Dropped(x * input_masks[0], w_x, factors)
    columns = tf.split(w_x, len(input_masks), axis=1)
    gates = [
        tf.tensordot(x * mask, w, axes=1) for mask, w in zip(input_masks, columns, strict=True)
    ]
    return Dropped(tf.concat(gates, axis=-1), None, factors)


def as_list(masks: Any) -> list[tf.Tensor] | None:
    """The masks that a Keras cell holds, which are one tensor, or one for each gate, or None."""
    return masks if masks is None or isinstance(masks, list) else [masks]


def _draw_masks(cell: Any, rate: float, shape: list, dtype: tf.DType) -> list[tf.Tensor]:
    ones = tf.ones(shape, dtype)
    return [
        keras.random.dropout(ones, rate, seed=cell.seed_generator) for _ in range(mask_count(cell))
    ]


def _skip_masks(cell: Any, rate: float) -> None:
    if 0.0 < rate < 1.0:
        for _ in range(mask_count(cell)):
            cell.seed_generator.next()
