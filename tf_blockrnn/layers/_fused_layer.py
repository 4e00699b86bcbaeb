"""Base of the fused layers: Keras' call with its inner loop replaced by one op.

`keras.layers.RNN.call` handles initial states, statefulness and the return value. It passes the
loop over the steps to `inner_loop`, which runs the op here. The op and Keras agree except for three
rules, which are applied to the outputs of the op:

- A masked step repeats the previous state. Before a row's first unmasked step, Keras has zeros and
  the op the initial state. They differ only if the initial state is not zero.
- With `zero_output_for_mask`, Keras outputs zeros at every masked step.
- Going backwards, Keras returns the outputs in the order of processing, the op in the order of the
  inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import sequence_util, tensors
from tf_blockrnn.layers import _fusing

# Attribute of a tensor: it is the initial state that a layer created for this call, which is zero
# and needs no gradient.
_ZERO_STATE = "_tf_blockrnn_zero_state"


class FusedLayer:
    """Mixin over a Keras recurrent layer that uses the fused op where it supports the layer.

    A subclass defines `_ACTIVATIONS`, `_CELLS`, `_GATES` and `_run_op`.

    Example:
      >>> from tf_blockrnn import layers
      >>> layers.LSTM(4, recurrent_dropout=0.1).why_not_fused is None
      True
    """

    # For each argument that is an activation, the functions that the op computes.
    _ACTIVATIONS: Mapping[str, Sequence[Callable]]
    # The cells whose equations the op computes.
    _CELLS: tuple[type, ...]
    _GATES: int

    def _run_op(
        self, x: tf.Tensor, w_x: tf.Tensor | None, states: list[tf.Tensor], **options: Any
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Runs the op; returns the outputs [B, T, H] and the last states.

        x: [B, T, I], or x · w_x if w_x is None.
        states: the initial states.
        options: those of `tf_blockrnn.lstm`, `gru` and `simple_rnn`.
        """
        raise NotImplementedError

    def _bias_or_zeros(self) -> tf.Tensor:
        """The cell's bias, for `_run_op`; zeros [G·H] for G gates if it has none."""
        dtype = self.cell.compute_dtype
        if self.cell.bias is None:
            return tf.zeros([self._GATES * self.cell.units], dtype)
        return _fusing.weight_in_dtype(self.cell.bias, dtype)

    def _warn_if_not_fused(self) -> None:
        """To be called at the end of a layer's constructor."""
        reason = self.why_not_fused
        if reason:
            _fusing.warn_once(self, "layer", reason, stacklevel=3)

    @property
    def fused(self) -> bool:
        """Whether this layer runs on the fused op."""
        return self.why_not_fused is None

    @property
    def why_not_fused(self) -> str | None:
        """The reason why this layer uses Keras' own operations, or None if it runs on the op."""
        cell = self.cell
        reason = _fusing.general_reason(cell.compute_dtype)
        reason = reason or _fusing.activation_reason(cell, self._ACTIVATIONS)
        if reason:
            return reason
        if type(cell) not in self._CELLS or "call" in vars(cell):
            return f"its cell is of the custom class {type(cell).__name__}"
        if cell.recurrent_dropout and self._mask_count() != self._GATES:
            return (
                f"Keras {keras.__version__} has one recurrent_dropout mask for all gates, the op "
                "one for each"
            )
        if getattr(self, "use_cudnn", False) is True:
            return "use_cudnn=True requires cuDNN"
        missing = _loader.missing_cuda()
        if missing and tf.config.get_visible_devices("GPU"):
            return f"TensorFlow sees a GPU, and this build has no GPU kernels ({missing})"
        return None

    @property
    def supports_jit(self) -> bool:
        # XLA has no lowering for the ops; Keras asks this before it compiles a model with XLA.
        return self._supports_jit and not self.fused

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        self._supports_jit = value

    def call(self, sequences, initial_state=None, mask=None, training=False):
        if self.fused:
            sequences = tensors.as_tensor(sequences)  # of a keras.Variable too
            if initial_state is None and not self.stateful:
                initial_state = self._zero_states(sequences)
        return super().call(sequences, initial_state=initial_state, mask=mask, training=training)

    def _zero_states(self, sequences: tf.Tensor) -> list[tf.Tensor] | None:
        """The initial states of a call without any, or None to let Keras create them."""
        for made_by, known in ((type(self), keras.layers.RNN), (type(self.cell), self._CELLS[0])):
            if made_by.get_initial_state is not known.get_initial_state:
                return None
        batch, dtype = _size(sequences, 0), tf.as_dtype(self.cell.compute_dtype)
        made = {n: _zeros(batch, n, dtype) for n in self.state_size}
        return [made[size] for size in self.state_size]

    def inner_loop(self, sequences, initial_state, mask, training=False):
        reason = self.why_not_fused
        if reason:
            _fusing.warn_once(self, "layer", reason, stacklevel=2)
            return super().inner_loop(sequences, initial_state, mask, training=training)
        states = list(initial_state) if keras.tree.is_nested(initial_state) else [initial_state]
        states = [_for_each_row(state, sequences) for state in states]
        mask = _as_bool(mask, sequences)
        x, w_x, dropout = self._drop(sequences, training)
        zero_states = all(hasattr(state, _ZERO_STATE) for state in states)
        outputs, states = self._run_op(
            x, w_x, states, mask=mask, go_backwards=bool(self.go_backwards), **dropout
        )
        if not self.return_sequences:
            last = self._last_output(states[0], mask, zero_states, _size(sequences, 1))
            return last, last, states
        return states[0], self._all_outputs(outputs, mask, zero_states), states

    # ---- Keras' rules for masks and order

    def _last_output(
        self, state: tf.Tensor, mask: tf.Tensor | None, zero_states: bool, steps: int | tf.Tensor
    ):
        if mask is not None and self.zero_output_for_mask:
            last = mask[:, :1] if self.go_backwards else mask[:, -1:]  # there may be no step
            return _where(tf.reduce_any(last, axis=1), state)
        if zero_states:
            return state
        if mask is not None:
            return _where(tf.reduce_any(mask, axis=1), state)
        if isinstance(steps, int) and steps > 0:
            return state
        return tf.where(steps > 0, state, tf.zeros([], state.dtype))

    def _all_outputs(self, outputs: tf.Tensor, mask: tf.Tensor | None, zero_states: bool):
        if mask is not None and self.zero_output_for_mask:
            outputs = _where(mask, outputs)
        elif mask is not None and not zero_states:
            count = tf.cumsum(tf.cast(mask, tf.int32), axis=1, reverse=bool(self.go_backwards))
            outputs = _where(count > 0, outputs)
        return tf.reverse(outputs, [1]) if self.go_backwards else outputs

    # ---- dropout

    def _maybe_config_dropout_masks(self, cell, input_sequence, input_state):
        # Keras stores the masks on the cell, where another thread would find them. Here they are
        # drawn in the inner loop and are local to it.
        if not self.fused:
            super()._maybe_config_dropout_masks(cell, input_sequence, input_state)

    def _drop(
        self, sequences: tf.Tensor, training: bool | None
    ) -> tuple[tf.Tensor, tf.Tensor | None, dict[str, tf.Tensor]]:
        """x and w_x for the op after the dropout of inputs, and the option for that of states.

        The masks are Keras' own: equal seeds give equal numbers. So they are drawn in Keras'
        order; without training, when Keras draws masks that it does not use, the seed is advanced
        by the same number of draws.
        """
        cell = self.cell
        x = _fusing.in_dtype(sequences, cell.compute_dtype)
        w_x = _fusing.weight_in_dtype(cell.kernel, cell.compute_dtype)
        if not training:
            for rate in (cell.dropout, cell.recurrent_dropout):
                self._skip_masks(rate)
            return x, w_x, {}
        input_masks = self._draw_masks(cell.dropout, x, _size(x, 2))
        state_masks = self._draw_masks(cell.recurrent_dropout, x, self.state_size[0])
        option = {} if state_masks is None else {"recurrent_dropout": tf.stack(state_masks)}
        if input_masks is None:
            return x, w_x, option
        if len(input_masks) == 1:
            return x * input_masks[0][:, tf.newaxis], w_x, option
        columns = tf.split(w_x, len(input_masks), axis=1)
        gates = [
            tf.tensordot(x * mask[:, tf.newaxis], w, axes=1)
            for mask, w in zip(input_masks, columns, strict=True)
        ]
        return tf.concat(gates, axis=-1), None, option

    def _mask_count(self) -> int:
        # Keras' cells have one mask for all gates, or one for each with implementation=1.
        return getattr(self.cell, "dropout_mask_count", None) or 1

    def _draw_masks(self, rate: float, x: tf.Tensor, width: int) -> list[tf.Tensor] | None:
        """The factors [B, width] of a dropout, or None if the dropout does not act."""
        if not self._drops(rate):
            return None
        ones = tf.ones([_size(x, 0), width], x.dtype)
        return [
            keras.random.dropout(ones, rate, seed=self.cell.seed_generator)
            for _ in range(self._mask_count())
        ]

    def _skip_masks(self, rate: float) -> None:
        if 0.0 < rate < 1.0:
            for _ in range(self._mask_count()):
                self.cell.seed_generator.next()

    def _drops(self, rate: float) -> bool:
        """Whether Keras' cell applies a dropout of this rate; at 1 it applies none."""
        return 0.0 < rate < 1.0


def _zeros(batch: int | tf.Tensor, size: int, dtype: tf.DType) -> tf.Tensor:
    zeros = sequence_util.zeros_to_read(batch, size, dtype)
    setattr(zeros, _ZERO_STATE, True)
    return zeros


def _size(tensor: tf.Tensor, axis: int) -> int | tf.Tensor:
    """A dim, as an int where it is known."""
    return tensors.dim(tensor, axis, tensor.shape.rank)


def _as_bool(mask: Any, sequences: tf.Tensor) -> tf.Tensor | None:
    """The mask in the form of the ops, bool [B, T], from any form that Keras' layers accept."""
    if keras.tree.is_nested(mask):
        mask = mask[0]
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    if mask.shape.rank == 3:
        mask = tf.squeeze(mask, -1)
    return _for_each_row(mask, sequences)


def _for_each_row(rows: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    """A state or mask [B, ...]; a single row, which Keras allows, is broadcast to all rows."""
    one_for_all = rows.shape.rank == 2 and tensors.known_dim(rows, 0) == 1
    if not one_for_all or tensors.known_dim(sequences, 0) == 1:
        return rows
    return tf.broadcast_to(rows, [_size(sequences, 0), _size(rows, 1)])


def _where(keep: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """The values where `keep`, which lacks their last dim, is True, else zeros."""
    return tf.where(keep[..., tf.newaxis], values, tf.zeros([], values.dtype))
