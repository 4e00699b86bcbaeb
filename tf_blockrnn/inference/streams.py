"""`Streams`: independent streams whose steps a session computes together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tf_blockrnn.inference import _library
from tf_blockrnn.inference._arrays import FLOAT32, address, dense, numbers, whole_number
from tf_blockrnn.inference.session import Session
from tf_blockrnn.weights._checks import check_shape


class Streams:
    """Independent streams, each with its own state, whose steps a session computes in batches.

    A speech or sensor service has many streams, some of which have a new frame at any moment. A
    step computes these frames as one batch. The results of a stream do not depend on the others:
    they are bitwise those of `session.step` with that stream alone.

    Several threads may use it concurrently; its calls run one at a time.

    Args:
      session: a session whose layers have one direction. It may have other callers.
      capacity: the maximum number of streams, at least 1.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: capacity is below 1, or the session has a layer of two directions.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import inference, weights
      >>> one = weights.DirectionWeights(np.full([3, 5, 4], 0.1), np.full([3, 4, 4], 0.1))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> streams = inference.Streams(inference.Session(gru), capacity=100)
      >>> first, second = streams.join(), streams.join()
      >>> y = streams.step([second], np.ones([1, 5]))
      >>> y = streams.step([first, second], np.ones([2, 5]))
      >>> y.shape, bool(y[0, 0] < y[1, 0])
      ((2, 4), True)
      >>> streams.leave(first)
      >>> len(streams), streams.ids == (second,)
      (1, True)
    """

    def __init__(self, session: Session, capacity: int):
        if not isinstance(session, Session):
            raise TypeError(
                f"Streams: session must be an inference.Session, got {type(session).__name__}"
            )
        if not session._has_step:
            raise ValueError(
                "Streams: session must have layers of one direction, got a layer of two, which "
                "needs the whole sequence"
            )
        self._session, self._layout = session, session._layout
        self._capacity = whole_number("Streams: capacity", capacity, 1)
        # For each part of a state, one row for each slot.
        self._slots = [np.zeros((self._capacity, width), FLOAT32) for width in self._layout.widths]
        self._free = list(range(self._capacity))[::-1]
        self._slot_of: dict[int, int] = {}
        self._next_id = 0
        self._lock = threading.Lock()

    @property
    def session(self) -> Session:
        """The session that computes the steps."""
        return self._session

    @property
    def capacity(self) -> int:
        """The maximum number of streams."""
        return self._capacity

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of the streams, in the order in which they joined."""
        with self._lock:
            return tuple(self._slot_of)

    def __len__(self) -> int:
        return len(self._slot_of)

    def __repr__(self) -> str:
        return f"Streams({self._session!r}, {len(self)} of {self._capacity})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Streams cannot be pickled or copied, as their session cannot")

    def join(self, state: Any = None) -> int:
        """Adds a stream.

        Args:
          state: its state before its first step, of one row; None: `session.initial_state(1)`.

        Returns:
          The stream's id. Ids are never reused.

        Raises:
          TypeError: state has the wrong type.
          ValueError: there are `capacity` streams already, or state has the wrong shape.
        """
        parts = None if state is None else self._row("Streams.join: state", state)
        with self._lock:
            if not self._free:
                raise ValueError(
                    f"Streams.join: capacity must be above the number of streams, got {len(self)} "
                    f"streams and the capacity {self._capacity}"
                )
            slot, stream = self._free.pop(), self._next_id
            self._next_id += 1
            self._slot_of[stream] = slot
            self._write(slot, parts)
        return stream

    def leave(self, stream: int) -> None:
        """Removes a stream.

        Args:
          stream: its id.

        Raises:
          TypeError: stream is no integer.
          ValueError: there is no such stream, or it has left.
        """
        with self._lock:
            slot = self._slot("Streams.leave: stream", stream)
            del self._slot_of[int(stream)]
            self._free.append(slot)

    def state(self, stream: int) -> Any:
        """Returns a copy of a stream's state.

        Args:
          stream: its id.

        Returns:
          A state of one row, in the structure of the session's states.

        Raises:
          TypeError: stream is no integer.
          ValueError: there is no such stream, or it has left.
        """
        with self._lock:
            slot = self._slot("Streams.state: stream", stream)
            return self._layout.structure([part[slot : slot + 1].copy() for part in self._slots])

    def set_state(self, stream: int, state: Any = None) -> None:
        """Replaces a stream's state.

        Args:
          stream: its id.
          state: of one row, in the structure of the session's states; None:
            `session.initial_state(1)`.

        Raises:
          TypeError: an argument is of another type.
          ValueError: there is no such stream, it has left, or state has another shape.
        """
        parts = None if state is None else self._row("Streams.set_state: state", state)
        with self._lock:
            self._write(self._slot("Streams.set_state: stream", stream), parts)

    def step(self, ids: Sequence[int] | np.ndarray, frames: np.ndarray) -> np.ndarray:
        """Computes one step of the streams that have a frame. The others stay as they are.

        Args:
          ids: the streams, n integers that differ, in any order.
          frames: their inputs, [n, I], in the order of ids, as `Session.step` takes them.

        Returns:
          Their outputs, [n, P], in the order of ids.

        Raises:
          TypeError: an argument is of another type. No stream has made a step then.
          ValueError: an id is given twice, is of no stream or of one that has left, or frames has
            another shape. No stream has made a step then.
          MemoryError: there is no memory for the call, and no stream has made a step.
        """
        session, layout = self._session, self._layout
        x, x_at = dense("Streams.step: frames", frames)
        with self._lock:
            slots = self._slots_of(ids)
            count = len(slots)
            check_shape("Streams.step: frames", x, "[n, I]", (count, session.input_size))
            state_at, parts = layout.new_parts(count)
            # "clip": with "raise", NumPy would copy once more. All are in range.
            for part, all_rows in zip(parts, self._slots, strict=True):
                all_rows.take(slots, 0, part, "clip")
            y = np.empty((count, session.output_size), FLOAT32)
            code = session._step(session._handle, x_at, count, state_at, state_at, address(y), 1)
            if code:
                _library.check("Streams.step", code)
            for part, all_rows in zip(parts, self._slots, strict=True):
                all_rows[slots] = part
        return y

    def _slot(self, where: str, stream: Any) -> int:
        slot = self._slot_of.get(whole_number(where, stream, 0))
        if slot is None:
            raise ValueError(f"{where} must be one that has joined and not left, got {stream}")
        return slot

    def _slots_of(self, ids: Any) -> np.ndarray:
        where = "Streams.step: ids"
        array = numbers(where, ids, "iu", "integers")
        if array.ndim != 1:
            check_shape(where, array, "[n]", (None,))
        given = array.tolist()
        try:
            slots = [self._slot_of[stream] for stream in given]
        except KeyError as error:
            raise ValueError(
                f"{where} must be of streams that have joined and not left, got {error}"
            ) from None
        if len(set(slots)) != len(slots):
            twice = next(stream for stream in given if given.count(stream) > 1)
            raise ValueError(f"{where} must differ, got {twice} more than once")
        return np.array(slots, np.intp)

    def _row(self, where: str, state: Any) -> list[np.ndarray]:
        """The parts of a state of one row, checked."""
        parts = []
        for item, name, width in zip(
            self._layout.parts(where, state), self._layout.names, self._layout.widths, strict=True
        ):
            array, _ = dense(where + name, item)
            check_shape(where + name, array, "[B, width]", (1, width))
            parts.append(array)
        return parts

    def _write(self, slot: int, parts: Sequence[np.ndarray] | None) -> None:
        parts = self._session._initial_rows(1) if parts is None else parts
        for all_rows, part in zip(self._slots, parts, strict=True):
            all_rows[slot] = part[0]
