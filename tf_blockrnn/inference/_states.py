"""The states of a session: structures of arrays, and the one array that the C interface takes.

The parts of a state are its arrays [B, width]: for each layer, for each of its directions h, and
for an LSTM cs. The C interface takes them contiguously in one array. The parts that a session
returns are views of such an array, so a state that is passed back in unchanged is not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf_blockrnn._types import LSTMState
from tf_blockrnn.inference._arrays import FLOAT32, address, dense
from tf_blockrnn.weights._checks import check_shape, to_array
from tf_blockrnn.weights.layer import RecurrentWeights

_empty = np.empty
_ndarray = np.ndarray
_new_tuple = tuple.__new__
_BYTES = FLOAT32.itemsize
_WITH_CELL_STATE = ("lstm", "layer_norm_lstm")


class _Level(NamedTuple):
    """One level of a structure: the names of its items, what each is (None: an array), its type."""

    names: tuple[str, ...]
    item: Sequence[_Level | None]
    make: Callable[[list[Any]], Any]
    described: str


def _level_of(weights: RecurrentWeights) -> _Level | None:
    cell = None
    if weights.cell in _WITH_CELL_STATE:
        cell = _Level((".h", ".cs"), (None, None), LSTMState._make, "a pair (h, cs)")
    both = _Level(("[0]", "[1]"), (cell, cell), tuple, "a pair (forward, backward)")
    layers = [cell if layer.backward is None else both for layer in weights.layers]
    if len(layers) == 1:
        return layers[0]
    names = tuple(f"[{number}]" for number in range(len(layers)))
    return _Level(names, layers, list, f"a list or tuple of {len(layers)} layers' states")


def initial_parts(weights: RecurrentWeights) -> list[np.ndarray] | None:
    """One row for each part of a state, h0 and c0 or zeros; None if all are zeros."""
    given = [
        (value, width)
        for _, _, one in weights.named_directions()
        for value, width in ((one.h0, one.output_size), (one.c0, one.units))[: _states_of(weights)]
    ]
    if all(value is None for value, _ in given):
        return None
    return [np.zeros(width, FLOAT32) if value is None else value for value, width in given]


def _states_of(weights: RecurrentWeights) -> int:
    return 2 if weights.cell in _WITH_CELL_STATE else 1


def described(state: Any) -> str:
    """What was given as a state, for errors."""
    if isinstance(state, (tuple, list)):
        return f"a {type(state).__name__} of {', '.join(map(described, state)) or 'nothing'}"
    shape = getattr(state, "shape", None)
    return type(state).__name__ + ("" if shape is None else f" of the shape {list(shape)}")


def _leaves(level: _Level | None, name: str = "") -> Iterator[str]:
    if level is None:
        yield name
    else:
        for item, below in zip(level.names, level.item, strict=True):
            yield from _leaves(below, name + item)


def _structure(level: _Level | None, parts: Iterator[np.ndarray]) -> Any:
    if level is None:
        return next(parts)
    return level.make([_structure(below, parts) for below in level.item])


def _collect(where: str, level: _Level, state: Any, found: list[Any]) -> None:
    expected = f"{where} must be {level.described}, got {type(state).__name__}"
    if not isinstance(state, (tuple, list)):
        raise TypeError(expected)
    if len(state) != len(level.names):
        raise ValueError(f"{expected} of length {len(state)}")
    for name, below, item in zip(level.names, level.item, state, strict=True):
        if below is None:
            found.append(item)
        else:
            _collect(where + name, below, item, found)


class Dense(NamedTuple):
    """A state as the C interface takes it.

    Args:
      at: its address.
      memory: the object that keeps it alive.
      copied: the given arrays that are read from a copy.
    """

    at: int
    memory: Any
    copied: tuple[Any, ...]


class StateLayout:
    """The parts of the states of a session and the structure in which they are given.

    Args:
      weights: of the session.
      of_torch: whether states may be given in PyTorch's form, too.
    """

    def __init__(self, weights: RecurrentWeights, of_torch: bool = False):
        self._level, self._of_torch = _level_of(weights), of_torch
        self.names = tuple(_leaves(self._level))
        self._states = states = _states_of(weights)
        self.widths = tuple(
            width
            for _, _, one in weights.named_directions()
            for width in (one.output_size, one.units)[:states]
        )
        self.size = sum(self.widths)
        self._uniform = self.widths[0] if len(set(self.widths)) == 1 else None
        self._is_lstm = self.names == (".h", ".cs")

    def structure(self, parts: Sequence[np.ndarray]) -> Any:
        """The structure of these arrays."""
        if self._is_lstm:
            return _new_tuple(LSTMState, parts)
        return parts[0] if self._level is None else _structure(self._level, iter(parts))

    def new_parts(self, batch: int) -> tuple[int, list[np.ndarray]]:
        """New arrays, one after another, and the address of the first."""
        width = self._uniform
        count = len(self.widths)
        if width is None:
            block = _empty(batch * self.size, FLOAT32)
            parts, start = [], 0
            for width in self.widths:
                end = start + batch * width
                parts.append(block[start:end].reshape(batch, width))
                start = end
            return address(block), parts
        if count == 1:
            block = _empty((batch, width), FLOAT32)
            return address(block), [block]
        block = _empty((count, batch, width), FLOAT32)
        if count == 2:
            return address(block), [block[0], block[1]]
        return address(block), list(block)

    def parts(self, where: str, state: Any) -> Sequence[Any]:
        """What a structure has in place of its arrays, which are not checked.

        Raises:
          TypeError: it is another structure.
          ValueError: a level has another length.
        """
        if self._is_lstm and type(state) is LSTMState:
            return state
        if self._of_torch and (unstacked := self.unstacked(state)) is not None:
            return unstacked
        if self._level is None:
            return (state,)
        found: list[Any] = []
        _collect(where, self._level, state, found)
        return found

    @property
    def torch_form(self) -> str:
        """PyTorch's form of a state, for errors."""
        shape = f"[{len(self.widths) // self._states}, B, width]"
        return f"h, {shape}" if self._states == 1 else f"the tuple (h, c), each {shape}"

    def unstacked(self, state: Any) -> list[Any] | None:
        """The parts of a state in PyTorch's form; None if it has another."""
        stacks = (state,) if self._states == 1 else state
        if not isinstance(stacks, tuple) or len(stacks) != self._states:
            return None
        size = len(self.widths) // self._states
        if any(getattr(one, "ndim", 0) != 3 or len(one) != size for one in stacks):
            return None
        return [row for rows in zip(*map(to_array, stacks), strict=True) for row in rows]

    def stacked(self, where: str, state: Any) -> Any:
        """A state in PyTorch's form."""
        if any(self.widths[n] != self.widths[n % self._states] for n in range(len(self.widths))):
            raise ValueError(
                f"{where} must be of layers of one size for PyTorch's form, got the widths "
                f"{', '.join(map(str, self.widths))}"
            )
        parts = self.parts(where, state)
        stacks = tuple(np.stack(parts[n :: self._states]) for n in range(self._states))
        return stacks if self._states > 1 else stacks[0]

    def dense(self, where: str, state: Any, batch: int) -> Dense:
        """A state as one array.

        Raises:
          TypeError: the structure or a type is wrong.
          ValueError: a length or a shape is wrong.
        """
        given = self.parts(where, state)
        arrays = []
        first = end = None
        together = True
        converted = ()
        for index, width in enumerate(self.widths):
            item = given[index]
            if (
                type(item) is _ndarray
                and item.dtype is FLOAT32
                and item.shape == (batch, width)
                and item.flags.c_contiguous
                and item.flags.aligned
            ):
                array, at = item, address(item)
            else:
                name = where + self.names[index]
                array, at = dense(name, item)
                check_shape(name, array, "[B, width]", (batch, width))
                if array is not item:
                    converted += (item,)
            arrays.append(array)
            if first is None:
                first = end = at
            elif at != end:
                together = False
            end += batch * width * _BYTES
        if together:
            return Dense(first, arrays, converted)
        block = np.concatenate([array.ravel() for array in arrays])
        return Dense(address(block), block, tuple(given))
