"""The malformed calls of the whole-sequence ops; what is changed in a shape is as for the cells.

Deterministic, so that a child process and its parent mean the same call by the same number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from helpers import perturbation, sequence_ops

# (T, B, I, H): no two lengths agree; all do; I + H = 4H.
BASES = ((3, 2, 5, 4), (1, 1, 1, 1), (2, 4, 6, 2))
RANDOM_CALLS = 40


@dataclasses.dataclass(frozen=True)
class Call(perturbation.Call):
    """As for a cell, with the number that seq_len_max holds and the type of all other tensors."""

    valid: int = 1
    dtype: str = "float"


def wrong_lengths(steps: int) -> tuple[int, ...]:
    """Past both ends, and numbers that a cast to 32 bits would bring inside."""
    return (-1, steps + 1, 2**31, -(2**31), 2**32, 2**32 + steps, 2**63 - 1, -(2**63))


def calls(op: sequence_ops.Op) -> Iterator[Call]:
    """All malformed calls of `op`, and some legal ones between them."""
    for base in BASES:
        legal = op.shapes(base)
        for valid in range(base[0] + 1):
            yield Call((), legal, valid=valid)
        for valid in wrong_lengths(base[0]):
            yield Call(("seq_len_max",), legal, valid=valid)
        for name, shape in legal.items():
            for other in perturbation.other_shapes(shape):
                yield Call((name,), {**legal, name: other}, valid=_valid({**legal, name: other}))
        # All tensors of one and the same shape, with the length a scalar and with it not.
        for shape in ((), (1,), (0,), (1, 1), (0, 0), (2, 2), (1, 1, 1), (0, 0, 0), (2, 2, 2)):
            same = {name: shape for name in legal}
            yield Call(tuple(legal), same, valid=_valid(same))
            scalar = {**same, "seq_len_max": ()}
            yield Call(tuple(legal)[1:], scalar, valid=_valid(scalar))
        # Two or three at once: errors must not cancel each other.
        rng = np.random.default_rng(base)
        for _ in range(RANDOM_CALLS):
            names = tuple(rng.choice(list(legal), int(rng.integers(2, 4)), replace=False))
            shapes = dict(legal)
            for name in names:
                others = perturbation.other_shapes(legal[name])
                shapes[name] = others[int(rng.integers(len(others)))]
            yield Call(names, shapes, valid=_valid(shapes))
    legal = op.shapes(BASES[0])
    for name in legal:
        for wrong in perturbation.WRONG_TYPES:
            yield Call((name,), legal, types={name: wrong})
    yield Call(("seq_len_max",), legal, types={"seq_len_max": "float"})
    for attr in op.attr_cases[-1]:
        for value in perturbation.WRONG_ATTRS[attr]:
            yield Call((attr,), legal, attrs={attr: value})


def _valid(shapes) -> int:
    """1 wherever there is a step, so that a legal call computes something."""
    return int(len(shapes["x"]) > 0 and shapes["x"][0] > 0)


def attr_cases(op: sequence_ops.Op):
    if "use_peephole" not in op.attr_cases[-1]:
        return ({},)
    return ({"use_peephole": False}, {"use_peephole": True})


def _published(name: str, base, valid: int, dtype: str = "float", **changed) -> Call:
    """The call with legal shapes of `base`, but for those that are given."""
    shapes = {**sequence_ops.OPS[name].shapes(base), **changed}
    return Call(tuple(changed) or ("seq_len_max",), shapes, valid=valid, dtype=dtype)


def _of_rank_two(name: str) -> Call:
    """All of one element; what has steps has no dim for them."""
    inputs = sequence_ops.OPS[name].inputs
    shapes = {k: (1,) * min(len(v), 2) for k, v in inputs.items()}
    return Call(tuple(k for k, v in inputs.items() if v), {**shapes, "x": (1, 1, 1)})


# Public reports of crashes in TensorFlow's ops, reduced to shapes: name: (op, attrs, call).
REPRODUCERS = {
    "CVE-2022-35964": (
        "BlockLSTMGradV2",
        {"use_peephole": False},
        Call(
            tuple(k for k in sequence_ops.LSTM_GRAD_V2.inputs if k != "seq_len_max"),
            {k: (1, 1, 1) if v else () for k, v in sequence_ops.LSTM_GRAD_V2.inputs.items()},
        ),
    ),
    "tensorflow#58175": (
        "BlockLSTM",
        {"forget_bias": -121.22699269620765, "cell_clip": -106.82307555235684},
        _published("BlockLSTM", (1, 3, 15, 0), 1, seq_len_max=(13, 11, 0)),
    ),
    "tensorflow#72362": (
        "BlockLSTMV2",
        {"use_peephole": True},
        _published("BlockLSTMV2", (2, 1, 2, 2), 5, "half"),
    ),
    # Reported with no units at all, and steps of 2 among those of 10.
    "tensorflow#90915": (
        "BlockLSTMGrad",
        {"use_peephole": False},
        _published("BlockLSTMGrad", (10, 2, 16, 0), 10, "half", i=(2, 2, 0), h_grad=(2, 2, 0)),
    ),
    "tensorflow#104847": ("BlockLSTMGrad", {"use_peephole": False}, _of_rank_two("BlockLSTMGrad")),
    "tensorflow#106407": (
        "BlockLSTMGradV2",
        {"use_peephole": False},
        _published("BlockLSTMGradV2", (2, 2, 4, 5), 3),
    ),
    "tensorflow#112746": (
        "BlockLSTMGrad",
        {"use_peephole": True},
        _published("BlockLSTMGrad", (3, 2, 4, 5), 3, x=(3, 0, 4)),
    ),
    "tensorflow#124974": (
        "BlockLSTMGrad",
        {"use_peephole": False},
        _published("BlockLSTMGrad", (2, 2, 16, 0), 10, "half"),
    ),
    # The report's other end: the time loop does not run, and what follows it cuts from there.
    "tensorflow#124974, negative": (
        "BlockLSTMGrad",
        {"use_peephole": False},
        _published("BlockLSTMGrad", (2, 2, 16, 4), -1),
    ),
}
