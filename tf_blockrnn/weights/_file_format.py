"""What the readers and writers of files share: options, results, and the selection of layers.

A reader is a function from a path and ReadOptions to FileContents, a writer one from a Job to
Written. They are listed in _files.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tf_blockrnn.weights._formats import first_of_one_kind
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights

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
      recurrent_activation: for Keras' HDF5 weights: "sigmoid" or "hard_sigmoid".

    Raises:
      UsageError: an option has none of its values.
    """

    layers: tuple[str, ...] = ()
    cell: str | None = None
    scope: str | None = None
    forget_bias: float | None = None
    cell_clip: float | None = None
    reset: str | None = None
    recurrent_activation: str | None = None

    def __post_init__(self):
        for name, known in _CHOICES.items():
            if (given := getattr(self, name)) not in (None, *known):
                raise UsageError(
                    f"--{name.replace('_', '-')} must be {' or '.join(known)}, got {given!r}"
                )

    def require(self, what: str, options: Collection[str]) -> None:
        """Refuses options that a kind of source does not have.

        Raises:
          UsageError: an option is given that is not one of these.
        """
        for field in dataclasses.fields(self):
            if getattr(self, field.name) not in (None, ()) and field.name not in options:
                option = field.name.replace("_", "-").replace("layers", "layer")
                raise UsageError(f"--{option} does not apply to {what}")


_CHOICES = {"reset": ("before", "after"), "recurrent_activation": ("sigmoid", "hard_sigmoid")}


class FileContents(NamedTuple):
    """The contents of a file.

    Args:
      weights: those of the selected layers.
      layers: their names in the file.
      reverse: whether they are layers of one direction from the last step to the first.
      notes: what is assumed, and what the file has and weights do not record. `read` warns of each.
      of_torch: whether PyTorch's names were read, and so its states may be given.
      merge_mode: how the outputs of the top layer's two directions are merged, as Keras names it.
    """

    weights: RecurrentWeights
    layers: tuple[str, ...]
    reverse: bool = False
    notes: tuple[str, ...] = ()
    merge_mode: str | None = "concat"
    of_torch: bool = False


class Job(NamedTuple):
    """What to write, with `reverse` as in FileContents, and the package of Keras layers."""

    weights: RecurrentWeights
    path: str
    reverse: bool = False
    package: str = "keras"


class Written(NamedTuple):
    """What was written.

    Args:
      place: the location in the file of an array, from the number of its layer, "forward" or
        "backward", its name and its direction's weights.
      lines: further lines of the summary.
    """

    place: Callable[[int, str, str, DirectionWeights], str]
    lines: tuple[str, ...] = ()


def stacked(parts: Sequence[RecurrentWeights]) -> RecurrentWeights:
    """Joins stacks, from the input up, into one."""
    layers = [layer for part in parts for layer in part.layers]
    return dataclasses.replace(first_of_one_kind(parts), layers=layers)


def assumed_order(chosen: Mapping[str, object]) -> tuple[str, ...]:
    """A note for files that do not record how layers are connected."""
    if len(chosen) < 2:
        return ()
    return (
        f"assumed: {', '.join(chosen)} feed one another in this order, and nothing is between them",
    )


def select(
    found: Mapping[str, _T], wanted: Sequence[str], what: str = "layer", of: str = "the file"
) -> dict[str, _T]:
    """The selected layers, in that order; the only layer if none is selected."""
    if not found:
        raise UsageError(f"{of} has no recurrent {what}")
    if ",".join(wanted) in found and not found.keys() >= set(wanted):
        wanted = [",".join(wanted)]  # of one whose name has commas
    names = ", ".join(name or '""' for name in found)
    if not wanted:
        if len(found) > 1:
            raise UsageError(
                f"{of} has several recurrent {what}s: {names}. Select with --layer; several, "
                "separated by commas, become a stack"
            )
        return dict(found)
    for name in wanted:
        if name not in found:
            raise UsageError(f"{of} has no recurrent {what} {name!r}; it has {names}")
        if list(wanted).count(name) > 1:
            raise UsageError(f"--layer has {name!r} more than once")
    return {name: found[name] for name in wanted}
