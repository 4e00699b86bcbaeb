"""The C interface of sessions, cc/inference/blockrnn.h, by ctypes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

from tf_blockrnn import _loader
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights

_LIBRARY = Path(__file__).resolve().parent.parent / "libblockrnn_inference.so"
_API_VERSION = 2  # the first that has every function that is called here
_ARRAYS = ("w_x", "w_h", "b_x", "b_h", "peepholes", "w_p", "norm_x", "norm_h", "norm_c")
PRECISIONS = {"float32": 0, "bfloat16": 1, "int8": 2}
_CELLS = {
    ("lstm", None): 0,
    ("gru", False): 1,
    ("gru", True): 2,
    ("rnn_tanh", None): 3,
    ("rnn_relu", None): 4,
    ("layer_norm_lstm", None): 5,
    ("layer_norm_gru", None): 6,
}
_ACTIVATIONS = {"tanh": 0, "relu": 1}
# By the codes of blockrnn_status. All others are a RuntimeError.
_ERRORS: dict[int, type[Exception]] = {1: ValueError, 2: MemoryError}


class _Direction(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), *((name, ctypes.c_void_p) for name in _ARRAYS)]


class _Layer(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("inputs", ctypes.c_int64),
        ("units", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("forward", ctypes.POINTER(_Direction)),
        ("backward", ctypes.POINTER(_Direction)),
    ]


class Sequences(ctypes.Structure):
    """The arguments of a call with resets."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("x", ctypes.c_void_p),
        ("batch", ctypes.c_int64),
        ("steps", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("lengths", "resets", "state", "new_state", "y")),
    ]


class _Model(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("cell", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("hard_sigmoid", ctypes.c_float),
        ("cell_clip", ctypes.c_float),
        ("zoneout_h", ctypes.c_float),
        ("zoneout_c", ctypes.c_float),
        ("epsilon", ctypes.c_float),
        ("norm_output_only", ctypes.c_int32),
        ("num_layers", ctypes.c_int64),
        ("layers", ctypes.POINTER(_Layer)),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """The library, whose functions know the types of their arguments.

    Calls release the GIL.

    Raises:
      ImportError: it is not built, cannot be loaded, or is older than the Python files.
    """
    try:
        lib = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise _loader.import_error(
            f"tf_blockrnn cannot load {_LIBRARY}: {error}. {_loader.how_to_build()}"
        ) from error
    if (version := lib.blockrnn_api_version()) < _API_VERSION:
        raise _loader.import_error(
            f"tf_blockrnn needs version {_API_VERSION} of the C interface, but {_LIBRARY} has "
            f"version {version}. {_loader.how_to_build()}"
        )
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    lib.blockrnn_session_create.argtypes = [
        ctypes.POINTER(_Model),
        ctypes.c_int32,
        ctypes.c_int32,
        ctypes.POINTER(pointer),
    ]
    lib.blockrnn_session_destroy.argtypes = [pointer]
    lib.blockrnn_session_destroy.restype = None
    lib.blockrnn_session_weight_bytes.argtypes = [pointer]
    lib.blockrnn_session_weight_bytes.restype = whole
    lib.blockrnn_session_run.argtypes = [pointer, pointer, whole, whole, *[pointer] * 4]
    lib.blockrnn_session_run_sequences.argtypes = [pointer, ctypes.POINTER(Sequences)]
    lib.blockrnn_session_step.argtypes = [pointer, pointer, whole, *[pointer] * 3, ctypes.c_int32]
    lib.blockrnn_last_error.restype = ctypes.c_char_p
    return lib


def check(where: str, code: int) -> None:
    """Raises what a function's result reports."""
    if code:
        text = library().blockrnn_last_error().decode(errors="replace")
        raise _ERRORS.get(code, RuntimeError)(f"{where}: {text}")


def _direction(weights: DirectionWeights | None) -> ctypes.Array | None:
    if weights is None:
        return None
    arrays = (getattr(weights, name) for name in _ARRAYS)
    addresses = (None if array is None else array.ctypes.data for array in arrays)
    return ctypes.pointer(_Direction(ctypes.sizeof(_Direction), *addresses))


def described(weights: RecurrentWeights) -> _Model:
    """The weights, of the type float32, as a struct; their arrays must outlive it."""
    layers = (_Layer * weights.num_layers)(
        *(
            _Layer(
                ctypes.sizeof(_Layer),
                layer.forward.input_size,
                layer.forward.units,
                layer.forward.output_size,
                _direction(layer.forward),
                _direction(layer.backward),
            )
            for layer in weights.layers
        )
    )
    return _Model(
        struct_size=ctypes.sizeof(_Model),
        cell=_CELLS[weights.cell, weights.reset_after],
        activation=_ACTIVATIONS[weights.activation],
        hard_sigmoid=weights.hard_sigmoid,
        cell_clip=weights.cell_clip,
        zoneout_h=weights.zoneout_h,
        zoneout_c=weights.zoneout_c,
        epsilon=weights.epsilon or 0.0,
        norm_output_only=bool(weights.norm_output_only),
        num_layers=weights.num_layers,
        layers=layers,
    )


def create(weights: RecurrentWeights, precision: str, threads: int) -> tuple[int, Callable]:
    """A session of the library, and the function that frees it.

    Args:
      weights: of the type float32.
      precision: one of PRECISIONS.
      threads: at least 1.

    Returns:
      (handle, destroy): destroy takes the handle.
    """
    return create_of(described(weights), precision, threads)


def create_of(model: _Model, precision: str, threads: int) -> tuple[int, Callable]:
    """Likewise, of a struct."""
    lib = library()
    handle = ctypes.c_void_p()
    code = lib.blockrnn_session_create(
        ctypes.byref(model), PRECISIONS[precision], threads, ctypes.byref(handle)
    )
    check("Session", code)
    return handle.value, lib.blockrnn_session_destroy
