"""LSTM and GRU over whole sequences, each row with its own length or mask.

T steps, B rows, I inputs, H units; `∘` elementwise, σ the logistic function; h' and cs' are those
of the step before.

    lstm:  i, f, o = σ(x · w_x + h' · w_h + b)    ci = tanh(x · w_x + h' · w_h + b)
           cs = f ∘ cs' + i ∘ ci                  h = o ∘ tanh(cs), or of it · w_pᵀ
    gru:   r, u = σ(x · w_x + b_x + h' · w_h + b_h)
           c = tanh(x · w_x + b_x + r ∘ (h' · w_h + b_h))    reset after the GEMM, or
           c = tanh(x · w_x + b_x + (r ∘ h') · w_h + b_h)    before it
           h = u ∘ h' + (1 − u) ∘ c

Sources: Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000 (peepholes); Cho et al. 2014,
arXiv:1406.1078 (GRU; version 1 resets after the GEMM, version 3 before it); Sak et al. 2014,
arXiv:1402.1128 (projection); Gal and Ghahramani 2016, arXiv:1512.05287 (recurrent dropout); Krueger
et al. 2016, arXiv:1606.01305 (zoneout).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, frozen, sequence_cells, tensors
from tf_blockrnn._ops import second_derivatives as composed
from tf_blockrnn._ops import sequence_util as util
from tf_blockrnn._types import LSTMState

_ops = _loader.load()
_LSTM_GATES = 4


@arguments.checked
def lstm(
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    w_h: tf.Tensor,
    b: tf.Tensor,
    *,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
    w_p: tf.Tensor | None = None,
    recurrent_dropout_factors: tf.Tensor | None = None,
    zoneout_h: float | tf.Tensor | None = None,
    zoneout_c: float | tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    forget_bias: float = 0.0,
    cell_clip: float | None = None,
    name: str | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Computes an LSTM over whole sequences (arXiv:1409.2329), differentiable in all inputs.

    Args:
      {x}
      w_x: weights of the input, [I, 4H]; columns i, f, ci, o, as Keras' and cuDNN's. None: x is
        already x · w_x, of width 4H.
      w_h: weights of the state, [P, 4H], in the order of w_x; P is H unless there is a projection.
      b: biases, [4H], in the order of w_x.
      initial_state: (h, cs), [B, P] and [B, H]; zeros when None.
      peepholes: (wci, wcf, wco), weights from the cell state to the gates i, f, o, each [H].
      w_p: weights of the projection, [P, H].
      {dropout: 4 | P}
      {zoneout: P}
      zoneout_c: zoneout of the cell state, [B, T, H], or a rate. h is computed from the new cell
        state before its zoneout.
      {steps}
      {recompute}
      forget_bias: added to the forget gate's pre-activation.
      {cell_clip}
      {name}

    Returns:
      (outputs, LSTMState(h, cs)): the outputs of all steps, [B, T, P], or [T, B, P] with
      time_major, and the state after the last step.

    Raises:
      {wrong: , or a length is not in 0..T}
      ValueError: recompute is a number that is not above 0, or a rate of zoneout is not in 0..1.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.lstm(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 8], 0.1), tf.fill([2, 8], 0.1), tf.zeros([8]),
      ...     lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state.h[1, 0]:.4f}")
      0.1339 0.0000 0.0000 0.1339
    """
    others = (w_x, b, w_p, initial_state, peepholes, recurrent_dropout_factors)
    x, w_h = util.inputs(x, w_h, *others)
    if initial_state is not None:
        h_prev, cs_prev = initial_state
    else:
        state = util.dim("lstm: w_h", w_h, 0, 2)
        cell_state = util.units("lstm: w_h", w_h, _LSTM_GATES)
        h_prev = cs_prev = util.zero_state("lstm", x, time_major, state)
        if (type(state), type(cell_state)) != (int, int) or state != cell_state:
            cs_prev = util.zero_state("lstm", x, time_major, cell_state)
    h, c = util.zoneout("lstm: zoneout_h", zoneout_h), util.zoneout("lstm: zoneout_c", zoneout_c)
    steps = util.Steps(lengths, mask, resets, time_major, go_backwards)
    result = frozen.call(
        _ops.block_rnn_lstm_sequence,
        "LSTMSequence",
        **util.shared("lstm", x, recurrent_dropout_factors, steps),
        **util.saving("lstm", recompute),
        h_prev=h_prev,
        cs_prev=cs_prev,
        w_x=util.or_left_out("lstm: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        peepholes=_stacked(peepholes, x.dtype),
        w_p=util.or_left_out("lstm: w_p", w_p, 2, x.dtype),
        zoneout_h=h.kept,
        zoneout_c=c.kept,
        zoneout_rate_h=h.rate,
        zoneout_rate_c=c.rate,
        forget_bias=forget_bias,
        cell_clip=0.0 if cell_clip is None else cell_clip,
        name=name,
    )
    return result.h, LSTMState(result.h_last, result.cs_last)


def _stacked(peepholes: tuple[tf.Tensor, ...] | None, dtype: tf.DType) -> tf.Tensor:
    """[3, H], as the op takes them."""
    if peepholes is None:
        return tensors.none(dtype)
    wci, wcf, wco = peepholes
    # As tensors: tf.stack takes no Keras variables.
    return _of_one_shape(
        tf.stack,
        "lstm: peepholes must be 3 tensors of one shape, [H]",
        [tensors.as_tensor(weights, dtype) for weights in (wci, wcf, wco)],
    )


def _of_one_shape(
    join: Callable[[Sequence[tf.Tensor]], tf.Tensor], wanted: str, parts: Sequence[tf.Tensor]
) -> tf.Tensor:
    try:
        return join(parts)
    except (tf.errors.InvalidArgumentError, ValueError) as error:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise tensors.refusal(f"{wanted}, got shapes {shapes}") from error


def _sum(b_x: tf.Tensor, b_h: tf.Tensor | None, dtype: tf.DType) -> tf.Tensor:
    """The biases of a GRU with reset before the GEMM, where only their sum matters."""
    b_x = util.in_dtype(b_x, dtype)
    if b_h is None:
        return b_x
    # Not tf.add: it would take shapes that differ.
    biases = [tensors.as_tensor(b_x), tensors.as_tensor(util.in_dtype(b_h, dtype))]
    return _of_one_shape(tf.add_n, "gru: b_x and b_h must be of one shape, [3H]", biases)


@arguments.checked
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
    recurrent_dropout_factors: tf.Tensor | None = None,
    zoneout_h: float | tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    resets: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes a GRU over whole sequences (arXiv:1406.1078), differentiable in all inputs.

    Args:
      {x}
      {gru_weights}
      b_x: biases of the input GEMM, [3H], in the order of w_x.
      b_h: biases of the recurrent GEMM, [3H], in the order of w_x; zeros when None.
      initial_state: [B, H]; zeros when None.
      reset_after: whether the reset gate acts after the GEMM with w_h (cuDNN, PyTorch, Keras'
        default) or before it (GRUBlockCell).
      gate_order: "ruc", or "urc" for weights in Keras' order.
      {dropout: 3 | H}
      {zoneout: H}
      {steps}
      {recompute}
      {name}

    Returns:
      {outputs}

    Raises:
      {wrong: , or a length is not in 0..T}
      ValueError: gate_order is neither of the two, recompute is a number that is not above 0, or a
        rate of zoneout is not in 0..1.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> outputs, state = tf_blockrnn.gru(
      ...     tf.ones([2, 3, 4]), tf.fill([4, 6], 0.1), tf.fill([2, 6], 0.1), tf.zeros([6]),
      ...     lengths=[3, 1])
      >>> print(" ".join(f"{step:.4f}" for step in outputs[1, :, 0]), f"{state[1, 0]:.4f}")
      0.1525 0.0000 0.0000 0.1525
    """
    if not isinstance(gate_order, str) or gate_order not in ("ruc", "urc"):
        raise ValueError(f'gru: gate_order must be "ruc" or "urc", got {gate_order!r}')
    others = (w_x, b_x, b_h, initial_state, recurrent_dropout_factors)
    x, w_h = util.inputs(x, w_h, *others)
    h_prev = util.first_state("gru", initial_state, x, w_h, time_major)
    h = util.zoneout("gru: zoneout_h", zoneout_h)
    steps = util.Steps(lengths, mask, resets, time_major, go_backwards)
    given = util.shared("gru", x, recurrent_dropout_factors, steps)
    given |= {"h_prev": h_prev, "zoneout_h": h.kept, "zoneout_rate_h": h.rate, "name": name}
    given |= {"w_x": util.or_left_out("gru: w_x", w_x, 2, x.dtype), "w_h": w_h}
    given |= {"gate_order": gate_order, **util.saving("gru", recompute)}
    if reset_after:
        given["b_x"] = b_x
        given["b_h"] = tf.zeros_like(util.in_dtype(b_x, x.dtype)) if b_h is None else b_h
        result = frozen.call(_ops.block_rnn_gru_after_sequence, "GRUAfterSequence", **given)
    else:
        given["b"] = _sum(b_x, b_h, x.dtype)
        result = frozen.call(_ops.block_rnn_gru_sequence, "GRUSequence", **given)
    return result.h, result.h_last


composed.register("LSTMSequence", sequence_cells.LSTM)
composed.register("GRUSequence", sequence_cells.GRU)
composed.register("GRUAfterSequence", sequence_cells.GRUAfter)
