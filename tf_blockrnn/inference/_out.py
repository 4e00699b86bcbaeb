"""The arrays that a call of a session writes to, where `out` names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_blockrnn.inference._arrays import FLOAT32, overlap, overlap_error, refuse_overlap, writable
from tf_blockrnn.inference._states import Dense, StateLayout


class Out:
    """What `out` names: the outputs, or a pair of them and the new state.

    The new state is written in place if its arrays are contiguous in memory, as those that a
    session returned do; else it is copied there.

    Args:
      where: the function and the argument, for errors.
      out: as given.
      layout: of the session's states.
      batch: B.

    Raises:
      ValueError: it is a sequence, but no pair.
    """

    def __init__(self, where: str, out: Any, layout: StateLayout, batch: int):
        self._where, self._layout, self._batch = where, layout, batch
        self._is_pair = isinstance(out, (tuple, list))
        if self._is_pair and len(out) != 2:
            raise ValueError(
                f"{where} must be an array or a pair (outputs, state), got {type(out).__name__} of "
                f"length {len(out)}"
            )
        self._y_given, self._state_given = out if self._is_pair else (out, None)
        self._copy_to: list[np.ndarray] | None = None

    def outputs(self, symbols: str, shape: Sequence[int]) -> tuple[np.ndarray, int]:
        """The outputs, checked, and their address."""
        self._y_name = f"{self._where}[0]" if self._is_pair else self._where
        self._y, self._y_at = writable(self._y_name, self._y_given, symbols, shape)
        return self._y, self._y_at

    def refuse_inputs(self, name: str, given: Any, dense: np.ndarray, at: int) -> None:
        """Raises ValueError if the outputs share memory with an input."""
        self._x = (name, at, dense.nbytes)
        self._copied_x = None if dense is given else given
        if dense is not given:  # a copy is read
            refuse_overlap(self._y_name, self._y, name, given)
        elif overlap(self._y_at, self._y.nbytes, at, dense.nbytes):
            raise overlap_error(self._y_name, name)

    def new_state(self, old: Dense | None) -> tuple[int, Sequence[np.ndarray]]:
        """The address and the parts of the new state.

        Raises:
          TypeError: an array is of another type.
          ValueError: an array is malformed, or shares memory with another one.
        """
        size = self._batch * self._layout.size * FLOAT32.itemsize
        if old is not None:
            if overlap(self._y_at, self._y.nbytes, old.at, size):
                raise overlap_error(self._y_name, "state")
            for part in old.copied:
                refuse_overlap(self._y_name, self._y, "state", part)
        if not self._is_pair:
            return self._layout.new_parts(self._batch)
        end, first, together, parts = None, 0, True, []
        given = self._layout.parts(f"{self._where}[1]", self._state_given)
        reads = (self._y_name, self._y_at, self._y.nbytes), self._x
        for index, width in enumerate(self._layout.widths):
            name = f"{self._where}[1]{self._layout.names[index]}"
            part, at = writable(name, given[index], "[B, width]", (self._batch, width))
            for other, other_at, other_bytes in reads:
                if overlap(at, part.nbytes, other_at, other_bytes):
                    raise overlap_error(name, other)
            refuse_overlap(name, part, self._x[0], self._copied_x)
            if end is None:
                first = at
            elif at != end:
                together = False
            end = at + part.nbytes
            parts.append(part)
        if together and (old is None or first == old.at or not overlap(first, size, old.at, size)):
            return first, parts
        for index, part in enumerate(parts):
            for other, name in zip(parts[:index], self._layout.names, strict=False):
                at = f"{self._where}[1]"
                refuse_overlap(at + self._layout.names[index], part, at + name, other)
        self._copy_to = parts
        return self._layout.new_parts(self._batch)

    def finish(self, parts: Sequence[np.ndarray]) -> Any:
        """What the call returns as its state."""
        if not self._is_pair:
            return self._layout.structure(parts)
        if self._copy_to is not None:
            for target, part in zip(self._copy_to, parts, strict=True):
                target[...] = part
        return self._state_given
