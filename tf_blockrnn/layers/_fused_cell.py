"""Base of the fused cells: whether the op can be used, and its weights, packed once per sequence.

Keras stores a cell's weights as kernel, recurrent kernel and bias; the ops take the rows of x and
those of h in one matrix, with the gates in another order. Rearranging them costs about as much as
a small step, so it must not happen at every step.

`keras.layers.RNN` calls a cell once before its loop and once after it: it fetches the dropout
masks first ("so that the inner_loop is stateless") and resets them at the end. Between these two
calls, the first step rearranges the weights and the others use the result. Keras runs the first
step outside of its `tf.while_loop`, so inside the loop the result is a loop invariant, and its
gradient is summed over the steps before it goes back through the rearrangement. A cell that is
called by other code rearranges the weights at each call.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn.layers import _fusing

try:
    # Only read. Without it the weights are rearranged at each step: slower, with the same results.
    from keras.src.backend.common import global_state
except ImportError:
    global_state = None

_ACTIVATIONS = {"activation": _fusing.TANH, "recurrent_activation": _fusing.SIGMOID}


def _call_context() -> Any:
    """The outermost Keras layer call that is running in this thread, or None.

    Keras creates a new object for each call, and drops it even when the call fails.
    """
    return global_state and global_state.get_global_attribute("current_call_ctx")


def _reachable(tensor: tf.Tensor) -> bool:
    """Whether the current graph is that of the tensor, or a control-flow body inside it.

    A tf.function inside it does not count: a later call may use again what it has captured.
    """
    if tf.executing_eagerly():
        return not tf.is_symbolic_tensor(tensor)
    if not tf.is_symbolic_tensor(tensor):
        return False
    graph = tf.compat.v1.get_default_graph()
    while graph is not tensor.graph:
        if not getattr(graph, "is_control_flow_graph", False):
            return False
        graph = graph.outer_graph
    return True


class _SequenceWeights(threading.local):
    """The rearranged weights of the sequence that this thread is computing, if any."""

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        self._context = None
        self._weights = None

    def begin(self) -> None:
        # A sequence that failed half-way was never ended. The context keeps a later call from
        # using its weights: the context of a failed call no longer exists.
        self._context = _call_context()
        self._weights = None

    def get(self, make: Callable[[], NamedTuple]) -> NamedTuple:
        if self._context is None or self._context is not _call_context():
            return make()
        if self._weights is None or not _reachable(self._weights[0]):
            self._weights = make()
        return self._weights


class FusedCell:
    """Mixin over a Keras cell that runs on the fused op where the op supports its configuration.

    A subclass defines `_own_reason` and `_pack_weights`.

    Example:
      >>> from tf_blockrnn import layers
      >>> layers.GRUCell(4, reset_after=False).fused
      True
    """

    def _init_fused(self) -> None:
        """To be called at the end of a cell's constructor."""
        self._sequence_weights = _SequenceWeights()
        reason = self.why_not_fused
        # XLA has no lowering for the ops; Keras asks this before it compiles a model with XLA.
        self.supports_jit = reason is not None
        if reason:
            _fusing.warn_once(self, "cell", reason, stacklevel=3)

    @property
    def fused(self) -> bool:
        """Whether this cell runs on the fused op."""
        return self.why_not_fused is None

    @property
    def why_not_fused(self) -> str | None:
        """The reason why this cell uses Keras' own operations, or None if it runs on the op."""
        reason = _fusing.general_reason(self.compute_dtype)
        reason = reason or _fusing.activation_reason(self, _ACTIVATIONS)
        if reason:
            return reason
        if self.recurrent_dropout:
            return "recurrent_dropout is not 0, the op has no dropout"
        if self.dropout and self.implementation == 1:
            return "implementation=1 has a dropout mask for each gate, the op has one input"
        return self._own_reason()

    def get_dropout_mask(self, step_input):
        # keras.layers.RNN calls this before its loop, whether there is dropout or not.
        self._sequence_weights.begin()
        return super().get_dropout_mask(step_input)

    def reset_dropout_mask(self):
        # keras.layers.RNN calls this after its loop.
        self._sequence_weights.clear()
        super().reset_dropout_mask()

    def _op_tensor(self, given: Any) -> tf.Tensor:
        """An input or a state as a tensor in the compute dtype."""
        return _fusing.in_dtype(tf.convert_to_tensor(given), self.compute_dtype)

    def _op_input(self, inputs: Any, training: Any) -> tf.Tensor:
        """The op's x: the inputs in the compute dtype, after the dropout of inputs."""
        x = self._op_tensor(inputs)
        if training and 0.0 < self.dropout < 1.0:
            x = x * super().get_dropout_mask(x)
        return x

    def _op_weights(self) -> NamedTuple:
        return self._sequence_weights.get(self._pack_weights)

    def _gate_columns(self, gates: int) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The gates' [I+H, H] blocks and [H] biases, in Keras' order, in the compute dtype."""
        kernel, recurrent = (
            _fusing.weight_in_dtype(weight, self.compute_dtype)
            for weight in (self.kernel, self.recurrent_kernel)
        )
        blocks = tf.split(tf.concat([kernel, recurrent], axis=0), gates, axis=1)
        if self.bias is None:
            return blocks, [tf.zeros([self.units], self.compute_dtype)] * gates
        bias = _fusing.weight_in_dtype(self.bias, self.compute_dtype)
        return blocks, tf.split(bias, gates)
