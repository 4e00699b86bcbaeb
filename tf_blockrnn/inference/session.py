"""`Session`: a stack of recurrent layers with fixed weights, NumPy in and NumPy out."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from tf_blockrnn.inference import _library
from tf_blockrnn.inference._arrays import FLOAT32, address, dense, numbers, whole_number
from tf_blockrnn.inference._out import Out
from tf_blockrnn.inference._sources import weights_of
from tf_blockrnn.inference._states import StateLayout, described, initial_parts
from tf_blockrnn.weights._checks import check_shape, one_of
from tf_blockrnn.weights.layer import RecurrentWeights

_MOST_THREADS = 1024
_SEQUENCES_BYTES = ctypes.sizeof(_library.Sequences)
_empty = np.empty


class Session:
    """Recurrent layers for inference, with fixed weights that are packed once.

    B rows, T steps, I inputs, D directions of the last layer, P outputs of each (H units without a
    projection). A session computes what `tf_blockrnn.lstm`, `gru`, `simple_rnn`, `layer_norm_lstm`
    and `layer_norm_gru` do, with the same bits in float32, without TensorFlow and the overhead of
    its calls.

    Several threads may call one session concurrently. Calls release the GIL. Inputs are never
    written to, and the caller owns the returned arrays.

    The state of a layer of one direction is an array h [B, H] (gru, simple RNN), or
    `LSTMState(h, cs)` of arrays [B, P] and [B, H]; that of a layer of two directions is a pair
    (forward, backward) of these; that of several layers is a list of them, from the input up. A
    state that is passed in may consist of tuples, lists and arrays of any real type. A backward
    direction begins with the last step, and ends with the first one.

    Where the source is PyTorch's, the state may also be in its form, h or the tuple (h, c), of
    [L · D, B, width]. `from_torch_state` and `to_torch_state` convert it for any session.

    Args:
      source: what `weights.read` takes: the path of a file of any of the frameworks; a Keras layer,
        a list of them or a model; a PyTorch module or state dict; an ONNX model; or
        `weights.RecurrentWeights`. The weights are copied. Weights of other types are converted to
        float32, which rounds float64.
      precision: "float32"; "bfloat16" or "int8" store the weights in fewer bits, int8 up to 133,144
        inputs and units.
      threads: number of threads that a call may use, including the calling one, at least 1. The
        session has a pool for the others.
      layer, **options: which layer of the source, and what the source does not record, as for
        `weights.read`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: an argument has a wrong value, or the source cannot be read.
      UnsupportedError: the converters cannot read the source.
      ModuleNotFoundError: a package that the source's form needs is missing.
      MemoryError: there is not enough memory for the packed weights.
      RuntimeError: no engine runs on this processor, or the system starts fewer threads.

    Warns:
      weights.AssumptionWarning: for each assumption about what the source does not record.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import inference, weights
      >>> one = weights.DirectionWeights(np.full([4, 3, 2], 0.1), np.full([4, 2, 2], 0.1))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
      >>> session = inference.Session(lstm)
      >>> x = np.ones([1, 2, 3], np.float32)
      >>> outputs, state = session.run(x)
      >>> y, state = session.step(x[:, 0])
      >>> y, state = session.step(x[:, 1], state=state)
      >>> bool(np.allclose(y, outputs[:, 1])), state.cs.shape
      (True, (1, 2))
    """

    def __init__(
        self,
        source: RecurrentWeights | str | os.PathLike | Any,
        precision: str = "float32",
        threads: int = 1,
        *,
        layer: str | Sequence[str] | None = None,
        **options: Any,
    ):
        one_of("Session: precision", precision, _library.PRECISIONS)
        threads = whole_number("Session: threads", threads, 1, _MOST_THREADS)
        weights, of_torch = weights_of(source, layer, options, stacklevel=2)
        self._precision, self._threads = precision, threads
        self._cell, self._num_layers = weights.cell, weights.num_layers
        self._input_size = weights.input_size
        self._output_size = weights.layers[-1].output_size
        self._has_step = all(layer.directions == 1 for layer in weights.layers)
        self._layout = StateLayout(weights, of_torch)
        self._initial = initial_parts(weights)
        self._handle, destroy = _library.create(weights, precision, threads)
        # At exit another thread may still be in a call.
        weakref.finalize(self, destroy, self._handle).atexit = False
        lib = _library.library()
        self._run, self._step = lib.blockrnn_session_run, lib.blockrnn_session_step
        self._run_sequences = lib.blockrnn_session_run_sequences
        self._nbytes = lib.blockrnn_session_weight_bytes(self._handle)

    @property
    def cell(self) -> str:
        """Its name in `weights.RecurrentWeights`, such as "lstm"."""
        return self._cell

    @property
    def input_size(self) -> int:
        """I, the width of the input."""
        return self._input_size

    @property
    def output_size(self) -> int:
        """D · P, the width of the outputs."""
        return self._output_size

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return self._num_layers

    @property
    def precision(self) -> str:
        """ "float32", "bfloat16" or "int8"."""
        return self._precision

    @property
    def threads(self) -> int:
        """The threads that a call may use, its own included."""
        return self._threads

    @property
    def nbytes(self) -> int:
        """Bytes of the packed weights."""
        return self._nbytes

    def __repr__(self) -> str:
        return (
            f"Session({self._cell}, {self._num_layers} layer(s), {self._input_size} inputs, "
            f"{self._output_size} outputs, precision={self._precision!r}, threads={self._threads})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Session cannot be pickled or copied, since what it holds is of this process; create "
            "another from the same source"
        )

    def initial_state(self, batch: int) -> Any:
        """The state before the first step where a call has none: h0 and c0 of the weights, or zero.

        Args:
          batch: B, the number of rows.

        Returns:
          New arrays, in the structure of the session's states.

        Raises:
          TypeError: batch is no integer.
          ValueError: batch is below 0.
        """
        batch = whole_number("Session.initial_state: batch", batch, 0)
        return self._layout.structure(self._initial_rows(batch))

    def _initial_rows(self, batch: int) -> list[np.ndarray]:
        _, parts = self._layout.new_parts(batch)
        for part, row in zip(parts, self._initial or [0] * len(parts), strict=True):
            part[...] = row
        return parts

    def to_torch_state(self, state: Any) -> Any:
        """A state in the form of PyTorch's modules.

        Args:
          state: in the structure of the session's states.

        Returns:
          h [L · D, B, P], or (h, c) with c [L · D, B, H], of NumPy arrays.

        Raises:
          TypeError: state is of another structure.
          ValueError: the layers differ in size or number of directions.

        Example:
          >>> import numpy as np, torch
          >>> from tf_blockrnn import inference
          >>> session = inference.Session(torch.nn.LSTM(3, 4, num_layers=2))
          >>> _, state = session.run(np.ones([5, 7, 3]))
          >>> h, c = session.to_torch_state(state)
          >>> h.shape, c.shape
          ((2, 5, 4), (2, 5, 4))
        """
        return self._layout.stacked("Session.to_torch_state: state", state)

    def from_torch_state(self, state: Any) -> Any:
        """A state of PyTorch's modules in the structure of the session's states.

        Args:
          state: h [L · D, B, P], or the tuple (h, c) with c [L · D, B, H], of tensors or arrays.

        Raises:
          TypeError: state is of another structure.

        Example:
          >>> import numpy as np, torch
          >>> from tf_blockrnn import inference, weights
          >>> session = inference.Session(weights.from_torch(torch.nn.GRU(3, 4, num_layers=2)))
          >>> _, state = session.run(np.ones([5, 7, 3]))
          >>> same = session.from_torch_state(session.to_torch_state(state))
          >>> all(map(np.array_equal, state, same))
          True
        """
        parts = self._layout.unstacked(state)
        if parts is None:
            raise TypeError(
                f"Session.from_torch_state: state must be {self._layout.torch_form}, got "
                f"{described(state)}"
            )
        return self._layout.structure(parts)

    def run(
        self,
        x: np.ndarray,
        *,
        lengths: Sequence[int] | np.ndarray | None = None,
        resets: np.ndarray | None = None,
        state: Any = None,
        out: Any = None,
    ) -> tuple[np.ndarray, Any]:
        """Computes all steps of sequences.

        Args:
          x: input, [B, T, I], of any real floating or integer type and with any strides; computed
            in float32.
          lengths: the length of each row, integers [B] in 0..T. Later outputs are zeros, and the
            state is that of the row's last step. None: all are T.
          resets: bool [B, T], True at a step where a new sequence begins: in either direction no
            state passes between it and the step before it, and the sequence begins with zeros,
            also where the weights have an initial state. `state` is that of the sequence of a row
            that a direction computes first, the returned state that of the one computed last; a
            reset at step 0 drops the forward direction's `state`. Resets past a row's length do not
            count. None: each row is one sequence.
          state: the state before the first step, in the structure of the class; None: that of
            `initial_state`, zeros if no weight says otherwise.
          out: a C-contiguous array of float32, [B, T, D · P], to which the outputs are written; or
            a pair of it and a state of such arrays, to which the new state is written. That state
            may be `state`; otherwise written arrays must not overlap others. None: new arrays.

        Returns:
          (outputs, state): the outputs of all steps, [B, T, D · P], and the state after the last
          step of each row.

        Raises:
          TypeError: an argument has the wrong type.
          ValueError: an argument has the wrong shape or value.
          MemoryError: there is not enough memory for the call.

        Example:
          Two sequences in one row, each as in a call of its own:

          >>> import numpy as np
          >>> from tf_blockrnn import inference, weights
          >>> one = weights.DirectionWeights(np.full([4, 3, 2], 0.1), np.full([4, 2, 2], 0.1))
          >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
          >>> session = inference.Session(lstm)
          >>> x = np.arange(15).reshape(1, 5, 3) / 10
          >>> outputs, state = session.run(x, resets=[[True, False, True, False, False]])
          >>> first, _ = session.run(x[:, :2])
          >>> second, last = session.run(x[:, 2:])
          >>> bool(np.allclose(outputs, np.concatenate([first, second], axis=1)))
          True
          >>> bool(np.allclose(state.h, last.h))
          True
        """
        x_given = x
        x, x_at = dense("Session.run: x", x)
        shape = x.shape
        if len(shape) != 3 or shape[2] != self._input_size:
            check_shape("Session.run: x", x, "[B, T, I]", (None, None, self._input_size))
        batch, steps, _ = shape
        lengths_at = None
        if lengths is not None:
            lengths = _lengths(lengths, batch, steps)
            lengths_at = lengths.ctypes.data
        if resets is not None:
            resets = _resets(resets, batch, steps)
        if state is None and self._initial:
            state = self._layout.structure(self._initial_rows(batch))
        old = None if state is None else self._layout.dense("Session.run: state", state, batch)
        if out is None:
            y = _empty((batch, steps, self._output_size), FLOAT32)
            y_at = address(y)
            new_at, parts = self._layout.new_parts(batch)
        else:
            shape = (batch, steps, self._output_size)
            target = Out("Session.run: out", out, self._layout, batch)
            y, y_at = target.outputs("[B, T, D · P]", shape)
            target.refuse_inputs("x", x_given, x, x_at)
            new_at, parts = target.new_state(old)
        old_at = None if old is None else old.at
        if resets is None:
            code = self._run(self._handle, x_at, batch, steps, lengths_at, old_at, new_at, y_at)
        else:
            arrays = lengths_at, resets.ctypes.data, old_at, new_at, y_at
            call = _library.Sequences(_SEQUENCES_BYTES, x_at, batch, steps, *arrays)
            code = self._run_sequences(self._handle, ctypes.byref(call))
        if code:
            _library.check("Session.run", code)
        return y, self._layout.structure(parts) if out is None else target.finish(parts)

    def step(
        self, x_t: np.ndarray, *, state: Any = None, out: Any = None
    ) -> tuple[np.ndarray, Any]:
        """Computes one step; only for layers of one direction.

        Args:
          x_t: input, [B, I], of any real floating or integer type and with any strides; computed in
            float32.
          state: the state before the step, in the structure of the class; None: that of
            `initial_state`.
          out: a C-contiguous array of float32, [B, P], to which the output is written; or a pair of
            it and a state of such arrays, to which the new state is written. That state may be
            `state`; otherwise written arrays must not overlap others. None: new arrays.

        Returns:
          (y, state): the output of the step, [B, P], and the state after it.

        Raises:
          TypeError: an argument has the wrong type.
          ValueError: an argument has the wrong shape, or a layer has two directions.
          MemoryError: there is not enough memory for the call.
        """
        if not self._has_step:
            raise ValueError(
                "Session.step: source must have layers of one direction, got a layer of two, which "
                "needs the whole sequence"
            )
        x, x_at = dense("Session.step: x_t", x_t)
        shape = x.shape
        if len(shape) != 2 or shape[1] != self._input_size:
            check_shape("Session.step: x_t", x, "[B, I]", (None, self._input_size))
        batch = shape[0]
        if state is None and self._initial:
            state = self._layout.structure(self._initial_rows(batch))
        old = None if state is None else self._layout.dense("Session.step: state", state, batch)
        if out is None:
            y = _empty((batch, self._output_size), FLOAT32)
            y_at = address(y)
            new_at, parts = self._layout.new_parts(batch)
        else:
            target = Out("Session.step: out", out, self._layout, batch)
            y, y_at = target.outputs("[B, P]", (batch, self._output_size))
            target.refuse_inputs("x_t", x_t, x, x_at)
            new_at, parts = target.new_state(old)
        old_at = None if old is None else old.at
        code = self._step(self._handle, x_at, batch, old_at, new_at, y_at, 0)
        if code:
            _library.check("Session.step", code)
        return y, self._layout.structure(parts) if out is None else target.finish(parts)


def _lengths(lengths: Any, batch: int, steps: int) -> np.ndarray:
    """The lengths as the C interface takes them."""
    where = "Session.run: lengths"
    array = numbers(where, lengths, "iu", "integers")
    check_shape(where, array, "[B]", (batch,))
    wrong = (array < 0) | (array > steps)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"{where}[{at}] must be in 0..{steps}, got {array[at]}")
    return np.ascontiguousarray(array, np.int64)


def _resets(resets: Any, batch: int, steps: int) -> np.ndarray:
    """The resets as the C interface takes them."""
    where = "Session.run: resets"
    array = numbers(where, resets, "b", "bools")
    check_shape(where, array, "[B, T]", (batch, steps))
    return np.ascontiguousarray(array, np.bool_)
