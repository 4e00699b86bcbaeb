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

from tf_blockrnn import _loader, _tf_private
from tf_blockrnn._ops import cudnn_rnn_stack, signatures
from tf_blockrnn._ops import gradient_util as util

_ops = _loader.load()


def _register(version: str, backprop: Callable) -> None:
    """Registers the gradient of a forward op, which is one call of its Backprop op."""
    forward = f"BlockRNN>CudnnRNN{version}"
    call = signatures.Backward(forward, f"BlockRNN>CudnnRNNBackprop{version}", "_backprop")

    @util.register_gradient(forward)
    def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        if not op.get_attr("is_training"):
            raise ValueError(f"{op.type}: for a gradient is_training must be set to True")
        return call.gradients(backprop(*call.inputs(op, cotangents), **call.attrs(op)))

    util.register_gradient(f"BlockRNN>CudnnRNNBackprop{version}")(backprop_gradient)


def backprop_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of a Backprop op of any version, TensorFlow's or ours: a second derivative."""
    attrs = signatures.attrs_of(op)
    return util.gradient_of_call(
        op,
        cotangents,
        lambda given: cudnn_rnn_stack.backprop(given, attrs),
        without=cudnn_rnn_stack.SAVED,
    )


VERSIONS = ("", "V2", "V3")
# They have to be stateful, as TensorFlow's are, since two calls draw two masks of dropout.
_tf_private.run_in_any_order(
    frozenset(f"BlockRNN>CudnnRNN{name}{v}" for name in ("", "Backprop") for v in VERSIONS)
)

_register("", _ops.block_rnn_cudnn_rnn_backprop)
_register("V2", _ops.block_rnn_cudnn_rnn_backprop_v2)
_register("V3", _ops.block_rnn_cudnn_rnn_backprop_v3)
