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
arXiv:1402.1128 (projection); Gal and Ghahramani 2016, arXiv:1512.05287 (recurrent dropout).
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn import _second_derivatives as composed
from tf_blockrnn import _sequence_util as util
from tf_blockrnn.lstm_block_cell import Peepholes

_ops = _loader.load()
_LSTM_GATES, _GRU_GATES = 4, 3


class LSTMState(NamedTuple):
    """The state of an LSTM: output h, [B, P], and cell state cs, [B, H]."""

    h: tf.Tensor
    cs: tf.Tensor


def lstm(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    peepholes: Peepholes | None = None,
    w_p: tf.Tensor | None = None,
    recurrent_dropout: tf.Tensor | None = None,
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    forget_bias: float = 0.0,
    cell_clip: float = 0.0,
    name: str | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Computes an LSTM over whole sequences (arXiv:1409.2329), differentiable in all inputs.

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states.
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
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, [B, T], or [T, B] with time_major. Where it is False the step is skipped: the
        state stays as it is, and the output repeats it. Padding, at either end of a row, takes no
        time; steps skipped between take theirs.
      time_major: whether the first dim of x, mask and the outputs is T; it saves nothing.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      forget_bias: added to the forget gate's pre-activation.
      cell_clip: bound of the cell state; none unless it is above 0. The gradient ignores the clip.
      name: of the op in a graph.

    Returns:
      (outputs, LSTMState(h, cs)): the outputs of all steps, [B, T, P], or [T, B, P] with
      time_major, and the state after the last step done.

    Raises:
      tf.errors.InvalidArgumentError: a shape does not fit (ValueError while a graph is built), or
        a length is not in 0..T or not an integer.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.lstm(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 8], 0.1), tf.fill([2, 8], 0.1), tf.zeros([8]),
      ...     sequence_lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state.h[1, 0]:.4f}")
      0.1339 0.0000 0.0000 0.1339
    """
    x, w_h = tf.convert_to_tensor(x), tf.convert_to_tensor(w_h)
    if initial_state is not None:
        h_prev, cs_prev = initial_state
    else:
        state, columns = (util.dim("lstm: w_h", w_h, axis, 2) for axis in (0, 1))
        cell_state = columns // _LSTM_GATES
        h_prev = cs_prev = util.zero_state("lstm", x, time_major, state)
        if (type(state), type(cell_state)) != (int, int) or state != cell_state:
            cs_prev = util.zero_state("lstm", x, time_major, cell_state)
    result = _ops.block_rnn_lstm_sequence(
        x,
        h_prev,
        cs_prev,
        util.or_left_out(w_x, x.dtype),
        w_h,
        b,
        util.none(x.dtype) if peepholes is None else tf.stack(list(peepholes)),
        *util.steps("lstm", mask, sequence_lengths),
        util.or_left_out(w_p, x.dtype),
        util.or_left_out(recurrent_dropout, x.dtype),
        forget_bias=forget_bias,
        cell_clip=cell_clip,
        time_major=time_major,
        go_backwards=go_backwards,
        is_training=util.is_training(),
        name=name,
    )
    return result.h, LSTMState(result.h_last, result.cs_last)


class _ResetBefore(NamedTuple):
    """What the op takes whose reset gate acts before the product, in its order of the gates."""

    x: tf.Tensor
    h_prev: tf.Tensor
    w_ru_x: tf.Tensor
    w_ru_h: tf.Tensor
    w_c_x: tf.Tensor
    w_c_h: tf.Tensor
    b_ru: tf.Tensor
    b_c: tf.Tensor


def _gates(name: str, array: tf.Tensor, axis: int = -1) -> list[tf.Tensor]:
    """The three gates' parts of an argument of gru.

    Raises:
      tf.errors.InvalidArgumentError: that dim is no multiple of 3.
    """
    array = tf.convert_to_tensor(array)
    known = array.shape[axis] if array.shape.rank else None
    if array.shape.rank == 0 or (known is not None and known % _GRU_GATES):
        what = "the last dim" if axis < 0 else f"dim {axis}"
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"gru: {name} must have the {_GRU_GATES} gates side by side in {what}, "
            f"got shape {array.shape.as_list()}",
        )
    return tf.split(array, _GRU_GATES, axis)


def _in_order(name: str, array: tf.Tensor, axis: int, gate_order: str) -> tf.Tensor:
    """An argument of gru with its gates in the order r, u, c."""
    if gate_order == "ruc":
        return array
    u, r, c = _gates(name, array, axis)
    return tf.concat([r, u, c], axis)


def _reset_before(
    x: tf.Tensor,
    h_prev: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    gate_order: str,
) -> _ResetBefore:
    def gates(name: str, array: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second, c = _gates(name, array)
        return tf.concat([first, second] if gate_order == "ruc" else [second, first], axis=-1), c

    if w_x is None:
        x = _in_order("x", x, -1, gate_order)
        w_ru_x = w_c_x = util.none(x.dtype)
    else:
        w_ru_x, w_c_x = gates("w_x", w_x)
    w_ru_h, w_c_h = gates("w_h", w_h)
    return _ResetBefore(x, h_prev, w_ru_x, w_ru_h, w_c_x, w_c_h, *gates("b_x", b))


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
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a GRU over whole sequences (arXiv:1406.1078), differentiable in all inputs.

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states.
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
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, [B, T], or [T, B] with time_major. Where it is False the step is skipped: the
        state stays as it is, and the output repeats it. Padding, at either end of a row, takes no
        time; steps skipped between take theirs.
      time_major: whether the first dim of x, mask and the outputs is T; it saves nothing.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      name: of the op in a graph.

    Returns:
      (outputs, state): the outputs of all steps, [B, T, H], or [T, B, H] with time_major, and the
      state after the last step done, [B, H].

    Raises:
      tf.errors.InvalidArgumentError: a shape does not fit (ValueError while a graph is built), or
        a length is not in 0..T or not an integer.
      ValueError: gate_order is none of the two.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.gru(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 6], 0.1), tf.fill([2, 6], 0.1), tf.zeros([6]),
      ...     sequence_lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state[1, 0]:.4f}")
      0.1525 0.0000 0.0000 0.1525
    """
    if gate_order not in ("ruc", "urc"):
        raise ValueError(f'gru: gate_order must be "ruc" or "urc", got {gate_order!r}')
    x, w_h = tf.convert_to_tensor(x), tf.convert_to_tensor(w_h)
    h_prev = initial_state
    if h_prev is None:
        h_prev = util.zero_state("gru", x, time_major, util.dim("gru: w_h", w_h, 0, 2))
    steps = util.steps("gru", mask, sequence_lengths)
    dropout = util.or_left_out(recurrent_dropout, x.dtype)
    attrs = {
        "time_major": time_major,
        "go_backwards": go_backwards,
        "is_training": util.is_training(),
        "name": name,
    }
    if reset_after:
        w_x = util.or_left_out(w_x, x.dtype)
        b_h = tf.zeros_like(b_x) if b_h is None else b_h
        result = _ops.block_rnn_gru_after_sequence(
            x, h_prev, w_x, w_h, b_x, b_h, *steps, dropout, gate_order=gate_order, **attrs
        )
    else:
        if recurrent_dropout is not None:
            dropout = _in_order("recurrent_dropout", dropout, 0, gate_order)
        b = b_x if b_h is None else tf.add(b_x, b_h)
        inputs = _reset_before(x, h_prev, w_x, w_h, b, gate_order)
        result = _ops.block_rnn_gru_sequence(*inputs, *steps, dropout, **attrs)
    return result.h, result.h_last


@tf.RegisterGradient("BlockRNN>LSTMSequence")
def _lstm_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    x, h_prev, cs_prev, w_x, w_h, _, peepholes, mask, lengths, w_p, dropout = op.inputs
    h, _, _, i, cs, f, o, ci = op.outputs
    h_grad, h_last_grad, cs_last_grad, i_grad, cs_grad, f_grad, o_grad, ci_grad = cotangents
    util.check_training(op)
    order = composed.order_of(op)
    given = composed.LSTMGrad(
        x,
        h_prev,
        cs_prev,
        w_x,
        w_h,
        peepholes,
        mask,
        lengths,
        h,
        i,
        cs,
        f,
        o,
        ci,
        util.or_none(h_grad),
        util.or_none(h_last_grad),
        util.or_none(cs_last_grad),
        util.or_none(cs_grad),
        w_p,
        dropout,
    )
    gates = (i_grad, f_grad, o_grad, ci_grad)
    if util.all_zero(gates):
        grads = _ops.block_rnn_lstm_sequence_grad(*given, **order._asdict())
    else:
        grads = composed.lstm_gradients(given, order, gates)
    *before, w_p_grad = grads
    return [*before, None, None, w_p_grad, None]


@tf.RegisterGradient("BlockRNN>GRUSequence")
def _gru_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    *inputs, _, _, mask, lengths, dropout = op.inputs
    h, _, *saved = op.outputs
    h_grad, h_last_grad, *gates = cotangents
    util.check_training(op)
    order = composed.order_of(op)
    states = (util.or_none(h_grad), util.or_none(h_last_grad))
    given = composed.GRUGrad(*inputs, mask, lengths, h, *saved, *states, dropout)
    if util.all_zero(gates):
        grads = _ops.block_rnn_gru_sequence_grad(*given, **order._asdict())
    else:
        grads = composed.gru_gradients(given, order, gates)
    return [*grads, None, None, None]


@tf.RegisterGradient("BlockRNN>GRUAfterSequence")
def _gru_after_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    *inputs, _, _, mask, lengths, dropout = op.inputs
    h, _, *saved = op.outputs
    h_grad, h_last_grad, *gates = cotangents
    util.check_training(op)
    order = composed.order_of(op)
    states = (util.or_none(h_grad), util.or_none(h_last_grad))
    given = composed.GRUAfterGrad(*inputs, mask, lengths, h, *saved, *states, dropout)
    gate_order = op.get_attr("gate_order")
    if util.all_zero(gates):
        grads = _ops.block_rnn_gru_after_sequence_grad(
            *given, gate_order=gate_order, **order._asdict()
        )
    else:
        grads = composed.gru_after_gradients(given, order, gate_order, gates)
    return [*grads, None, None, None]
