"""Stacks of layers of the CUDA engine through ctypes, and the reference for what they compute.

Arrays are those of a `Call` of cudnn_calls.py, in float64; results are in memory layout.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools

import device_engine
import numpy as np
from helpers import cudnn_calls
from helpers.cudnn_calls import Call
from helpers.reference import stack

_COTANGENTS = ("output_backprop", "output_h_backprop", "output_c_backprop")
GRADIENTS = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")


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
    """The engine's stacks. Arrays are those of a Call, as float64."""

    def __init__(self, arguments: argparse.Namespace):
        self.engine = device_engine.Engine(arguments)
        self.engine.load_cublas(arguments.cublas, arguments.small)

    def forward(self, call: Call, dtype: str, arrays, options=DEFAULT, training=True):
        """Outputs by name as they lie in memory, the reserve space among them."""
        key, counter = options.philox[:2], options.philox[2:]
        numbers = self._numbers(call, options)
        numbers |= {f"philox.key[{n}]": value for n, value in enumerate(key)}
        numbers |= {f"philox.counter[{n}]": value for n, value in enumerate(counter)}
        shapes = call.shapes()
        outputs = {
            "output": (call.steps, call.batch, call.net.directions * call.net.width),
            "output_h": shapes["input_h"],
            "output_c": shapes["input_c"],
        }
        host = {name: _unwritten(call, shape, dtype) for name, shape in outputs.items()}
        if training:
            size = self.engine.reserve_bytes(dtype, numbers, call.lengths)
            host["reserve"] = np.full(size, device_engine.UNWRITTEN, np.uint8)
        given = {name: _stored(call, value, dtype) for name, value in arrays.items()}
        return self._call("RnnStackForwardArgs", call, dtype, numbers, given, host)

    def backward(self, call: Call, dtype, arrays, found, cotangents, options=DEFAULT):
        """Gradients by name as they lie in memory. cotangents: None is zeros."""
        given = {name: _stored(call, value, dtype) for name, value in arrays.items()}
        for name, value in zip(_COTANGENTS, cotangents, strict=True):
            if value is not None:
                given[name] = _stored(call, value, dtype)
        given |= {name: found[name] for name in ("output", "reserve")}
        shapes = zip(GRADIENTS, call.shapes().values(), strict=True)
        outputs = {name: _unwritten(call, shape, dtype) for name, shape in shapes}
        numbers = self._numbers(call, options)
        return self._call("RnnStackBackwardArgs", call, dtype, numbers, given, outputs)

    def _numbers(self, call: Call, options: Options) -> dict[str, float]:
        net = call.net
        geometry = {
            "mode": cudnn_calls.MODES.index(net.mode),
            "layers": net.layers,
            "directions": net.directions,
            "input": net.inputs,
            "units": net.units,
            "proj": net.width,
            "projected": bool(net.num_proj),
            "skip_input": net.skip,
        }
        numbers = {f"geometry.{name}": value for name, value in geometry.items()}
        numbers |= {name: getattr(call, name) for name in ("steps", "batch", "time_major")}
        numbers |= {"dropout": call.dropout, "alignment": 256}
        numbers |= {name: getattr(options, name) for name in ("allow_tf32", "scratch_calls")}
        numbers["with_blas"] = options.blas and self.engine.may_use_blas
        if options.block_bytes:
            numbers["block_bytes"] = options.block_bytes
        return numbers

    def _call(self, function, call: Call, dtype, numbers, inputs, outputs):
        def wanted(arrays):
            of_cell_state = () if call.net.mode == "lstm" else ("_c", "_c_backprop")
            return {k: v for k, v in arrays.items() if not k.endswith(of_cell_state)}

        return self.engine.call(
            function, dtype, numbers, wanted(inputs), wanted(outputs), call.lengths
        )


def _stored(call: Call, values, dtype: str) -> np.ndarray:
    return device_engine.encode(call.laid_out(values), dtype)


def _unwritten(call: Call, shape, dtype: str) -> np.ndarray:
    return device_engine.unwritten(call.laid_out(np.empty(shape)).shape, dtype)


def both_directions(stack: Stack, call: Call, dtype: str, options=DEFAULT):
    """A forward call and its backward, as functions that `options` may be given to."""
    arrays, cotangents = exact(call.random("double"), dtype), cotangents_of(call, dtype)
    found = stack.forward(call, dtype, arrays, options)
    return (
        functools.partial(stack.forward, call, dtype, arrays, options=options),
        functools.partial(stack.backward, call, dtype, arrays, found, cotangents, options=options),
    )


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
