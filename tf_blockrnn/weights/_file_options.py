"""What the readers of files share: their options, their result, and the selection of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tf_blockrnn.weights.layer import RecurrentWeights, UnsupportedError

_T = TypeVar("_T")


class UsageError(ValueError):
    """The options contradict each other, or are not sufficient."""


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The options for the reader of a file.

    Args:
      layers: names of layers; empty if the file has only one.
      cell: the framework's name of the cell, if the file does not record it.
      scope, forget_bias: for a TensorFlow 1 checkpoint.
      cell_clip: for a TensorFlow 1 checkpoint or Keras' HDF5 weights.
      reset: for Keras' HDF5 weights of a gru without biases: "before" or "after" the GEMM.
    """

    layers: tuple[str, ...] = ()
    cell: str | None = None
    scope: str | None = None
    forget_bias: float | None = None
    cell_clip: float | None = None
    reset: str | None = None


@dataclasses.dataclass(frozen=True)
class FileContents:
    """The contents of a file.

    Args:
      weights: those of the selected layers.
      layers: their names in the file.
      reverse: whether they are layers of one direction from the last step to the first.
      notes: properties of the layers, in the file or missing there, that are not part of weights.
    """

    weights: RecurrentWeights
    layers: tuple[str, ...]
    reverse: bool = False
    notes: tuple[str, ...] = ()


def stacked(parts: Sequence[RecurrentWeights]) -> RecurrentWeights:
    """Joins stacks, from the input up, into one.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._file_options import stacked
      >>> one = weights.DirectionWeights(np.ones([1, 4, 4]), np.ones([1, 4, 4]))
      >>> rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
      >>> stacked([rnn, rnn]).num_layers
      2
    """
    first = parts[0]
    for part in parts:
        if _kind_of(part) != _kind_of(first):
            raise UnsupportedError(
                f"the layers of a stack must be of one kind, got {_kind(first)} and {_kind(part)}"
            )
    layers = [layer for part in parts for layer in part.layers]
    return dataclasses.replace(first, layers=layers)


def _kind_of(weights: RecurrentWeights) -> tuple[Any, ...]:
    """All but the layers."""
    return tuple(
        getattr(weights, field.name)
        for field in dataclasses.fields(weights)
        if field.name != "layers"
    )


def assumed_order(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """A note for files that do not record how layers are connected."""
    if len(chosen) < 2:
        return ()
    return (
        f"assumed: {', '.join(chosen)} feed one another in this order, and nothing is between them",
    )


def _kind(weights: RecurrentWeights) -> str:
    clip = f", cell_clip={weights.cell_clip:g}" if weights.cell_clip else ""
    given = "".join(
        f", {name}={getattr(weights, name)}"
        for name in ("reset_after", "epsilon", "norm_output_only")
        if getattr(weights, name) is not None
    )
    zoneout = "".join(
        f", {name}={getattr(weights, name):g}"
        for name in ("zoneout_state", "zoneout")
        if getattr(weights, name)
    )
    return weights.cell + given + clip + zoneout


def select(found: Mapping[str, _T], wanted: Sequence[str], what: str = "layer") -> dict[str, _T]:
    """The selected layers, in that order; the only layer if none is selected."""
    if not found:
        raise UsageError(f"the file has no recurrent {what}")
    names = ", ".join(name or '""' for name in found)
    if not wanted:
        if len(found) > 1:
            raise UsageError(
                f"the file has several recurrent {what}s: {names}. Select with --layer; several, "
                "separated by commas, become a stack"
            )
        return dict(found)
    for name in wanted:
        if name not in found:
            raise UsageError(f"the file has no recurrent {what} {name!r}; it has {names}")
        if list(wanted).count(name) > 1:
            raise UsageError(f"--layer has {name!r} more than once")
    return {name: found[name] for name in wanted}


def refuse_unused(options: ReadOptions, kind: str, used: frozenset[str]) -> None:
    """Refuses options that do not apply to a kind of file.

    Args:
      options: as given.
      kind: the name of the kind, for the error.
      used: the names of the fields of `options` that apply.

    Raises:
      UsageError: another one was given.

    Example:
      >>> from tf_blockrnn.weights._file_options import ReadOptions, refuse_unused
      >>> refuse_unused(ReadOptions(reset="after"), "an ONNX model", frozenset({"layers"}))
      Traceback (most recent call last):
      ...
      tf_blockrnn.weights._file_options.UsageError: --reset does not apply to an ONNX model
    """
    for field in dataclasses.fields(options):
        given = getattr(options, field.name)
        if given not in (None, ()) and field.name not in used:
            option = field.name.replace("_", "-").replace("layers", "layer")
            raise UsageError(f"--{option} does not apply to {kind}")
