"""The stack of the cuDNN RNN ops, composed of sequence ops, which have gradients of every order.

It is for second derivatives of CudnnRNN, CudnnRNNV2 and CudnnRNNV3, for which the Backprop op is
expressed as the gradient of this stack, a function of the forward op's inputs. The forward pass is
repeated; of the op's residuals only the masks of dropout are read. The layouts of params and of the
reserve space are those of cc/core/param_layout.h and cc/core/reserve_space.h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn._ops import gradient_util as util
from tf_blockrnn._ops import signatures, tensors

_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
# The number of arrays of each layer direction in a reserve space, and its header.
_SAVED = {"lstm": 5, "gru": 4, "rnn_tanh": 0, "rnn_relu": 0}
_MARK, _HEADER_BYTES, _ALIGNMENT = b"BLKrnnv1", 128, 64

# The inputs of the Backprop ops that are outputs of the forward op.
SAVED = frozenset({"output", "output_h", "output_c", "reserve_space", "host_reserved"})


class _Stack(NamedTuple):
    """The stack of a call. Widths are numbers where they are static."""

    mode: str
    layers: int
    directions: int
    inputs: int | tf.Tensor
    units: int | tf.Tensor
    proj: int | tf.Tensor  # the width of a state h
    projected: bool
    skip_input: bool
    time_major: bool
    dropout: float

    @property
    def gates(self) -> int:
        return _GATES[self.mode]


class _Params(NamedTuple):
    """Those of a layer direction, as the sequence ops take them; None for those that it lacks."""

    w_x: tf.Tensor | None
    w_h: tf.Tensor
    w_p: tf.Tensor | None
    b_x: tf.Tensor
    b_h: tf.Tensor


def _stack_of(given: NamedTuple, attrs: Mapping[str, Any]) -> _Stack:
    """Raises ValueError where the graph does not know what its structure depends on."""
    mode, input_mode, direction = (
        tf.compat.as_str(attrs[name]) for name in ("rnn_mode", "input_mode", "direction")
    )
    time_major = attrs.get("time_major", True)
    directions = 2 if direction == "bidirectional" else 1
    layer_directions = tensors.dim(given.input_h, 0 if time_major else 1, 3)
    if not isinstance(layer_directions, int):
        raise ValueError(
            "a second derivative of CudnnRNN needs the number of layers while the graph is built; "
            f"give input_h a static shape, got {given.input_h.shape}"
        )
    projected = attrs.get("num_proj", 0) > 0
    proj = tensors.dim(given.input_h, 2, 3)
    units = tensors.dim(given.input_c, 2, 3) if mode == "lstm" else proj
    inputs = tensors.dim(given.input, 2, 3)
    if input_mode == "auto_select":
        if not (isinstance(inputs, int) and isinstance(units, int)):
            raise ValueError(
                "a second derivative of CudnnRNN with input_mode auto_select needs the widths of "
                "input and state while the graph is built; got input "
                f"{given.input.shape} and input_h {given.input_h.shape}"
            )
        input_mode = "skip_input" if inputs == units else "linear_input"
    return _Stack(
        mode=mode,
        layers=layer_directions // directions,
        directions=directions,
        inputs=inputs,
        units=units,
        proj=proj,
        projected=projected,
        skip_input=input_mode == "skip_input",
        time_major=time_major,
        dropout=attrs["dropout"],
    )


def _unpacked(stack: _Stack, params: tf.Tensor) -> list[_Params]:
    """The params of each layer direction, in their order."""
    rows, proj, count = stack.gates * stack.units, stack.proj, stack.layers * stack.directions
    skips = [stack.skip_input and number < stack.directions for number in range(count)]
    shapes = []
    for number in range(count):
        width = stack.inputs if number < stack.directions else stack.directions * proj
        shapes.append([rows, 0 if skips[number] else width])
        shapes.append([rows, proj])
        shapes.append([proj if stack.projected else 0, stack.units])
    sizes = [a * b for a, b in shapes] + [rows] * (2 * count)
    parts = iter(tf.split(params, sizes, num=len(sizes)))
    matrices = [tf.reshape(next(parts), shape) for shape in shapes]
    return [
        _Params(
            w_x=None if skips[number] else tf.transpose(matrices[3 * number]),
            w_h=tf.transpose(matrices[3 * number + 1]),
            w_p=matrices[3 * number + 2] if stack.projected else None,
            b_x=next(parts),
            b_h=next(parts),
        )
        for number in range(count)
    ]


def _masks(stack: _Stack, given: NamedTuple) -> list[tf.Tensor]:
    """The factors of dropout after each layer but the last, like `output`, from reserve_space.

    A bit for each element of the layer's output, the lowest bit of a byte first.
    """
    size = given.reserve_space.dtype.size
    reserve = tf.reshape(tf.bitcast(given.reserve_space, tf.uint8), [-1])
    shape = tf.shape(given.output, out_type=tf.int64)
    shape = tf.concat([shape[:2], [tf.cast(stack.directions * stack.proj, tf.int64)]], axis=0)
    rows = shape[0] * shape[1]
    if hasattr(given, "sequence_lengths"):
        rows = tf.reduce_sum(tf.cast(given.sequence_lengths, tf.int64))
    elements = tf.reduce_prod(shape)
    if given.output.shape.is_fully_defined():  # XLA has to know the sizes
        elements = tf.constant(given.output.shape.num_elements(), tf.int64)

    def aligned(count: tf.Tensor) -> tf.Tensor:
        return (count + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT

    of_states = _SAVED[stack.mode] * aligned(rows * tf.cast(stack.units, tf.int64) * size)
    count = (elements + 7) // 8
    begin = _HEADER_BYTES + stack.layers * stack.directions * of_states
    begin += (stack.layers - 1) * aligned(elements * size)
    wide = tf.float64 if given.input.dtype == tf.float64 else tf.float32
    one = tf.ones([], wide)
    scale = one / (one - stack.dropout) if stack.dropout < 1 else tf.zeros([], wide)
    ours = tf.reduce_all(tf.equal(reserve[: len(_MARK)], tf.constant(list(_MARK), tf.uint8)))
    known = tf.debugging.Assert(
        ours, ["reserve_space must be one of this package's CPU or CUDA kernels"]
    )
    with tf.control_dependencies([known]):
        reserve = tf.identity(reserve)
    found = []
    for layer in range(stack.layers - 1):
        packed = tf.slice(reserve, [begin + layer * aligned(count)], [count])
        bits = tf.bitwise.right_shift(
            packed[:, tf.newaxis], tf.constant([list(range(8))], tf.uint8)
        )
        kept = tf.reshape(tf.bitwise.bitwise_and(bits, tf.constant(1, tf.uint8)), [-1])
        kept = tf.reshape(tf.slice(kept, [0], [elements]), shape)
        found.append(tf.cast(kept, wide) * scale)
    return found


class _Result(NamedTuple):
    """Of one layer direction; cs is None but for the lstm."""

    outputs: tf.Tensor
    h: tf.Tensor
    cs: tf.Tensor | None


def _run(
    stack: _Stack,
    params: _Params,
    x: tf.Tensor,
    states: tuple[tf.Tensor, tf.Tensor | None],
    lengths: tf.Tensor,
    backwards: bool,
) -> _Result:
    """One direction of one layer."""
    given = {
        "x": tf.concat([x] * stack.gates, axis=2) if params.w_x is None else x,
        "h_prev": states[0],
        "w_x": params.w_x,
        "w_h": params.w_h,
        "sequence_lengths": lengths,
    }
    attrs = {"time_major": stack.time_major, "go_backwards": backwards}
    if stack.mode == "lstm":
        op = "BlockRNN>LSTMSequence"
        given |= {"cs_prev": states[1], "b": params.b_x + params.b_h, "w_p": params.w_p}
    elif stack.mode == "gru":
        op = "BlockRNN>GRUAfterSequence"
        given |= {"b_x": params.b_x, "b_h": params.b_h}
    else:
        op = "BlockRNN>RNNSequence"
        given |= {"b": params.b_x + params.b_h}
        attrs["activation"] = stack.mode.removeprefix("rnn_")
    made = signatures.call(op, signatures.inputs_for(op, **given), attrs)
    return _Result(made.h, made.h_last, made.cs_last if stack.mode == "lstm" else None)


def _forward(
    stack: _Stack,
    inputs: Sequence[tf.Tensor],
    lengths: tf.Tensor,
    masks: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """output, output_h and, of an lstm, output_c, from input, input_h, input_c and params."""
    x, input_h, input_c, params = inputs
    axis = 0 if stack.time_major else 1
    count = stack.layers * stack.directions
    h = tf.unstack(input_h, count, axis=axis)
    cs = tf.unstack(input_c, count, axis=axis) if stack.mode == "lstm" else [None] * count
    unpacked = _unpacked(stack, params)
    last: list[_Result] = []
    for layer in range(stack.layers):
        if layer > 0 and masks:
            x = x * masks[layer - 1]
        numbers = range(layer * stack.directions, (layer + 1) * stack.directions)
        made = [
            _run(stack, unpacked[n], x, (h[n], cs[n]), lengths, backwards=direction == 1)
            for direction, n in enumerate(numbers)
        ]
        x = tf.concat([result.outputs for result in made], axis=2)
        last += made
    outputs = [x, tf.stack([result.h for result in last], axis=axis)]
    if stack.mode == "lstm":
        outputs.append(tf.stack([result.cs for result in last], axis=axis))
    return outputs


def backprop(given: NamedTuple, attrs: Mapping[str, Any]) -> list[tf.Tensor]:
    """The outputs of a Backprop op: gradients of input, input_h, input_c and params.

    Args:
      given: the op's inputs. Those in SAVED are computed by the forward op from the others, so they
        have no separate gradients here.
      attrs: the op's.

    Raises:
      ValueError: the number of layers, or with auto_select a width, is not known in the graph.
    """
    stack = _stack_of(given, attrs)
    lengths = getattr(given, "sequence_lengths", tensors.none(tf.int32))
    drops = stack.dropout > 0 and stack.layers > 1
    masks = _masks(stack, given) if drops else []
    primals = [given.input, given.input_h, given.input_c, given.params]
    cotangents = [given.output_backprop, given.output_h_backprop, given.output_c_backprop]
    if stack.mode != "lstm":
        cotangents.pop()
    found = util.gradient_of(
        lambda *inputs: _forward(stack, inputs, lengths, masks),
        [util.wide(tensor) for tensor in primals],
        [util.wide(tensor) for tensor in cotangents],
    )
    return [
        tf.zeros_like(tensor) if gradient is None else tf.cast(gradient, tensor.dtype)
        for tensor, gradient in zip(primals, found, strict=True)
    ]
