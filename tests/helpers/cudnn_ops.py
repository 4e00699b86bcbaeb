"""What the tests know of the cuDNN RNN ops: calls as tensors, and the check of their outputs.

A `Call` of cudnn_calls.py turned into the arguments of an op, and its outputs back.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from helpers import block_checks, compare, cudnn_calls, run_modes, tolerances
from helpers.cudnn_calls import (
    BACKPROP,
    FORWARD,
    LENGTHS,
    MODES,
    OUTPUTS,
    lengths_of,
    networks,
    numpy_type,
)
from helpers.reference import stack
from helpers.reference.stack import Network

__all__ = [  # of cudnn_calls
    "BACKPROP",
    "FORWARD",
    "LENGTHS",
    "MODES",
    "OUTPUTS",
    "lengths_of",
    "networks",
    "numpy_type",
]

DTYPES = ("half", "bfloat16", "float", "double")
GRADIENTS = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")

# (network, (steps, batch), sum of all outputs for inputs, states and params of ones).
GOLDEN = {
    "lstm": (Network("lstm", 4, 1, 200, 200), (10, 20), 231833.22),
    "gru": (Network("gru", 4, 1, 200, 200), (10, 20), 56000.0),
    "rnn_tanh": (Network("rnn_tanh", 4, 1, 200, 200), (10, 20), 56000.0),
    "rnn_relu": (Network("rnn_relu", 2, 1, 4, 8), (2, 4), 130688.0),
}


@dataclasses.dataclass(frozen=True)
class Call(cudnn_calls.Call):
    """A forward call and its backward on tensors."""

    def tensors(self, arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
        """The forward op's arguments."""
        tensors = {k: tf.constant(self.laid_out(v)) for k, v in arrays.items()}
        if self.version == 3:
            lengths = (self.steps,) * self.batch if self.lengths is None else self.lengths
            tensors["sequence_lengths"] = tf.constant(lengths, tf.int32, shape=(self.batch,))
        return tensors

    def forward(self, raw_ops, tensors, is_training: bool = True):
        return getattr(raw_ops, FORWARD[self.version])(
            **tensors, **self.attrs(), is_training=is_training
        )

    def backward(self, raw_ops, tensors, outputs, cotangents, **attrs):
        """The Backprop op on what `forward` gave; cotangents in the layout of the reference."""
        backprops = {
            f"{name}_backprop": tf.constant(self.laid_out(value))
            for name, value in zip(OUTPUTS, cotangents, strict=True)
        }
        return getattr(raw_ops, BACKPROP[self.version])(
            **tensors, **outputs._asdict(), **backprops, **{**self.attrs(), **attrs}
        )


def check_outputs(call: Call, outputs, run: stack.Run, dtype, what: str) -> None:
    """Values, shapes and types of a forward call, and zeros past the lengths."""
    bound = tolerances.stack_bound(dtype, call.longest_sum(), call.net.layers)
    for name, want in run.outputs().items():
        got = getattr(outputs, name)
        assert got.dtype == tf.as_dtype(dtype), (name, what)
        compare.assert_close(call.laid_out(got.numpy()), want, bound, f"{name} of {what}")
    past = call.laid_out(outputs.output.numpy())[~run.alive]
    assert not np.any(past != 0), f"not zero past the lengths: {what}"
    assert outputs.reserve_space.dtype == tf.as_dtype(dtype), what
    assert outputs.reserve_space.shape.rank == 1, what
    if call.version > 1:
        assert outputs.host_reserved.dtype == tf.int8, what
        assert outputs.host_reserved.shape == [0], what


def check_gradients(call: Call, got, run, cotangents, dtype, what: str, bound=None) -> None:
    """Values, shapes and types of a Backprop, and zeros past the lengths."""
    if bound is None:
        bound = tolerances.stack_bound(dtype, call.longest_sum(), call.net.layers, backward=True)
    for name, want in run.backward(*cotangents).items():
        value = getattr(got, name)
        assert value.dtype == tf.as_dtype(dtype), (name, what)
        compare.assert_close(call.laid_out(value.numpy()), want, bound, f"{name} of {what}")
    past = call.laid_out(got.input_backprop.numpy())[~run.alive]
    assert not np.any(past != 0), f"a gradient past the lengths: {what}"


def check(
    raw_ops, call: Call, dtype: str = "double", seed: int = 0, run_mode: str = "eager"
) -> tuple:
    """Outputs and gradients of one call against the reference; gives what is needed for more.

    Memory is filled with NaN first, so that an element which is never written shows.
    """
    arrays = call.random(dtype, seed)
    tensors = call.tensors(arrays)
    run = call.run(arrays)
    cotangents = call.cotangents(dtype, seed + 1)
    what = f"{call} {dtype}"
    block_checks.poison([np.shape(v) for v in run.outputs().values()], dtype)
    outputs = run_modes.in_mode(run_mode, lambda t: call.forward(raw_ops, t))(tensors)
    check_outputs(call, outputs, run, dtype, what)
    assert outputs.reserve_space.shape[0] > 0, what
    backward = run_modes.in_mode(
        run_mode, lambda t, outputs: call.backward(raw_ops, t, outputs, cotangents)
    )
    block_checks.poison([v.shape for v in tensors.values()], dtype)
    gradients = backward(tensors, outputs)
    check_gradients(call, gradients, run, cotangents, dtype, what)
    return tensors, outputs, gradients, cotangents


def odd_calls(mode: str) -> tuple[Call, ...]:
    """Those of cudnn_calls.py."""
    return cudnn_calls.odd_calls(mode, Call)


def bits(values) -> list[bytes]:
    return [compare.bits(value) for value in values]
