"""The inputs and states of a cell that is called by hand, and errors that name them.

Keras' cells ignore states that they do not have, and broadcast those that do not fit.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_blockrnn.layers import _fusing


def checked(cell: Any, inputs: Any, states: Any) -> tuple[list[Any], bool]:
    """The states as a list, and whether the cell returns its states in one.

    A cell of one state also takes the state alone, and one of two a tensor of both, [2, B, H].

    Raises:
      ValueError: the cell is not built; the inputs or a state are ragged, or not of real numbers; a
        state is sparse; or there are more or fewer states than the cell has.
    """
    if not cell.built:
        raise ValueError(
            f"{_cell(cell)} must be built before its method call is used: call the cell itself, or "
            "its method build"
        )
    _check_real(cell, None, inputs)
    count = len(_sizes(cell))
    in_list = isinstance(states, (list, tuple))
    given = states if in_list else [states]
    if count > 1 and not in_list and _shape(states).rank == 3:
        if _shape(states).as_list()[0] in (None, count):
            given = tf.unstack(states, count)
    if len(given) != count or states is None:
        raise ValueError(
            f"{_cell(cell)}: states must be a list of {count} tensor{'s' * (count > 1)} "
            f"{' and '.join(dict.fromkeys(_expected(cell, None)))}, got "
            f"{len(states) if in_list else _described(states)}"
        )
    for number, state in enumerate(given):
        _check_real(cell, _state_name(number, in_list or count > 1), state)
    return list(given), in_list or count > 1


def check_shapes(cell: Any, inputs: Any, states: Sequence[Any], in_list: bool) -> None:
    """Refuses shapes of inputs and states that do not fit the cell and each other.

    Raises:
      ValueError: the inputs are not [B, I] or a state not [B, H], as far as their dims are known.
    """
    shape, width = _shape(inputs), cell.kernel.shape[0]
    if not _fits(shape, None, width):
        raise ValueError(
            f"{_cell(cell)}: {_inputs_name(cell)} must have shape [B, I] = {_text([None, width])}, "
            f"got {_text(shape)}"
        )
    batch = None if shape.rank is None else shape.as_list()[0]
    for number, (size, state) in enumerate(zip(_sizes(cell), states, strict=True)):
        if not _fits(_shape(state), batch, size):
            raise ValueError(
                f"{_cell(cell)}: {_state_name(number, in_list)} must have shape "
                f"{_expected(cell, batch)[number]}, got {_text(_shape(state))}, for "
                f"{_inputs_name(cell)} of shape {_text(shape)}"
            )


def _check_real(cell: Any, state: str | None, value: Any) -> None:
    """Refuses a value that no cell takes for its inputs, or for the state of this name."""
    is_sparse = isinstance(value, tf.SparseTensor) and state
    if value is None or is_sparse or isinstance(value, tf.RaggedTensor):
        name = state or _inputs_name(cell)
        hint = {tf.RaggedTensor: f"; pass {name}.to_tensor()"}.get(type(value), "")
        raise ValueError(
            f"{_cell(cell)}: {name} must be a dense tensor, got {_described(value)}{hint}"
        )
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, tf.DType) and not _fusing.is_real(dtype):
        name = state or _inputs_name(cell)
        raise ValueError(f"{_cell(cell)}: {name} must be real numbers, got {dtype.name}")


def _sizes(cell: Any) -> Sequence[int]:
    return cell.state_size if isinstance(cell.state_size, (list, tuple)) else [cell.state_size]


def _shape(value: Any) -> tf.TensorShape:
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tf.TensorShape) else tf.TensorShape(shape)


def _fits(shape: tf.TensorShape, rows: int | None, width: int) -> bool:
    """`is_compatible_with`, in a third of its time, which is spent in each step."""
    if shape.rank != 2:
        return shape.rank is None
    given = shape.as_list()
    return given[1] in (width, None) and (rows is None or given[0] in (rows, None))


# ---- texts of errors


def _cell(cell: Any) -> str:
    return f'Cell "{cell.name}"'


def _inputs_name(cell: Any) -> str:
    return next(iter(inspect.signature(cell.call).parameters))


def _state_name(number: int, in_list: bool) -> str:
    return f"states[{number}]" if in_list else "states"


def _expected(cell: Any, batch: int | None) -> list[str]:
    """The shape of each state, in symbols and numbers."""
    symbols = ["P" if getattr(cell, "projection", None) else "H", "H"]
    return [
        f"[B, {symbol}] = {_text([batch, size])}"
        for symbol, size in zip(symbols, _sizes(cell), strict=False)
    ]


def _text(shape: Any) -> str:
    shape = tf.TensorShape(shape)
    if shape.rank is None:
        return "?"
    return "[" + ", ".join("?" if size is None else str(size) for size in shape.as_list()) + "]"


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)) or not hasattr(value, "shape"):
        return f"a {type(value).__name__}"
    return f"one tensor of shape {_text(_shape(value))}"
