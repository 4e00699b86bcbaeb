"""Networks and calls of the cuDNN RNN ops without TensorFlow: sizes, random inputs, the reference.

Written from the op contracts, not from the code under test. Arrays are in the layout of the
reference, time-major; `laid_out` turns them into that of the ops and back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from helpers import block_cells, tolerances
from helpers.reference import stack
from helpers.reference.stack import Network

MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
FORWARD = {1: "CudnnRNN", 2: "CudnnRNNV2", 3: "CudnnRNNV3"}
BACKPROP = {1: "CudnnRNNBackprop", 2: "CudnnRNNBackpropV2", 3: "CudnnRNNBackpropV3"}
OUTPUTS = ("output", "output_h", "output_c")

# (I, H) of the networks below, cycled through; skip_input needs I = H.
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
            "input_h": (net.layer_directions, self.batch, net.width),
            "input_c": (net.layer_directions, self.batch, net.units),
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

    def run(self, arrays, masks=None) -> stack.Run:
        """The reference's forward."""
        kind = arrays["input"].dtype

        def stored(values):
            return values.astype(kind).astype(np.float64) if kind.itemsize < 4 else values

        return stack.Run(
            self.net, *arrays.values(), lengths=self.lengths, masks=masks, stored=stored
        )

    def longest_sum(self) -> int:
        """Terms that feed into one another, for the bounds."""
        net = self.net
        per_step = net.inputs + 2 * net.width + net.units * (1 + bool(net.num_proj))
        return max(1, self.steps) * net.layers * max(per_step, net.gates * net.units)


def numpy_type(dtype) -> type:
    return block_cells.numpy_type(tolerances.type_name(dtype)).type


def lengths_of(kind: str, steps: int, batch: int) -> tuple[int, ...] | None:
    """Lengths of a batch: "all" its steps, a "mixed" lot with 0 and T in it, none at all."""
    if kind == "mixed":
        order = np.random.default_rng(steps + 7 * batch).permutation(batch)
        return tuple(int(k) for k in (order * 3) % (steps + 1))
    return {"unsaid": None, "all": (steps,) * batch, "none": (0,) * batch}[kind]


LENGTHS = ("unsaid", "all", "mixed", "none")


def odd_calls(mode: str, call: type = Call) -> tuple[Call, ...]:
    """Sizes of one less and more than vectors have; few rows and many, few units and many."""
    projected = 5 if mode == "lstm" else 0
    return (
        call(Network(mode, 1, 1, 17, 15), 7, 9),
        call(Network(mode, 2, 2, 9, 33), 5, 1, (5,)),
        call(Network(mode, 2, 2, 31, 16, projected), 6, 17, tuple(k % 7 for k in range(17))),
        call(Network(mode, 3, 1, 8, 8, skip=True), 9, 5, (9, 0, 3, 9, 1), time_major=False),
        call(Network(mode, 1, 2, 3, 65, 4 * projected), 4, 66, time_major=False),
    )
