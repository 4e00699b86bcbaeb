"""The LSTM block cell: one step of an LSTM with optional peepholes and clip, and its gradient.

B rows, I inputs, H units; `∘` elementwise, σ the logistic function, a bar for a pre-activation;
terms in brackets only with peepholes:

    [ī c̄ f̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip] when cell_clip > 0
    o  = σ(ō [+ cs ∘ wco])             (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co

Sources: Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000 (peepholes); the form is that of
Zaremba et al. 2014, arXiv:1409.2329.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._types import LSTMOutputs

_ops = _loader.load()
_GRAD = "BlockRNN>LSTMBlockCellGrad"


def peepholes_or_none(
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None, dtype: tf.DType
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The peepholes, or what an op takes for them in a cell without."""
    return (tensors.none(dtype),) * 3 if peepholes is None else peepholes


@arguments.checked
def lstm_block_cell(
    x: tf.Tensor,
    w: tf.Tensor,
    b: tf.Tensor,
    *,
    state: tuple[tf.Tensor, tf.Tensor],
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
    forget_bias: float = 0.0,
    cell_clip: float | None = None,
    name: str | None = None,
) -> LSTMOutputs:
    """Computes one step of an LSTM (arXiv:1409.2329), differentiable in all inputs.

    The state is (h, cs), as in `lstm`. TensorFlow's op has the other order, a forget bias of 1 and
    a clip of 3: `raw_ops.LSTMBlockCell` has its defaults.

    Args:
      x: input, [B, I]; half, bfloat16, float32 or float64, as all other tensors.
      w: weights, [I+H, 4H]; the rows of x first, then those of h; columns i, ci, f, o.
      b: biases, [4H], in the order of w.
      state: LSTMState or a tuple (h, cs): output and cell state before the step, each [B, H].
      peepholes: (wci, wcf, wco), each [H]; None for a cell without.
      forget_bias: added to the forget gate's pre-activation; a float32 number, as in TensorFlow.
      {cell_clip: , a float32 number}
      {name}

    Returns:
      LSTMOutputs(i, cs, f, o, ci, co, h), each [B, H]: input gate, new cell state, forget gate,
      output gate, cell input, tanh of the cell state, output. The next step's state is
      LSTMState(h, cs).

    Raises:
      {wrong}

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> tenth = tf.fill([1, 2], 0.1)
      >>> step = tf_blockrnn.lstm_block_cell(
      ...     tf.ones([1, 2]), w=tf.fill([4, 8], 0.5), b=tf.zeros([8]),
      ...     state=tf_blockrnn.LSTMState(h=tenth, cs=tenth), forget_bias=1.0)
      >>> print(f"{step.cs[0, 0]:.6f} {step.h[0, 0]:.6f}")
      0.689673 0.448484
    """
    h_prev, cs_prev = state
    typed = x if isinstance(x, (tf.Tensor, tf.Variable)) else w
    dtype = tf.as_dtype(getattr(typed, "dtype", tf.float32))
    wci, wcf, wco = peepholes_or_none(peepholes, dtype)
    return LSTMOutputs._make(
        _ops.block_rnn_lstm_block_cell(
            x=x,
            cs_prev=cs_prev,
            h_prev=h_prev,
            w=w,
            wci=wci,
            wcf=wcf,
            wco=wco,
            b=b,
            forget_bias=forget_bias,
            cell_clip=0.0 if cell_clip is None else cell_clip,
            use_peephole=peepholes is not None,
            name=name,
        )
    )


def _backward(
    given: NamedTuple, use_peephole: bool, gates: Sequence[tf.Tensor | None] = (None,) * 4
) -> NamedTuple:
    """LSTMBlockCellGrad in TensorFlow's ops, for its inputs and any cotangents of the gates.

    These are of i, ci, f and o, None for zeros. As in cc/core/lstm_cell.h.
    """
    of_i, of_ci, of_f, of_o = gates
    dtype = given.cs_prev.dtype
    given = given._make(util.wide(tensor) for tensor in given)
    cs_prev, cs_grad, h_grad = given.cs_prev, given.cs_grad, given.h_grad
    wci, wcf, wco = given.wci, given.wcf, given.wco
    i, cs, f, o, ci, co = given.i, given.cs, given.f, given.o, given.ci, given.co
    d_o = o * (1 - o) * util.plus(h_grad * co, of_o)
    dcs = (1 - co * co) * h_grad * o + cs_grad
    if use_peephole:
        dcs += d_o * wco
    dci = (1 - ci * ci) * util.plus(dcs * i, of_ci)
    df = f * (1 - f) * util.plus(dcs * cs_prev, of_f)
    di = i * (1 - i) * util.plus(dcs * ci, of_i)
    cs_prev_grad = dcs * f
    if use_peephole:
        cs_prev_grad += di * wci + df * wcf
        peepholes = [tf.reduce_sum(d, axis=0) for d in (di * cs_prev, df * cs_prev, d_o * cs)]
    else:
        peepholes = [tf.zeros_like(weights) for weights in (wci, wcf, wco)]
    dicfo = tf.concat([di, dci, df, d_o], axis=1)
    outputs = (cs_prev_grad, dicfo, *peepholes)
    return signatures.of(_GRAD).outputs._make(tf.cast(tensor, dtype) for tensor in outputs)


def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of an LSTMBlockCell op, TensorFlow's or ours, for seven cotangents.

    [d_x, d_h_prev] = dicfo · wᵀ
    d_w = [x, h_prev]ᵀ · dicfo                    d_b = Σ_batch dicfo
    """
    inputs, outputs = signatures.inputs_of(op), signatures.outputs_of(op)
    own = signatures.outputs_of(op, cotangents)
    use_peephole = op.get_attr("use_peephole")
    step = signatures.collect(
        signatures.of(_GRAD).inputs,
        inputs,
        outputs,
        cs_grad=util.with_tanh(own.cs, outputs.co, own.co),
        h_grad=tf.convert_to_tensor(own.h),
    )
    gates = [util.wide_or_none(gate) for gate in (own.i, own.ci, own.f, own.o)]
    if any(gate is not None for gate in gates):
        back = _backward(step, use_peephole, gates)
    else:
        back = _ops.block_rnn_lstm_block_cell_grad(*step, use_peephole=use_peephole)
    grads = {
        "cs_prev": back.cs_prev_grad,
        "wci": back.wci_grad,
        "wcf": back.wcf_grad,
        "wco": back.wco_grad,
    }
    if util.needed(op, "x") or util.needed(op, "h_prev"):
        x, h_prev = util.input_gradients(back.dicfo, inputs.w, inputs.x, inputs.h_prev)
        grads.update(x=x, h_prev=h_prev)
    if util.needed(op, "w"):
        grads["w"] = util.weight_gradient([inputs.x, inputs.h_prev], back.dicfo)
    if util.needed(op, "b"):
        grads["b"] = util.bias_gradient(back.dicfo)
    return signatures.gradients(op, grads)


util.register_gradient("BlockRNN>LSTMBlockCell")(gradient)


@util.register_gradient(_GRAD)
def _second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """The gradient of the gradient, for second derivatives and forward mode: right, not fused."""
    use_peephole = op.get_attr("use_peephole")
    return util.gradient_of_call(
        op,
        cotangents,
        lambda given: _backward(given, use_peephole),
        without={"x", "h_prev", "w", "b"},
    )
