"""Stacks of layers of the CUDA engine through ctypes, and the reference for what they compute.

Arrays are those of a `Call` of cudnn_calls.py, in float64; results are in memory layout.
"""

from __future__ import annotations

import ctypes
import dataclasses

import device_engine
import numpy as np
from helpers import cudnn_calls
from helpers.cudnn_calls import Call
from helpers.reference import stack

_UNWRITTEN = 0xFF  # NaN in every type
GRADIENTS = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")


class _Plain(ctypes.Structure):
    """As the shim's PlainStack."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("dtype", "mode", "layers", "directions", "input")),
        *((name, ctypes.c_int64) for name in ("units", "proj", "projected", "skip_input")),
        *((name, ctypes.c_int64) for name in ("steps", "batch", "time_major")),
        ("philox", ctypes.c_int64 * 6),
        *((name, ctypes.c_int64) for name in ("with_blas", "allow_tf32", "block_bytes")),
        ("scratch_calls", ctypes.c_int64),
        ("dropout", ctypes.c_double),
    )


@dataclasses.dataclass(frozen=True)
class Options:
    """What of a call is not the op's."""

    blas: bool = False
    allow_tf32: bool = False
    block_bytes: int = 0
    scratch_calls: int = 10**6
    philox: tuple[int, ...] = (1, 2, 3, 4, 5, 6)


DEFAULT = Options()


class Stack:
    """The engine's stacks, as the shim gives them. Arrays are those of a Call, as float64."""

    def __init__(self, library: str, *, unfilled: bool = False):
        self.engine = device_engine.Engine(library, unfilled=unfilled)
        self._run = self.engine.library.blockrnn_stack
        self._run.restype = ctypes.c_char_p
        self._reserve_bytes = self.engine.library.blockrnn_stack_reserve_bytes
        self._reserve_bytes.restype = ctypes.c_int64

    def forward(self, call: Call, dtype: str, arrays, options=DEFAULT, training=True):
        """Outputs by name as they lie in memory, the reserve space among them."""
        host = {k: _stored(call, v, dtype) for k, v in arrays.items()}
        output = (call.steps, call.batch, call.net.directions * call.net.width)
        shapes = call.shapes()
        for name, like in (
            ("output", output), ("output_h", shapes["input_h"]), ("output_c", shapes["input_c"])
        ):  # fmt: skip
            host[name] = _unwritten(call, like, dtype)
        plain, lengths = self._plain(call, dtype, options), _lengths(call)
        size = self._reserve_bytes(ctypes.byref(plain), lengths) if training else 0
        host["reserve"] = np.full(size, _UNWRITTEN, np.uint8)
        left_out = set() if training else {"reserve"}
        if call.net.mode != "lstm":
            left_out |= {"input_c", "output_c"}
        outputs = ("output", "output_h", "output_c", "reserve")
        return self._call(False, plain, lengths, host, left_out, outputs)

    def backward(self, call: Call, dtype, arrays, found, cotangents, options=DEFAULT):
        """Gradients by name as they lie in memory. cotangents: None is zeros."""
        host = {k: _stored(call, v, dtype) for k, v in arrays.items()}
        host["output"] = found["output"]
        names = ("output_backprop", "output_h_backprop", "output_c_backprop")
        for name, value in zip(names, cotangents, strict=True):
            host[name] = _stored(call, np.zeros(0) if value is None else value, dtype)
        host["reserve"] = found["reserve"]
        for name, like in zip(GRADIENTS, call.shapes().values(), strict=True):
            host[name] = _unwritten(call, like, dtype)
        left_out = {k for k, v in zip(names, cotangents, strict=True) if v is None}
        if call.net.mode != "lstm":
            left_out |= {"input_c", "output_c_backprop", "input_c_backprop"}
        plain = self._plain(call, dtype, options)
        return self._call(True, plain, _lengths(call), host, left_out, GRADIENTS)

    def _plain(self, call: Call, dtype: str, options: Options) -> _Plain:
        net = call.net
        return _Plain(
            device_engine.DTYPES.index(dtype), cudnn_calls.MODES.index(net.mode),
            net.layers, net.directions, net.inputs, net.units, net.width, bool(net.num_proj),
            net.skip, call.steps, call.batch, call.time_major,
            (ctypes.c_int64 * 6)(*options.philox), options.blas and self.engine.may_use_blas,
            options.allow_tf32, options.block_bytes, options.scratch_calls, call.dropout,
        )  # fmt: skip

    def _call(self, backward, plain, lengths, host, left_out, outputs):
        device = {k: self.engine.put(v) for k, v in host.items() if k not in left_out}
        pointers = [device[k].value if k in device else None for k in host]
        try:
            error = self._run(
                int(backward), ctypes.byref(plain), lengths,
                (ctypes.c_void_p * len(pointers))(*pointers),
            )  # fmt: skip
            if error is not None:
                raise device_engine.EngineError(error.decode())
            return {k: self.engine.fetch(device[k], host[k]) for k in outputs if k in device}
        finally:
            for pointer in device.values():
                self.engine.free(pointer)


def _stored(call: Call, values, dtype: str) -> np.ndarray:
    return device_engine.encode(call.laid_out(values), dtype)


def _unwritten(call: Call, shape, dtype: str) -> np.ndarray:
    empty = device_engine.encode(call.laid_out(np.zeros(shape)), dtype)
    return np.full(empty.nbytes, _UNWRITTEN, np.uint8).view(empty.dtype).reshape(empty.shape)


def _lengths(call: Call):
    return None if call.lengths is None else (ctypes.c_int64 * call.batch)(*call.lengths)


def exact(arrays, dtype: str):
    """The numbers that a type has for these."""
    return {k: _as_type(v, dtype) for k, v in arrays.items()}


def _as_type(values, dtype: str) -> np.ndarray:
    return device_engine.decode(device_engine.encode(values, dtype), dtype)


def reference(call: Call, dtype: str, arrays, masks=None):
    def stored(values):
        return _as_type(values, dtype) if dtype in ("half", "bfloat16") else values

    values = [arrays[k] for k in call.shapes()]
    return stack.Run(call.net, *values, lengths=call.lengths, masks=masks, stored=stored)


# How far from 0 relu's arguments must be, in standard deviations of what float32 rounds off in one
# step. Errors of the steps before double that (seen), and another order of adding may again.
_CERTAIN = 16


def slopes_are_certain(run: stack.Run, dtype: str) -> bool:
    """Whether relu has the same slopes in whatever order float32 adds.

    Among 10⁵ arguments there may be one as near 0 as its rounding error. Its slope is 0 in one
    order and 1 in another, both rightly, and the gradients of such numbers cannot be compared.
    """
    if run.net.mode != "rnn_relu" or dtype == "double":
        return True
    for k in range(len(run.sequences)):
        exactly, rounded = (_arguments(run, k, d) for d in (np.float64, np.float32))
        error = np.sqrt(np.mean((rounded - exactly) ** 2)) if exactly.size else 0.0
        if np.any(np.abs(exactly) < _CERTAIN * error):
            return False
    return True


def _arguments(run: stack.Run, k: int, dtype) -> np.ndarray:
    """What relu is applied to in a layer direction, each step's computed in `dtype`."""
    values = {name: value.astype(dtype) for name, value in run.sequences[k].items()}
    z = run.states_before(k).astype(dtype) @ values["w_h"] + (values["b"] + values["b_h"])
    x = run.layer_inputs[k // run.net.directions].astype(dtype)
    z += x @ values["w_x"] if "w_x" in values else x
    return z[run.alive]


def cotangents_of(call: Call, dtype: str, seed: int = 1):
    return [_as_type(c, dtype) for c in call.cotangents("double", seed)]
