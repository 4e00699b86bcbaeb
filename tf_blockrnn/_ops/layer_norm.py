"""An LSTM and a GRU with layer normalisation over whole sequences.

T steps, B rows, I inputs, H units; `∘` elementwise, σ the logistic function; h' and cs' are those
of the step before. The LSTM:

    i, f, o = σ(z)    ci = tanh(z)    z = norm_x(x · w_x) + norm_h(h' · w_h) + b
    cs = norm_c(f ∘ cs' + i ∘ ci)     h = o ∘ tanh(cs)
    or, with norm_output_only,  cs = f ∘ cs' + i ∘ ci     h = o ∘ tanh(norm_c(cs))
    norm(s) = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta, over a row, 4H or H

Source: Ba et al. 2016, arXiv:1607.06450, which is the second form; the first one is that of
TensorFlow Addons' LayerNormLSTMCell. The GRU:

    x̂ = norm_x(x · w_x) + b_x         ĥ = norm_h(h' · w_h) + b_h, each over a row of 3H
    r, u = σ(x̂ + ĥ)                   c = tanh(x̂ + r ∘ ĥ)
    h = u ∘ h' + (1 − u) ∘ c

Source: the same, in the form of haste's LayerNormGRU, with betas.
"""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, frozen, layer_norm_gradients
from tf_blockrnn._ops import sequence_util as util
from tf_blockrnn._types import LSTMState

_ops = _loader.load()


@arguments.checked
def layer_norm_lstm(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    kernel_norm: tuple[tf.Tensor, tf.Tensor],
    recurrent_norm: tuple[tf.Tensor, tf.Tensor],
    state_norm: tuple[tf.Tensor, tf.Tensor],
    epsilon: float = 1e-3,
    norm_output_only: bool = False,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    recurrent_dropout_factors: tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Computes an LSTM with layer normalisation (arXiv:1607.06450), differentiable in all inputs.

    A step is that of LayerNormLSTMCell in TensorFlow Addons: x · w_x and h · w_h are normalised
    over all gates of a row, and so is the new cell state, which the output and the next step use.
    With norm_output_only the next step uses the cell state before its norm, as in the paper.

    Args:
      {x}
      w_x: weights of the input, [I, 4H]; columns i, f, ci, o, as Keras'. None: x is already
        x · w_x, of width 4H.
      w_h: weights of the state, [H, 4H], in the order of w_x.
      b: biases, [4H], in the order of w_x, added after the norms.
      {norms: 4}
      state_norm: (gamma, beta) of the norm of the cell state, each [H].
      epsilon: added to the variances, above 0.
      norm_output_only: whether only the output uses the norm of the cell state.
      initial_state: (h, cs), each [B, H]; zeros when None.
      {dropout: 4 | H}
      {steps}
      {recompute}
      {name}

    Returns:
      (outputs, LSTMState(h, cs)): the outputs of all steps, [B, T, H], or [T, B, H] with
      time_major, and the state after the last step; cs is normalised unless norm_output_only.

    Raises:
      {wrong: , epsilon is not above 0, or a length is not in 0..T}
      ValueError: recompute is a number that is not above 0.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> wide, narrow = (tf.ones([8]), tf.zeros([8])), (tf.ones([2]), tf.zeros([2]))
      >>> outputs, state = tf_blockrnn.layer_norm_lstm(
      ...     tf.ones([2, 3, 4]), tf.eye(4, 8), tf.eye(2, 8), tf.zeros([8]),
      ...     kernel_norm=wide, recurrent_norm=wide, state_norm=narrow)
      >>> outputs.shape.as_list(), state.cs.shape.as_list()
      ([2, 3, 2], [2, 2])
    """
    norms = (kernel_norm, recurrent_norm, state_norm)
    others = (w_x, b, *(each for norm in norms for each in norm), initial_state)
    x, w_h = util.inputs(x, w_h, *others, recurrent_dropout_factors)
    if initial_state is None:
        initial_state = (util.first_state("layer_norm_lstm", None, x, w_h, time_major),) * 2
    h_prev, cs_prev = initial_state
    (gamma_x, beta_x), (gamma_h, beta_h), (gamma_c, beta_c) = norms
    steps = util.Steps(lengths, mask, resets, time_major, go_backwards)
    result = frozen.call(
        _ops.block_rnn_layer_norm_lstm_sequence,
        "LayerNormLSTMSequence",
        **util.shared("layer_norm_lstm", x, recurrent_dropout_factors, steps),
        **util.saving("layer_norm_lstm", recompute),
        h_prev=h_prev,
        cs_prev=cs_prev,
        w_x=util.or_left_out("layer_norm_lstm: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        gamma_x=gamma_x,
        beta_x=beta_x,
        gamma_h=gamma_h,
        beta_h=beta_h,
        gamma_c=gamma_c,
        beta_c=beta_c,
        epsilon=epsilon,
        norm_output_only=norm_output_only,
        name=name,
    )
    return result.h, LSTMState(result.h_last, result.cs_last)


@arguments.checked
def layer_norm_gru(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b_x: tf.Tensor,
    b_h: tf.Tensor | None = None,
    *,
    kernel_norm: tuple[tf.Tensor, tf.Tensor],
    recurrent_norm: tuple[tf.Tensor, tf.Tensor],
    epsilon: float = 1e-3,
    initial_state: tf.Tensor | None = None,
    gate_order: str = "ruc",
    recurrent_dropout_factors: tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a GRU with layer normalisation (arXiv:1607.06450), differentiable in all inputs.

    A step is that of a GRU whose reset gate acts after the GEMM with w_h, but x · w_x and
    h · w_h are normalised, each over all gates of a row, before the biases are added.

    Args:
      {x}
      {gru_weights}
      b_x: biases added after the norm of x · w_x, [3H], in the order of w_x.
      b_h: biases added after the norm of h · w_h, [3H], in the order of w_x; zeros when None.
      {norms: 3}
      epsilon: added to the variances, above 0.
      initial_state: [B, H]; zeros when None.
      gate_order: "ruc", or "urc" for weights in Keras' order.
      {dropout: 3 | H}
      {steps}
      {recompute}
      {name}

    Returns:
      {outputs}

    Raises:
      {wrong: , epsilon is not above 0, or a length is not in 0..T}
      ValueError: gate_order is neither of the two, or recompute is a number that is not above 0.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> norm = (tf.ones([6]), tf.zeros([6]))
      >>> outputs, state = tf_blockrnn.layer_norm_gru(
      ...     tf.ones([2, 3, 4]), tf.eye(4, 6), tf.eye(2, 6), tf.zeros([6]),
      ...     kernel_norm=norm, recurrent_norm=norm)
      >>> outputs.shape.as_list(), state.shape.as_list()
      ([2, 3, 2], [2, 2])
    """
    if not isinstance(gate_order, str) or gate_order not in ("ruc", "urc"):
        raise ValueError(f'layer_norm_gru: gate_order must be "ruc" or "urc", got {gate_order!r}')
    others = (w_x, b_x, b_h, *kernel_norm, *recurrent_norm, initial_state)
    x, w_h = util.inputs(x, w_h, *others, recurrent_dropout_factors)
    if b_h is None:
        b_h = tf.zeros_like(util.in_dtype(b_x, x.dtype))
    (gamma_x, beta_x), (gamma_h, beta_h) = kernel_norm, recurrent_norm
    steps = util.Steps(lengths, mask, resets, time_major, go_backwards)
    result = frozen.call(
        _ops.block_rnn_layer_norm_gru_sequence,
        "LayerNormGRUSequence",
        **util.shared("layer_norm_gru", x, recurrent_dropout_factors, steps),
        **util.saving("layer_norm_gru", recompute),
        h_prev=util.first_state("layer_norm_gru", initial_state, x, w_h, time_major),
        w_x=util.or_left_out("layer_norm_gru: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b_x=b_x,
        b_h=b_h,
        gamma_x=gamma_x,
        beta_x=beta_x,
        gamma_h=gamma_h,
        beta_h=beta_h,
        gate_order=gate_order,
        epsilon=epsilon,
        name=name,
    )
    return result.h, result.h_last


layer_norm_gradients.register(layer_norm_gradients.LSTM)
layer_norm_gradients.register(layer_norm_gradients.GRU)
