"""Rows of a measurement on a GPU."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench import timing
from bench.gpu.cases import Case

Row = dict[str, Any]


def _fields(case: Case) -> Row:
    """The fields of a row; the shape is B, T, H."""
    fields = dataclasses.asdict(case)
    return fields | {"shape": [fields.pop(name) for name in ("batch", "steps", "units")]}


def measured(
    case: Case,
    samples: dict[str, list[list[float]]],
    *,
    cudnn_ran: bool,
    persistent_kernels: int,
    disagreement: float,
    most: float,
) -> list[Row]:
    """The rows of a case: ours and cuDNN.

    cudnn_ran: else "cudnn" of the samples is PyTorch's own kernels, which it takes for bfloat16
    where its cuDNN is older than 9.13. persistent_kernels: of one of our calls. disagreement:
    with the other; above `most` ours has times that do not count.
    """
    names = {"ours": "ours", "cudnn": "cudnn" if cudnn_ran else "pytorch"}
    ours, theirs = (
        {**_fields(case), "contender": names[name], **timing.summary(samples[name])}
        for name in names
    )
    ours |= {"persistent_kernels": persistent_kernels, "disagreement": disagreement}
    if not disagreement <= most:
        ours["missing"] = f"the two disagree by {disagreement:.2g}"
    return [ours, theirs]


def failed(case: Case, why: str) -> list[Row]:
    """The row of a case without a number."""
    return [{**_fields(case), "contender": "ours", "missing": why}]
