"""The ops in JAX with the interfaces of the engine's checks, which so check the ops as well."""

from __future__ import annotations

import dataclasses

import check_stack
import device_engine
import jax_calls
import numpy as np
import sequences
from device_stack import Options
from helpers import block_cells, cudnn_calls, op_table

_OPS = {
    "rnn": "RNNSequence",
    "lstm": "LSTMSequence",
    "gru": "GRUSequence",
    "gru_after": "GRUAfterSequence",
    "layer_norm_lstm": "LayerNormLSTMSequence",
    "layer_norm_gru": "LayerNormGRUSequence",
}
_PEEPHOLES = ("wci", "wcf", "wco")


class Sequences:
    """The sequence ops with the interface of sequences.Sequences."""

    def __init__(self, ops: jax_calls.Ops, recompute: int = 0):
        self.ops, self.recompute = ops, recompute
        self._spans = np.zeros(0)  # of the last forward, bytes of another type

    def forward(self, call: sequences.Call, values) -> dict[str, np.ndarray]:
        found = self._call(_OPS[call.cell], call, values)
        self._spans = found.pop("span_states", self._spans)
        if not call.keeps:
            found = {k: v for k, v in found.items() if v.size}
        return {k: _encoded(v, call.dtype) for k, v in found.items()}

    def backward(self, call: sequences.Call, values) -> dict[str, np.ndarray]:
        found = self._call(f"{_OPS[call.cell]}Grad", call, {**values, "span_states": self._spans})
        return {k.removesuffix("_grad"): _encoded(v, call.dtype) for k, v in found.items()}

    def _call(self, name: str, call: sequences.Call, values) -> dict[str, np.ndarray]:
        op, attrs = op_table.OPS[name], self._attrs(call)
        given = {k: _laid_out(op, call, k, v) for k, v in _to_op(call, values).items()}
        if call.lengths is not None:
            given["sequence_lengths"] = call.lengths
        self.ops.allow_tf32(call.allow_tf32)
        sizes = {"K": int(call.keeps and not self.recompute), "N": self._span_states(call)}
        got = self.ops.call(name, call.dtype, given, attrs, sizes=sizes)
        left_out = {f"{k}_grad" for k in op.inputs if k not in given}
        return _from_op(
            call, {k: _laid_out(op, call, k, v) for k, v in got.items() if k not in left_out}
        )

    def _attrs(self, call: sequences.Call) -> dict[str, object]:
        return {
            "time_major": call.time_major,
            "go_backwards": call.backwards,
            "is_training": call.keeps,
            "recompute": self.recompute,
            "forget_bias": call.forget_bias,
            "cell_clip": call.cell_clip,
            "zoneout_rate_h": call.zoneout_rates[0],
            "zoneout_rate_c": call.zoneout_rates[1],
            "activation": "relu" if call.relu else "tanh",
            "gate_order": "urc" if call.layout else "ruc",
            "epsilon": call.epsilon,
            "norm_output_only": call.norm_output_only,
        }

    def _span_states(self, call: sequences.Call) -> int:
        """The states before each span but the first, float at least."""
        if not self.recompute:
            return 0
        t, b, _, h = call.dims
        words = 2 if call.dtype in ("half", "bfloat16") else 1
        return (-(-t // self.recompute) - 1) * b * (h + call.width * call.has_cs) * words


def _to_op(call: sequences.Call, values) -> dict[str, np.ndarray]:
    """From the names of the reference to those of the ops."""
    found = dict(values)
    if call.cell == "gru" and "b_x" in found:
        found["b"] = found.pop("b_x")
    if call.use_peephole:
        found["peepholes"] = np.stack([found.pop(name) for name in _PEEPHOLES])
    return found


def _from_op(call: sequences.Call, found: dict) -> dict[str, np.ndarray]:
    """The reverse, for gradients."""
    if call.cell == "gru" and "b_grad" in found:
        found["b_x_grad"] = found.pop("b_grad")
    if "peepholes_grad" in found:
        found |= zip((f"{n}_grad" for n in _PEEPHOLES), found.pop("peepholes_grad"), strict=True)
    return found


def _laid_out(op: op_table.Op, call: sequences.Call, name: str, value):
    """From time-major to the layout of the call, or back."""
    argument = op.inputs.get(name) or op.outputs.get(name)
    if argument is not None and argument.same_as:
        argument = op.inputs[argument.same_as]
    if call.time_major or argument is None or len(argument.alternatives) == 1:
        return value
    return np.swapaxes(value, 0, 1)


def _encoded(value: np.ndarray, dtype: str) -> np.ndarray:
    """As it lies in memory."""
    return device_engine.encode(value.astype(np.float64), dtype)


def of_op(call: sequences.Call, **changes) -> sequences.Call:
    """A call with the ops' gate order and their fewer arguments."""
    call = dataclasses.replace(call, **changes)
    return dataclasses.replace(
        call,
        state_bias=False,
        without=("co",) if call.cell == "lstm" else (),
        layout=1 if call.has_cs else call.layout,
    )


class Stacks:
    """The ops of the cuDNN family with the interface of device_stack.Stack."""

    def __init__(self, ops: jax_calls.Ops):
        self.ops = ops

    def forward(self, call: cudnn_calls.Call, dtype: str, arrays, options: Options):
        op = cudnn_calls.FORWARD[call.version]
        outputs = self._call(op, call, dtype, arrays, options, is_training=True)
        found = {k: _encoded(v, dtype) for k, v in outputs.items() if k in cudnn_calls.OUTPUTS}
        if call.net.mode != "lstm":
            assert not found.pop("output_c"), "not a scalar 0"
        return found | {"all": outputs}

    def backward(self, call: cudnn_calls.Call, dtype: str, arrays, found, cotangents, options):
        given = dict(zip(cudnn_calls.OUTPUTS, cotangents, strict=True))
        given = arrays | {f"{name}_backprop": value for name, value in given.items()}
        op = cudnn_calls.BACKPROP[call.version]
        got = self._call(op, call, dtype, given, options, found["all"])
        return {k: _encoded(v, dtype) for k, v in got.items()}

    def _call(self, op, call: cudnn_calls.Call, dtype, arrays, options, laid_out=(), **attrs):
        """laid_out: more arrays, in the layout of the call."""
        given = {k: call.laid_out(v) for k, v in arrays.items()} | dict(laid_out)
        lengths = (call.steps,) * call.batch if call.lengths is None else call.lengths
        given["sequence_lengths"] = lengths
        # Of a program, which does not know the lengths.
        longest = dataclasses.replace(call, lengths=None)
        reserve = check_stack.reserve_parts(longest, dtype)[-1][3]
        sizes = {"D": call.net.directions, "S": reserve // block_cells.numpy_type(dtype).itemsize}
        self.ops.allow_tf32(options.allow_tf32)
        return self.ops.call(op, dtype, given, call.attrs() | attrs, sizes=sizes)
