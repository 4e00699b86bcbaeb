"""A simple RNN over whole sequences, each row with its own length or mask.

T steps, B rows, I inputs, H units; h' is the state before the step:

    h = act(x · w_x + h' · w_h + b)        act is tanh or relu

Source: Elman 1990, https://doi.org/10.1207/s15516709cog1402_1.
"""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, frozen, sequence_cells
from tf_blockrnn._ops import second_derivatives as composed
from tf_blockrnn._ops import sequence_util as util

_ops = _loader.load()


@arguments.checked
def simple_rnn(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    activation: str = "tanh",
    initial_state: tf.Tensor | None = None,
    recurrent_dropout_factors: tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a simple RNN over whole sequences, differentiable in all inputs (Elman 1990).

    Args:
      {x}
      w_x: weights of the input, [I, H]. None: x is already x · w_x, of width H.
      w_h: weights of the state, [H, H].
      b: biases, [H].
      activation: "tanh" or "relu".
      initial_state: [B, H]; zeros when None.
      {dropout: 1 | H}
      {steps}
      recompute: accepted as in lstm and gru, but without effect: the gradient of a simple RNN
        needs only the outputs, so nothing else is saved.
      {name}

    Returns:
      {outputs}

    Raises:
      {wrong: , or a length is not in 0..T}
      ValueError: activation is neither of the two, or recompute is a number that is not above 0.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.simple_rnn(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 2], 0.1), tf.fill([2, 2], 0.1), tf.zeros([2]),
      ...     lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state[1, 0]:.4f}")
      0.3799 0.0000 0.0000 0.3799
    """
    if not isinstance(activation, str) or activation not in ("tanh", "relu"):
        raise ValueError(f'simple_rnn: activation must be "tanh" or "relu", got {activation!r}')
    util.recompute_attr("simple_rnn", recompute)
    x, w_h = util.inputs(x, w_h, w_x, b, initial_state, recurrent_dropout_factors)
    steps = util.Steps(lengths, mask, resets, time_major, go_backwards)
    result = frozen.call(
        _ops.block_rnn_rnn_sequence,
        "RNNSequence",
        **util.shared("simple_rnn", x, recurrent_dropout_factors, steps),
        h_prev=util.first_state("simple_rnn", initial_state, x, w_h, time_major),
        w_x=util.or_left_out("simple_rnn: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        activation=activation,
        name=name,
    )
    return result.h, result.h_last


composed.register("RNNSequence", sequence_cells.RNN)
