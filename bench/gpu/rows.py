"""Rows of a measurement on a GPU, and what a later run adds to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from bench import timing
from bench.gpu.cases import Case

Row = dict[str, Any]


def _fields(case: Case) -> Row:
    """The fields of a row; the shape is B, T, H."""
    fields = dataclasses.asdict(case)
    return fields | {"shape": [fields.pop(name) for name in ("batch", "steps", "units")]}


def _case(row: Row) -> Case:
    batch, steps, units = row["shape"]
    names = ("cell", "kind", "dtype", "layers", "directions")
    return Case(**{name: row[name] for name in names}, batch=batch, steps=steps, units=units)


def measured(
    case: Case,
    samples: dict[str, list[list[float]]],
    persistent_kernels: int,
    *,
    cudnn_ran: bool,
) -> list[Row]:
    """The rows of a case: ours and cuDNN.

    persistent_kernels: of one of our calls. cudnn_ran: else "cudnn" of the samples is PyTorch's own
    kernels, which it takes for bfloat16 where its cuDNN is older than 9.13.
    """
    names = {"ours": "ours", "cudnn": "cudnn" if cudnn_ran else "pytorch"}
    rows = [
        {**_fields(case), "contender": names[name], **timing.summary(rounds)}
        for name, rounds in samples.items()
    ]
    rows[0]["persistent_kernels"] = persistent_kernels
    return rows


def failed(case: Case, why: str) -> list[Row]:
    """The row of a case without a number."""
    return [{**_fields(case), "contender": "ours", "missing": why}]


def to_keep(before: dict[str, Any], now: dict[str, Any]) -> list[Row]:
    """The rows of a result to which another one adds: none where our engine is not the same or not
    known; `ValueError` where the two are not of the same GPU, libraries and plan."""
    for name in ("gpu", "libraries", "persistent", "plan"):
        if before[name] != now[name]:
            raise ValueError(f"{name} was {before[name]}, now {now[name]}: measure all again")
    same = now["engine"] is not None and before.get("engine") == now["engine"]
    return before["rows"] if same else []


def without_number(wanted: Sequence[Case], rows: Sequence[Row]) -> list[Case]:
    """The cases that are not measured; last those that have failed, which may again end it all."""
    have = {_case(row) for row in rows if "missing" not in row}
    tried = {_case(row) for row in rows}
    return sorted((case for case in wanted if case not in have), key=lambda case: case in tried)


def without(rows: Sequence[Row], case: Case) -> list[Row]:
    """The rows of the other cases."""
    return [row for row in rows if _case(row) != case]
