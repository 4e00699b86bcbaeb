"""The GRU block cell: one step of a GRU whose reset gate acts before the GEMM, and its gradient.

B rows, I inputs, H units; `∘` elementwise, σ the logistic function, a bar for a pre-activation:

    [r̄ ū] = [x, h_prev] · w_ru + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh([x, h_prev ∘ r] · w_c + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

Source: Cho et al. 2014, arXiv:1406.1078.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, signatures
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._types import GRUOutputs

_ops = _loader.load()
_GRAD = "BlockRNN>GRUBlockCellGrad"


@arguments.checked
def gru_block_cell(
    x: tf.Tensor,
    w_ru: tf.Tensor,
    w_c: tf.Tensor,
    b_ru: tf.Tensor,
    b_c: tf.Tensor,
    *,
    state: tf.Tensor,
    name: str | None = None,
) -> GRUOutputs:
    """Computes one step of a GRU (Cho et al. 2014, arXiv:1406.1078), differentiable in all inputs.

    Args:
      x: input, [B, I]; half, bfloat16, float32 or float64, as all other tensors.
      {block_gru_weights}
      state: state before the step, [B, H].
      {name}

    Returns:
      GRUOutputs(r, u, c, h), each [B, H]: reset gate, update gate, candidate, new state.

    Raises:
      {wrong}

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> step = tf_blockrnn.gru_block_cell(
      ...     tf.ones([1, 2]), w_ru=tf.fill([4, 4], 0.5), w_c=tf.fill([4, 2], 0.5),
      ...     b_ru=tf.ones([4]), b_c=tf.zeros([2]), state=tf.fill([1, 2], 0.1))
      >>> print(f"{step.h[0, 0]:.6f}")
      0.175991
    """
    return GRUOutputs._make(
        _ops.block_rnn_gru_block_cell(
            x=x, h_prev=state, w_ru=w_ru, w_c=w_c, b_ru=b_ru, b_c=b_c, name=name
        )
    )


def _backward(
    given: NamedTuple,
    d_r: tf.Tensor | None = None,
    d_u: tf.Tensor | None = None,
    d_c: tf.Tensor | None = None,
) -> NamedTuple:
    """GRUBlockCellGrad in TensorFlow's ops, for its inputs and any cotangents: None for zeros.

    d_c_bar = (d_h ∘ (1 − u) + d_c) ∘ (1 − c∘c)
    d_u_bar = (d_h ∘ (h_prev − c) + d_u) ∘ u ∘ (1 − u)
    [dx₂, d_hr] = d_c_bar · w_cᵀ
    d_r_bar = (d_hr ∘ h_prev + d_r) ∘ r ∘ (1 − r)
    [dx₁, dh₁] = [d_r_bar d_u_bar] · w_ruᵀ
    d_x = dx₁ + dx₂        d_h_prev = dh₁ + d_hr ∘ r + d_h ∘ u
    """
    dtype = given.h_prev.dtype
    h_prev, w_ru, w_c = (util.wide(tensor) for tensor in (given.h_prev, given.w_ru, given.w_c))
    r, u, c = (util.wide(tensor) for tensor in (given.r, given.u, given.c))
    d_h = util.wide(given.d_h)
    d_c_bar = util.plus(d_h * (1 - u), d_c) * (1 - c * c)
    d_u_bar = util.plus(d_h * (h_prev - c), d_u) * u * (1 - u)
    d_x2, d_hr = util.input_gradients(d_c_bar, w_c, given.x, h_prev)
    d_r_bar = util.plus(d_hr * h_prev, d_r) * r * (1 - r)
    d_r_bar_u_bar = tf.concat([d_r_bar, d_u_bar], axis=1)
    d_x1, d_h1 = util.input_gradients(d_r_bar_u_bar, w_ru, given.x, h_prev)
    outputs = (d_x1 + d_x2, d_h1 + d_hr * r + d_h * u, d_c_bar, d_r_bar_u_bar)
    return signatures.of(_GRAD).outputs._make(tf.cast(tensor, dtype) for tensor in outputs)


def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of a GRUBlockCell op, TensorFlow's or ours, for cotangents of all four outputs.

    d_w_ru = [x, h_prev]ᵀ · d_r_bar_u_bar         d_b_ru = Σ_batch d_r_bar_u_bar
    d_w_c  = [x, h_prev ∘ r]ᵀ · d_c_bar           d_b_c  = Σ_batch d_c_bar
    """
    inputs, outputs = signatures.inputs_of(op), signatures.outputs_of(op)
    own = signatures.outputs_of(op, cotangents)
    given = signatures.collect(
        signatures.of(_GRAD).inputs, inputs, outputs, d_h=tf.convert_to_tensor(own.h)
    )
    gates = [util.wide_or_none(gate) for gate in (own.r, own.u, own.c)]
    if all(gate is None for gate in gates):
        back = _ops.block_rnn_gru_block_cell_grad(*given)
    else:
        # The cotangents of the gates reach the GEMMs, so the fused op, which knows only d_h,
        # would have to run and then everything once more for the rest. This runs once.
        back = _backward(given, *gates)
    found = {"x": back.d_x, "h_prev": back.d_h_prev}
    if util.needed(op, "w_ru"):
        found["w_ru"] = util.weight_gradient([inputs.x, inputs.h_prev], back.d_r_bar_u_bar)
    if util.needed(op, "w_c"):
        found["w_c"] = util.weight_gradient([inputs.x, inputs.h_prev * outputs.r], back.d_c_bar)
    if util.needed(op, "b_ru"):
        found["b_ru"] = util.bias_gradient(back.d_r_bar_u_bar)
    if util.needed(op, "b_c"):
        found["b_c"] = util.bias_gradient(back.d_c_bar)
    return signatures.gradients(op, found)


util.register_gradient("BlockRNN>GRUBlockCell")(gradient)


@util.register_gradient(_GRAD)
def _second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of the gradient, for second derivatives and forward mode: right, not fused."""
    return util.gradient_of_call(op, cotangents, _backward, without={"x", "b_ru", "b_c"})
