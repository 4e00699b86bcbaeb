"""The block GRU: a GRU over a whole sequence in one op, and its gradient.

T steps, B rows, I inputs, H units; the equations are those of `tf_blockrnn.gru_block_cell`, at
each step: the reset gate acts before the GEMM.

Source: Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, sequence_cells, sequence_util, signatures
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import second_derivatives as composed
from tf_blockrnn._types import GRUOutputs

_ops = _loader.load()


@arguments.checked
def block_gru(
    x: tf.Tensor,
    w_ru: tf.Tensor,
    w_c: tf.Tensor,
    b_ru: tf.Tensor,
    b_c: tf.Tensor,
    *,
    initial_state: tf.Tensor | None = None,
    seq_len_max: int | tf.Tensor | None = None,
    name: str | None = None,
) -> GRUOutputs:
    """Computes a GRU over a sequence (Cho et al. 2014, arXiv:1406.1078), differentiable throughout.

    Args:
      {block_x}
      {block_gru_weights}
      initial_state: state before the first step, [B, H]; zeros when None.
      {length}
      {name}

    Returns:
      GRUOutputs(r, u, c, h), each [T, B, H]: reset gate, update gate, candidate, state.

    Raises:
      {wrong: , or seq_len_max is not in 0..T}

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> steps = tf_blockrnn.block_gru(
      ...     tf.ones([3, 1, 2]), w_ru=tf.fill([4, 4], 0.5), w_c=tf.fill([4, 2], 0.5),
      ...     b_ru=tf.ones([4]), b_c=tf.zeros([2]), initial_state=tf.fill([1, 2], 0.1),
      ...     seq_len_max=1)
      >>> print(f"{steps.h[0, 0, 0]:.6f} {steps.h[1, 0, 0]:.6f}")
      0.175991 0.000000
    """
    x, w_c = sequence_util.inputs(x, w_c, w_ru, b_ru, b_c, initial_state)
    if initial_state is None:
        units = sequence_util.dim("block_gru: w_c", w_c, 1, 2)
        initial_state = sequence_util.zero_state("block_gru", x, True, units)
    return GRUOutputs._make(
        _ops.block_rnn_block_gru(
            seq_len_max=sequence_util.sequence_length("block_gru", x, seq_len_max),
            x=x,
            h_prev=initial_state,
            w_ru=w_ru,
            w_c=w_c,
            b_ru=b_ru,
            b_c=b_c,
            name=name,
        )
    )


_SEQUENCE = composed.GradOp("BlockRNN>GRUSequenceGrad", sequence_cells.GRU, gates=3)
_ATTRS = {"gate_order": "ruc", "time_major": True, "go_backwards": False, "zoneout_rate_h": 0.0}
_backward = signatures.Backward("BlockRNN>BlockGRU", "BlockRNN>BlockGRUGrad", "_grad")


def _sequence_inputs(given: NamedTuple) -> NamedTuple:
    """The inputs of GRUSequenceGrad, which has a gradient, from those of BlockGRUGrad."""
    w_x, w_h = util.split_rows(tf.concat([given.w_ru, given.w_c], axis=1), given.x, given.h_prev)
    return signatures.inputs_for(
        _SEQUENCE.name,
        **{name: getattr(given, name) for name in ("x", "h_prev", "h", "r", "u", "c")},
        h_grad=util.of_rank(given.h_grad, 3),
        w_x=w_x,
        w_h=w_h,
        sequence_lengths=tf.fill([tf.shape(given.x)[1]], given.seq_len_max),
    )


def _gradients(back: NamedTuple) -> NamedTuple:
    """The outputs of BlockGRUGrad from those of GRUSequenceGrad."""
    units = util.columns(back.h_prev_grad)
    w_grad = tf.concat([back.w_x_grad, back.w_h_grad], axis=0)
    w_ru_grad, w_c_grad = tf.split(w_grad, [2 * units, units], axis=1, num=2)
    b_ru_grad, b_c_grad = tf.split(back.b_grad, [2 * units, units], num=2)
    return _backward.backward.outputs(
        x_grad=back.x_grad,
        h_prev_grad=back.h_prev_grad,
        w_ru_grad=w_ru_grad,
        w_c_grad=w_c_grad,
        b_ru_grad=b_ru_grad,
        b_c_grad=b_c_grad,
    )


@util.register_gradient("BlockRNN>BlockGRU")
def _gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    given, own = _backward.inputs(op, cotangents), signatures.outputs_of(op, cotangents)
    given = given._replace(h_grad=tf.convert_to_tensor(given.h_grad))
    gates = (own.r, own.u, own.c)
    if all(util.known_zero(gate) for gate in gates):
        return _backward.gradients(_ops.block_rnn_block_gru_grad(*given))
    back = composed.with_gates(_SEQUENCE, _sequence_inputs(given), _ATTRS, gates)
    return _backward.gradients(_gradients(back))


@util.register_gradient("BlockRNN>BlockGRUGrad")
def _second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    return util.gradient_of_call(
        op,
        cotangents,
        lambda given: _gradients(signatures.call(_SEQUENCE.name, _sequence_inputs(given), _ATTRS)),
        without={"b_ru", "b_c"},
    )
