"""Runs the recurrent layers of tf_keras, which is Keras 2, on the fused ops.

While it is on, the method `call` of tf_keras' GRU, LSTM and SimpleRNN (and of version 1's GRU and
LSTM, `tf.compat.v1.keras.layers`) runs the whole sequence in one op. Initial states, dropout masks
and statefulness are Keras' own, and each layer's subclasses inherit `call` unless they have their
own. Keras' `call` runs instead wherever the op does not compute the same:

- other activations than tanh and sigmoid (tanh and relu for SimpleRNN), another cell, constants, a
  compute dtype without kernels, a GPU that this build has no kernels for;
- ragged inputs, inputs and states of different dtypes, a single state or mask for all rows,
  no steps, `unroll` with an unknown number of steps;
- `unroll`, `go_backwards` and `zero_output_for_mask` together with a mask: Keras then applies the
  mask to the outputs in the wrong order;
- a graph that XLA compiles (`jit_compile=True`), where the library for XLA cannot be loaded;
- a graph that is traced while a SavedModel is written, so that the file has no op of ours.
  TensorFlow then traces functions anew, those that were traced before too.

The masks of dropout are drawn by the layer or its cell, in Keras' order, so equal seeds give equal
numbers. Keras has one case that the op, whose masks are the same at all steps, does not compute: in
a graph, with `recurrent_dropout`, or with `dropout` where cuDNN could not run the layer (SimpleRNN,
`reset_after=False`, `use_bias=False`, version 1's layers), it draws inside its loop, new masks at
each step. Such a layer trains on Keras' operations in a graph, unless it has `unroll`; inference
and eager calls run on the op.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader, _tf_private
from tf_blockrnn._ops import keras_rules, sequences, tensors, xla
from tf_blockrnn._ops.simple_rnn import simple_rnn

_DTYPES = ("float16", "bfloat16", "float32", "float64")

_lock = threading.Lock()
_on = False
# The methods that replace a layer class' own, which is their __wrapped__.
_installed: dict[type, Callable] = {}


def enable() -> None:
    """Runs tf_keras' recurrent layers on the fused ops; does nothing if they do already."""
    global _on
    with _lock:
        for layer, kind in _kinds().items():
            if layer not in _installed:
                _installed[layer] = _fused_call(vars(layer)["call"], kind)
                layer.call = _installed[layer]
        _on = True


def disable() -> None:
    """Undoes `enable`; graphs that were traced in between keep the fused ops."""
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


class _Kind(NamedTuple):
    """A family of layers and the op that computes it."""

    gates: int
    cells: tuple[type, ...]
    # For each argument that is an activation, the functions that the op computes.
    activations: dict[str, tuple[Callable, ...]]
    # (layer, x, w_x, states, **options) -> outputs [B, T, H] and the last states
    run_op: Callable[..., tuple[tf.Tensor, list[tf.Tensor]]]


@functools.cache
def _activations() -> dict[str, tuple[Callable, ...]]:
    """The functions that the ops compute, by name."""
    from tf_keras import activations

    return {
        "tanh": (activations.tanh, tf.tanh),
        "sigmoid": (activations.sigmoid, tf.sigmoid),
        "relu": (activations.relu, tf.nn.relu),
    }


@functools.cache
def _kinds() -> dict[type, _Kind]:
    """The classes of layers that have a `call` of their own."""
    from tf_keras.src.layers.rnn import gru, gru_v1, lstm, lstm_v1, simple_rnn

    known = _activations()
    gated = {"activation": known["tanh"], "recurrent_activation": known["sigmoid"]}
    plain = {"activation": known["tanh"] + known["relu"]}
    gru_kind = _Kind(3, (gru.GRUCell, gru_v1.GRUCell), gated, _run_gru)
    lstm_kind = _Kind(4, (lstm.LSTMCell, lstm_v1.LSTMCell), gated, _run_lstm)
    simple = _Kind(1, (simple_rnn.SimpleRNNCell,), plain, _run_simple_rnn)
    return {
        gru.GRU: gru_kind,
        gru_v1.GRU: gru_kind,
        lstm.LSTM: lstm_kind,
        lstm_v1.LSTM: lstm_kind,
        simple_rnn.SimpleRNN: simple,
    }


def _fused_call(plain: Callable, kind: _Kind) -> Callable:
    """A `call` that runs the op where it can, and otherwise the plain one."""

    # Its parameters are spelled out because Keras inspects them and ignores __wrapped__. With the
    # module of the plain one, which `wraps` copies, AutoGraph leaves it as it is.
    @functools.wraps(plain)
    def call(self, inputs, mask=None, training=None, initial_state=None):
        if _on and _op_computes(self, kind) and _op_may_be_here():
            outputs = _call_op(self, kind, inputs, mask, training, initial_state)
            if outputs is not None:
                return outputs
        return plain(self, inputs, mask=mask, training=training, initial_state=initial_state)

    return call


def _op_computes(layer: Any, kind: _Kind) -> bool:
    cell = layer.cell
    return (
        type(cell) in kind.cells
        and "call" not in vars(cell)
        and cell.built
        and cell.compute_dtype in _DTYPES
        and all(getattr(cell, name) in known for name, known in kind.activations.items())
        and not layer._num_constants
        # Keras' tests ask which device ran the layer.
        and not getattr(layer, "_return_runtime", getattr(layer, "return_runtime", False))
        and not (_loader.missing_cuda() and tf.config.get_visible_devices("GPU"))
    )


def _op_may_be_here() -> bool:
    """Whether the graph that is being built, if one is, may have the ops in it."""
    return tf.executing_eagerly() or not (_tf_private.writes_saved_model() or xla.why_not_here())


def _call_op(
    layer: Any, kind: _Kind, inputs: Any, mask: Any, training: Any, initial_state: Any
) -> Any:
    """What the layer's `call` returns, or None if the op does not compute these arguments."""
    x = inputs[0] if isinstance(inputs, list) else inputs
    if not isinstance(x, tf.Tensor) or x.shape.rank != 3:
        return None
    x, states, _ = layer._process_inputs(inputs, initial_state, None)
    states = [tf.convert_to_tensor(state) for state in states]
    mask = None if mask is None else tf.nest.flatten(mask)[0]
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask = tf.squeeze(mask, -1) if mask.shape.rank == 3 else mask
    if not _fit(layer, x, states, mask) or _draws_at_each_step(layer, training):
        return None

    x, w_x, dropout = _drop(layer, kind, x, states[0], training)
    outputs, last_states = kind.run_op(
        layer.cell,
        x,
        w_x,
        states,
        mask=mask,
        time_major=layer.time_major,
        go_backwards=bool(layer.go_backwards),
        **dropout,
    )
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
    if layer.unroll and mask is not None and layer.go_backwards and layer.zero_output_for_mask:
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


# ---- the ops, with the weights of Keras' cells


def _weight(cell: Any, name: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(getattr(cell, name))
    return tf.cast(tensor, cell.compute_dtype)


def _bias_or_zeros(cell: Any, gates: int) -> tf.Tensor:
    if cell.use_bias:
        return _weight(cell, "bias")
    return tf.zeros([gates * cell.units], cell.compute_dtype)


def _run_lstm(cell, x, w_x, states, **options):
    w_h, b = _weight(cell, "recurrent_kernel"), _bias_or_zeros(cell, 4)
    outputs, state = sequences.lstm(x, w_x, w_h, b, initial_state=tuple(states), **options)
    return outputs, list(state)


def _run_gru(cell, x, w_x, states, **options):
    b_x, b_h = _bias_or_zeros(cell, 3), None
    if cell.reset_after and cell.use_bias:
        b_x, b_h = tf.raw_ops.Unpack(value=b_x, num=2)
    outputs, state = sequences.gru(
        x,
        w_x,
        _weight(cell, "recurrent_kernel"),
        b_x,
        b_h,
        initial_state=states[0],
        reset_after=cell.reset_after,
        gate_order="urc",
        **options,
    )
    return outputs, [state]


def _run_simple_rnn(cell, x, w_x, states, **options):
    outputs, state = simple_rnn(
        x,
        w_x,
        _weight(cell, "recurrent_kernel"),
        _bias_or_zeros(cell, 1),
        activation="relu" if cell.activation in _activations()["relu"] else "tanh",
        initial_state=states[0],
        **options,
    )
    return outputs, [state]


# ---- dropout


def _is_inference(training: Any) -> bool:
    return training is not None and not tf.is_tensor(training) and not training


def _draws_at_each_step(layer: Any, training: Any) -> bool:
    """Whether Keras draws masks inside its loop: the loop's body is a graph that has none yet."""
    if tf.executing_eagerly() or layer.unroll or _is_inference(training):
        return False
    drops = layer.cell.dropout or layer.cell.recurrent_dropout
    return bool(drops) and not getattr(layer, "_could_use_gpu_kernel", False)


def _drop(
    layer: Any, kind: _Kind, x: tf.Tensor, h: tf.Tensor, training: Any
) -> tuple[tf.Tensor, tf.Tensor | None, dict[str, tf.Tensor]]:
    """x and w_x for the op after the dropout of inputs, and the option for that of states."""
    cell = layer.cell
    w_x = _weight(cell, "kernel")
    if getattr(layer, "_could_use_gpu_kernel", False):
        # Where cuDNN could run a layer, Keras drops with one mask of the layer for all gates, in
        # which each step has its own.
        layer.reset_dropout_mask()
        masks = layer.get_dropout_mask_for_cell(x, training, count=kind.gates)
        return x if masks is None else x * masks[0], w_x, {}

    layer._maybe_reset_cell_dropout_mask(cell)
    if _is_inference(training):
        return x, w_x, {}
    # Otherwise with masks of the cell, the same at all steps.
    time_axis, _ = _time_and_batch_axes(layer)
    step = tf.gather(x, 0, axis=time_axis)
    input_masks = cell.get_dropout_mask_for_cell(step, training, count=kind.gates)
    state_masks = cell.get_recurrent_dropout_mask_for_cell(h, training, count=kind.gates)
    if kind.gates == 1:
        input_masks = None if input_masks is None else [input_masks]
        state_masks = None if state_masks is None else [state_masks]
    elif cell.implementation != 1:
        # These implementations have one mask for all gates, and none for states.
        input_masks, state_masks = input_masks and input_masks[:1], None
    option = {}
    if state_masks is not None and _acts(cell.recurrent_dropout, kind):
        option["recurrent_dropout_factors"] = tf.stack(state_masks)
    if input_masks is None or not _acts(cell.dropout, kind):
        return x, w_x, option
    dropped = [x * tf.expand_dims(mask, time_axis) for mask in input_masks]
    if len(dropped) == 1:
        return dropped[0], w_x, option
    columns = tf.split(w_x, len(dropped), axis=1)
    gates = [tf.tensordot(each, w, axes=1) for each, w in zip(dropped, columns, strict=True)]
    return tf.concat(gates, axis=-1), None, option


def _acts(rate: float, kind: _Kind) -> bool:
    """Whether the cell applies the masks that it draws; those of GRU and LSTM don't at 1."""
    return kind.gates == 1 or rate < 1.0
