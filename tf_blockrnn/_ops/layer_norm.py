"""An LSTM with layer normalisation over whole sequences.

T steps, B rows, I inputs, H units; `∘` elementwise, σ the logistic function; h' and cs' are those
of the step before:

    i, f, o = σ(z)    ci = tanh(z)    z = norm_x(x · w_x) + norm_h(h' · w_h) + b
    cs = norm_c(f ∘ cs' + i ∘ ci)     h = o ∘ tanh(cs)
    or, with norm_output_only,  cs = f ∘ cs' + i ∘ ci     h = o ∘ tanh(norm_c(cs))
    norm(s) = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta, over a row, 4H or H

Source: Ba et al. 2016, arXiv:1607.06450, which is the second form; the first one is that of
TensorFlow Addons' LayerNormLSTMCell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _loader
from tf_blockrnn._ops import arguments, frozen, sequence_util, signatures, tensors
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import sequence_walk as walks
from tf_blockrnn._types import LSTMState

_ops = _loader.load()
_GATES = 4
_NAME = "LayerNormLSTMSequence"
_FORWARD, _GRAD = f"BlockRNN>{_NAME}", f"BlockRNN>{_NAME}Grad"
_RECOMPUTE_GRAD = f"BlockRNN>{_NAME}RecomputeGrad"


@arguments.checked(
    {
        "w_h": "H 4H",
        "w_x?": "I 4H",
        "b": "4H",
        "kernel_norm": {"gamma": "4H", "beta": "4H"},
        "recurrent_norm": {"gamma": "4H", "beta": "4H"},
        "state_norm": {"gamma": "H", "beta": "H"},
        "x": "B T I",
        "initial_state?": {"h": "B H", "cs": "B H"},
        "recurrent_dropout?": "4 B H",
        "sequence_lengths?": "B",
        "mask?": "B T",
    },
    flags=("time_major", "go_backwards", "norm_output_only"),
    floats=("epsilon",),
)
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
    recurrent_dropout: tf.Tensor | None = None,
    sequence_lengths: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
    time_major: bool = False,
    go_backwards: bool = False,
    recompute: bool | int = False,
    name: str | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Computes an LSTM with layer normalisation (arXiv:1607.06450), differentiable in all inputs.

    A step is that of LayerNormLSTMCell in TensorFlow Addons: x · w_x and h · w_h are normalised
    over all gates of a row, and so is the new cell state, before the output and the next step read
    it. With norm_output_only the next step reads the cell state as it was before its norm, as in
    the paper.

    Args:
      x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, as
        weights and states. Of all these, numbers and NumPy arrays take the type of the tensors.
      w_x: weights of the input, [I, 4H]; columns i, f, ci, o, as Keras'. None: x is x · w_x
        already, of width 4H.
      w_h: weights of the state, [H, 4H], in the order of w_x.
      b: biases, [4H], in the order of w_x, added behind the norms.
      kernel_norm: (gamma, beta) of the norm of x · w_x, each [4H].
      recurrent_norm: (gamma, beta) of the norm of h · w_h, each [4H].
      state_norm: (gamma, beta) of the norm of the cell state, each [H].
      epsilon: added to the variances, a float32 number above 0.
      norm_output_only: whether the output alone reads the norm of the cell state.
      initial_state: (h, cs), each [B, H]; zeros when None.
      recurrent_dropout: [4, B, H], for each gate in the order of w_x the factors by which the state
        before a step is multiplied in its product with w_h, the same at all steps. There is no
        gradient for them.
      sequence_lengths: length of each row, int32 or int64 [B], in 0..T. Outputs past it are zeros,
        and the state stays that of the last step within it.
      mask: bool, or integers, of which 0 is False, [B, T], or [T, B] with time_major. Where it is
        False the step is skipped: the state stays as it is, and the output repeats it.
      time_major: whether the first dim of x, mask and the outputs is T.
      go_backwards: whether the last step is done first: with sequence_lengths, the last within
        them. Each output stands where its input does.
      recompute: as of `lstm`.
      name: of the op in a graph.

    Returns:
      (outputs, LSTMState(h, cs)): the outputs of all steps, [B, T, H], or [T, B, H] with
      time_major, and the state after the last step done; cs is the normalised one unless
      norm_output_only.

    Raises:
      tf.errors.InvalidArgumentError: a shape or type does not fit, a flag or epsilon is None,
        epsilon is not above 0, or a length is not in 0..T (ValueError for what shows while a graph
        is built).
      ValueError: recompute is neither a bool nor a number above 0.

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
    others = (w_x, b, *(each for norm in norms for each in norm), initial_state, recurrent_dropout)
    x, w_h = sequence_util.inputs(x, w_h, *others)
    if initial_state is not None:
        h_prev, cs_prev = initial_state
    else:
        units = sequence_util.dim("layer_norm_lstm: w_h", w_h, 0, 2)
        h_prev = cs_prev = sequence_util.zero_state("layer_norm_lstm", x, time_major, units)
    steps = sequence_util.steps("layer_norm_lstm", x, time_major, mask, sequence_lengths)
    (gamma_x, beta_x), (gamma_h, beta_h), (gamma_c, beta_c) = norms
    result = frozen.call(
        _ops.block_rnn_layer_norm_lstm_sequence,
        _NAME,
        x=x,
        h_prev=h_prev,
        cs_prev=cs_prev,
        w_x=sequence_util.or_left_out("layer_norm_lstm: w_x", w_x, 2, x.dtype),
        w_h=w_h,
        b=b,
        gamma_x=gamma_x,
        beta_x=beta_x,
        gamma_h=gamma_h,
        beta_h=beta_h,
        gamma_c=gamma_c,
        beta_c=beta_c,
        mask=steps.mask,
        sequence_lengths=steps.sequence_lengths,
        recurrent_dropout=sequence_util.or_left_out(
            "layer_norm_lstm: recurrent_dropout", recurrent_dropout, 3, x.dtype
        ),
        epsilon=epsilon,
        norm_output_only=norm_output_only,
        time_major=time_major,
        go_backwards=go_backwards,
        is_training=sequence_util.is_training(),
        recompute=sequence_util.recompute_attr("layer_norm_lstm", recompute),
        name=name,
    )
    return result.h, LSTMState(result.h_last, result.cs_last)


# ------------------------------------------------- the same in TensorFlow's ops, for derivatives
# that the fused ops do not give: of what is saved for backward, and of the Grad ops.


class _Norm(NamedTuple):
    hat: tf.Tensor
    rstd: tf.Tensor


def _normalized(sums: tf.Tensor, epsilon: float) -> _Norm:
    centred = sums - tf.reduce_mean(sums, axis=-1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
    rstd = tf.math.rsqrt(variance + tf.cast(epsilon, sums.dtype))
    return _Norm(centred * rstd, rstd)


def _composed(given: Any, attrs: dict[str, Any]) -> dict[str, tf.Tensor]:
    """The outputs of the forward op by name, but for span_states, from its inputs."""
    dtype, epsilon = given.x.dtype, attrs["epsilon"]
    output_only = attrs["norm_output_only"]
    order = walks.Order(attrs["time_major"], attrs["go_backwards"])
    walk = walks.Walk(order, given.x, given.mask, given.sequence_lengths)
    given = given._replace(
        **{
            name: util.wide(tensor)
            for name, tensor in given._asdict().items()
            if tensor.dtype.is_floating
        }
    )

    def time_major(sequence: tf.Tensor) -> tf.Tensor:
        return sequence if walk.axis == 0 else tf.transpose(sequence, [1, 0, 2])

    x = time_major(walk.read(given.x))
    of_x = _normalized(x if given.w_x.shape.rank == 1 else walks.times(x, given.w_x), epsilon)
    z_x = of_x.hat * given.gamma_x + (given.beta_x + given.beta_h + given.b)
    valid = tf.broadcast_to(time_major(walk.valid), tf.shape(z_x[..., :1]))
    dropout = None if given.recurrent_dropout.shape.rank == 1 else given.recurrent_dropout
    weights = walks.Weights(given.w_h, dropout, walk.axis)

    def step(state: tuple[tf.Tensor, ...], now: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
        h_prev, cs_prev = state[:2]
        z, counts = now
        of_h = _normalized(weights.of_state(h_prev, _GATES), epsilon)
        i, f, ci, o = tf.split(z + of_h.hat * given.gamma_h, _GATES, axis=1)
        c = tf.sigmoid(f) * cs_prev + tf.sigmoid(i) * tf.tanh(ci)
        normalized = _normalized(c, epsilon).hat * given.gamma_c + given.beta_c
        h = tf.sigmoid(o) * tf.tanh(normalized)
        cs = c if output_only else normalized
        return tf.where(counts, h, h_prev), tf.where(counts, cs, cs_prev), of_h.hat, of_h.rstd

    first = (
        given.h_prev,
        given.cs_prev,
        tf.zeros_like(z_x[:1])[0],
        tf.zeros_like(z_x[:1, :, :1])[0],
    )
    if tensors.known_dim(z_x, 0) == 0:
        h = cs = tf.zeros_like(z_x[..., : tensors.dim(given.h_prev, 1, 2)])
        h_hat, h_rstd = z_x, tf.zeros_like(z_x[..., :1])
        last = first[:2]
    else:
        h, cs, h_hat, h_rstd = tf.scan(step, (z_x, valid), initializer=first)
        last = h[-1], cs[-1]

    def in_memory(sequence: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
        sequence = time_major(sequence)
        return walk.in_order(tf.where(where, sequence, tf.zeros_like(sequence)))

    outputs = {
        "h": in_memory(h, walk.inside),
        "h_last": last[0],
        "cs_last": last[1],
        "x_hat": in_memory(of_x.hat, walk.valid),
        "h_hat": in_memory(h_hat, walk.valid),
        "rstd": in_memory(tf.concat([of_x.rstd, h_rstd], axis=-1), walk.valid),
        "cs": in_memory(cs, walk.inside),
    }
    return {name: tf.cast(tensor, dtype) for name, tensor in outputs.items()}


_DIFFERENTIATED = (
    *("x", "h_prev", "cs_prev", "w_x", "w_h", "b"),
    *("gamma_x", "beta_x", "gamma_h", "beta_h", "gamma_c", "beta_c"),
)


def _attrs_of_composed(op: tf.Operation) -> dict[str, Any]:
    names = ("epsilon", "norm_output_only", "time_major", "go_backwards")
    return {name: op.get_attr(name) for name in names}


def _composed_gradients(
    given: Any, attrs: dict[str, Any], cotangents: dict[str, tf.Tensor]
) -> list[tf.Tensor]:
    """The outputs of a Grad op, from the forward op's inputs and cotangents of its outputs."""
    inputs = [getattr(given, name) for name in _DIFFERENTIATED]
    if not cotangents:
        return [tf.zeros_like(tensor) for tensor in inputs]

    def outputs(*inputs: tf.Tensor) -> list[tf.Tensor]:
        replaced = given._replace(**dict(zip(_DIFFERENTIATED, inputs, strict=True)))
        found = _composed(replaced, attrs)
        return [found[name] for name in cotangents]

    found = util.gradient_of(outputs, inputs, list(cotangents.values()))
    return [
        tf.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(inputs, found, strict=True)
    ]


_CALL = signatures.Backward(_FORWARD, _GRAD, "_grad")
_AGAIN = signatures.Backward(_FORWARD, _RECOMPUTE_GRAD, "_grad")
# Outputs whose cotangents the Grad op does not take.
_SAVED_AT = [k for k in _CALL.untaken if _CALL.forward.outputs._fields[k] != "span_states"]


def _inputs(call: signatures.Backward, op: tf.Operation, cotangents: Sequence[Any]) -> Any:
    taken = [
        None if k in call.untaken else sequence_util.or_none(cotangent)
        for k, cotangent in enumerate(cotangents)
    ]
    return call.inputs(op, taken)


@util.register_gradient(_FORWARD)
def _first(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    frozen.refuse_gradient(op)
    op = sequence_util.for_training(op)
    if op.get_attr("recompute"):
        given, attrs = _inputs(_AGAIN, op, cotangents), _AGAIN.attrs(op)
        return _AGAIN.gradients(signatures.call(_AGAIN.name, given, attrs))
    given = _inputs(_CALL, op, cotangents)

    def composed() -> list[tf.Tensor]:
        by_name = {
            name: tf.convert_to_tensor(cotangent)
            for name, cotangent in signatures.outputs_of(op, cotangents)._asdict().items()
            if name != "span_states" and not util.known_zero(cotangent)
        }
        return _composed_gradients(signatures.inputs_of(op), _attrs_of_composed(op), by_name)

    grads = sequence_util.gradients(
        [cotangents[k] for k in _SAVED_AT],
        lambda: signatures.call(_CALL.name, given, _CALL.attrs(op)),
        composed,
    )
    return _CALL.gradients(grads)


def _second(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
    """Of both Grad ops. What was saved depends on the other inputs, which is all that counts."""
    names, attrs = _CALL.forward.inputs._fields, _attrs_of_composed(op)

    def function(given: Any) -> list[tf.Tensor]:
        of_outputs = {
            name: getattr(given, f"{name}_grad", None) for name in ("h", "h_last", "cs_last", "cs")
        }
        return _composed_gradients(
            _CALL.forward.inputs(*(getattr(given, name) for name in names)),
            attrs,
            {k: t for k, t in of_outputs.items() if t is not None and t.shape.rank != 1},
        )

    saved = {"h", "x_hat", "h_hat", "rstd", "cs", "span_states", "recurrent_dropout"}
    with util.recorded_where_of_use():
        return util.gradient_of_call(
            op, [tf.convert_to_tensor(each) for each in cotangents], function, without=saved
        )


util.register_gradient(_GRAD)(_second)
util.register_gradient(_RECOMPUTE_GRAD)(_second)
