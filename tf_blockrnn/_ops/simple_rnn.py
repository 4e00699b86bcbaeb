"""A simple RNN over whole sequences, each row with a length or a mask of its own.

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


@arguments.checked(
    {
        "w_h": "H H",
        "w_x?": "I H",
        "b": "H",
        "x": "B T I",
        "initial_state?": "B H",
        "recurrent_dropout?": "1 B H",
        "sequence_lengths?": "B",
        "mask?": "B T",
    },
    flags=("time_major", "go_backwards"),
)
def simple_rnn(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    activation: str = "tanh",
    initial_state: tf.Tensor | None = None,
    recurrent_dropout: tf.Tensor | None = None,
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a simple RNN over whole sequences, differentiable in all inputs (Elman 1990).

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states. Of all these, numbers and NumPy arrays take the type of the tensors.
      w_x: weights of the input, [I, H]. None: x is x · w_x already, of width H.
      w_h: weights of the state, [H, H].
      b: biases, [H].
      activation: "tanh" or "relu".
      initial_state: [B, H]; zeros when None.
      recurrent_dropout: [1, B, H], the factors by which the state before a step is multiplied in
        its product with w_h, the same at all steps: 0, or 1 over the share that is kept
        (arXiv:1512.05287). There is no gradient for them.
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, or integers, of which 0 is False, [B, T], or [T, B] with time_major. Where it is
        False the step is skipped: the state stays as it is, and the output repeats it. On a CPU
        padding, at either end of a row, takes no time; steps skipped between take theirs.
      time_major: whether the first dim of x, mask and the outputs is T; it saves nothing.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      recompute: as for lstm and gru. It changes nothing: the gradient of a simple RNN needs the
        outputs alone, and nothing else is kept.
      name: of the op in a graph.

    Returns:
      (outputs, state): the outputs of all steps, [B, T, H], or [T, B, H] with time_major, and the
      state after the last step done, [B, H].

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit, time_major or go_backwards
        is None, or a length is not in 0..T (ValueError for what shows while a graph is built).
      ValueError: activation is none of the two, or recompute is neither a bool nor a number above
        0.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.simple_rnn(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 2], 0.1), tf.fill([2, 2], 0.1), tf.zeros([2]),
      ...     sequence_lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state[1, 0]:.4f}")
      0.3799 0.0000 0.0000 0.3799
    """
    if not isinstance(activation, str) or activation not in ("tanh", "relu"):
        raise ValueError(f'simple_rnn: activation must be "tanh" or "relu", got {activation!r}')
    util.recompute_attr("simple_rnn", recompute)
    x, w_h = util.inputs(x, w_h, w_x, b, initial_state, recurrent_dropout)
    h_prev = initial_state
    if h_prev is None:
        units = util.dim("simple_rnn: w_h", w_h, 0, 2)
        h_prev = util.zero_state("simple_rnn", x, time_major, units)
    steps = util.steps("simple_rnn", x, time_major, mask, sequence_lengths)
    dropout = util.or_left_out("simple_rnn: recurrent_dropout", recurrent_dropout, 3, x.dtype)
    result = frozen.call(
        _ops.block_rnn_rnn_sequence,
        "RNNSequence",
        x=x,
        h_prev=h_prev,
        w_x=util.or_left_out("simple_rnn: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        mask=steps.mask,
        sequence_lengths=steps.sequence_lengths,
        recurrent_dropout=dropout,
        activation=activation,
        time_major=time_major,
        go_backwards=go_backwards,
        name=name,
    )
    return result.h, result.h_last


composed.register("RNNSequence", _ops.block_rnn_rnn_sequence_grad, sequence_cells.RNN)
