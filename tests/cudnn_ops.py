"""What the tests know of the cuDNN RNN ops: networks, calls, legal shapes, random inputs.

Written from the op contracts, not from the code under test. Arrays here are in the layout of the
reference, time-major; a `Call` turns them into the arguments of an op and its outputs back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import compare
import cudnn_reference
import numpy as np
import tensorflow as tf
import tolerances
from cudnn_reference import Network

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
DTYPES = ("half", "bfloat16", "float", "double")
FORWARD = {1: "CudnnRNN", 2: "CudnnRNNV2", 3: "CudnnRNNV3"}
BACKPROP = {1: "CudnnRNNBackprop", 2: "CudnnRNNBackpropV2", 3: "CudnnRNNBackpropV3"}
OUTPUTS = ("output", "output_h", "output_c")
GRADIENTS = ("input_backprop", "input_h_backprop", "input_c_backprop", "params_backprop")

# (network, (steps, batch), sum of all outputs for inputs, states and params of ones).
GOLDEN = {
    "lstm": (Network("lstm", 4, 1, 200, 200), (10, 20), 231833.22),
    "gru": (Network("gru", 4, 1, 200, 200), (10, 20), 56000.0),
    "rnn_tanh": (Network("rnn_tanh", 4, 1, 200, 200), (10, 20), 56000.0),
    "rnn_relu": (Network("rnn_relu", 2, 1, 4, 8), (2, 4), 130688.0),
}

# (I, H) of the networks below, in turn; skip_input needs I = H.
_SIZES = ((3, 4), (5, 2), (1, 3), (4, 5), (2, 1))


def networks(mode: str) -> Iterator[Network]:
    """Every mixture of directions, layers, skipped input and projection, of small odd sizes."""
    number = 0
    for layers in (1, 2, 3):
        for directions in (1, 2):
            for skip in (False, True):
                for projected in (0, 1, 2) if mode == "lstm" else (0,):
                    inputs, units = _SIZES[number % len(_SIZES)]
                    # Projected to fewer, and to as many.
                    num_proj = (0, max(1, units // 2), units)[projected]
                    inputs = units if skip else inputs
                    yield Network(mode, layers, directions, inputs, units, num_proj, skip)
                    number += 1


@dataclasses.dataclass(frozen=True)
class Call:
    """A forward call and its backward, but for the numbers in them."""

    net: Network
    steps: int = 4
    batch: int = 3
    lengths: tuple[int, ...] | None = None  # None: all of them are `steps`
    time_major: bool = True
    version: int = 3
    dropout: float = 0.0
    seeds: tuple[int, int] = (0, 0)
    auto_select: bool = False

    def attrs(self) -> dict[str, object]:
        """Attrs of both ops."""
        net = self.net
        attrs = {
            "rnn_mode": net.mode,
            "input_mode": "skip_input" if net.skip else "linear_input",
            "direction": "bidirectional" if net.directions == 2 else "unidirectional",
            "dropout": self.dropout,
            "seed": self.seeds[0],
            "seed2": self.seeds[1],
        }
        if self.auto_select:
            assert net.skip == (net.inputs == net.units)
            attrs["input_mode"] = "auto_select"
        if self.version == 3:
            attrs |= {"num_proj": net.num_proj, "time_major": self.time_major}
        return attrs

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of a forward call's arguments in the layout of the reference."""
        net = self.net
        return {
            "input": (self.steps, self.batch, net.inputs),
            "input_h": (net.pseudo_layers, self.batch, net.width),
            "input_c": (net.pseudo_layers, self.batch, net.units),
            "params": (net.params_size(),),
        }

    def random(self, dtype, seed: int = 0) -> dict[str, np.ndarray]:
        """Arguments in a range where no activation saturates, however many units there are."""
        rng = np.random.default_rng(seed)
        scale = {"params": 0.9 * min(1.0, 2.0 / np.sqrt(max(self.net.units, 1)))}
        return {
            name: rng.uniform(-1, 1, shape).astype(numpy_type(dtype))
            * numpy_type(dtype)(scale.get(name, 0.9))
            for name, shape in self.shapes().items()
        }

    def cotangents(self, dtype, seed: int = 1) -> list[np.ndarray]:
        """Incoming gradients of output, output_h and output_c."""
        rng, net = np.random.default_rng(seed), self.net
        shapes = [(self.steps, self.batch, net.directions * net.width)]
        shapes += list(self.shapes().values())[1:3]
        if net.mode != "lstm":
            shapes[2] = ()
        return [rng.normal(size=shape).astype(numpy_type(dtype)) for shape in shapes]

    def laid_out(self, array):
        """From the layout of the reference to that of the op, or back."""
        return array if self.time_major or np.ndim(array) < 3 else np.swapaxes(array, 0, 1)

    def tensors(self, arrays: dict[str, np.ndarray]) -> dict[str, tf.Tensor]:
        """The forward op's arguments."""
        tensors = {k: tf.constant(self.laid_out(v)) for k, v in arrays.items()}
        if self.version == 3:
            lengths = (self.steps,) * self.batch if self.lengths is None else self.lengths
            tensors["sequence_lengths"] = tf.constant(lengths, tf.int32, shape=(self.batch,))
        return tensors

    def forward(self, raw_ops, tensors, is_training: bool = True):
        return getattr(raw_ops, FORWARD[self.version])(
            **tensors, **self.attrs(), is_training=is_training
        )

    def backward(self, raw_ops, tensors, outputs, cotangents, **attrs):
        """The Backprop op on what `forward` gave; cotangents in the layout of the reference."""
        backprops = {
            f"{name}_backprop": tf.constant(self.laid_out(value))
            for name, value in zip(OUTPUTS, cotangents, strict=True)
        }
        return getattr(raw_ops, BACKPROP[self.version])(
            **tensors, **outputs._asdict(), **backprops, **{**self.attrs(), **attrs}
        )

    def run(self, arrays, masks=None) -> cudnn_reference.Run:
        """The reference's forward."""
        kind = arrays["input"].dtype
        storage = kind if kind.itemsize < 4 else np.float64
        return cudnn_reference.Run(
            self.net, *arrays.values(), lengths=self.lengths, masks=masks, storage=storage
        )

    def longest_sum(self) -> int:
        """Terms that feed into one another, for the bounds."""
        net = self.net
        per_step = net.inputs + 2 * net.width + net.units * (1 + bool(net.num_proj))
        return max(1, self.steps) * net.layers * max(per_step, net.gates * net.units)


def numpy_type(dtype) -> type:
    return tf.as_dtype(dtype).as_numpy_dtype


def lengths_of(kind: str, steps: int, batch: int) -> tuple[int, ...] | None:
    """Lengths of a batch: "all" its steps, a "mixed" lot with 0 and T in it, none at all."""
    if kind == "mixed":
        order = np.random.default_rng(steps + 7 * batch).permutation(batch)
        return tuple(int(k) for k in (order * 3) % (steps + 1))
    return {"unsaid": None, "all": (steps,) * batch, "none": (0,) * batch}[kind]


LENGTHS = ("unsaid", "all", "mixed", "none")


def check_outputs(call: Call, outputs, run: cudnn_reference.Run, dtype, what: str) -> None:
    """Values, shapes and types of a forward call, and zeros past the lengths."""
    bound = tolerances.stack_bound(dtype, call.longest_sum(), call.net.layers)
    for name, want in run.outputs().items():
        got = getattr(outputs, name)
        assert got.dtype == tf.as_dtype(dtype), (name, what)
        compare.assert_close(call.laid_out(got.numpy()), want, bound, f"{name} of {what}")
    past = call.laid_out(outputs.output.numpy())[~run.alive]
    assert not np.any(past != 0), f"not zero past the lengths: {what}"
    assert outputs.reserve_space.dtype == tf.as_dtype(dtype), what
    assert outputs.reserve_space.shape.rank == 1, what
    if call.version > 1:
        assert outputs.host_reserved.dtype == tf.int8, what
        assert outputs.host_reserved.shape == [0], what


def check_gradients(call: Call, got, run, cotangents, dtype, what: str, bound=None) -> None:
    """Values, shapes and types of a Backprop, and zeros past the lengths."""
    if bound is None:
        bound = tolerances.stack_bound(dtype, call.longest_sum(), call.net.layers, backward=True)
    for name, want in run.backward(*cotangents).items():
        value = getattr(got, name)
        assert value.dtype == tf.as_dtype(dtype), (name, what)
        compare.assert_close(call.laid_out(value.numpy()), want, bound, f"{name} of {what}")
    past = call.laid_out(got.input_backprop.numpy())[~run.alive]
    assert not np.any(past != 0), f"a gradient past the lengths: {what}"


def check(raw_ops, call: Call, dtype: str = "double", seed: int = 0) -> tuple:
    """Outputs and gradients of one call against the reference; gives what is needed for more."""
    arrays = call.random(dtype, seed)
    tensors = call.tensors(arrays)
    run = call.run(arrays)
    cotangents = call.cotangents(dtype, seed + 1)
    what = f"{call} {dtype}"
    outputs = call.forward(raw_ops, tensors)
    check_outputs(call, outputs, run, dtype, what)
    assert outputs.reserve_space.shape[0] > 0, what
    gradients = call.backward(raw_ops, tensors, outputs, cotangents)
    check_gradients(call, gradients, run, cotangents, dtype, what)
    return tensors, outputs, gradients, cotangents


def odd_calls(mode: str) -> tuple[Call, ...]:
    """Sizes of one less and more than vectors have; few rows and many, few units and many."""
    projected = 5 if mode == "lstm" else 0
    return (
        Call(Network(mode, 1, 1, 17, 15), 7, 9),
        Call(Network(mode, 2, 2, 9, 33), 5, 1, (5,)),
        Call(Network(mode, 2, 2, 31, 16, projected), 6, 17, tuple(k % 7 for k in range(17))),
        Call(Network(mode, 3, 1, 8, 8, skip=True), 9, 5, (9, 0, 3, 9, 1), time_major=False),
        Call(Network(mode, 1, 2, 3, 65, 4 * projected), 4, 66, time_major=False),
    )


def bits(values) -> list[bytes]:
    """The very bits of tensors or arrays; np.asarray fails for a scalar of bfloat16."""
    return [compare.bits(v.numpy() if tf.is_tensor(v) else v) for v in values]
