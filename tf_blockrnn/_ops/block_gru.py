"""The block GRU: a GRU over a whole sequence in one op, and its gradient.

T steps, B rows, I inputs, H units; the equations are those of `tf_blockrnn.gru_block_cell`, step
after step: the reset gate acts before the product.

Source: Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, sequence_util, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._types import GRUOutputs

_ops = _loader.load()


@arguments.checked(
    {
        "w_ru": "I+H 2H",
        "w_c": "I+H H",
        "b_ru": "2H",
        "b_c": "H",
        "x": "T B I",
        "initial_state?": "B H",
    }
)
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
      x: input, [T, B, I]; half, bfloat16, float32 or float64, as all others.
      w_ru: weights of the gates r, u, [I+H, 2H]; the rows of x first, then those of the state.
      w_c: weights of the candidate, [I+H, H].
      b_ru: biases of the gates r, u, [2H].
      b_c: bias of the candidate, [H].
      initial_state: state before the first step, [B, H]; zeros when None.
      seq_len_max: how many steps count, 0..T; all when None. The outputs are zeros from there on.
      name: of the op in a graph.

    Returns:
      GRUOutputs(r, u, c, h), each [T, B, H]: reset gate, update gate, candidate, state.

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit (ValueError while a graph is
        built), or seq_len_max is not in 0..T or not an integer.

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


class _Direct(NamedTuple):
    """What the cotangents of r, u and c put on the pre-activations of their own step.

    Known for all steps from the start; see the class of this name in block_lstm.
    """

    d_ru: tf.Tensor
    d_c: tf.Tensor
    h_before: tf.Tensor  # on the state before the step


def _direct(
    inputs: NamedTuple, outputs: NamedTuple, cotangents: NamedTuple, valid: tf.Tensor
) -> _Direct | None:
    """None when there is nothing but zeros.

    d_c_bar = d_c ∘ (1 − c∘c)
    d_u_bar = d_u ∘ u ∘ (1 − u)
    d_hr    = d_c_bar · w_c_hᵀ
    d_r_bar = (d_r + d_hr ∘ h_before) ∘ r ∘ (1 − r)
    """
    gates = (cotangents.r, cotangents.u, cotangents.c)
    if all(util.known_zero(gate) for gate in gates):
        return None
    zeros = tf.zeros_like(util.wide(outputs.h))
    d_r, d_u, d_c = (
        zeros
        if util.known_zero(gate)
        else tf.where(valid, util.wide(tf.convert_to_tensor(gate)), zeros)
        for gate in gates
    )
    r, u, c = (util.wide(gate) for gate in (outputs.r, outputs.u, outputs.c))
    width = util.width(inputs.x)
    w_ru_h, w_c_h = (util.wide(w)[width:] for w in (inputs.w_ru, inputs.w_c))
    h_before = util.wide(util.before(inputs.h_prev, outputs.h))
    d_c_bar = d_c * (1 - c * c)
    d_u_bar = d_u * u * (1 - u)
    d_hr = tf.linalg.matmul(d_c_bar, w_c_h, transpose_b=True)
    d_r_bar = (d_r + d_hr * h_before) * r * (1 - r)
    d_ru = tf.concat([d_r_bar, d_u_bar], axis=2)
    return _Direct(d_ru, d_c_bar, tf.linalg.matmul(d_ru, w_ru_h, transpose_b=True) + d_hr * r)


def _add_direct(
    back: NamedTuple, inputs: NamedTuple, outputs: NamedTuple, direct: _Direct
) -> NamedTuple:
    """Adds what the direct gradients contribute at their own steps to all but the state."""
    x = util.counted(inputs.seq_len_max, inputs.x)
    h_before = util.wide(util.before(inputs.h_prev, outputs.h))
    width = util.width(inputs.x)
    w_ru_x, w_c_x = (util.wide(w)[:width] for w in (inputs.w_ru, inputs.w_c))

    def weights(rows: tf.Tensor, d_bar: tf.Tensor) -> tf.Tensor:
        parts = [util.sum_of_products(x, d_bar), util.sum_of_products(rows, d_bar)]
        return tf.concat(parts, axis=0)

    return back._replace(
        x_grad=util.add(
            back.x_grad,
            tf.linalg.matmul(direct.d_ru, w_ru_x, transpose_b=True),
            tf.linalg.matmul(direct.d_c, w_c_x, transpose_b=True),
        ),
        w_ru_grad=util.add(back.w_ru_grad, weights(h_before, direct.d_ru)),
        w_c_grad=util.add(back.w_c_grad, weights(h_before * util.wide(outputs.r), direct.d_c)),
        b_ru_grad=util.add(back.b_ru_grad, tf.reduce_sum(direct.d_ru, axis=[0, 1])),
        b_c_grad=util.add(back.b_c_grad, tf.reduce_sum(direct.d_c, axis=[0, 1])),
    )


_backward = signatures.Backward("BlockRNN>BlockGRU", "BlockRNN>BlockGRUGrad", "_grad")


@util.register_gradient("BlockRNN>BlockGRU")
def _gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    inputs, outputs = signatures.inputs_of(op), signatures.outputs_of(op)
    given = _backward.inputs(op, cotangents)
    h_grad = tf.convert_to_tensor(given.h_grad)
    valid = util.steps_before(inputs.seq_len_max, outputs.h)
    direct = _direct(inputs, outputs, signatures.outputs_of(op, cotangents), valid)
    h_first = None
    if direct is not None:
        h_first, h_rest = util.split_first(direct.h_before)
        h_grad = util.add(h_grad, h_rest)
    back = _ops.block_rnn_block_gru_grad(*given._replace(h_grad=h_grad))
    if direct is not None:
        back = _add_direct(back, inputs, outputs, direct)
        back = back._replace(h_prev_grad=util.add(back.h_prev_grad, h_first))
    return _backward.gradients(back)


def _as_sequence(given: NamedTuple) -> NamedTuple:
    """A call of BlockGRUGrad, by its inputs, as one of GRUSequenceGrad, which has a gradient."""
    width = util.width(given.x)
    none = tensors.none(given.x.dtype)
    back = _ops.block_rnn_gru_sequence_grad(
        x=given.x,
        h_prev=given.h_prev,
        w_ru_x=given.w_ru[:width],
        w_ru_h=given.w_ru[width:],
        w_c_x=given.w_c[:width],
        w_c_h=given.w_c[width:],
        b_ru=none,
        b_c=none,
        mask=tensors.none(tf.bool),
        sequence_lengths=tf.fill([tf.shape(given.x)[1]], given.seq_len_max),
        h=given.h,
        r=given.r,
        u=given.u,
        c=given.c,
        span_states=none,
        h_grad=given.h_grad,
        h_last_grad=none,
        recurrent_dropout=none,
        zoneout_h=tensors.none(tf.bool),
        time_major=True,
        go_backwards=False,
    )
    return _backward.backward.outputs(
        x_grad=back.x_grad,
        h_prev_grad=back.h_prev_grad,
        w_ru_grad=tf.concat([back.w_ru_x_grad, back.w_ru_h_grad], axis=0),
        w_c_grad=tf.concat([back.w_c_x_grad, back.w_c_h_grad], axis=0),
        b_ru_grad=back.b_ru_grad,
        b_c_grad=back.b_c_grad,
    )


@util.register_gradient("BlockRNN>BlockGRUGrad")
def _second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    return util.gradient_of_call(op, cotangents, _as_sequence, without={"b_ru", "b_c"})
