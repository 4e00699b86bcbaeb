"""The malformed calls: every argument of an op, changed in every way that a caller gets wrong.

Deterministic, so that a child process and its parent mean the same call by the same number.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping

import numpy as np

from helpers import block_cells

# (B, I, H). In the first no two lengths agree; in the second all do; in the third I + H = 4H.
BASES = ((2, 3, 4), (1, 1, 1), (4, 6, 2))
# Each mode refuses at another place: the op's kernel called directly; the shape function; the
# kernel again, behind a graph that knows nothing; the lowering, as XLA compiles such a graph.
MODES = ("eager", "static", "unknown", "jit")
EAGER, GRAPHS = MODES[:1], MODES[1:]
# The variable that limits a child to some of them.
ONLY_MODES = "BLOCKRNN_TEST_MALFORMED_MODES"
# XLA compiles a program for every call: it gets one call of so many.
COMPILED = 8
RANDOM_CALLS = 120

WRONG_TYPES = ("double", "int32", "bool", "string", "complex64", "half")
# None is not wrong: a wrapper of TensorFlow takes it for the default.
WRONG_ATTRS = {
    "forget_bias": ("x", [1.0, 2.0], {}),
    "cell_clip": ("x", [1.0, 2.0], {}),
    "use_peephole": ("yes", [True, False], 1.5),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: what was changed, the shape of every argument, and wrong types if any."""

    changed: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    attrs: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def is_framework_error(self) -> bool:
        """Whether TensorFlow refuses it before any code of ours sees it."""
        return bool(self.types) or bool(self.attrs)


def other_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes that a caller may give instead, each once."""
    found: dict[tuple[int, ...], None] = {}
    rank = len(shape)
    # Rank 0, one less, one more, many more.
    candidates = [(), shape[1:], shape[:-1], (1, *shape), (*shape, 1), (*shape, 2), (0, *shape)]
    candidates += [(1,) * 9, (*shape, *shape, *shape)]
    candidates += [shape[::-1], (0,) * rank, (1,) * rank]
    for axis in range(rank):
        for dim in (shape[axis] + 1, shape[axis] - 1, 0, 1, 2 * shape[axis], 1000):
            if dim >= 0:
                candidates.append((*shape[:axis], dim, *shape[axis + 1 :]))
    for candidate in candidates:
        if candidate != shape:
            found[candidate] = None
    return list(found)


def calls(op: block_cells.Op) -> Iterator[Call]:
    """All malformed calls of `op`, and some legal ones between them."""
    for base in BASES:
        legal = op.shapes(base)
        yield Call((), legal)
        for name, shape in legal.items():
            for other in other_shapes(shape):
                yield Call((name,), {**legal, name: other})
        # All arguments of one and the same shape.
        for shape in ((), (1,), (0,), (1, 1), (0, 0), (2, 2), (1, 1, 1)):
            yield Call(tuple(legal), {name: shape for name in legal})
        # Two or three at once: errors must not cancel each other.
        rng = np.random.default_rng(base)
        for _ in range(RANDOM_CALLS):
            count = int(rng.integers(2, 4))
            names = tuple(rng.choice(list(legal), count, replace=False))
            shapes = dict(legal)
            for name in names:
                others = other_shapes(legal[name])
                shapes[name] = others[int(rng.integers(len(others)))]
            yield Call(names, shapes)
    legal = op.shapes(BASES[0])
    for name in legal:
        for wrong in WRONG_TYPES:
            yield Call((name,), legal, types={name: wrong})
    for wrong in ("int32", "int64", "complex64", "bool", "string"):
        yield Call(tuple(legal), legal, types={name: wrong for name in legal})
    for attr in op.attr_cases[-1]:
        for value in WRONG_ATTRS[attr]:
            yield Call((attr,), legal, attrs={attr: value})


def modes(number: int, call: Call, legal: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """The modes of a call: all where x is as in `legal`, or where nothing or everything is changed.

    Elsewhere the two kinds of graphs, in which the same contract refuses, alternate.
    """
    if call.shapes["x"] == legal["x"] or not 0 < len(call.changed) <= 3:
        found = MODES[:3]
    else:
        found = ("eager", ("static", "unknown")[number % 2])
    if number % COMPILED == 0 or not call.changed:
        found = (*found, "jit")
    only = os.environ.get(ONLY_MODES, ",".join(MODES)).split(",")
    return tuple(mode for mode in found if mode in only)


def related(op: block_cells.Op, changed: tuple[str, ...]) -> set[str]:
    """Arguments that an error may rightly name: the changed ones and those they disagree with."""
    symbols = {s for name in changed for e in op.inputs[name] for s in e if s.isalpha()}
    symbols |= {"H"} if "P" in symbols else set()
    return set(changed) | {
        name
        for name, expressions in op.inputs.items()
        if symbols & {s for e in expressions for s in e.replace("P", "H")}
    }
