"""What each bench measures, as data, and the amount of work in each case."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

# (B, I, H): batch, input size, units. Small batches, bound by reading the weights; odd sizes, which
# are no multiples of a vector or panel; large ones, bound by the GEMM.
CELL_SHAPES: tuple[tuple[int, int, int], ...] = (
    (1, 64, 64),
    (1, 512, 512),
    (1, 1024, 1024),
    (3, 77, 129),
    (8, 128, 128),
    (16, 32, 32),
    (16, 256, 512),
    (32, 128, 128),
    (64, 256, 256),
    (64, 650, 650),
    (128, 512, 512),
    (256, 1024, 1024),
)

# (B, T, I, H): batch, steps, input size, units.
GRID: tuple[tuple[int, int, int, int], ...] = (
    (1, 100, 64, 64),
    (1, 100, 256, 256),
    (1, 50, 1024, 1024),
    (16, 100, 32, 32),
    (32, 50, 128, 128),
    (64, 100, 256, 256),
    (64, 35, 650, 650),
    (16, 100, 512, 512),
    (128, 30, 1024, 1024),
)

# Shapes chosen because they are likely to be slow in our ops, each with the reason.
HARD: tuple[tuple[int, int, int, int], ...] = (
    (1, 1000, 16, 16),  # 1,000 steps of almost no work: the overhead per step dominates
    (3, 77, 129, 257),  # no dim is a multiple of a tile, panel or vector
    (256, 20, 64, 512),  # few steps, small input: packing the weights pays off slowly
    (2, 200, 512, 512),  # too small a batch to split, weights too large for one core's cache
    (1, 1, 512, 512),  # one step: the overhead of a sequence call for one cell
    (512, 10, 16, 16),  # wide and tiny: memory traffic and gates, hardly any GEMM
    (8, 50, 1024, 128),  # the input GEMM dominates
    # Medium LSTMs, where other libraries' GEMMs are near the peak, and gates and stores show.
    (24, 40, 200, 200),
    (8, 120, 64, 96),
    (48, 60, 320, 384),
)

# To test the bench itself.
QUICK: tuple[tuple[int, int, int, int], ...] = ((1, 5, 8, 8), (3, 4, 7, 9))

# Shapes where the call may cost as much as the work.
CALL_SHAPES: tuple[tuple[int, int, int, int], ...] = (
    (1, 1, 512, 512),
    (1, 100, 64, 64),
    (1, 1000, 16, 16),
    (16, 100, 32, 32),
    (512, 10, 16, 16),
    (1, 100, 256, 256),
    (3, 77, 129, 257),
    (32, 50, 128, 128),
)

# Shapes of inference with weights that no longer change: single steps, short sequences of one row,
# and all shapes of `sequences`.
INFERENCE: tuple[tuple[int, int, int, int], ...] = tuple(
    dict.fromkeys([
        *((1, steps, n, n) for steps in (1, 50) for n in (32, 64, 128, 256, 512, 1024)),
        *GRID,
        *HARD,
        (4, 30, 256, 256),
    ])
)  # fmt: skip
# Of a frozen Keras model and the same one not frozen, where reading the weights dominates.
FROZEN_MODELS = tuple((1, steps, n, n) for n in (512, 1024) for steps in (1, 50))

# Shapes of calls with and without XLA: short ones, where the call costs as much as the work, and
# one with more work.
JIT_CALL_SHAPES: tuple[tuple[int, int, int, int], ...] = (
    (1, 1, 128, 128),
    (1, 10, 64, 64),
    (1, 100, 64, 64),
    (32, 50, 64, 128),
)
JIT_TRAIN_SHAPES: tuple[tuple[int, int, int, int], ...] = ((1, 100, 64, 64), (32, 50, 64, 128))
# Of a Keras model, where the third number is the size of the embedding.
JIT_MODEL_SHAPES: tuple[tuple[int, int, int, int], ...] = (
    (1, 100, 64, 64),
    (16, 100, 32, 32),
    (32, 50, 64, 128),
    (64, 35, 128, 256),
)

# Shapes for peak memory of training, where the residuals, or the weights, dominate.
MEMORY_SHAPES: tuple[tuple[int, int, int, int], ...] = (
    (64, 100, 256, 256),
    (64, 35, 650, 650),
    (128, 30, 1024, 1024),
    (1, 50, 1024, 1024),
    (256, 100, 64, 512),
)

# A long sequence, whose gates take most of the memory of training.
LONG = (4, 8000, 64, 128)

# Shapes of bfloat16, bound by the GEMM or by reading the weights.
BFLOAT16: tuple[tuple[int, int, int, int], ...] = (
    (1, 50, 1024, 1024),
    (16, 100, 512, 512),
    (64, 35, 650, 650),
    (64, 100, 256, 256),
    (128, 30, 1024, 1024),
)

# Shapes of Keras' cells in keras.layers.RNN, and three of them for layer normalisation.
LOOPS: tuple[tuple[int, int, int, int], ...] = (
    (1, 100, 64, 64),
    (32, 50, 192, 192),
    (64, 25, 100, 320),
    (1, 50, 256, 256),
    (1, 50, 512, 512),
    (4, 100, 128, 128),
    (8, 50, 200, 200),
    (16, 100, 64, 64),
    (32, 25, 512, 512),
    (128, 20, 64, 128),
    (128, 10, 512, 512),
)
_NORM_LOOPS = LOOPS[:3]
# Of the same cells driven by hand, for so many steps: enough that the call of the function is a
# small part, and few enough to be traced soon.
_STEPS = 16
SINGLE_STEPS: tuple[tuple[int, int, int, int], ...] = tuple(
    (batch, _STEPS, units, units)
    for batch, units in (
        (1, 64), (1, 128), (1, 256), (1, 512), (8, 128), (8, 256), (32, 64), (32, 256), (32, 512),
        (128, 64), (128, 256), (128, 512),
    )
)  # fmt: skip

# Of first calls, whose time is tracing and compiling, whatever the shape.
FIRST_CALLS: tuple[tuple[int, int, int, int], ...] = ((32, 50, 128, 128),)

GATES = {"lstm": 4, "gru": 3, "rnn": 1, "gru_before": 3, "ln_lstm": 4, "ln_gru": 3}
# Classes of Keras and ours.
LAYERS = {
    "lstm": "LSTM", "gru": "GRU", "rnn": "SimpleRNN", "gru_before": "GRU",
    "ln_lstm": "LayerNormLSTM", "ln_gru": "LayerNormGRU",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """One thing to measure: a whole sequence of a layer or of a stack of layers."""

    # "lstm", "gru", "rnn" (tanh); as Keras' cells also "gru_before", with the reset gate before the
    # GEMM, and "ln_lstm" and "ln_gru", with layer normalisation.
    cell: str
    # "infer": forward; "train": forward, and backward to the input and all weights; "serve": a
    # whole Python call of the forward, NumPy in and NumPy out, with weights that do not change.
    kind: str
    batch: int
    steps: int
    inputs: int
    units: int
    layers: int = 1
    directions: int = 1
    # "half": all rows T / 2; "spread": evenly from 1 to T; "random": the same in random order;
    # "full": all T.
    lengths: str = "full"
    dtype: str = "float32"  # the type in memory
    as_layer: bool = False  # called as a layer of a model, where `lengths` is a mask
    # Of Keras' cells: "RNN", in that layer, or "hand", called step by step; else "".
    cells_in: str = ""
    recurrent_dropout: float = 0.0  # the rate, for layers only
    recompute: bool | int = False  # in training, the argument of our functions
    group: str = "grid"  # the part of the bench that it belongs to

    def __str__(self) -> str:
        words = (self.group, self.cell, self.kind, str(self.shape), self.variant, self.dtype)
        more = () if self.lengths == "full" else (self.lengths,)
        return " ".join(filter(None, (*words, *more)))

    def fields(self) -> dict[str, Any]:
        """The fields of a row of a result."""
        return {
            "set": self.group, "cell": self.cell, "kind": self.kind, "shape": list(self.shape),
            "lengths": self.lengths, "dtype": self.dtype, "flops": self.flops(),
        } | ({"variant": self.variant} if self.as_layer else {})  # fmt: skip

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, T, I, H)."""
        return (self.batch, self.steps, self.inputs, self.units)

    @property
    def is_stack(self) -> bool:
        """Whether it is more than a single layer direction with rows of one length."""
        return (self.layers, self.directions, self.lengths) != (1, 1, "full")

    @property
    def variant(self) -> str:
        """The variant of a layer, or "" for an op."""
        if not self.as_layer:
            return ""
        if self.recurrent_dropout:
            return "recurrent_dropout"
        return "plain" if self.lengths == "full" else "masked"

    def row_lengths(self) -> list[int]:
        """The steps of each row."""
        if self.lengths == "full":
            return [self.steps] * self.batch
        if self.lengths == "half":
            return [max(1, self.steps // 2)] * self.batch
        spread = [max(1, round(self.steps * (b + 0.5) / self.batch)) for b in range(self.batch)]
        if self.lengths == "random":
            return np.random.default_rng(11).permutation(spread).tolist()
        return spread

    def valid(self) -> np.ndarray:
        """[T, B], true where a step is within the row's length."""
        return np.arange(self.steps)[:, None] < np.array(self.row_lengths())

    def input_sizes(self) -> list[int]:
        """The input size of each layer."""
        return [self.inputs] + [self.directions * self.units] * (self.layers - 1)

    def flops(self) -> int:
        """Floating point operations of the GEMMs alone.

        Forward: [x, h]·w at each step. The backward pass has two GEMMs of that size: one for the
        gradients of the input and state, one for those of the weights.
        """
        depth = sum(inputs + self.units for inputs in self.input_sizes())
        gates = GATES[self.cell] * self.units * self.directions
        forward = 2 * sum(self.row_lengths()) * gates * depth
        return forward * (3 if self.kind == "train" else 1)


@dataclasses.dataclass(frozen=True)
class Block:
    """Cases of a bench: each cell, kind, shape and variant, which is fields of a Case."""

    group: str
    shapes: Sequence[tuple[int, ...]]
    cells: tuple[str, ...] = ("lstm", "gru")
    kinds: tuple[str, ...] = ("infer", "train")
    variants: tuple[dict[str, Any], ...] = ({},)
    more_shapes: bool = False  # differs from another block only in its shapes

    def cases(self, shapes: Sequence[tuple[int, ...]] = ()) -> Iterator[Case]:
        """All cases; of `shapes` instead of the block's own, if there are any."""
        if shapes and self.more_shapes:
            return
        for cell, kind, variant, shape in itertools.product(
            self.cells, self.kinds, self.variants, shapes or self.shapes
        ):
            yield Case(cell, kind, *shape, **variant, group=self.group)


_ALL = ("lstm", "gru", "rnn")
_CELLS, _NORM_CELLS = ("lstm", "gru", "gru_before", "rnn"), ("ln_lstm", "ln_gru")
_INFER, _TRAIN, _SERVE = ("infer",), ("train",), ("serve",)
BENCHES: dict[str, tuple[Block, ...]] = {
    "sequences": (
        Block("grid", GRID),
        Block("hard", HARD, more_shapes=True),
    ),
    "stacks": (
        Block("grid", GRID, _ALL, variants=tuple(
            {"layers": 2, "directions": 2, "lengths": lengths}
            for lengths in ("full", "spread", "half")
        )),
    ),
    "bfloat16": (Block("grid", BFLOAT16, variants=({"dtype": "bfloat16"}, {})),),
    "layers": (
        Block("grid", GRID, variants=({"as_layer": True},)),
        Block("grid", GRID, variants=({"as_layer": True, "lengths": "random"},)),
        Block("grid", GRID, kinds=_TRAIN, variants=(
            {"as_layer": True, "recurrent_dropout": 0.3},
        )),
    ),
    "inference": (
        Block("sessions", INFERENCE, kinds=_SERVE),
        Block("models", FROZEN_MODELS, kinds=_SERVE, variants=({"as_layer": True},)),
    ),
    "loops": tuple(
        Block("loops", some, cells, variants=({"cells_in": "RNN"},))
        for cells, some in ((_CELLS, LOOPS), (_NORM_CELLS, _NORM_LOOPS))
    ),
    "single_steps": (
        # Cells with layer normalisation have no op for a step alone.
        Block("steps", SINGLE_STEPS, _CELLS, variants=({"cells_in": "hand"},)),
    ),
    "calls": (Block("calls", CALL_SHAPES, kinds=_INFER),),
    "first_calls": (Block("first", FIRST_CALLS),),
    "jit": (
        Block("calls", JIT_CALL_SHAPES, kinds=_INFER),
        Block("calls", JIT_TRAIN_SHAPES, kinds=_TRAIN),
        Block("fit", JIT_MODEL_SHAPES, kinds=_TRAIN),
    ),
    "memory": (Block("memory", MEMORY_SHAPES, ("lstm",), _TRAIN),),
    "recompute": (Block("recompute", (LONG,), kinds=_TRAIN),),
    "derivatives": (Block("derivatives", ((16, 50, 32, 64),), _ALL, _TRAIN),),
    "layer_norm": (Block("layer_norm", ((32, 50, 64, 128),), kinds=_TRAIN),),
}  # fmt: skip


def cases(
    bench: str, only: Collection[str] = (), shapes: Sequence[tuple[int, ...]] = ()
) -> list[Case]:
    """The cases of a bench, of its own shapes or of `shapes`.

    only: words; where some are cells, only these cells, and likewise for kinds, groups and
    variants. ValueError for a word that is none of these.
    """
    every = [case for block in BENCHES[bench] for case in block.cases(shapes)]
    words = set(only)
    for sort in ("cell", "kind", "group", "variant"):
        values = {getattr(case, sort) for case in every}
        if wanted := values & words:
            every = [case for case in every if getattr(case, sort) in wanted]
        words -= values
    if words:
        raise ValueError(f"{bench} has no {', '.join(sorted(words))}")
    return every


def parse(text: str, rank: int) -> tuple[int, ...]:
    """Reads "64x100x256x256" (or with commas) as a shape of `rank` dims."""
    parts = text.replace(",", "x").split("x")
    if len(parts) != rank or not all(p.strip().isdigit() for p in parts):
        raise ValueError(f"a shape here is {rank} numbers joined by 'x', not {text!r}")
    return tuple(int(p) for p in parts)
