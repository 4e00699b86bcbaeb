"""The CUDA engine through ctypes: NumPy arrays in, NumPy arrays out, no TensorFlow.

The library is tests/gpu/shim.cu.cc with the engine, for a GPU or for the emulation.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from helpers import block_cells

DTYPES = ("half", "bfloat16", "float", "double")  # the order of the shim's types
_FUNCTIONS = {
    "GRUBlockCell": "GruCellForwardArgs",
    "GRUBlockCellGrad": "GruCellBackwardArgs",
    "LSTMBlockCell": "LstmCellForwardArgs",
    "LSTMBlockCellGrad": "LstmCellBackwardArgs",
}
# Inputs that no equation of a Grad op reads, so that the argument structs lack them.
_UNREAD = {
    "GRUBlockCellGrad": {"x", "b_ru", "b_c"},
    "LSTMBlockCellGrad": {"x", "h_prev", "w", "b"},
}
ANY = 2**31 - 1  # blocks of a grid in the emulation: no limit
OUT_OF_MEMORY = "out of device memory"
UNWRITTEN = 0xFF  # NaN in every type


class EngineError(Exception):
    """An error of the engine or of CUDA."""


class _Call(ctypes.Structure):
    """The shim's PlainCall."""

    _fields_ = (
        ("dtype", ctypes.c_int64),
        ("numbers", ctypes.c_int64),
        ("number_names", ctypes.POINTER(ctypes.c_char_p)),
        ("values", ctypes.POINTER(ctypes.c_double)),
        ("pointers", ctypes.c_int64),
        ("pointer_names", ctypes.POINTER(ctypes.c_char_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("rows", ctypes.c_int64),
        ("lengths", ctypes.POINTER(ctypes.c_int64)),
        ("reset_bytes", ctypes.c_int64),
        ("resets", ctypes.POINTER(ctypes.c_uint8)),
    )


def _plain(dtype: str, numbers: Mapping, device: Mapping, lengths, resets=None) -> _Call:
    def names(of):
        return (ctypes.c_char_p * len(of))(*(name.encode() for name in of))

    rows = () if lengths is None else lengths
    return _Call(
        DTYPES.index(dtype),
        len(numbers),
        names(numbers),
        (ctypes.c_double * len(numbers))(*numbers.values()),
        len(device),
        names(device),
        (ctypes.c_void_p * len(device))(*(pointer.value for pointer in device.values())),
        len(rows),
        None if lengths is None else (ctypes.c_int64 * (len(rows) + 1))(*rows),
        0 if resets is None else resets.size,
        None if resets is None else (ctypes.c_uint8 * (resets.size + 1))(*resets.ravel()),
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


def unwritten(shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array in memory that shows which of its elements are written: NaN in every type."""
    kind = encode(np.zeros(0), dtype).dtype
    return (
        np.full(int(np.prod(shape)) * kind.itemsize, UNWRITTEN, np.uint8).view(kind).reshape(shape)
    )


def allocations_of(run: Callable[[int], object]) -> int:
    """How many allocations `run`, given how many of them succeed, needs: each that fails is
    reported, and without one that fails it succeeds."""
    for allowed in range(1000):
        try:
            run(allowed)
        except EngineError as error:
            assert str(error) == OUT_OF_MEMORY, error
        else:
            return allowed
    raise AssertionError("more allocations than it can need")


def load_nvidia_cublas() -> None:
    """That of NVIDIA's Python package, if it is installed; PyTorch and JAX use it too."""
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations if package else ():
        for name in ("libcublasLt.so.*", "libcublas.so.*"):  # the second needs the first
            for library in sorted(pathlib.Path(folder).glob(f"*/lib/{name}")):
                ctypes.CDLL(str(library))


class Engine:
    """The engine on the one device that the library finds."""

    def __init__(self, arguments: argparse.Namespace):
        """arguments: of a check program (check_program.py)."""
        self.library = ctypes.CDLL(arguments.library)
        self.emulated = hasattr(self.library, "emulation_vary")
        self.library.blockrnn_fill_scratch(not arguments.unfilled)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        for name, parameters in {
            "allocate": (size, ctypes.POINTER(pointer)),
            "free": (pointer,),
            "to_device": (pointer, pointer, size),
            "to_host": (pointer, pointer, size),
            "fill_zero": (pointer, size),
            "call": (ctypes.c_char_p, ctypes.POINTER(_Call)),
        }.items():
            function = getattr(self.library, "blockrnn_" + name)
            function.argtypes = parameters
            function.restype = ctypes.c_char_p
            setattr(self, "_" + name, self._checked(function))
        self.library.blockrnn_persistent_kernels.restype = ctypes.c_int64
        self.library.blockrnn_refused_kernels.restype = ctypes.c_int64
        self.library.blockrnn_reserve_bytes.restype = ctypes.c_int64
        self.may_use_blas = True
        # Under a sanitizer persistent kernels may be refused.
        self.sanitized = arguments.small and not self.emulated

    @staticmethod
    def _checked(function):
        def call(*arguments) -> None:
            error = function(*arguments)
            if error is not None:
                raise EngineError(error.decode())

        return call

    def load_cublas(self, path: str | None, small: bool) -> ctypes.CDLL | None:
        """Loads the cuBLAS that the engine then finds, before anything asks for it.

        path: the emulation's substitute, which is returned. None: load_nvidia_cublas.
        small: do not use cuBLAS: this is a sanitizer's run, and its kernels are not ours.
        """
        self.may_use_blas = not small
        if small:
            return None
        if path is None:
            load_nvidia_cublas()
            return None
        stand_in = ctypes.CDLL(path)
        library = self.library
        stand_in.stand_in_connect(library.emulation_enqueue, library.emulation_fails_now)
        return stand_in

    def is_large(self) -> bool:
        """Whether persistent kernels of large layers fit: whether it is no smaller than an H200."""
        multiprocessors = self.library.blockrnn_multiprocessors()
        return multiprocessors >= 132 and self.library.blockrnn_shared_bytes() >= 227 * 1024

    def persistent_kernels(self) -> int:
        """Persistent kernels that were launched, in all calls so far."""
        return self.library.blockrnn_persistent_kernels()

    def refused_kernels(self) -> int:
        """Persistent kernels that CUDA refused to launch, in all calls so far."""
        return self.library.blockrnn_refused_kernels()

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

    def repeats(self) -> Iterator[None]:
        """Three times; in the emulation each with another order of threads, or other grids."""
        for order, blocks in ((0, ANY), (1, ANY), (1, 3)):
            if self.emulated:
                self.library.emulation_vary(order, blocks)
            yield
        if self.emulated:
            self.library.emulation_vary(0, ANY)

    @contextlib.contextmanager
    def running_late(self) -> Iterator[None]:
        """In the emulation work runs when something waits for it, and not when it is queued."""
        if self.emulated:
            self.library.emulation_run_late(1)
        yield
        if self.emulated:
            self.library.emulation_run_late(0)

    def lives(self) -> bool:
        """Whether the device still does what it is asked: an illegal address ends that."""
        try:
            self.free(self.put(np.zeros(1)))
        except EngineError:
            return False
        return True

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
        host = np.full(num_bytes + 16, UNWRITTEN, np.uint8)
        device = self.put(host)
        self._fill_zero(device, num_bytes)
        self._to_host(host.ctypes.data, device, host.nbytes)
        self._free(device)
        return host

    def call(
        self,
        function: str,
        dtype: str,
        numbers: Mapping[str, float],
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        lengths: Sequence[int] | None = None,
        resets: np.ndarray | None = None,
    ) -> dict[str, np.ndarray]:
        """What becomes of `outputs`. Arrays are as they lie in memory; lengths and resets, bytes,
        in the host's.

        function: the name of its argument struct. All else is by the names of that struct's
        members; numbers also by those of the host interface, and of the shim's own options.
        """
        device = {}
        try:
            for name, array in {**inputs, **outputs}.items():
                device[name] = self.put(array)
            refused = self.refused_kernels()
            self._call(function.encode(), _plain(dtype, numbers, device, lengths, resets))
            if not (self.emulated or self.sanitized):
                assert self.refused_kernels() == refused, "CUDA refused a persistent kernel"
            return {name: self.fetch(device[name], like) for name, like in outputs.items()}
        finally:
            for pointer in device.values():
                self.free(pointer)

    def reserve_bytes(self, dtype: str, numbers: Mapping[str, float], lengths) -> int:
        """The size of a reserve space of a stack's call."""
        plain = _plain(dtype, numbers, {}, lengths)
        return self.library.blockrnn_reserve_bytes(ctypes.byref(plain))

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
        numbers = dict(zip(("dims.batch", "dims.input", "dims.units"), dims, strict=True))
        numbers |= {
            "identity": identity, "scratch_calls": scratch_calls, "with_blas": self.may_use_blas,
        }  # fmt: skip
        missing = set(_UNREAD.get(op.name, ()))
        if "wci" in op.inputs:
            # The attributes' defaults are the op's; the engine has none of its own.
            options = {"forget_bias": 1.0, "cell_clip": 3.0, "use_peephole": False, **attrs}
            for name, value in options.items():  # TensorFlow's numbers are float32
                value = float(np.float32(value)) if isinstance(value, float) else value
                numbers[f"options.{name}"] = value
            if not options["use_peephole"]:
                missing |= {n for n, e in {**op.inputs, **op.outputs}.items() if e == ("P",)}
        shapes = op.output_shapes(dims)
        return self.call(
            _FUNCTIONS[op.name],
            dtype,
            numbers,
            {name: inputs[name] for name in op.inputs if name not in missing},
            {name: unwritten(shapes[name], dtype) for name in shapes if name not in missing},
        )
