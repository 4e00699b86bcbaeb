"""XLA's interface for programs on a GPU, on the CPU: the handlers for CUDA run in the emulation.

JAX's programs for the CPU call them. They are given memory and a stream of the emulated device, and
everything else by XLA.
"""

from __future__ import annotations

import ctypes
import threading

from jax_calls import HEAD, Frame, Version, structure

_FUNCTIONS = (
    *("Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register", "Stream_Get"),
    *("Type_Register", "ExecutionContext_Get", "State_Set", "State_Get"),
    *("DeviceMemory_Allocate", "DeviceMemory_Free"),
)
_Api = structure(
    "Api", **HEAD, version=Version, internal=ctypes.c_void_p,
    **dict.fromkeys(_FUNCTIONS, ctypes.c_void_p),
)  # fmt: skip
_Span = structure("Span", text=ctypes.c_char_p, length=ctypes.c_size_t)
_Register = structure(
    "Register", **HEAD, name=_Span, platform=_Span, instantiate=ctypes.c_void_p,
    prepare=ctypes.c_void_p, initialize=ctypes.c_void_p, execute=ctypes.c_void_p,
)  # fmt: skip
_Stream = structure("Stream", **HEAD, context=ctypes.c_void_p, stream=ctypes.c_void_p)
_Memory = structure(
    "Memory", **HEAD, context=ctypes.c_void_p, size=ctypes.c_size_t, alignment=ctypes.c_size_t,
    data=ctypes.c_void_p,
)  # fmt: skip
_Freed = structure(
    "Freed", **HEAD, context=ctypes.c_void_p, size=ctypes.c_size_t, data=ctypes.c_void_p
)
_Error = structure("Error", **HEAD, message=ctypes.c_char_p, code=ctypes.c_int)
_Function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)

_INVALID_ARGUMENT = 3
_ALIGNMENT = 16  # the most that XLA promises


class EmulatedXla:
    """`api`: the address of an XLA_FFI_Api like that at `real`. engine: of the emulation."""

    def __init__(self, real: int, engine: ctypes.CDLL):
        self._real, self._lock = _Api.from_address(real), threading.Lock()
        engine.emulation_stream.restype = ctypes.c_void_p
        self._stream = engine.emulation_stream()
        self._memory: dict[int, ctypes.Array] = {}
        self._kept = []  # what XLA has the addresses of
        size = self._real.struct_size
        copy = ctypes.create_string_buffer(ctypes.string_at(real, size), size)
        changed = _Api.from_buffer(copy)
        changed.Handler_Register = self._address(self._register)
        changed.Stream_Get = self._address(self._get_stream)
        changed.DeviceMemory_Allocate = self._address(self._allocate)
        changed.DeviceMemory_Free = self._address(self._free)
        self._kept.append(copy)
        self.api = ctypes.addressof(copy)

    def _address(self, function) -> int:
        self._kept.append(_Function(function))
        return ctypes.cast(self._kept[-1], ctypes.c_void_p).value

    def _register(self, address: int):
        """Handlers for CUDA, as those of the host."""
        arguments = _Register.from_address(address)
        if arguments.platform.text[: arguments.platform.length] != b"CUDA":
            return None
        arguments.platform = _Span(b"Host", 4)
        arguments.instantiate = self._with_this_api(arguments.instantiate)
        arguments.execute = self._with_this_api(arguments.execute)
        return _Function(self._real.Handler_Register)(address)

    def _with_this_api(self, handler: int) -> int:
        def call(address: int):
            frame = Frame.from_address(address)
            with self._lock:  # the emulation is of one thread
                frame.api, real = self.api, frame.api
                error = _Function(handler)(address)
            frame.api = real
            return error

        return self._address(call)

    def _get_stream(self, address: int) -> None:
        _Stream.from_address(address).stream = self._stream

    def _allocate(self, address: int):
        arguments = _Memory.from_address(address)
        if arguments.alignment > _ALIGNMENT:
            error = _Error(ctypes.sizeof(_Error), None, b"Unsupported alignment", _INVALID_ARGUMENT)
            return _Function(self._real.Error_Create)(ctypes.addressof(error))
        memory = ctypes.create_string_buffer(arguments.size + 4 * _ALIGNMENT)
        ctypes.memset(memory, 0xFF, len(memory))  # NaN in every type
        # A multiple of no more than what is promised.
        even = ctypes.addressof(memory) // (2 * _ALIGNMENT) + 1
        arguments.data = even * 2 * _ALIGNMENT + _ALIGNMENT
        self._memory[arguments.data] = memory
        return None

    def _free(self, address: int) -> None:
        del self._memory[_Freed.from_address(address).data]
