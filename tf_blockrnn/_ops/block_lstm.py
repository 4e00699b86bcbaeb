"""The block LSTM: an LSTM over a whole sequence in one op, and its gradient.

T steps, B rows, I inputs, H units; the equations are those of `tf_blockrnn.lstm_block_cell`, step
after step. `block_lstm` has TensorFlow's first order of the gates and a forget bias;
`block_lstm_v2` has the order of Keras and cuDNN, and no forget bias.

Sources: Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000 (peepholes); the form is that of
Zaremba et al. 2014, arXiv:1409.2329.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, sequence_util, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops.lstm_block_cell import PEEPHOLES, STATE, peepholes_or_none
from tf_blockrnn._types import LSTMOutputs

_ops = _loader.load()


_SHAPES = {
    "w": "I+H 4H",
    "b": "4H",
    "x": "T B I",
    "initial_state?": STATE,
    "peepholes?": PEEPHOLES,
}


def _initial_state(
    function: str, x: tf.Tensor, w: tf.Tensor, given: tuple[tf.Tensor, tf.Tensor] | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """(h, cs) before the first step."""
    if given is not None:
        return given
    units = sequence_util.dim(f"{function}: w", w, 1, 2) // 4
    zeros = sequence_util.zero_state(function, x, True, units)
    return zeros, zeros


@arguments.checked(_SHAPES, floats=("forget_bias",))
def block_lstm(
    x: tf.Tensor,
    w: tf.Tensor,
    b: tf.Tensor,
    *,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
    seq_len_max: int | tf.Tensor | None = None,
    forget_bias: float = 0.0,
    cell_clip: float | None = None,
    name: str | None = None,
) -> LSTMOutputs:
    """Computes an LSTM over a sequence (arXiv:1409.2329), differentiable in all inputs.

    The state is (h, cs), as in `lstm`. TensorFlow's op has the other order, a forget bias of 1 and
    a clip of 3: `raw_ops.BlockLSTM` has its defaults.

    Args:
      x: input, [T, B, I]; half, bfloat16, float32 or float64, as all others.
      w: weights, [I+H, 4H]; the rows of x first, then those of h; columns i, ci, f, o.
      b: biases, [4H], in the order of w.
      initial_state: LSTMState or a tuple (h, cs): output and cell state before the first step, each
        [B, H]; zeros when None.
      peepholes: (wci, wcf, wco), each [H]; None for a cell without.
      seq_len_max: how many steps count, 0..T; all when None. The outputs are zeros from there on.
      forget_bias: added to the forget gate's pre-activation.
      cell_clip: bound of the cell state; None, or what is not above 0, is none. The gradient
        ignores the clip.
      name: of the op in a graph.

    Returns:
      LSTMOutputs(i, cs, f, o, ci, co, h), each [T, B, H]: input gate, cell state, forget gate,
      output gate, cell input, tanh of the cell state, output.

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit, forget_bias is None (ValueError
        while a graph is built), or seq_len_max is not in 0..T or not an integer.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> tenth = tf.fill([1, 2], 0.1)
      >>> steps = tf_blockrnn.block_lstm(
      ...     tf.ones([3, 1, 2]), w=tf.fill([4, 8], 0.5), b=tf.zeros([8]),
      ...     initial_state=tf_blockrnn.LSTMState(h=tenth, cs=tenth), forget_bias=1.0,
      ...     seq_len_max=2)
      >>> print(f"{steps.h[0, 0, 0]:.6f} {steps.h[1, 0, 0]:.6f} {steps.h[2, 0, 0]:.6f}")
      0.448484 0.709648 0.000000
    """
    x, w = sequence_util.inputs(x, w, b, initial_state, peepholes)
    h_prev, cs_prev = _initial_state("block_lstm", x, w, initial_state)
    wci, wcf, wco = peepholes_or_none(peepholes, x.dtype)
    return LSTMOutputs._make(
        _ops.block_rnn_block_lstm(
            seq_len_max=sequence_util.sequence_length("block_lstm", x, seq_len_max),
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


@arguments.checked(_SHAPES)
def block_lstm_v2(
    x: tf.Tensor,
    w: tf.Tensor,
    b: tf.Tensor,
    *,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None = None,
    seq_len_max: int | tf.Tensor | None = None,
    cell_clip: float | None = None,
    name: str | None = None,
) -> LSTMOutputs:
    """Computes an LSTM over a sequence (arXiv:1409.2329), gates in Keras' and cuDNN's order.

    The state is (h, cs), as in `lstm`; `raw_ops.BlockLSTMV2` has the other order.

    Args:
      x: input, [T, B, I]; half, bfloat16, float32 or float64, as all others.
      w: weights, [I+H, 4H]; the rows of x first, then those of h; columns i, f, ci, o.
      b: biases, [4H], in the order of w; add a forget bias to these, if there is to be one.
      initial_state: LSTMState or a tuple (h, cs): output and cell state before the first step, each
        [B, H]; zeros when None.
      peepholes: (wci, wcf, wco), each [H]; None for a cell without.
      seq_len_max: how many steps count, 0..T; all when None. The outputs are zeros from there on.
      cell_clip: bound of the cell state; None, or what is not above 0, is none. The gradient
        ignores the clip.
      name: of the op in a graph.

    Returns:
      LSTMOutputs(i, cs, f, o, ci, co, h), each [T, B, H]: input gate, cell state, forget gate,
      output gate, cell input, tanh of the cell state, output.

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit (ValueError while a graph is
        built), or seq_len_max is not in 0..T or not an integer.

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> steps = tf_blockrnn.block_lstm_v2(
      ...     tf.ones([3, 1, 2]), w=tf.fill([4, 8], 0.5), b=tf.zeros([8]))
      >>> steps.h.shape
      TensorShape([3, 1, 2])
    """
    x, w = sequence_util.inputs(x, w, b, initial_state, peepholes)
    h_prev, cs_prev = _initial_state("block_lstm_v2", x, w, initial_state)
    wci, wcf, wco = peepholes_or_none(peepholes, x.dtype)
    return LSTMOutputs._make(
        _ops.block_rnn_block_lstmv2(
            seq_len_max=sequence_util.sequence_length("block_lstm_v2", x, seq_len_max),
            x=x,
            cs_prev=cs_prev,
            h_prev=h_prev,
            w=w,
            wci=wci,
            wcf=wcf,
            wco=wco,
            b=b,
            cell_clip=0.0 if cell_clip is None else cell_clip,
            use_peephole=peepholes is not None,
            name=name,
        )
    )


class _Direct(NamedTuple):
    """What the cotangents of i, ci, f and o put on the pre-activations of their own step.

    They are known for all steps from the start. What they reach beyond their step they reach
    through h and cs of the step before, so there they join the cotangents of h and cs, and the
    fused op carries them on. Only their own step's share of the gradients is left to add.
    """

    d_i: tf.Tensor
    d_ci: tf.Tensor
    d_f: tf.Tensor
    d_o: tf.Tensor


def _direct(outputs: NamedTuple, cotangents: NamedTuple, valid: tf.Tensor) -> _Direct | None:
    """σ' = σ(1 − σ), tanh' = 1 − tanh²; None when there is nothing but zeros."""
    slopes = {
        "i": lambda gate: gate * (1 - gate),
        "ci": lambda gate: 1 - gate * gate,
        "f": lambda gate: gate * (1 - gate),
        "o": lambda gate: gate * (1 - gate),
    }
    if all(util.known_zero(getattr(cotangents, gate)) for gate in slopes):
        return None
    zeros = tf.zeros_like(util.wide(outputs.h))
    found = []
    for gate, slope in slopes.items():
        cotangent = getattr(cotangents, gate)
        if util.known_zero(cotangent):
            found.append(zeros)
        else:
            d_bar = util.wide(tf.convert_to_tensor(cotangent))
            d_bar *= slope(util.wide(getattr(outputs, gate)))
            found.append(tf.where(valid, d_bar, zeros))
    return _Direct(*found)


def _in_order(direct: _Direct, v2: bool) -> tf.Tensor:
    """[T, B, 4H], in the order of the op's weights."""
    d_i, d_ci, d_f, d_o = direct
    return tf.concat([d_i, d_f, d_ci, d_o] if v2 else [d_i, d_ci, d_f, d_o], axis=2)


class _Reach(NamedTuple):
    """What the direct gradients put on the states: of their step, and of the step before."""

    cs: tf.Tensor | None
    cs_before: tf.Tensor | None
    h_before: tf.Tensor


def _reach(direct: _Direct, inputs: NamedTuple, v2: bool, use_peephole: bool) -> _Reach:
    w_h = util.wide(inputs.w)[util.width(inputs.x) :]
    h_before = tf.linalg.matmul(_in_order(direct, v2), w_h, transpose_b=True)
    if not use_peephole:
        return _Reach(None, None, h_before)
    wci, wcf, wco = (util.wide(w) for w in (inputs.wci, inputs.wcf, inputs.wco))
    return _Reach(direct.d_o * wco, direct.d_i * wci + direct.d_f * wcf, h_before)


def _add_direct(
    back: NamedTuple,
    inputs: NamedTuple,
    outputs: NamedTuple,
    direct: _Direct,
    *,
    v2: bool,
    use_peephole: bool,
) -> NamedTuple:
    """Adds what the direct gradients contribute at their own steps to all but the states."""
    d_bar = _in_order(direct, v2)
    x, w = util.counted(inputs.seq_len_max, inputs.x), util.wide(inputs.w)
    h_before = util.before(inputs.h_prev, outputs.h)
    w_x = w[: util.width(inputs.x)]
    terms = {
        "x_grad": tf.linalg.matmul(d_bar, w_x, transpose_b=True),
        "w_grad": tf.concat(
            [util.sum_of_products(x, d_bar), util.sum_of_products(util.wide(h_before), d_bar)],
            axis=0,
        ),
        "b_grad": tf.reduce_sum(d_bar, axis=[0, 1]),
    }
    if use_peephole:
        cs_before = util.wide(util.before(inputs.cs_prev, outputs.cs))
        terms["wci_grad"] = tf.reduce_sum(direct.d_i * cs_before, axis=[0, 1])
        terms["wcf_grad"] = tf.reduce_sum(direct.d_f * cs_before, axis=[0, 1])
        terms["wco_grad"] = tf.reduce_sum(direct.d_o * util.wide(outputs.cs), axis=[0, 1])
    return back._replace(
        **{name: util.add(getattr(back, name), term) for name, term in terms.items()}
    )


def _gates_of_v2(columns: tf.Tensor) -> tf.Tensor:
    """The last axis from the order i, ci, f, o to i, f, ci, o, or the other way."""
    i, second, third, o = tf.split(columns, 4, axis=-1)
    return tf.concat([i, third, second, o], axis=-1)


def _as_sequence(given: NamedTuple, grads: Any, *, v2: bool, use_peephole: bool) -> NamedTuple:
    """A call of the Grad op as one of LSTMSequenceGrad, which has a gradient.

    co is tanh(cs) there, and not an input: what reaches it reaches cs.

    Args:
      given: the inputs.
      grads: the namedtuple type of the outputs.
      v2: whether the gates are in the order of BlockLSTMV2.
      use_peephole: the attr.
    """
    in_order = (lambda columns: columns) if v2 else _gates_of_v2
    no_grad = tensors.none(given.x.dtype)
    width = util.width(given.x)
    w = in_order(given.w)
    peepholes = (given.wci, given.wcf, given.wco)
    back = _ops.block_rnn_lstm_sequence_grad(
        x=given.x,
        h_prev=given.h_prev,
        cs_prev=given.cs_prev,
        w_x=w[:width],
        w_h=w[width:],
        b=no_grad,
        peepholes=tf.stack(peepholes) if use_peephole else no_grad,
        mask=tensors.none(tf.bool),
        sequence_lengths=tf.fill([tf.shape(given.x)[1]], given.seq_len_max),
        h=given.h,
        i=given.i,
        cs=given.cs,
        f=given.f,
        o=given.o,
        ci=given.ci,
        span_states=no_grad,
        h_grad=given.h_grad,
        h_last_grad=no_grad,
        cs_last_grad=no_grad,
        cs_grad=given.cs_grad,
        w_p=no_grad,
        recurrent_dropout=no_grad,
        zoneout_h=tensors.none(tf.bool),
        zoneout_c=tensors.none(tf.bool),
        time_major=True,
        go_backwards=False,
    )
    wci_grad, wcf_grad, wco_grad = (
        tf.unstack(back.peepholes_grad, 3)
        if use_peephole
        else [tf.zeros_like(weights) for weights in peepholes]
    )
    return grads(
        x_grad=back.x_grad,
        cs_prev_grad=back.cs_prev_grad,
        h_prev_grad=back.h_prev_grad,
        w_grad=in_order(tf.concat([back.w_x_grad, back.w_h_grad], axis=0)),
        wci_grad=wci_grad,
        wcf_grad=wcf_grad,
        wco_grad=wco_grad,
        b_grad=in_order(back.b_grad),
    )


def _register(forward: str, run: Callable[..., NamedTuple], v2: bool) -> None:
    """Registers the gradients of one of the two ops and of its gradient op, which is `run`."""
    grad_op = forward.replace("LSTM", "LSTMGrad")
    backward = signatures.Backward(forward, grad_op, "_grad")

    @util.register_gradient(forward)
    def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        inputs, outputs = signatures.inputs_of(op), signatures.outputs_of(op)
        own = signatures.outputs_of(op, cotangents)
        use_peephole = op.get_attr("use_peephole")
        valid = util.steps_before(inputs.seq_len_max, outputs.h)
        direct = _direct(outputs, own, valid)
        cs_grad, h_grad = tf.convert_to_tensor(own.cs), tf.convert_to_tensor(own.h)
        if not util.known_zero(own.co):
            co = util.wide(outputs.co)
            through_co = (1 - co * co) * util.wide(tf.convert_to_tensor(own.co))
            cs_grad = util.add(cs_grad, through_co)
        given = backward.inputs(op, cotangents)._replace(cs_grad=cs_grad, h_grad=h_grad)
        if direct is None:
            return backward.gradients(run(*given, use_peephole=use_peephole))
        # Wide, so that what is added is not rounded in between.
        given = given._make(util.wide(t) if t.dtype.is_floating else t for t in given)
        reach = _reach(direct, inputs, v2, use_peephole)
        h_first, h_rest = util.split_first(reach.h_before)
        given = given._replace(h_grad=given.h_grad + h_rest)
        cs_first = None
        if use_peephole:
            cs_first, cs_rest = util.split_first(reach.cs_before)
            given = given._replace(cs_grad=given.cs_grad + reach.cs + cs_rest)
        back = run(*given, use_peephole=use_peephole)
        back = _add_direct(back, inputs, outputs, direct, v2=v2, use_peephole=use_peephole)
        back = back._replace(
            cs_prev_grad=util.add(back.cs_prev_grad, cs_first),
            h_prev_grad=util.add(back.h_prev_grad, h_first),
        )
        return backward.gradients([tf.cast(gradient, op.inputs[1].dtype) for gradient in back])

    @util.register_gradient(grad_op)
    def second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        use_peephole = op.get_attr("use_peephole")
        return util.gradient_of_call(
            op,
            cotangents,
            lambda given: _as_sequence(
                given, backward.backward.outputs, v2=v2, use_peephole=use_peephole
            ),
            without={"b", "co"},
        )


_register("BlockRNN>BlockLSTM", _ops.block_rnn_block_lstm_grad, v2=False)
_register("BlockRNN>BlockLSTMV2", _ops.block_rnn_block_lstm_grad_v2, v2=True)
