"""The call argument `resets` of the layers, and Keras' loop over the steps with resets.

The ops take resets as they are. A layer that falls back to Keras' own operations runs Keras' loop
over a step that first sets the states of the rows with a reset to zeros.
"""

import inspect
from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops import keras_rules, tensors


def checked(layer: Any, sequences: Any, resets: Any) -> tf.Tensor | keras.KerasTensor:
    """The resets as the ops take them, bool [B, T]; those of Keras stay symbolic.

    Raises:
      TypeError: they are no dense tensor of bool.
      ValueError: they are of another shape than the steps of the sequences.
    """
    what, hint = f'Layer "{layer.name}": resets', ""
    if isinstance(resets, keras.KerasTensor):
        dtype, hint = resets.dtype, '; declare it with keras.Input(..., dtype="bool")'
        if resets.sparse or getattr(resets, "ragged", False):
            raise TypeError(f"{what} must be a dense tensor, got {resets}")
    else:
        if refused := tensors.not_dense("resets", resets):
            raise TypeError(f'Layer "{layer.name}": {refused}')
        try:
            resets = tensors.as_tensor(resets)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{what} must be a tensor, got a value of type {type(resets).__name__}: {error}"
            ) from error
        dtype = resets.dtype.name
    if dtype != "bool":
        raise TypeError(f"{what} must be of bool, got {dtype}{hint}")
    # A list of the sequences and the initial states has no shape; what is wrong with a shape of
    # another rank than 3 is said by Keras.
    wanted = tf.TensorShape(getattr(sequences, "shape", None))
    wanted = wanted[:2] if wanted.rank == 3 else tf.TensorShape([None, None])
    found = tf.TensorShape(resets.shape)
    if not wanted.is_compatible_with(found):
        raise ValueError(
            f"{what} must have shape [B, T] = {wanted.as_list()}, got {found.as_list()}"
        )
    return resets


def _of_all_steps(
    layer: Any, sequences: tf.Tensor, resets: tf.Tensor, *, converted: bool
) -> tf.Tensor:
    """The resets, with an error when the graph runs if they are not of the sequences' steps.

    The ops check it themselves. `converted`: the graph is for a converter, which removes
    assertions; then reshaping is what fails.
    """
    if sequences.shape[:2].is_fully_defined() and resets.shape.is_fully_defined():
        return resets  # as `checked` has seen
    wanted = tf.shape(sequences)[:2]
    resets = tf.ensure_shape(resets, [None, None], name="resets_must_have_2_dims")
    if converted:
        return tf.reshape(resets, wanted)
    message = f'Layer "{layer.name}": resets must have shape [B, T], as the sequences have'
    assertion = tf.debugging.assert_equal(tf.shape(resets), wanted, message)
    with tf.control_dependencies([assertion]):
        return tf.identity(resets)


def call_keras(
    layer: Any,
    sequences: Any,
    resets: tf.Tensor,
    *,
    reason: str | None,
    converted: bool,
    initial_state: Any,
    mask: tf.Tensor | None,
    training: Any,
) -> Any:
    """What the `call` of a Keras layer returns, with resets, on Keras' own operations.

    Args:
      layer: a layer of this package, built.
      sequences: [B, T, I].
      resets: bool, [B, T].
      reason: why the steps of the layer may not be those of its cell, or None.
      converted: whether the graph is for a converter, which removes assertions.
      mask: bool, [B, T].
      initial_state, training: as for the layer.

    Raises:
      ValueError: there is such a reason.
    """
    if reason:
        raise ValueError(f'Layer "{layer.name}" supports no resets: {reason}.')
    resets = _of_all_steps(layer, sequences, resets, converted=converted)
    return keras.layers.RNN.call(
        _LayerWithResets(layer, resets),
        sequences,
        initial_state=initial_state,
        mask=mask,
        training=training,
    )


class _InPlaceOf:
    """An object with the attributes of a layer but for those that it is given."""

    def __init__(self, layer: Any, **attributes: Any):
        vars(self).update(attributes, _layer=layer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _LayerWithResets(_InPlaceOf):
    """A layer whose loop over the steps has resets. `RNN.call` does the rest."""

    def __init__(self, layer: Any, resets: tf.Tensor):
        super().__init__(layer, _resets=resets)

    def inner_loop(self, sequences, initial_state, mask, training=False):
        x, resets = tensors.as_tensor(sequences), self._resets
        backwards = bool(self.go_backwards)
        if backwards:  # the boundary is passed one step later
            resets = tf.concat([resets[:, 1:], tf.zeros_like(resets[:, :1])], axis=1)
        # The loop has one tensor of inputs: the resets and the mask are columns of it.
        columns = [resets] if mask is None else [resets, mask]
        count, cell = len(columns), self.cell

        def step(inputs, states):
            is_set = inputs[:, -count:] != 0
            states = [tf.where(is_set[:, :1], tf.zeros([], s.dtype), s) for s in states]
            output, new = cell(inputs[:, :-count], states, training=training)
            new = list(new) if keras.tree.is_nested(new) else [new]
            if mask is not None:
                # Not by the loop: a masked step carries the states after the reset.
                kept = is_set[:, 1:]
                new = [tf.where(kept, *pair) for pair in zip(new, states, strict=True)]
                output = tf.where(kept, output, states[0])  # of these cells the state is the output
            return output, new

        keras_loop = inspect.unwrap(keras.layers.RNN.inner_loop)
        columns = [tf.expand_dims(tf.cast(column, x.dtype), -1) for column in columns]
        _, outputs, last = keras_loop(
            _InPlaceOf(self._layer, cell=step, return_sequences=True),
            tf.concat([x, *columns], axis=-1),
            initial_state,
            None,
            training=training,
        )
        # In the order of the inputs, as those of the ops.
        outputs = tf.reverse(outputs, [1]) if backwards else outputs
        output = keras_rules.last_output(self, last[0], mask, False, steps=tensors.dim(x, 1, 3))
        if self.return_sequences:
            return output, keras_rules.all_outputs(self, outputs, mask, False), list(last)
        return output, output[:, tf.newaxis], list(last)
