"""The sources of a session: whatever `weights.read` reads, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._read import check_options, contents_of, warn_of_assumptions
from tf_blockrnn.weights.layer import RecurrentWeights

# What Keras returns for each merge_mode.
_MERGED = {
    "sum": "then forward + backward",
    "ave": "then (forward + backward) / 2",
    "mul": "then forward * backward",
    None: "which are the outputs",
}


def weights_of(
    source: Any, layer: str | Sequence[str] | None, options: Mapping[str, Any], stacklevel: int
) -> tuple[RecurrentWeights, bool]:
    """The weights of a source, in float32, and whether it is PyTorch's; warns of what is assumed.

    Raises:
      What `weights.read` does; the messages begin with "Session: source".
    """
    check_options("Session", options)
    try:
        contents = contents_of(source, layer, options)
    except (TypeError, ValueError) as error:
        kinds = UnsupportedError, TypeError, ValueError
        kind = next(one for one in kinds if isinstance(error, one))
        text = str(error)
        where = "Session: " if text.startswith(("source ", "layer ")) else "Session: source: "
        raise kind(where + text) from error
    if contents.reverse:
        raise UnsupportedError(
            "Session: source must be of layers that begin with the first step, but "
            f"{', '.join(contents.layers)} begins with the last. Pass weights.read(source), and "
            "reverse the steps of inputs and outputs"
        )
    if contents.merge_mode != "concat":
        raise UnsupportedError(
            f"Session: source must have merge_mode='concat', got {contents.merge_mode!r} of "
            f"{contents.layers[-1]}: a session returns the outputs of both directions beside one "
            "another. Pass weights.read(source), and take forward, backward = np.split(outputs, 2, "
            f"axis=-1), {_MERGED[contents.merge_mode]}"
        )
    warn_of_assumptions(contents, stacklevel + 1)
    found = contents.weights
    if found.dtype != np.float32:
        found = found.astype(np.dtype(np.float32))
    return found, contents.of_torch
