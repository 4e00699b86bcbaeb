"""The loop of `keras.layers.RNN` over the steps of a cell as one op for the whole sequence.

`install` puts a function of this module in the place of `keras.layers.RNN.inner_loop`, the method
that Keras' own layers and others override to compute the steps in another way. It computes the loop
over a cell of this package, and while `tf_blockrnn.enable_keras` is on over one of Keras' own, with
the op of the layer of the same equations; over `keras.layers.StackedRNNCells` of such cells, with
one op for each cell. Every other loop is Keras' own.

`RNN.call` does the rest: initial states, errors, casts, the assignment of states, and the dropout
masks, which are on the cells before `inner_loop` runs.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_blockrnn._ops import keras_rules, tensors, xla
from tf_blockrnn.layers import _fused_call, _fusing
from tf_blockrnn.layers._fused_call import LayerSpec
from tf_blockrnn.layers._fused_cell import FusedCell

# Whether loops over Keras' own cells run on the ops too; `enable_keras` sets it.
keras_cells = False

_ARGUMENTS = ("self", "sequences", "initial_state", "mask", "training")
# Of Keras' own cells, to recognize a method that somebody has replaced.
_KERAS_CALLS = {
    cell: cell.call
    for cell in (keras.layers.GRUCell, keras.layers.LSTMCell, keras.layers.SimpleRNNCell)
}


def install() -> None:
    """Replaces `keras.layers.RNN.inner_loop`, which becomes the `__wrapped__` of the new one.

    Does nothing where that is done, or where this version of Keras has another method of this name.
    """
    keras_loop = keras.layers.RNN.inner_loop
    if hasattr(keras_loop, "_is_of_tf_blockrnn"):
        return  # layers that inherit it are recognized by this very function
    if tuple(inspect.signature(keras_loop).parameters) == _ARGUMENTS:
        keras.layers.RNN.inner_loop = _fused_or_keras(keras_loop)


def cells_of(layer: Any) -> list[Any]:
    """The cells that a `keras.layers.RNN` steps one after another; one of another class is one."""
    cell = layer.cell
    is_stack = type(cell) is keras.layers.StackedRNNCells and "call" not in vars(cell)
    return list(cell.cells) if is_stack else [cell]


def spec_of(cell: Any) -> LayerSpec | None:
    """What computes the steps of a cell of exactly this class, or None."""
    return _specs().get(type(cell))


def why_no_op(cell: Any) -> _fusing.Reason | None:
    """The reason why no op computes the steps of a cell as its `call` does, or None."""
    spec = spec_of(cell)
    if spec is None:
        return _fusing.Reason(f"there is no op for the cell {type(cell).__name__}")
    if "call" in vars(cell) or type(cell).call is not _calls()[type(cell)]:
        return _fusing.Reason("its method call was replaced")
    if cell.activity_regularizer is not None:
        return _fusing.Reason("Keras adds its activity_regularizer at each step")
    return _fused_call.why_no_step(cell, spec)


def why_not_fused(layer: Any, with_keras_cells: bool | None = None) -> _fusing.Reason | None:
    """The reason why the ops do not compute the loop of a `keras.layers.RNN`, or None if they do.

    with_keras_cells: whether they compute Keras' own cells; None: as the switch is.
    """
    if not _has_keras_loop(layer):
        return _fusing.Reason("its inner_loop is not Keras' own")
    cells = cells_of(layer)
    for number, cell in enumerate(cells):
        reason = why_no_op(cell)
        if not reason and type(cell) in _KERAS_CALLS:
            on = keras_cells if with_keras_cells is None else with_keras_cells
            switch = "tf_blockrnn.enable_keras()"
            reason = None if on else _fusing.Reason(f"{switch} is off", switch)
        if reason and len(cells) > 1:
            # By its number: names differ from model to model, and each would warn anew.
            return _fusing.Reason(f"its cell {number}: {reason}", reason.change)
        if reason:
            return reason
    if getattr(layer.cell, "activity_regularizer", None) is not None:
        return _fusing.Reason("its cell has an activity_regularizer, which Keras adds at each step")
    # Within the layer's call Keras casts weights to its type, and within a cell's to the cell's.
    types = dict.fromkeys(each.compute_dtype for each in (layer, layer.cell, *cells))
    if len(types) > 1:
        return _fusing.Reason(
            f"it and its cells compute in {' and '.join(types)}", "one dtype for all"
        )
    return None


@functools.cache
def _specs() -> dict[type, LayerSpec]:
    # Not at the head: these modules are imported after this one has replaced Keras' method.
    from tf_blockrnn.layers import gru, gru_cell, layer_norm_gru, layer_norm_lstm, lstm, simple_rnn

    ours = {
        gru_cell.GRUCell: gru.SPEC,
        lstm.LSTMCell: lstm.SPEC,
        simple_rnn.SimpleRNNCell: simple_rnn.SPEC,
        layer_norm_gru.LayerNormGRUCell: layer_norm_gru.SPEC,
        layer_norm_lstm.LayerNormLSTMCell: layer_norm_lstm.SPEC,
    }
    return ours | {spec.cells[0]: spec for spec in (gru.SPEC, lstm.SPEC, simple_rnn.SPEC)}


@functools.cache
def _calls() -> dict[type, Callable]:
    """Of the cells in `_specs`, to recognize a method that somebody has replaced."""
    return {cell: cell.call for cell in _specs()} | _KERAS_CALLS


def _has_keras_loop(layer: Any) -> bool:
    loop = type(layer).inner_loop
    return hasattr(loop, "_is_of_tf_blockrnn") and "inner_loop" not in vars(layer)


def _fused_or_keras(keras_loop: Callable) -> Callable:
    """The `inner_loop` of Keras' class: on the ops where they compute the loop."""

    @functools.wraps(keras_loop)
    def inner_loop(self, sequences, initial_state, mask, training=False):
        found = None
        if not _fused_call.is_without_ops() and _has_keras_loop(self) and _is_asked_for(self):
            reason = why_not_fused(self) or xla.why_not_here()
            if reason:
                _fusing.warn_once(self, reason, stacklevel=3)
            else:
                found = _loop(self, sequences, initial_state, mask, training)
        if found is None:
            return keras_loop(self, sequences, initial_state, mask, training=training)
        return found

    inner_loop._is_of_tf_blockrnn = True
    return inner_loop


def _is_asked_for(layer: Any) -> bool:
    """Whether one of the cells is to run on an op, and has not warned already that it does not."""
    return any(
        keras_cells if type(cell) in _KERAS_CALLS else not isinstance(cell, FusedCell) or cell.fused
        for cell in cells_of(layer)
        if spec_of(cell) is not None
    )


# ---- the computation


def _loop(layer: Any, sequences: Any, initial_state: Any, mask: Any, training: Any) -> tuple | None:
    """What `inner_loop` returns: the last output, the outputs and the last states.

    None for arguments that Keras' loop refuses, and for masks of single units.
    """
    cells = cells_of(layer)
    nested = initial_state if keras.tree.is_nested(initial_state) else [initial_state]
    states = _states_by_cell(layer, cells, nested)
    if states is None or not all(cell.built for cell in cells):
        return None
    if not isinstance(sequences, (tf.Tensor, tf.Variable, keras.Variable, np.ndarray)):
        return None
    x = tensors.as_tensor(sequences)
    mask = None if mask is None else tf.convert_to_tensor(mask)
    if x.shape.rank != 3 or not _is_of_steps(mask):
        return None
    _fused_call.check_features(layer, cells[0], x)
    steps, mask = tensors.dim(x, 1, 3), _fused_call.as_bool(mask, x)
    last = []
    for cell, given in zip(cells, states, strict=True):
        inputs = _fused_call.Inputs(x, given, mask, training)
        x, found = _fused_call.run(layer, cell, spec_of(cell), inputs, masks_of_cell=True)
        last.append(found)
    zero = _is_known_zero(states[-1][0])
    output = keras_rules.last_output(layer, last[-1][0], mask, zero, steps=steps)
    if layer.return_sequences:
        outputs = keras_rules.all_outputs(layer, x, mask, zero)
    else:
        outputs = output[:, tf.newaxis]
    flat = [state for of_cell in last for state in of_cell]
    return output, outputs, tuple(keras.tree.pack_sequence_as(nested, flat))


def _states_by_cell(
    layer: Any, cells: Sequence[Any], nested: Sequence[Any]
) -> list[list[tf.Tensor]] | None:
    """The initial states of each cell, or None where they are not those of these cells."""
    by_cell = [nested] if layer.cell is cells[0] else list(nested)
    by_cell = [list(each) if keras.tree.is_nested(each) else [each] for each in by_cell]
    if len(by_cell) != len(cells):
        return None
    for cell, given in zip(cells, by_cell, strict=True):
        sizes = cell.state_size if isinstance(cell.state_size, (list, tuple)) else [cell.state_size]
        if len(given) != len(sizes) or any(map(keras.tree.is_nested, given)):
            return None
        given[:] = [
            _fusing.in_dtype(tensors.as_tensor(state), cell.compute_dtype) for state in given
        ]
        if any(state.shape.rank != 2 for state in given):
            return None
    return by_cell


def _is_of_steps(mask: tf.Tensor | None) -> bool:
    """Whether a mask is [B, T] or [B, T, 1]; Keras' loop also takes one of units."""
    if mask is None or mask.shape.rank == 2:
        return True
    return mask.shape.rank == 3 and tensors.known_dim(mask, 2) == 1


def _is_known_zero(state: tf.Tensor) -> bool:
    """Whether a graph has the state as zeros, as Keras makes them where none is given."""
    if tf.executing_eagerly():
        return False
    filled = state.op.inputs[1] if state.op.type == "Fill" else state
    value = tf.get_static_value(filled)
    return value is not None and not np.any(value)
