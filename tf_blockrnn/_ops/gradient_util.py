"""What gradients of several op families share; at the end, what those of whole sequences do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_blockrnn import _tf_private
from tf_blockrnn._ops import signatures, tensors


def register_gradient(op: str) -> Callable[[Callable], Callable]:
    """Decorates the gradient of an op, unless the op has one.

    It has one where another package registered it, and where this package was imported before in
    this process: TensorFlow keeps the first, which does the same.
    """

    def decorate(gradient: Callable) -> Callable:
        with contextlib.suppress(KeyError):
            tf.RegisterGradient(op)(gradient)
        return gradient

    return decorate


def known_zero(cotangent: tf.Tensor | None) -> bool:
    """Whether a cotangent is one of the zeros that TensorFlow passes for an unused output.

    This only saves work: zeros that are not recognized are added like any other numbers. The check
    inspects the origin of the tensor, which takes a microsecond and waits for no device; it reads
    values only of large eager tensors.
    """
    if cotangent is None:
        return True
    if isinstance(cotangent, tf.IndexedSlices) or not _made_zero(cotangent):
        return False
    # A derivative by what is zero is asked for, as for the product of the Jacobian and a vector.
    # Not of what is made in the gradient of a function, which is differentiated as a whole.
    return _tf_private.in_gradient_of_function() or not _tf_private.is_watched(cotangent)


def _made_zero(cotangent: tf.Tensor) -> bool:
    if tf.is_symbolic_tensor(cotangent):
        value = _made_of(cotangent)
        return value is not None and not np.any(value)
    if _tf_private.cached_zeros(cotangent) is cotangent:
        return True
    # The cache has no large tensors. Reading one costs little compared to the pass that it may
    # save, and most tensors that are not zero are recognized at once.
    return cotangent.shape.num_elements() > _CACHED_ELEMENTS and _has_zero_bits(cotangent)


def zeros_like(cotangent: tf.Tensor | None, output: tf.Tensor) -> bool:
    """Whether it is made as zeros like that output, as the cotangent of one that nobody reads is.

    What `known_zero` misses: where shapes are unknown, a tape around the one that makes them
    records the op. For outputs that callers do not see; of others they may make such zeros, too.
    """
    if not isinstance(cotangent, tf.Tensor) or not tf.is_symbolic_tensor(cotangent):
        return False
    return cotangent.op.type == "ZerosLike" and cotangent.op.inputs[0] is output


def _has_zero_bits(tensor: tf.Tensor) -> bool:
    """Whether a large eager tensor has +0 alone, whose bits are all 0."""
    if "CPU" in tensor.device:
        # A tenth of the time that the comparison takes in TensorFlow's ops; asarray makes no copy,
        # where numpy() makes one.
        values = np.asarray(tensor).reshape(-1)
        return not values.view(f"u{values.itemsize}").any()
    flat = tf.reshape(tensor, [-1])
    return not (any_nonzero(flat[:64]) or any_nonzero(flat))


def eager_zeros(cotangent: tf.Tensor) -> bool:
    """Whether it is an eager tensor of zeros, by its values.

    What `known_zero` misses: a thread that starts empties TensorFlow's cache of zeros under the
    others (its slots are shared, though it is a threading.local).
    """
    if isinstance(cotangent, tf.IndexedSlices) or tf.is_symbolic_tensor(cotangent):
        return False
    return not (_tf_private.is_watched(cotangent) or any_nonzero(cotangent))


# At most: TensorFlow's cache takes 10,000.
_CACHED_ELEMENTS = 1000


def any_nonzero(values: tf.Tensor) -> tf.Tensor:
    """A bool: whether any of the values is not zero (a NaN is not)."""
    return tf.reduce_any(tf.not_equal(values, tf.zeros([], values.dtype)))


def made_nonzero(tensor: tf.Tensor) -> bool:
    """Whether a tensor of a graph is made there, of a number other than zero.

    As the cotangents are by which TensorFlow finds a derivative in forward mode.
    """
    value = _made_of(tensor)
    return value is not None and bool(np.any(value))


def _made_of(tensor: tf.Tensor) -> Any:
    """What a tensor of a graph holds if it is made there, or a number that is all it holds."""
    op = tensor.op
    if op.type == "Const":
        return tf.get_static_value(tensor)
    if op.type == "Fill":
        return tf.get_static_value(op.inputs[1])
    return {"ZerosLike": 0, "OnesLike": 1}.get(op.type)


def needed(op: tf.Operation, name: str) -> bool:
    """Whether the gradient of this input is requested; a graph prunes it if it is not."""
    skipped = _tf_private.skipped_inputs(op)
    return not skipped or signatures.of(op.type).inputs._fields.index(name) not in skipped


def columns(matrix: tf.Tensor) -> int | tf.Tensor:
    """The number of columns; a number where it is known, so that slices have static shapes."""
    return tensors.dim(matrix, 1, 2)


def wide(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor in the type that it is computed in: float32 for half and bfloat16."""
    return tf.cast(tensor, tf.float32) if tensor.dtype.size < 4 else tensor


# tf.matmul and tensor[:, n:] cost several times their op in eager mode, hence raw_ops and tf.split.


def weight_gradient(inputs: Sequence[tf.Tensor], d_bar: tf.Tensor) -> tf.Tensor:
    """[a, b]ᵀ · d_bar: the gradient of w in [a, b] · w, given that of the result."""
    return tf.raw_ops.MatMul(a=tf.concat(inputs, axis=1), b=d_bar, transpose_a=True)


def bias_gradient(d_bar: tf.Tensor) -> tf.Tensor:
    """Σ_batch d_bar. TensorFlow sums half in half, which stays at 2048 when it counts ones."""
    return tf.cast(tf.reduce_sum(wide(d_bar), axis=0), d_bar.dtype)


def input_gradients(
    d_bar: tf.Tensor, weights: tf.Tensor, a: tf.Tensor, b: tf.Tensor
) -> list[tf.Tensor]:
    """[d_a, d_b] = d_bar · wᵀ: the gradients of a and b in [a, b] · w, given its own."""
    product = tf.raw_ops.MatMul(a=d_bar, b=weights, transpose_b=True)
    return tf.split(product, [columns(a), columns(b)], axis=1)


def plus(term: tf.Tensor, cotangent: tf.Tensor | None) -> tf.Tensor:
    """The sum; None is a cotangent of zeros."""
    return term if cotangent is None else term + cotangent


def wide_or_none(cotangent: tf.Tensor) -> tf.Tensor | None:
    """A cotangent in the type that it is computed in; None if it is known to be zeros."""
    return None if known_zero(cotangent) else wide(tf.convert_to_tensor(cotangent))


def with_tanh(cs_grad: tf.Tensor, co: tf.Tensor, co_grad: tf.Tensor) -> tf.Tensor:
    """The cotangent of a cell state, and what reaches it by co, its tanh."""
    cs_grad, co_grad = tf.convert_to_tensor(cs_grad), wide_or_none(co_grad)
    if co_grad is None:
        return cs_grad
    co = wide(co)
    return tf.cast(wide(cs_grad) + (1 - co * co) * co_grad, cs_grad.dtype)


def recorded_where_of_use() -> contextlib.AbstractContextManager:
    """For loops and branches that a gradient adds: keeps tapes from recording them where no tape
    can ask for their gradient.

    That is within the function that TensorFlow makes as the gradient of a tf.function: it is
    differentiated as a whole, by the gradients of its ops. Under a persistent tape, or two of them,
    each loop and branch in it would get functions for its own first and second gradients as well,
    which takes half a minute for one layer.
    """
    if _tf_private.in_gradient_of_function():
        return _tf_private.stop_recording()
    return contextlib.nullcontext()


def gradient_of(
    function: Callable[..., Sequence[tf.Tensor]],
    inputs: Sequence[tf.Tensor],
    cotangents: Sequence[tf.Tensor],
    of_loops: bool = False,
) -> list[tf.Tensor | None]:
    """The gradient of a function of TensorFlow's ops; None for inputs it ignores.

    Args:
      function: of the inputs.
      inputs, cotangents: of the function, and of its outputs.
      of_loops: the function has gradients of loops, made here as well.
    """
    inputs = [
        tf.identity(tensor) for tensor in inputs
    ]  # else a tensor given twice is taken for one
    if not tf.executing_eagerly():

        def gradients(inputs: Sequence[tf.Tensor], cotangents: Sequence[tf.Tensor]) -> list:
            return tf.gradients(list(function(*inputs)), inputs, grad_ys=cotangents)

        if of_loops or not tf.compat.v1.control_flow_v2_enabled():
            # TensorFlow gets numbers wrong where a tape differentiates symbolic gradients of
            # symbolic gradients of a loop, or anything those of a loop of version 1. Gradients of
            # a function are symbolic all, and its loops of version 2.
            gradients = tf.function(gradients, autograph=False)
        # No tape: none records while TensorFlow asks for this in forward mode.
        with recorded_where_of_use():
            return gradients(inputs, list(cotangents))
    with tf.GradientTape() as tape:
        for tensor in inputs:
            tape.watch(tensor)
        outputs = function(*inputs)
    return tape.gradient(outputs, inputs, output_gradients=list(cotangents))


def gradient_of_call(
    op: tf.Operation,
    cotangents: Sequence[tf.Tensor],
    function: Callable[[NamedTuple], Sequence[tf.Tensor]],
    without: Collection[str],
    of_loops: bool = False,
) -> list[tf.Tensor | None]:
    """The gradient of an op that `function` computes, too, from its inputs as a namedtuple.

    None for those inputs that are not numbers or are listed in `without`; of_loops as in
    `gradient_of`.
    """
    inputs = signatures.inputs_of(op)
    used = {
        name: tensor
        for name, tensor in zip(inputs._fields, inputs, strict=True)
        if tensor.dtype.is_floating and name not in without
    }

    def replaced(*tensors: tf.Tensor) -> Sequence[tf.Tensor]:
        return function(inputs._replace(**dict(zip(used, tensors, strict=True))))

    found = gradient_of(replaced, list(used.values()), cotangents, of_loops)
    return signatures.gradients(op, dict(zip(used, found, strict=True)))


# Of whole sequences.


def width(sequence: tf.Tensor) -> int | tf.Tensor:
    """The last dim; a number where it is known, so that slices have static shapes."""
    return tensors.dim(sequence, 2, 3)


def split_rows(w: tf.Tensor, x: tf.Tensor, h_prev: tf.Tensor) -> list[tf.Tensor]:
    """The rows of [w_x, w_h] by which x, a sequence, and a state are multiplied."""
    parts = tf.split(w, [width(x), columns(h_prev)], axis=0, num=2)
    return [of_rank(part, 2) for part in parts]


def of_rank(tensor: tf.Tensor, rank: int) -> tf.Tensor:
    """For an input that may be left out, and is not: the graph may not know that."""
    return tensor if tensor.shape.rank == rank else tf.ensure_shape(tensor, [None] * rank)


def last_two(sequence: tf.Tensor) -> tf.Tensor:
    """The sequence as a matrix, a row for each step and row of the batch."""
    # Not -1 for the rows, which cannot be inferred if there are no columns.
    shape = tf.shape(sequence, out_type=tf.int64)
    return tf.reshape(sequence, [shape[0] * shape[1], shape[2]])


def sum_of_products(rows: tf.Tensor, d_bar: tf.Tensor) -> tf.Tensor:
    """Σ over steps of rowsᵀ · d_bar."""
    return tf.raw_ops.MatMul(a=last_two(rows), b=last_two(d_bar), transpose_a=True)
