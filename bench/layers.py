"""Layers of a model: ours against Keras', with and without XLA, and PyTorch's.

The cases and the processes are those of sequences.py; this module adds masks, recurrent dropout,
the ratio to Keras, and the cost of a call of our layer beyond the op that it runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Sequence
from typing import Any, TextIO

from bench import sequences, timing
from bench.process import PeerAbsent, PeerError
from bench.shapes import Case

OURS = "ours_layer"
KERAS = ("keras", "keras_xla")
# Targets for the mean over the shapes in training, relative to the faster of Keras' two paths.
TARGETS = {"masked": 3.0, "recurrent_dropout": 3.0}
# Microseconds that a call of a layer in a tf.function may take in addition to the op.
CALL_TARGET_US = 60.0
# A step of almost no work, so that the cost of the call dominates.
_CALL_SHAPE = (1, 1, 16, 16)
_CALL_PLAN = timing.Plan(rounds=20, seconds=1.0)


def measure_calls(threads: int, plan: timing.Plan, log: TextIO) -> dict[str, dict[str, Any]]:
    """The cost of a call beyond the op, by cell: microseconds, or the reason why there are none."""
    pool, out = sequences.Pool(threads, log), {}
    try:
        for cell in ("lstm", "gru"):
            case = Case(cell, "infer", *_CALL_SHAPE, as_layer=True)
            request = {"case": dataclasses.asdict(case), "plan": dataclasses.asdict(plan)}
            try:
                out[cell] = pool.get(OURS).ask(do="call_cost", **request)
            except PeerAbsent as reason:
                out[cell] = {"absent": str(reason)}
            except PeerError as error:
                out[cell] = {"error": str(error)}
    finally:
        pool.close()
    return out


def compare(row: dict[str, Any]) -> None:
    """Adds to a row the ratios of the faster Keras' and of PyTorch's time to ours, if measured."""
    medians = sequences.medians(row)
    keras = [medians[name] for name in KERAS if name in medians]
    others = {"keras": min(keras, default=None), "torch": medians.get("torch")}
    row["layer_ratios"] = {
        name: ms / medians[OURS] for name, ms in others.items() if ms and OURS in medians
    }


def groups(result: dict[str, Any]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """The rows by (variant, kind, cell)."""
    out: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        out.setdefault((row["variant"], row["kind"], row["cell"]), []).append(row)
    return out


def summarise(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Our mean relative to Keras and PyTorch, losses and target, by variant, kind and cell.

    Where there is a target, also for both cells together.
    """
    by_key = groups(result)
    for variant in TARGETS:
        cells = [by_key[key] for key in by_key if key[:2] == (variant, "train")]
        if len(cells) > 1:
            by_key[variant, "train", "both"] = [row for rows in cells for row in rows]
    out = []
    for (variant, kind, cell), rows in by_key.items():
        entry: dict[str, Any] = {"variant": variant, "kind": kind, "cell": cell}
        entry["shapes"] = len(rows)
        for name in ("keras", "torch"):
            ratios = [r["layer_ratios"][name] for r in rows if name in r["layer_ratios"]]
            if ratios:
                entry[name] = timing.ratio_summary(ratios)
        if kind == "train" and variant in TARGETS:
            entry["target"] = TARGETS[variant]
        out.append(entry)
    return out


def run(
    cases: Sequence[tuple[str, Case]],
    peers: Sequence[str],
    plan: timing.Plan,
    threads: int,
    quick: bool = False,
    log: TextIO | None = None,
) -> dict[str, Any]:
    """Measures all `cases`; returns the result as it is stored in the JSON."""
    with contextlib.ExitStack() as stack:
        log = log or stack.enter_context(tempfile.TemporaryFile("w"))
        calls = {}
        if OURS in peers:
            calls = measure_calls(threads, plan if quick else _CALL_PLAN, log)
        result = sequences.run(cases, peers, (), plan, threads, log, "layers")
    for row in result["rows"]:
        compare(row)
    return result | {
        "calls": calls,
        "call_shape": list(_CALL_SHAPE),
        "call_target_us": CALL_TARGET_US,
        "summary": summarise(result),
    }
