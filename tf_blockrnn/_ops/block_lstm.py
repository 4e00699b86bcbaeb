"""The block LSTM: an LSTM over a whole sequence in one op, and its gradient.

T steps, B rows, I inputs, H units; the equations are those of `tf_blockrnn.lstm_block_cell`, at
each step. `block_lstm` has TensorFlow's first order of the gates and a forget bias;
`block_lstm_v2` has the order of Keras and cuDNN, and no forget bias.

Sources: Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000 (peepholes); the form is that of
Zaremba et al. 2014, arXiv:1409.2329.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, sequence_cells, sequence_util, signatures
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import second_derivatives as composed
from tf_blockrnn._ops.lstm_block_cell import peepholes_or_none
from tf_blockrnn._types import LSTMOutputs

_ops = _loader.load()


def _inputs(
    function: str,
    x: tf.Tensor,
    w: tf.Tensor,
    b: tf.Tensor,
    initial_state: tuple[tf.Tensor, tf.Tensor] | None,
    peepholes: tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None,
    seq_len_max: int | tf.Tensor | None,
) -> dict[str, Any]:
    """What the ops take, by their names."""
    x, w = sequence_util.inputs(x, w, b, initial_state, peepholes)
    if initial_state is None:
        units = sequence_util.units(f"{function}: w", w, 4)
        initial_state = (sequence_util.zero_state(function, x, True, units),) * 2
    h_prev, cs_prev = initial_state
    wci, wcf, wco = peepholes_or_none(peepholes, x.dtype)
    steps = sequence_util.sequence_length(function, x, seq_len_max)
    return {
        **{"seq_len_max": steps, "x": x, "w": w, "b": b, "h_prev": h_prev, "cs_prev": cs_prev},
        **{"wci": wci, "wcf": wcf, "wco": wco, "use_peephole": peepholes is not None},
    }


@arguments.checked
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
      {block_x}
      w: weights, [I+H, 4H]; the rows of x first, then those of h; columns i, ci, f, o.
      b: biases, [4H], in the order of w.
      {block_state}
      {length}
      forget_bias: added to the forget gate's pre-activation; a float32 number, as in TensorFlow.
      {cell_clip: , a float32 number}
      {name}

    Returns:
      {block_lstm_outputs: [T, B, H]}

    Raises:
      {wrong: , or seq_len_max is not in 0..T}

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
    return LSTMOutputs._make(
        _ops.block_rnn_block_lstm(
            **_inputs("block_lstm", x, w, b, initial_state, peepholes, seq_len_max),
            forget_bias=forget_bias,
            cell_clip=0.0 if cell_clip is None else cell_clip,
            name=name,
        )
    )


@arguments.checked
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
      {block_x}
      w: weights, [I+H, 4H]; the rows of x first, then those of h; columns i, f, ci, o.
      b: biases, [4H], in the order of w; add a forget bias to these, if there is to be one.
      {block_state}
      {length}
      {cell_clip: , a float32 number}
      {name}

    Returns:
      {block_lstm_outputs: [T, B, H]}

    Raises:
      {wrong: , or seq_len_max is not in 0..T}

    Example:
      >>> import tensorflow as tf, tf_blockrnn
      >>> steps = tf_blockrnn.block_lstm_v2(
      ...     tf.ones([3, 1, 2]), w=tf.fill([4, 8], 0.5), b=tf.zeros([8]))
      >>> steps.h.shape
      TensorShape([3, 1, 2])
    """
    return LSTMOutputs._make(
        _ops.block_rnn_block_lstmv2(
            **_inputs("block_lstm_v2", x, w, b, initial_state, peepholes, seq_len_max),
            cell_clip=0.0 if cell_clip is None else cell_clip,
            name=name,
        )
    )


def _gates_of_v2(columns: tf.Tensor) -> tf.Tensor:
    """The last axis from the order i, ci, f, o to i, f, ci, o, or the other way."""
    i, second, third, o = tf.split(columns, 4, axis=-1)
    return tf.concat([i, third, second, o], axis=-1)


_SEQUENCE = composed.GradOp("BlockRNN>LSTMSequenceGrad", sequence_cells.LSTM, gates=4)
_ATTRS = {
    "cell_clip": 0.0,
    "time_major": True,
    "go_backwards": False,
    "zoneout_rate_h": 0.0,
    "zoneout_rate_c": 0.0,
}


class _Form(NamedTuple):
    """How a call of one of the two Grad ops is one of LSTMSequenceGrad.

    co is tanh(cs) there, and not an input: what reaches it reaches cs.
    """

    outputs: Any  # the namedtuple type of the Grad op's outputs
    v2: bool  # whether the gates are in the order of BlockLSTMV2
    use_peephole: bool

    def _in_order(self, columns: tf.Tensor) -> tf.Tensor:
        return columns if self.v2 else _gates_of_v2(columns)

    def inputs(self, given: NamedTuple) -> NamedTuple:
        """Those of LSTMSequenceGrad, from those of the Grad op."""
        w_x, w_h = util.split_rows(self._in_order(given.w), given.x, given.h_prev)
        peepholes = (given.wci, given.wcf, given.wco)
        shared = ("x", "h_prev", "cs_prev", "h", "i", "cs", "f", "o", "ci")
        return signatures.inputs_for(
            _SEQUENCE.name,
            **{name: getattr(given, name) for name in shared},
            w_x=w_x,
            w_h=w_h,
            sequence_lengths=tf.fill([tf.shape(given.x)[1]], given.seq_len_max),
            peepholes=util.of_rank(tf.stack(peepholes), 2) if self.use_peephole else None,
            h_grad=util.of_rank(given.h_grad, 3),
            cs_grad=util.of_rank(given.cs_grad, 3),
        )

    def gradients(self, given: NamedTuple, back: NamedTuple) -> NamedTuple:
        """The outputs of the Grad op, from its inputs and the outputs of LSTMSequenceGrad."""
        peepholes = (given.wci, given.wcf, given.wco)
        wci_grad, wcf_grad, wco_grad = (
            tf.unstack(back.peepholes_grad, 3)
            if self.use_peephole
            else [tf.zeros_like(weights) for weights in peepholes]
        )
        return self.outputs(
            x_grad=back.x_grad,
            cs_prev_grad=back.cs_prev_grad,
            h_prev_grad=back.h_prev_grad,
            w_grad=self._in_order(tf.concat([back.w_x_grad, back.w_h_grad], axis=0)),
            wci_grad=wci_grad,
            wcf_grad=wcf_grad,
            wco_grad=wco_grad,
            b_grad=self._in_order(back.b_grad),
        )


def _register(forward: str, run: Callable[..., NamedTuple], v2: bool) -> None:
    """Registers the gradients of one of the two ops and of its gradient op, which is `run`."""
    grad_op = forward.replace("LSTM", "LSTMGrad")
    backward = signatures.Backward(forward, grad_op, "_grad")

    def form(op: tf.Operation) -> _Form:
        return _Form(backward.backward.outputs, v2, op.get_attr("use_peephole"))

    @util.register_gradient(forward)
    def gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        outputs, own = signatures.outputs_of(op), signatures.outputs_of(op, cotangents)
        given = backward.inputs(op, cotangents)._replace(
            cs_grad=util.with_tanh(own.cs, outputs.co, own.co),
            h_grad=tf.convert_to_tensor(own.h),
        )
        gates = (own.i, own.f, own.o, own.ci)
        if all(util.known_zero(gate) for gate in gates):
            return backward.gradients(run(*given, use_peephole=op.get_attr("use_peephole")))
        back = composed.with_gates(_SEQUENCE, form(op).inputs(given), _ATTRS, gates)
        return backward.gradients(form(op).gradients(given, back))

    @util.register_gradient(grad_op)
    def second_gradient(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        def function(given: NamedTuple) -> NamedTuple:
            back = signatures.call(_SEQUENCE.name, form(op).inputs(given), _ATTRS)
            return form(op).gradients(given, back)

        return util.gradient_of_call(op, cotangents, function, without={"b", "co"})


_register("BlockRNN>BlockLSTM", _ops.block_rnn_block_lstm_grad, v2=False)
_register("BlockRNN>BlockLSTMV2", _ops.block_rnn_block_lstm_grad_v2, v2=True)
