"""Arguments of the functions over whole sequences, and helpers of their gradients.

Functions that take an argument of a call and its name check it: a wrong type is a TypeError, a
wrong number a ValueError, and a wrong shape a tf.errors.InvalidArgumentError.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_blockrnn import _tf_private
from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import signatures, tensors, xla

# The maximum number of elements of cached zeros, whose creation takes longer than a small op.
_MOST_KEPT = 10_000


@functools.lru_cache(maxsize=64)
def _kept_zeros(batch: int, units: int, dtype: tf.DType, device: str | None) -> tf.Tensor:
    del device  # part of the key: where they are made
    return tf.zeros([batch, units], dtype)


def is_training() -> bool:
    """Whether to save residuals for a gradient.

    A graph prunes unused outputs. A program that XLA compiles does not: there, as in eager mode, a
    call without a tape saves nothing. If the gradient of a function that was traced without a tape
    is requested later, in whatever graph or in eager mode, it repeats the forward pass
    (`for_training`).
    """
    return _tf_private.may_be_recorded() or not (tf.executing_eagerly() or xla.is_compiling())


def inputs(
    x: tf.Tensor, w_h: tf.Tensor, *others: tf.Tensor | Sequence[tf.Tensor] | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """x and w_h as tensors. Numbers and arrays take the dtype of the first of all that are."""
    dtype = next((t.dtype for t in _each((w_h, *others, x)) if tf.is_tensor(t)), None)
    w_h = tensors.as_tensor(w_h, dtype)
    return tensors.as_tensor(x, w_h.dtype), w_h


def _each(arguments: Sequence[tf.Tensor | Sequence[tf.Tensor] | None]) -> Iterator[tf.Tensor]:
    for argument in arguments:
        if isinstance(argument, (tuple, list)):
            yield from argument
        elif argument is not None:
            yield argument


def in_dtype(given: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """An argument of a call; numbers and arrays become a tensor of that dtype."""
    return given if tf.is_tensor(given) else tf.convert_to_tensor(given, dtype)


def _other_rank(argument: str, shape: tf.TensorShape, rank: int) -> Exception:
    return tensors.refusal(f"{argument} must have {rank} dims, got shape {list(shape)}")


def dim(argument: str, tensor: tf.Tensor, axis: int, rank: int) -> int | tf.Tensor:
    """A dim of an argument of that rank, as a number where it is known."""
    if tensor.shape.rank not in (None, rank):
        raise _other_rank(argument, tensor.shape, rank)
    return tensors.dim(tensor, axis, rank)


def units(argument: str, weights: tf.Tensor, gates: int) -> int | tf.Tensor:
    """The units of a cell, of whose gates a matrix has the columns."""
    columns = dim(argument, weights, 1, 2)
    if isinstance(columns, int) and columns % gates:
        shape = list(weights.shape)
        raise tensors.refusal(f"{argument} must have {gates} parts, one for each gate, got {shape}")
    return columns // gates


def zero_state(op: str, x: tf.Tensor, time_major: bool, units: int | tf.Tensor) -> tf.Tensor:
    """Zeros for each row of x and each unit."""
    return zeros_to_read(dim(f"{op}: x", x, 1 if time_major else 0, 3), units, x.dtype)


def first_state(
    op: str, given: tf.Tensor | None, x: tf.Tensor, w_h: tf.Tensor, time_major: bool
) -> tf.Tensor:
    """The initial state of a cell whose only state has the rows of w_h; zeros when None."""
    if given is not None:
        return given
    return zero_state(op, x, time_major, dim(f"{op}: w_h", w_h, 0, 2))


def zeros_to_read(batch: int | tf.Tensor, units: int | tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Zeros for an op to read and not to be handed on: eagerly another call may read the same."""
    if not tf.executing_eagerly() or batch * units > _MOST_KEPT:
        return tf.zeros([batch, units], dtype)
    return _kept_zeros(batch, units, dtype, _tf_private.eager_device())


def or_left_out(argument: str, given: tf.Tensor | None, rank: int, dtype: tf.DType) -> tf.Tensor:
    """An input that may be None, for which an op takes `[0]`. A caller may not give that."""
    if given is None:
        return tensors.none(dtype)
    given = in_dtype(given, dtype)
    shape = given.shape  # a tuple if it is a Keras variable's
    found = shape.rank if isinstance(shape, tf.TensorShape) else len(shape)
    if found is None:
        # Its error has the node's name and not the argument's.
        name = f"{argument.replace(': ', '_')}_must_have_{rank}_dims"
        return tf.ensure_shape(given, [None] * rank, name=name)
    if found != rank:
        raise _other_rank(argument, shape, rank)
    return given


def saving(name: str, recompute: bool | int) -> dict[str, Any]:
    """The attrs of an op for what is saved for the gradient; raises as `recompute_attr`."""
    return {"is_training": is_training(), "recompute": recompute_attr(name, recompute)}


def recompute_attr(owner: str, recompute: bool | int) -> int:
    """The attr `recompute` of an op: 0 for False, -1 for True, or the number of steps."""
    if isinstance(recompute, (bool, np.bool_)):
        return -1 if recompute else 0
    is_number = isinstance(recompute, numbers.Integral)
    if is_number and 0 < recompute <= tf.int64.max:
        return int(recompute)
    error = ValueError if is_number else TypeError
    raise error(
        f"{owner}: recompute must be a bool or a number of steps above 0, got {recompute!r}"
    )


class Zoneout(NamedTuple):
    """Zoneout of a state, as the ops take it: draws, or [0] and the rate of the mean."""

    kept: tf.Tensor
    rate: float


def zoneout(argument: str, given: float | tf.Tensor | None) -> Zoneout:
    """An argument that is a rate, draws, or None for no zoneout."""
    if given is None:
        return Zoneout(tensors.none(tf.bool), 0.0)
    if is_rate(given):
        return Zoneout(tensors.none(tf.bool), zoneout_rate(argument, given))
    kept = tensors.as_tensor(given)
    if kept.dtype != tf.bool:
        raise TypeError(
            f"{argument} must be a rate, a number, or draws of type bool, got {kept.dtype.name}"
        )
    return Zoneout(or_left_out(argument, kept, 3, tf.bool), 0.0)


def is_rate(given: object) -> bool:
    """Whether an argument for zoneout is a number."""
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


def zoneout_rate(argument: str, given: float) -> float:
    """A rate of zoneout."""
    # Not `given < 0 or given > 1`, so that a NaN is refused too.
    if not is_rate(given) or not 0 <= given <= 1:
        error = ValueError if is_rate(given) else TypeError
        raise error(f"{argument} must be a rate in 0..1, got {given!r}")
    return float(given)


class Steps(NamedTuple):
    """The arguments that determine the order of the steps, and which of them are computed."""

    lengths: tf.Tensor | None
    mask: tf.Tensor | None
    resets: tf.Tensor | None
    time_major: bool
    go_backwards: bool


def shared(
    name: str, x: tf.Tensor, recurrent_dropout_factors: tf.Tensor | None, steps: Steps
) -> dict[str, Any]:
    """The inputs and attrs of an op that all functions over sequences have, by the op's names."""
    return {
        "x": x,
        "mask": _mask(name, steps.mask),
        "sequence_lengths": _lengths(name, x, 1 if steps.time_major else 0, steps.lengths),
        "resets": _resets(name, steps.resets),
        "recurrent_dropout": or_left_out(
            f"{name}: recurrent_dropout_factors", recurrent_dropout_factors, 3, x.dtype
        ),
        "time_major": steps.time_major,
        "go_backwards": steps.go_backwards,
    }


def _mask(op: str, mask: tf.Tensor | None) -> tf.Tensor:
    if mask is not None:
        mask = tensors.as_tensor(mask)
        if not (mask.dtype.is_bool or mask.dtype.is_integer):
            raise TypeError(
                f"{op}: mask must be of bool or of an integer type, got {mask.dtype.name}"
            )
        if not mask.dtype.is_bool:
            mask = tf.cast(mask, tf.bool)
    return or_left_out(f"{op}: mask", mask, 2, tf.bool)


def _resets(op: str, resets: tf.Tensor | None) -> tf.Tensor:
    if resets is not None:
        resets = tensors.as_tensor(resets)
        if not resets.dtype.is_bool:
            raise TypeError(f"{op}: resets must be of bool, got {resets.dtype.name}")
    return or_left_out(f"{op}: resets", resets, 2, tf.bool)


def _lengths(op: str, x: tf.Tensor, batch_axis: int, lengths: tf.Tensor | None) -> tf.Tensor:
    if lengths is None:
        return tensors.none(tf.int32)
    lengths = tensors.integers(f"{op}: lengths", lengths)
    if lengths.shape.rank in (None, 1) and not lengths.shape.num_elements():
        lengths = _none_left_out(op, lengths, dim(f"{op}: x", x, batch_axis, 3))
    return lengths if lengths.dtype in (tf.int32, tf.int64) else tf.cast(lengths, tf.int64)


def _none_left_out(op: str, lengths: tf.Tensor, batch: int | tf.Tensor) -> tf.Tensor:
    """Lengths, of which there may be none: to the op that would be lengths left out."""
    wanted = f"{op}: lengths must have shape [B]"
    if lengths.shape.num_elements() == 0 and isinstance(batch, int):
        if batch > 0:
            raise tensors.refusal(f"{wanted} = [{batch}], got shape [0]")
        return lengths
    # What is left shows when the graph runs.
    given = tf.size(lengths)
    one_each = tf.debugging.Assert(
        tf.equal(given, batch), [f"{wanted}; B and the size given are", batch, given]
    )
    with tf.control_dependencies([one_each]):
        return tf.identity(lengths)


def sequence_length(
    function: str, x: tf.Tensor, seq_len_max: int | tf.Tensor | None
) -> tf.Tensor | int:
    """The number of steps of x, [T, B, width], to compute; all if seq_len_max is None."""
    if seq_len_max is not None:
        return tf.cast(tensors.integers(f"{function}: seq_len_max", seq_len_max), tf.int64)
    if x.shape.rank == 0:
        return 0  # the op refuses such an x
    steps = None if x.shape.rank is None else tensors.known_dim(x, 0)
    return tf.shape(x, out_type=tf.int64)[0] if steps is None else steps


def or_none(cotangent: tf.Tensor) -> tf.Tensor:
    """A cotangent, or the placeholder for one that is zero."""
    if util.known_zero(cotangent):
        return tensors.none(cotangent.dtype)
    return tf.convert_to_tensor(cotangent)


class Call(NamedTuple):
    """A call of a forward op, which has what gradients read of a tf.Operation."""

    type: str
    inputs: Sequence[tf.Tensor]
    outputs: Sequence[tf.Tensor]
    attrs: Mapping[str, Any]

    def get_attr(self, name: str) -> Any:
        """As that of tf.Operation."""
        return self.attrs[name]


Cotangents = Sequence[tf.Tensor | None]
Gradient = Callable[[tf.Operation | Call, Cotangents], Sequence[tf.Tensor]]


def for_training(op: tf.Operation, cotangents: Cotangents) -> tuple[Call, list[tf.Tensor]]:
    """A forward op that has saved nothing, called again so that it does, and its cotangents.

    Such an op is of a function that XLA compiles and that was traced without a tape, or a caller of
    `raw_ops` asked for it. All that is random in a call is an input. Nothing depends on what the
    first call did not save.
    """
    attrs = signatures.attrs_of(op) | {"is_training": True}
    inputs = signatures.inputs_of(op)
    repeated = Call(op.type, inputs, signatures.call(op.type, inputs, attrs), attrs)
    return repeated, [
        given if name == "h" or name.endswith("_last") else tensors.none(inputs.x.dtype)
        for name, given in signatures.outputs_of(op, cotangents)._asdict().items()
    ]


def gradients(
    op: tf.Operation | Call,
    cotangents: Cotangents,
    gates: Sequence[int],
    fused: Gradient,
    composed: Gradient,
) -> list[tf.Tensor]:
    """The gradients of a sequence, by the fused op alone or with TensorFlow's ops around it.

    Args:
      op: the forward op.
      cotangents: of its outputs.
      gates: those outputs that are saved for the gradient and of which the fused op takes no
        cotangents. Nearly always they are zeros. They are not where those gates were read, as a
        second derivative does.
      fused, composed: make the same gradients, with those cotangents left out and with them.
    """
    of_gates = [cotangents[k] for k in gates if not util.zeros_like(cotangents[k], op.outputs[k])]
    if all(util.known_zero(gate) or util.eager_zeros(gate) for gate in of_gates):
        return list(fused(op, cotangents))
    if tf.executing_eagerly() or not _tf_private.in_gradient_of_function():
        return list(composed(op, cotangents))
    # Only the values tell: a persistent tape around a tf.function, or a tape around another, hands
    # over a cotangent for each output, and most are zeros.
    unknown = [tf.convert_to_tensor(gate) for gate in of_gates if not util.known_zero(gate)]
    if any(util.made_nonzero(gate) for gate in unknown):
        return list(composed(op, cotangents))
    return _chosen(op, cotangents, unknown, fused, composed)


def _chosen(
    op: tf.Operation | Call,
    cotangents: Cotangents,
    gates: Sequence[tf.Tensor],
    fused: Gradient,
    composed: Gradient,
) -> list[tf.Tensor]:
    """`composed`, or `fused` if those gates' cotangents are zeros when the graph runs.

    The gradient is that of `composed`: cotangents that happen to be zeros have a gradient, too, and
    XLA compiles the gradient of a branch neither where a tape outside of the program takes it nor
    where there is a loop in the branch.
    """
    inputs, of_outputs = len(op.inputs), len(op.inputs) + len(op.outputs)
    type_, attrs = op.type, signatures.attrs_of(op)
    zero = {of_outputs + k for k, each in enumerate(cotangents) if util.known_zero(each)}
    every = [tf.convert_to_tensor(each) for each in (*op.inputs, *op.outputs, *cotangents)]

    def gradient(given: Sequence[tf.Tensor], bars: Sequence[tf.Tensor]) -> list:
        """Of `every`, as `given`: nothing else is in a graph that it may read."""
        used = [k for k, each in enumerate(given) if each.dtype.is_floating and k not in zero]

        def outputs(*floating: tf.Tensor) -> Sequence[tf.Tensor]:
            # Made anew, as known zeros.
            own = [tf.zeros_like(each) if k in zero else each for k, each in enumerate(given)]
            for k, tensor in zip(used, floating, strict=True):
                own[k] = tensor
            call = Call(type_, own[:inputs], own[inputs:of_outputs], attrs)
            return composed(call, own[of_outputs:])

        found = util.gradient_of(outputs, [given[k] for k in used], bars)
        by_place = dict(zip(used, found, strict=True))
        return [by_place.get(k) for k in range(len(given))]

    with util.recorded_where_of_use():
        nonzero = tf.reduce_any([util.any_nonzero(gate) for gate in gates])
        chosen = tf.cond(
            nonzero,
            lambda: list(composed(op, cotangents)),
            lambda: list(fused(op, cotangents)),
        )
        return _tf_private.with_gradient(chosen, every, gradient)
