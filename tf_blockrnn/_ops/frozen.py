"""Calls of the sequence ops with frozen weights, which the kernels pack once.

The ops have the attrs `frozen`, the fingerprints of the weights, and `precision`. A layer that is
frozen sets both for the calls within `scope`.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import number_attrs, signatures

_DIGITS = 32  # of one fingerprint
# The other inputs of the ops are weights.
_NOT_WEIGHTS = {
    *("x", "h_prev", "cs_prev", "mask", "sequence_lengths", "recurrent_dropout"),
    *("resets", "zoneout_h", "zoneout_c"),
}


class Frozen(NamedTuple):
    """The two attrs of a frozen call."""

    frozen: str
    precision: str


class _Recorder:
    """Takes the fingerprints of the weights of a call in it."""

    fingerprints = ""


_scope: contextvars.ContextVar[Frozen | _Recorder | None] = contextvars.ContextVar(
    "tf_blockrnn_frozen", default=None
)


@contextlib.contextmanager
def scope(frozen: Any) -> Iterator[None]:
    """Within it, calls of sequence ops have these attrs."""
    token = _scope.set(frozen)
    try:
        yield
    finally:
        _scope.reset(token)


def call(op: Callable[..., Any], op_name: str, /, **arguments: Any) -> Any:
    """Calls a sequence op, with frozen weights within a scope.

    Args:
      op: the generated function.
      op_name: without the namespace.
      arguments: those of the function.

    Returns:
      The op's outputs.
    """
    arguments |= number_attrs.texts(f"BlockRNN>{op_name}", arguments)
    frozen = _scope.get()
    if frozen is None:
        return op(**arguments)
    if isinstance(frozen, _Recorder):
        frozen.fingerprints = _fingerprints(op_name, arguments)
        return op(**arguments)
    if "is_training" in arguments:
        arguments["is_training"] = False
    return op(**arguments, frozen=frozen.frozen, precision=frozen.precision)


def fingerprints_of(run: Callable[[], Any]) -> str:
    """The attr `frozen` for the weights of the sequence op that `run` calls eagerly."""
    recorder = _Recorder()
    with scope(recorder):
        run()
    return recorder.fingerprints


def _fingerprints(name: str, arguments: dict[str, Any]) -> str:
    inputs = signatures.of(f"BlockRNN>{name}").inputs._fields
    return "".join(fingerprint(arguments[key]) for key in inputs if key not in _NOT_WEIGHTS)


def fingerprint(array: Any) -> str:
    """The fingerprint of an array's bytes, as hex digits."""
    values = np.ascontiguousarray(array)
    text = ctypes.create_string_buffer(_DIGITS + 1)
    data = ctypes.c_void_p(values.ctypes.data)
    _loader.ops_library().blockrnn_fingerprint(data, ctypes.c_int64(values.nbytes), text)
    return text.value.decode()


def frozen_bytes() -> int:
    """The size of all packed weights of this process."""
    count = _loader.ops_library().blockrnn_frozen_bytes
    count.restype = ctypes.c_int64
    return count()


def release(frozen: str) -> None:
    """Frees the packed weights of the calls with this attr; the next one packs again."""
    _loader.ops_library().blockrnn_release_frozen(frozen.encode())


def refuse_gradient(op: tf.Operation) -> None:
    """To be called at the start of a gradient.

    Raises:
      ValueError: the op's weights are frozen.
    """
    if op.get_attr("frozen"):
        raise ValueError(
            f"{op.type}: an op with frozen weights is for inference and has no gradient; train the "
            "model that was frozen, and freeze it again"
        )
