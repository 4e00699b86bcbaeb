"""The CUDA engine through ctypes: NumPy arrays in, NumPy arrays out, no TensorFlow.

The library is tests/gpu/shim.cu.cc with the engine, for a GPU or for the emulation.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from helpers import block_cells

DTYPES = ("half", "bfloat16", "float", "double")  # the order of the shim's DType
FUNCTIONS = (  # the order of the shim's Function
    "GRUBlockCell",
    "GRUBlockCellGrad",
    "LSTMBlockCell",
    "LSTMBlockCellGrad",
    "GRUBlockCell, identity activations",
    "LSTMBlockCell, identity activations",
)
# Inputs that no equation of a Grad op reads, so that the argument structs lack them.
_UNREAD = {
    "GRUBlockCellGrad": {"x", "b_ru", "b_c"},
    "LSTMBlockCellGrad": {"x", "h_prev", "w", "b"},
}
OUT_OF_MEMORY = "out of device memory"
_UNWRITTEN = 0xFF  # NaN in every type


class EngineError(Exception):
    """An error of the engine or of CUDA."""


class _Options(ctypes.Structure):
    _fields_ = (
        ("forget_bias", ctypes.c_float),
        ("cell_clip", ctypes.c_float),
        ("use_peephole", ctypes.c_bool),
    )


def encode(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers as they lie in memory; bfloat16 as its bits, which NumPy alone does not know."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(values, block_cells.numpy_type(dtype))
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    rounded = np.where(nan, np.uint32(0x7FC00000), rounded)
    return (rounded >> np.uint32(16)).astype(np.uint16)


def decode(stored: np.ndarray, dtype: str) -> np.ndarray:
    """What `encode` gave, as float64."""
    if dtype == "bfloat16":
        stored = (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return stored.astype(np.float64)


class Engine:
    """The engine on the one device that the library finds."""

    def __init__(self, library: str | pathlib.Path, *, unfilled: bool = False):
        """unfilled: scratch is left as it is, else it is full of NaN."""
        self.library = ctypes.CDLL(str(library))
        self.library.blockrnn_fill_scratch(not unfilled)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        for name, arguments in {
            "allocate": (size, ctypes.POINTER(pointer)),
            "free": (pointer,),
            "to_device": (pointer, pointer, size),
            "to_host": (pointer, pointer, size),
            "fill_zero": (pointer, size),
            "call": (
                ctypes.c_int,
                ctypes.c_int,
                ctypes.POINTER(ctypes.c_int64),
                ctypes.POINTER(_Options),
                ctypes.POINTER(pointer),
                ctypes.c_int64,
            ),
        }.items():
            function = getattr(self.library, "blockrnn_" + name)
            function.argtypes = arguments
            function.restype = ctypes.c_char_p
            setattr(self, "_" + name, self._checked(function))
        self.library.blockrnn_persistent_kernels.restype = ctypes.c_int64
        self.may_use_blas = True
        self.sanitized = False  # under a sanitizer persistent kernels may be refused

    @staticmethod
    def _checked(function):
        def call(*arguments) -> None:
            error = function(*arguments)
            if error is not None:
                raise EngineError(error.decode())

        return call

    def load_cublas(self, path: str | None, small: bool) -> ctypes.CDLL | None:
        """Loads the cuBLAS that the engine then finds, before anything asks for it.

        path: the emulation's substitute, which is returned. None: PyTorch's copy, if there is one.
        small: do not use cuBLAS: this is a sanitizer's run, and its kernels are not ours.
        """
        self.may_use_blas = not small
        if small:
            return None
        if path is None:
            with contextlib.suppress(ImportError):
                importlib.import_module("torch")
            return None
        stand_in = ctypes.CDLL(path)
        library = self.library
        stand_in.stand_in_connect(library.emulation_enqueue, library.emulation_fails_now)
        return stand_in

    def device_count(self) -> int:
        return self.library.blockrnn_device_count()

    def is_large(self) -> bool:
        """Whether persistent kernels of large layers fit: whether it is no smaller than an H200."""
        multiprocessors = self.library.blockrnn_multiprocessors()
        return multiprocessors >= 132 and self.library.blockrnn_shared_bytes() >= 227 * 1024

    def persistent_kernels(self) -> int:
        """Persistent kernels that were launched, in all calls so far."""
        return self.library.blockrnn_persistent_kernels()

    def expect_persistent(self, before: int, least: int, what: object) -> None:
        """Asserts that at least so many kernels were persistent since there were `before`. Under a
        sanitizer, which takes up part of the device so that a grid may not fit, only prints it."""
        ran = self.persistent_kernels() - before
        message = (
            f"{what}: {ran} kernels were persistent, must be at least {least} without a sanitizer"
        )
        if ran < least and self.sanitized:
            print(message, flush=True)
        else:
            assert ran >= least, message

    def put(self, host: np.ndarray) -> ctypes.c_void_p:
        device = ctypes.c_void_p()
        self._allocate(host.nbytes, ctypes.byref(device))
        if host.nbytes:
            self._to_device(device, host.ctypes.data, host.nbytes)
        return device

    def fetch(self, device: ctypes.c_void_p, like: np.ndarray) -> np.ndarray:
        """The current contents, as an array of the type and shape of `like`."""
        host = np.empty_like(like)
        if host.nbytes:
            self._to_host(host.ctypes.data, device, host.nbytes)
        return host

    def free(self, device: ctypes.c_void_p) -> None:
        self._free(device)

    def zeros(self, num_bytes: int) -> np.ndarray:
        """What FillZero makes of that many bytes, with 16 bytes after them that it must leave."""
        host = np.full(num_bytes + 16, _UNWRITTEN, np.uint8)
        device = self.put(host)
        self._fill_zero(device, num_bytes)
        self._to_host(host.ctypes.data, device, host.nbytes)
        self._free(device)
        return host

    def run(
        self,
        op: block_cells.Op,
        dims: Sequence[int],
        dtype: str,
        inputs: Mapping[str, np.ndarray],
        attrs: Mapping[str, object],
        *,
        identity: bool = False,
        scratch_calls: int = 1000,
    ) -> dict[str, np.ndarray]:
        """Outputs by name, as they lie in memory (`decode` them).

        inputs: by name, as they lie in memory. Without use_peephole the peepholes are not given at
        all, and their gradients, which the engine then leaves to its caller, are missing.
        """
        peepholes = attrs.get("use_peephole", False)
        unread = _UNREAD.get(op.name, set())
        names = [name for name in op.inputs if name not in unread]
        host = {name: inputs[name] for name in names}
        stored = encode(np.zeros(0), dtype).dtype
        for name, shape in op.output_shapes(dims).items():
            host[name] = np.full(int(np.prod(shape)) * stored.itemsize, _UNWRITTEN, np.uint8)
            host[name] = host[name].view(stored).reshape(shape)
        if not peepholes:
            for name, expressions in {**op.inputs, **op.outputs}.items():
                if expressions == ("P",) and name in host:
                    host[name] = np.zeros(0, stored)
        device = {name: self.put(value) for name, value in host.items()}
        # The attributes' defaults are the op's; the engine has none of its own.
        options = _Options(
            attrs.get("forget_bias", 1.0), attrs.get("cell_clip", 3.0), bool(peepholes)
        )
        function = op.name + (", identity activations" if identity else "")
        try:
            self._call(
                FUNCTIONS.index(function),
                DTYPES.index(dtype),
                (ctypes.c_int64 * 3)(*dims),
                ctypes.byref(options),
                (ctypes.c_void_p * len(device))(*(p.value for p in device.values())),
                scratch_calls,
            )
            for name in op.outputs:
                if host[name].nbytes:
                    self._to_host(host[name].ctypes.data, device[name], host[name].nbytes)
        finally:
            for pointer in device.values():
                self._free(pointer)
        return {
            name: host[name]
            for name, expressions in op.outputs.items()
            if peepholes or expressions != ("P",)
        }
