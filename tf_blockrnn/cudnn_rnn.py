"""The cuDNN RNNs on the CPU: gradients of our ops, and what makes TensorFlow's run here.

A stack of LSTM, GRU or plain recurrent layers, in one or both directions, in one op: `CudnnRNN`,
`CudnnRNNV2` and `CudnnRNNV3` of `tf_blockrnn.raw_ops`, whose help has the equations and the layout
of params. Source: TensorFlow's op definitions, and cuDNN's documentation of `cudnnRNNMode_t`.

Importing the package also gives TensorFlow's own ops of these names kernels for the CPU. Their
gradients are those that TensorFlow registers; they call TensorFlow's Backprop ops, which run here
just so.

Example:
  >>> import tensorflow as tf, tf_blockrnn
  >>> size = tf_blockrnn.raw_ops.CudnnRNNParamsSize(
  ...     num_layers=1, num_units=2, input_size=3, T=tf.float32, S=tf.int32)
  >>> params = tf.fill(size, 0.1)
  >>> result = tf.raw_ops.CudnnRNNV3(  # TensorFlow's own
  ...     input=tf.ones([4, 1, 3]), input_h=tf.zeros([1, 1, 2]), input_c=tf.zeros([1, 1, 2]),
  ...     params=params, sequence_lengths=[2])
  >>> print(" ".join(f"{step:.4f}" for step in result.output[:, 0, 0]))
  0.1743 0.2863 0.0000 0.0000
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

from tf_blockrnn import _loader

_ops = _loader.load()

# The attrs that both directions have; version 3 has more.
_ATTRS = ("rnn_mode", "input_mode", "direction", "dropout", "seed", "seed2")


def _gradient(backprop: Callable, attrs: tuple[str, ...]) -> Callable:
    """The gradient of a forward op, which is one call of its Backprop op."""

    def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        if not op.get_attr("is_training"):
            raise ValueError(f"{op.type}: for a gradient is_training must be set to True")
        output, output_h, output_c, *reserved = op.outputs
        grads = backprop(
            *op.inputs,
            output,
            output_h,
            output_c,
            *cotangents[:3],
            *reserved,
            **{name: op.get_attr(name) for name in attrs},
        )
        # sequence_lengths have none.
        return [*grads, *[None] * (len(op.inputs) - len(grads))]

    return gradient


def _run_in_any_order(ops: frozenset[str]) -> None:
    """Keeps a tf.function from running the ops one after another, and from running unused ones.

    They are stateful, as two calls draw two masks of dropout, and for no other reason. TensorFlow
    names its own CudnnRNN ops in a list of such; there is no public way onto it.
    """
    known = "SKIPPED_ORDER_INSENSITIVE_STATEFUL_OPS"
    if hasattr(auto_control_deps, known):
        setattr(auto_control_deps, known, getattr(auto_control_deps, known) | ops)


_VERSIONS = ("", "V2", "V3")
_run_in_any_order(
    frozenset(f"BlockRNN>CudnnRNN{name}{v}" for name in ("", "Backprop") for v in _VERSIONS)
)

for _name, _backprop, _attrs in (
    ("CudnnRNN", _ops.block_rnn_cudnn_rnn_backprop, _ATTRS),
    ("CudnnRNNV2", _ops.block_rnn_cudnn_rnn_backprop_v2, _ATTRS),
    ("CudnnRNNV3", _ops.block_rnn_cudnn_rnn_backprop_v3, (*_ATTRS, "num_proj", "time_major")),
):
    tf.RegisterGradient(f"BlockRNN>{_name}")(_gradient(_backprop, _attrs))
