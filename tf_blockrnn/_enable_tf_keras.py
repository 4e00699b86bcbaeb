"""Runs the recurrent layers of tf_keras, which is Keras 2, on the fused ops.

While it is on, the method `call` of tf_keras' GRU, LSTM and SimpleRNN (and of version 1's GRU and
LSTM, `tf.compat.v1.keras.layers`) runs the whole sequence in one op. Initial states, dropout masks
and statefulness are Keras' own, and each layer's subclasses inherit `call` unless they have their
own. Keras' `call` runs instead wherever the op does not compute the same:

- other activations than tanh and sigmoid (tanh and relu for SimpleRNN), another cell, constants, a
  compute dtype without kernels, a GPU that this build has no kernels for;
- ragged inputs, inputs and states of different dtypes, a single state or mask for all rows,
  no steps, `unroll` with an unknown number of steps;
- a graph that XLA compiles (`jit_compile=True`), where the library for XLA cannot be loaded;
- a graph that is traced while a SavedModel is written, so that the file has no op of ours.
  TensorFlow then traces all functions again.

The masks of dropout are drawn by the layer or its cell, in Keras' order, so equal seeds give equal
numbers. Keras has one case that the op, whose masks are the same at all steps, does not compute: in
a graph, with `recurrent_dropout`, or with `dropout` where cuDNN could not run the layer (SimpleRNN,
`reset_after=False`, `use_bias=False`, version 1's layers), it draws inside its loop, new masks at
each step. Such a layer trains on Keras' operations in a graph, unless it has `unroll`; inference
and eager calls run on the op.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tf_blockrnn import _keras_private, _model_functions, _tf_private
from tf_blockrnn._ops import keras_rules, tensors, xla
from tf_blockrnn.layers import _fused_call, _fusing, gru, lstm, simple_rnn
from tf_blockrnn.layers._dropout import Dropped, dropped
from tf_blockrnn.layers._fused_call import LayerSpec

_lock = threading.Lock()
_on = False
# The methods that replace a layer class' own, which is their __wrapped__.
_installed: dict[type, Callable] = {}


def enable() -> None:
    """Runs tf_keras' recurrent layers on the fused ops; does nothing if they do already."""
    import tf_keras

    global _on
    with _lock:
        for layer, spec in _specs().items():
            if layer not in _installed:
                _installed[layer] = _fused_or_keras(vars(layer)["call"], spec)
                layer.call = _installed[layer]
        _model_functions.watch(tf_keras.Model, enabled)
        _on = True


def disable() -> None:
    """Undoes `enable`; a `tf.function` that was traced in between keeps the fused ops."""
    global _on
    with _lock:
        _on = False
        for layer, call in list(_installed.items()):
            # If someone has wrapped the method since, ours stays below theirs and calls Keras'.
            if vars(layer)["call"] is call:
                layer.call = call.__wrapped__
                del _installed[layer]


def enabled() -> bool:
    """Whether tf_keras' recurrent layers run on the fused ops."""
    return _on


@functools.cache
def _specs() -> dict[type, LayerSpec]:
    """The classes of layers with their own `call`, and the specs that compute them."""
    from tf_keras import activations

    def computed(functions: Sequence[Callable]) -> tuple[Callable, ...]:
        names = dict.fromkeys(function.__name__ for function in functions)
        return (*functions, *(getattr(activations, name) for name in names))

    found = {}
    for spec in (gru.SPEC, lstm.SPEC, simple_rnn.SPEC):
        known = {argument: computed(each) for argument, each in spec.activations.items()}
        layers, cells = _keras_private.tf_keras_layers()[spec.keras_class.__name__]
        for layer in layers:
            found[layer] = dataclasses.replace(
                spec, keras_class=layer, cells=cells, own_cell=None, activations=known
            )
    return found


def _fused_or_keras(plain: Callable, spec: LayerSpec) -> Callable:
    """A `call` that runs the op where it can, and otherwise the plain one."""

    # Its parameters are spelled out because Keras inspects them and ignores __wrapped__. With the
    # module of the plain one, which `wraps` copies, AutoGraph leaves it as it is.
    @functools.wraps(plain)
    def call(self, inputs, mask=None, training=None, initial_state=None):
        if _on and not _writes_saved_model():
            reason = why_not_fused(self, spec) or xla.why_not_here()
            reason = reason or _why_draws_at_each_step(self, training)
            # tf_keras, too, replaces the `call` of cells, while it saves a model.
            if reason and "call" not in vars(self.cell):
                _fusing.warn_once(self, reason, stacklevel=3)
            if not reason and self.cell.built:
                outputs = _call_op(self, spec, inputs, mask, training, initial_state)
                if outputs is not None:
                    return outputs
        return plain(self, inputs, mask=mask, training=training, initial_state=initial_state)

    return call


def spec_of(layer: Any) -> LayerSpec | None:
    """The spec of a layer of tf_keras, or None where the ops compute none of its kind."""
    return next((_specs()[cls] for cls in type(layer).__mro__ if cls in _specs()), None)


def why_not_fused(layer: Any, spec: LayerSpec) -> _fusing.Reason | None:
    """The reason why the op does not support this layer, or None if it does."""
    cell = layer.cell
    if type(cell) not in spec.cells or "call" in vars(cell):
        return _fusing.Reason(f"its cell is of the custom class {type(cell).__name__}")
    if _keras_private.has_constants(layer):
        return _fusing.Reason("its cell gets constants")
    if _keras_private.returns_runtime(layer):
        return _fusing.Reason("it returns which device ran it")
    return _fused_call.why_no_op(cell, spec)


def why_not_trained(layer: Any) -> _fusing.Reason | None:
    """The reason why a layer that the op supports trains on Keras' operations in a graph."""
    drops = layer.cell.dropout or layer.cell.recurrent_dropout
    if not drops or layer.unroll or _keras_private.could_use_cudnn(layer):
        return None
    return _fusing.Reason(
        "in a graph, tf_keras draws its dropout masks anew at each step, the op once",
        "unroll=True, or no dropout; inference runs on the op",
    )


def _why_draws_at_each_step(layer: Any, training: Any) -> _fusing.Reason | None:
    """The reason, if Keras draws masks inside its loop: its body is a graph that has none yet."""
    if tf.executing_eagerly() or _is_inference(training):
        return None
    return why_not_trained(layer)


def _writes_saved_model() -> bool:
    """Whether the graph that is being built must not have the ops, since a file gets it."""
    return not tf.executing_eagerly() and _tf_private.writes_saved_model()


def _call_op(
    layer: Any, spec: LayerSpec, inputs: Any, mask: Any, training: Any, initial_state: Any
) -> Any:
    """What the layer's `call` returns, or None if the op does not compute these arguments."""
    x = inputs[0] if isinstance(inputs, list) else inputs
    if not isinstance(x, tf.Tensor) or x.shape.rank != 3:
        return None
    x, states = _keras_private.inputs_and_states(layer, inputs, initial_state)
    states = [tf.convert_to_tensor(state) for state in states]
    mask = None if mask is None else tf.nest.flatten(mask)[0]
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask = tf.squeeze(mask, -1) if mask.shape.rank == 3 else mask
    if not _fit(layer, x, states, mask):
        return None

    dropped = _drop(layer, spec, x, states[0], training)
    options = _fused_call.op_options(
        dropped.state_factors,
        mask=mask,
        time_major=layer.time_major,
        go_backwards=bool(layer.go_backwards),
    )
    outputs, last_states = spec.run_op(layer.cell, dropped.x, dropped.w_x, states, options)
    if layer.stateful:
        layer.add_update(
            [
                tf.compat.v1.assign(kept, tf.cast(state, kept.dtype))
                for kept, state in zip(layer.states, last_states, strict=True)
            ]
        )
    zero = _starts_at_zero(layer, inputs, initial_state)
    axis, _ = _time_and_batch_axes(layer)
    if layer.return_sequences:
        output = keras_rules.all_outputs(layer, outputs, mask, zero, axis=axis)
    else:
        output = keras_rules.last_output(layer, last_states[0], mask, zero, steps=1, axis=axis)
    return [output, *last_states] if layer.return_state else output


def _fit(layer: Any, x: tf.Tensor, states: list[tf.Tensor], mask: tf.Tensor | None) -> bool:
    """Whether the op computes a sequence as Keras does with these tensors."""
    steps, batch = (tensors.known_dim(x, axis) for axis in _time_and_batch_axes(layer))
    for rows, axis in [(state, 0) for state in states] + [(mask, _time_and_batch_axes(layer)[1])]:
        if rows is None:
            continue
        if rows.shape.rank != 2 or (tensors.known_dim(rows, axis) == 1 and batch != 1):
            return False
    if any(tensor.dtype.name != layer.cell.compute_dtype for tensor in (x, *states)):
        return False
    return steps != 0 and not (layer.unroll and steps is None)


def _starts_at_zero(layer: Any, inputs: Any, initial_state: Any) -> bool:
    """Whether the initial state is known to be zero."""
    from tf_keras.layers import RNN

    if initial_state is not None or isinstance(inputs, list) or layer.stateful:
        return False
    return getattr(layer.get_initial_state, "__func__", None) is RNN.get_initial_state


def _time_and_batch_axes(layer: Any) -> tuple[int, int]:
    return (0, 1) if layer.time_major else (1, 0)


# ---- dropout


def _is_inference(training: Any) -> bool:
    return training is not None and not tf.is_tensor(training) and not training


def _drop(layer: Any, spec: LayerSpec, x: tf.Tensor, h: tf.Tensor, training: Any) -> Dropped:
    """What the op reads after the dropouts."""
    cell = layer.cell
    w_x = _fusing.weight_in_dtype(cell.kernel, cell.compute_dtype)
    if _keras_private.could_use_cudnn(layer):
        # Keras then drops with one mask of the layer for all gates, in which each step has its own.
        layer.reset_dropout_mask()
        masks = layer.get_dropout_mask_for_cell(x, training, count=spec.gates)
        return dropped(x, w_x, masks and masks[:1], None)

    _keras_private.reset_cell_dropout_masks(layer)
    if _is_inference(training):
        return Dropped(x, w_x, None)
    # Otherwise with masks of the cell, the same at all steps.
    time_axis, _ = _time_and_batch_axes(layer)
    step = tf.gather(x, 0, axis=time_axis)
    input_masks = cell.get_dropout_mask_for_cell(step, training, count=spec.gates)
    state_masks = cell.get_recurrent_dropout_mask_for_cell(h, training, count=spec.gates)
    if spec.gates == 1:
        input_masks = None if input_masks is None else [input_masks]
        state_masks = None if state_masks is None else [state_masks]
    elif cell.implementation != 1:
        # These implementations have one mask for all gates, and none for states.
        input_masks, state_masks = input_masks and input_masks[:1], None
    # Most cells do not apply the masks that they draw at a rate of 1.
    if input_masks is not None and (spec.drops_at_one or cell.dropout < 1.0):
        input_masks = [tf.expand_dims(mask, time_axis) for mask in input_masks]
    else:
        input_masks = None
    if not (spec.drops_at_one or cell.recurrent_dropout < 1.0):
        state_masks = None
    return dropped(x, w_x, input_masks, state_masks)
