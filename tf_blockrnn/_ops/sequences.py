"""LSTM and GRU over whole sequences, each row with a length or a mask of its own.

T steps, B rows, I inputs, H units; `∘` elementwise, σ the logistic function; h' and cs' are those
of the step before.

    lstm:  i, f, o = σ(x · w_x + h' · w_h + b)    ci = tanh(x · w_x + h' · w_h + b)
           cs = f ∘ cs' + i ∘ ci                  h = o ∘ tanh(cs), or of it · w_pᵀ
    gru:   r, u = σ(x · w_x + b_x + h' · w_h + b_h)
           c = tanh(x · w_x + b_x + r ∘ (h' · w_h + b_h))    reset after the product, or
           c = tanh(x · w_x + b_x + (r ∘ h') · w_h + b_h)    before it
           h = u ∘ h' + (1 − u) ∘ c

Sources: Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000 (peepholes); Cho et al. 2014,
arXiv:1406.1078 (GRU; version 1 resets after the product, version 3 before it); Sak et al. 2014,
arXiv:1402.1128 (projection); Gal and Ghahramani 2016, arXiv:1512.05287 (recurrent dropout); Krueger
et al. 2016, arXiv:1606.01305 (zoneout).
"""

from __future__ import annotations

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, frozen, sequence_cells, tensors
from tf_blockrnn._ops import second_derivatives as composed
from tf_blockrnn._ops import sequence_util as util
from tf_blockrnn._types import LSTMState

_ops = _loader.load()
_LSTM_GATES, _GRU_GATES = 4, 3


@arguments.checked(
    {
        "w_h": "P 4H",
        "w_x?": "I 4H",
        "w_p?": "P H",
        "b": "4H",
        "x": "B T I",
        "initial_state?": {"h": "B P", "cs": "B H"},
        "peepholes?": {"wci": "H", "wcf": "H", "wco": "H"},
        "recurrent_dropout?": "4 B P",
        "zoneout_state?": "B T P",
        "zoneout?": "B T H",
        "sequence_lengths?": "B",
        "mask?": "B T",
    },
    flags=("time_major", "go_backwards"),
    floats=("forget_bias",),
)
def lstm(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
    w_p: tf.Tensor | None = None,
    recurrent_dropout: tf.Tensor | None = None,
    zoneout_state: float | tf.Tensor | None = None,
    zoneout: float | tf.Tensor | None = None,
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    forget_bias: float = 0.0,
    cell_clip: float | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Computes an LSTM over whole sequences (arXiv:1409.2329), differentiable in all inputs.

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states. Of all these, numbers and NumPy arrays take the type of the tensors.
      w_x: weights of the input, [I, 4H]; columns i, f, ci, o, as Keras' and cuDNN's. None: x is
        x · w_x already, of width 4H.
      w_h: weights of the state, [P, 4H], in the order of w_x; P is H unless there is a projection.
      b: biases, [4H], in the order of w_x.
      initial_state: (h, cs), [B, P] and [B, H]; zeros when None.
      peepholes: (wci, wcf, wco), weights from the cell state to the gates i, f, o, each [H].
      w_p: weights of the projection, [P, H].
      recurrent_dropout: [4, B, P], for each gate in the order of w_x the factors by which the state
        before a step is multiplied in its product with w_h, the same at all steps: 0, or 1 over the
        share that is kept. There is no gradient for them.
      zoneout_state: zoneout of h (Krueger et al. 2016, arXiv:1606.01305): bool draws, [B, T, P], or
        [T, B, P] with time_major, True where a step leaves h as it was before; or for inference
        the rate of such draws, 0..1, with which h is the mean over them,
        rate · h' + (1 − rate) · h. Skipped steps leave h as it is anyway.
      zoneout: zoneout of the cell state, [B, T, H], or a rate. h is made of the new cell state,
        before its zoneout.
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, or integers, of which 0 is False, [B, T], or [T, B] with time_major. Where it is
        False the step is skipped: the state stays as it is, and the output repeats it. On a CPU
        padding, at either end of a row, takes no time; steps skipped between take theirs.
      time_major: whether the first dim of x, mask and the outputs is T; it saves nothing.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      recompute: for long sequences: True trains in a fraction of the memory. What the gradient
        needs of each step, the gates, is then not kept but computed again in the backward pass,
        span after span, from states that are kept: the same gradients to the bit, for about a third
        more time. A number is the least number of steps of a span; True is half the square root of
        T.
      forget_bias: added to the forget gate's pre-activation; a float32 number, whatever x is.
      cell_clip: bound of the cell state, a float32 number too; None, or what is not above 0, is
        none. The gradient ignores the clip.
      name: of the op in a graph.

    Returns:
      (outputs, LSTMState(h, cs)): the outputs of all steps, [B, T, P], or [T, B, P] with
      time_major, and the state after the last step done.

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit, time_major, go_backwards or
        forget_bias is None, or a length is not in 0..T (ValueError for what shows while a graph is
        built).
      ValueError: recompute is neither a bool nor a number above 0, or a rate of zoneout is not in
        0..1.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.lstm(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 8], 0.1), tf.fill([2, 8], 0.1), tf.zeros([8]),
      ...     sequence_lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state.h[1, 0]:.4f}")
      0.1339 0.0000 0.0000 0.1339
    """
    others = (w_x, b, w_p, initial_state, peepholes, recurrent_dropout)
    x, w_h = util.inputs(x, w_h, *others)
    if initial_state is not None:
        h_prev, cs_prev = initial_state
    else:
        state, columns = (util.dim("lstm: w_h", w_h, axis, 2) for axis in (0, 1))
        cell_state = columns // _LSTM_GATES
        h_prev = cs_prev = util.zero_state("lstm", x, time_major, state)
        if (type(state), type(cell_state)) != (int, int) or state != cell_state:
            cs_prev = util.zero_state("lstm", x, time_major, cell_state)
    steps = util.steps("lstm", x, time_major, mask, sequence_lengths)
    zoneout_h = util.zoneout("lstm: zoneout_state", zoneout_state)
    zoneout_c = util.zoneout("lstm: zoneout", zoneout)
    result = frozen.call(
        _ops.block_rnn_lstm_sequence,
        "LSTMSequence",
        x=x,
        h_prev=h_prev,
        cs_prev=cs_prev,
        w_x=util.or_left_out("lstm: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        peepholes=_stacked(peepholes, x.dtype),
        mask=steps.mask,
        sequence_lengths=steps.sequence_lengths,
        w_p=util.or_left_out("lstm: w_p", w_p, 2, x.dtype),
        recurrent_dropout=util.or_left_out(
            "lstm: recurrent_dropout", recurrent_dropout, 3, x.dtype
        ),
        zoneout_h=zoneout_h.kept,
        zoneout_c=zoneout_c.kept,
        zoneout_rate_h=zoneout_h.rate,
        zoneout_rate_c=zoneout_c.rate,
        forget_bias=forget_bias,
        cell_clip=0.0 if cell_clip is None else cell_clip,
        time_major=time_major,
        go_backwards=go_backwards,
        is_training=util.is_training(),
        recompute=util.recompute_attr("lstm", recompute),
        name=name,
    )
    return result.h, LSTMState(result.h_last, result.cs_last)


def _stacked(peepholes: tuple[tf.Tensor, ...] | None, dtype: tf.DType) -> tf.Tensor:
    """[3, H], as the op takes them."""
    if peepholes is None:
        return tensors.none(dtype)
    wci, wcf, wco = peepholes
    # As tensors: tf.stack takes no Keras variables.
    return tf.stack([tensors.as_tensor(weights, dtype) for weights in (wci, wcf, wco)])


def _in_order(array: tf.Tensor, axis: int, gate_order: str) -> tf.Tensor:
    """An argument of gru with its gates in the order r, u, c."""
    if gate_order == "ruc":
        return array
    u, r, c = tf.split(array, _GRU_GATES, axis)
    return tf.concat([r, u, c], axis)


def _reset_before(
    x: tf.Tensor, w_x: tf.Tensor | None, w_h: tf.Tensor, b: tf.Tensor, gate_order: str
) -> dict[str, tf.Tensor]:
    """What the op takes whose reset gate acts before the product, in its order of the gates."""

    def gates(array: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second, c = tf.split(array, _GRU_GATES, axis=-1)
        return tf.concat([first, second] if gate_order == "ruc" else [second, first], axis=-1), c

    if w_x is None:
        x = _in_order(x, -1, gate_order)
        w_ru_x = w_c_x = tensors.none(x.dtype)
    else:
        w_ru_x, w_c_x = gates(util.or_left_out("gru: w_x", w_x, 2, x.dtype))
    (w_ru_h, w_c_h), (b_ru, b_c) = gates(w_h), gates(b)
    return {
        "x": x,
        "w_ru_x": w_ru_x,
        "w_ru_h": w_ru_h,
        "w_c_x": w_c_x,
        "w_c_h": w_c_h,
        "b_ru": b_ru,
        "b_c": b_c,
    }


def _sum(b_x: tf.Tensor, b_h: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    """The biases of a GRU whose reset gate acts before the product, where they stand together."""
    b_x = util.in_dtype(b_x, dtype)
    # Not tf.add: it would take shapes that differ.
    return b_x if b_h is None else tf.add_n([b_x, util.in_dtype(b_h, dtype)])


@arguments.checked(
    {
        "w_h": "H 3H",
        "w_x?": "I 3H",
        "b_x": "3H",
        "b_h?": "3H",
        "x": "B T I",
        "initial_state?": "B H",
        "recurrent_dropout?": "3 B H",
        "zoneout_state?": "B T H",
        "sequence_lengths?": "B",
        "mask?": "B T",
    },
    flags=("reset_after", "time_major", "go_backwards"),
)
def gru(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b_x: tf.Tensor,
    b_h: tf.Tensor | None = None,
    *,
    initial_state: tf.Tensor | None = None,
    reset_after: bool = True,
    gate_order: str = "ruc",
    recurrent_dropout: tf.Tensor | None = None,
    zoneout_state: float | tf.Tensor | None = None,
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a GRU over whole sequences (arXiv:1406.1078), differentiable in all inputs.

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states. Of all these, numbers and NumPy arrays take the type of the tensors.
      w_x: weights of the input, [I, 3H]; columns r, u, c (reset, update, candidate). None: x is
        x · w_x already, of width 3H.
      w_h: weights of the state, [H, 3H], in the order of w_x.
      b_x: biases beside the input's product, [3H], in the order of w_x.
      b_h: biases beside the state's product, [3H], in the order of w_x; zeros when None.
      initial_state: [B, H]; zeros when None.
      reset_after: whether the reset gate acts after the product with w_h (cuDNN, PyTorch, Keras'
        default) or before it (GRUBlockCell). Before it costs a copy of the weights for each call.
      gate_order: "ruc", or "urc" for weights in Keras' order.
      recurrent_dropout: [3, B, H], for each gate in the order of w_x the factors by which the state
        before a step is multiplied in its product with w_h, the same at all steps: 0, or 1 over the
        share that is kept. There is no gradient for them.
      zoneout_state: zoneout of h (Krueger et al. 2016, arXiv:1606.01305): bool draws, [B, T, H], or
        [T, B, H] with time_major, True where a step leaves h as it was before; or for inference
        the rate of such draws, 0..1, with which h is the mean over them,
        rate · h' + (1 − rate) · h. Skipped steps leave h as it is anyway.
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, or integers, of which 0 is False, [B, T], or [T, B] with time_major. Where it is
        False the step is skipped: the state stays as it is, and the output repeats it. On a CPU
        padding, at either end of a row, takes no time; steps skipped between take theirs.
      time_major: whether the first dim of x, mask and the outputs is T; it saves nothing.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      recompute: for long sequences: True trains in a fraction of the memory. What the gradient
        needs of each step, the gates, is then not kept but computed again in the backward pass,
        span after span, from states that are kept: the same gradients to the bit, for about a third
        more time. A number is the least number of steps of a span; True is half the square root of
        T.
      name: of the op in a graph.

    Returns:
      (outputs, state): the outputs of all steps, [B, T, H], or [T, B, H] with time_major, and the
      state after the last step done, [B, H].

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit, reset_after, time_major or
        go_backwards is None, or a length is not in 0..T (ValueError for what shows while a graph is
        built).
      ValueError: gate_order is none of the two, recompute is neither a bool nor a number above 0,
        or a rate of zoneout is not in 0..1.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.gru(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 6], 0.1), tf.fill([2, 6], 0.1), tf.zeros([6]),
      ...     sequence_lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state[1, 0]:.4f}")
      0.1525 0.0000 0.0000 0.1525
    """
    if not isinstance(gate_order, str) or gate_order not in ("ruc", "urc"):
        raise ValueError(f'gru: gate_order must be "ruc" or "urc", got {gate_order!r}')
    x, w_h = util.inputs(x, w_h, w_x, b_x, b_h, initial_state, recurrent_dropout)
    h_prev = initial_state
    if h_prev is None:
        h_prev = util.zero_state("gru", x, time_major, util.dim("gru: w_h", w_h, 0, 2))
    steps = util.steps("gru", x, time_major, mask, sequence_lengths)
    dropout = util.or_left_out("gru: recurrent_dropout", recurrent_dropout, 3, x.dtype)
    zoneout = util.zoneout("gru: zoneout_state", zoneout_state)
    shared = {
        "x": x,
        "h_prev": h_prev,
        "mask": steps.mask,
        "sequence_lengths": steps.sequence_lengths,
        "recurrent_dropout": dropout,
        "zoneout_h": zoneout.kept,
        "zoneout_rate_h": zoneout.rate,
        "time_major": time_major,
        "go_backwards": go_backwards,
        "is_training": util.is_training(),
        "recompute": util.recompute_attr("gru", recompute),
        "name": name,
    }
    if reset_after:
        w_x = util.or_left_out("gru: w_x", w_x, 2, x.dtype)
        b_h = tf.zeros_like(util.in_dtype(b_x, x.dtype)) if b_h is None else b_h
        shared |= {"w_x": w_x, "w_h": w_h, "b_x": b_x, "b_h": b_h, "gate_order": gate_order}
        result = frozen.call(_ops.block_rnn_gru_after_sequence, "GRUAfterSequence", **shared)
    else:
        if recurrent_dropout is not None:
            shared["recurrent_dropout"] = _in_order(dropout, 0, gate_order)
        shared |= _reset_before(x, w_x, w_h, _sum(b_x, b_h, x.dtype), gate_order)
        result = frozen.call(_ops.block_rnn_gru_sequence, "GRUSequence", **shared)
    return result.h, result.h_last


composed.register("LSTMSequence", _ops.block_rnn_lstm_sequence_grad, sequence_cells.LSTM)
composed.register("GRUSequence", _ops.block_rnn_gru_sequence_grad, sequence_cells.GRU)
composed.register(
    "GRUAfterSequence", _ops.block_rnn_gru_after_sequence_grad, sequence_cells.GRUAfter
)
