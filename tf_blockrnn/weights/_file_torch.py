"""State dicts of PyTorch modules, and of haste's layers with layer normalisation."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

from tf_blockrnn.weights._checks import first_line, to_tensor
from tf_blockrnn.weights._file_format import (
    FileContents,
    Job,
    ReadOptions,
    UsageError,
    Written,
    assumed_order,
    select,
    stacked,
)
from tf_blockrnn.weights.haste import NAMES as HASTE_NAMES
from tf_blockrnn.weights.haste import from_haste
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights
from tf_blockrnn.weights.torch import NAMES, from_torch, to_torch


def _state_dict(path: str) -> dict[str, Any]:
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # errors of pickle, torch and zipfile
        # Those of pickle contain PyTorch's advice how to let the file run code.
        cause = "" if isinstance(error, pickle.UnpicklingError) else f": {first_line(error)}"
        raise ValueError(
            "the file is not a state dict, torch.save(module.state_dict(), ...), that PyTorch can "
            f"load without running code{cause}"
        ) from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise ValueError(f"the file has no state dict, but an object of {type(found).__name__}")
    return dict(found)


def _is_of_haste(state: Mapping[str, Any], prefix: str) -> bool:
    """Whether haste's layer with layer normalisation has its weights below the prefix."""
    return all(f"{prefix}{name}" in state for name in ("kernel", "recurrent_kernel", "gamma"))


def _read_haste(state: Mapping[str, Any], prefix: str, options: ReadOptions) -> RecurrentWeights:
    # The state dict of a model also has the keys of its other parts.
    weights = from_haste(
        {name: state[f"{prefix}{name}"] for name in HASTE_NAMES if f"{prefix}{name}" in state}
    )
    if options.cell not in (None, weights.cell):
        raise UsageError(f"--cell is {options.cell}, the weights are of haste's {weights.cell}")
    return weights


def read_torch(path: str, options: ReadOptions) -> FileContents:
    state = _state_dict(path)
    own = re.compile(rf"(.*?)(({'|'.join(NAMES.values())})(_l\d+(_reverse)?)?|gamma)")
    prefixes = {
        key: match[1]
        for key in state
        if (match := own.fullmatch(key)) and (match[3] or _is_of_haste(state, match[1]))
    }
    found = {prefix.rstrip("."): prefix for prefix in prefixes.values()}
    chosen = select(found, options.layers)
    parts, notes = [], []
    for name, prefix in chosen.items():
        if _is_of_haste(state, prefix):
            parts.append(_read_haste(state, prefix, options))
            notes.append(f"assumed: {name or 'the module'} is of haste_pytorch, by its names")
            continue
        arrays = state
        if not prefix:  # the state dict of a model also has the keys of its other parts
            arrays = {key: state[key] for key, above in prefixes.items() if not above}
            if others := [key for key in state if key not in arrays]:
                notes.append(f"not converted from the state dict: {', '.join(others)}")
        try:
            parts.append(from_torch(arrays, cell=options.cell, prefix=prefix))
        except ValueError as error:
            if "cell must be given" in str(error):
                raise UsageError(f"{name}: specify its cell with --cell: {error}") from None
            raise
    if not all(_is_of_haste(state, prefix) for prefix in chosen.values()):
        notes.append(
            "assumed: modules of PyTorch's own classes, whose weights are all that a state dict has"
        )
    notes += assumed_order(chosen)
    return FileContents(stacked(parts), tuple(chosen), notes=tuple(notes))


def write_torch(job: Job) -> Written:
    import torch

    state = to_torch(job.weights)
    torch.save({name: to_tensor(array) for name, array in state.items()}, job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        del one
        backward = "_reverse" if direction_name == "backward" else ""
        return f"{NAMES[array]}_l{number}{backward}"

    return Written(place)
