"""The sources of a session: weights, layers of Keras, and files."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights.layer import RecurrentWeights

_EXPECTED = (
    "Session: source must be a weights.RecurrentWeights, a Keras layer or a list of them, or the "
    "path of a file"
)


def weights_of(source: Any) -> RecurrentWeights:
    """The weights of a source, in float32.

    Raises:
      TypeError: it is not a source.
      ValueError: its content cannot be read.
    """
    if isinstance(source, RecurrentWeights):
        found = source
    elif isinstance(source, (str, os.PathLike)):
        found = _of_file(os.fspath(source))
    else:
        found = _of_layers(source)
    return found if found.dtype == np.float32 else found.astype(np.dtype(np.float32))


def _of_file(path: str) -> RecurrentWeights:
    from tf_blockrnn.weights._file_format import ReadOptions
    from tf_blockrnn.weights._files import read

    try:
        contents = read(path, ReadOptions())
    except UnsupportedError:
        raise
    except ValueError as error:
        raise ValueError(
            f"Session: source: {error}. A file for which options are needed can be converted: "
            f"python -m tf_blockrnn convert {path} weights.npz"
        ) from error
    if contents.reverse:
        raise UnsupportedError(
            "Session: source must be of layers that begin with the first step, but those in "
            f"{path} begin with the last. Convert the file (python -m tf_blockrnn convert) and "
            "reverse the steps of inputs and outputs"
        )
    return contents.weights


def _of_layers(source: Any) -> RecurrentWeights:
    # A layer's class has been imported with Keras.
    keras = sys.modules.get("keras")
    layers = source if isinstance(source, (list, tuple)) else [source]
    of_keras = keras is not None and all(isinstance(one, keras.layers.Layer) for one in layers)
    if not layers or not of_keras:
        raise TypeError(f"{_EXPECTED}, got {_described(source)}")
    from tf_blockrnn.weights.keras import from_keras

    try:
        return from_keras(source)
    except TypeError as error:
        raise TypeError(f"{_EXPECTED}: {error}") from error


def _described(source: Any) -> str:
    if isinstance(source, (list, tuple)):
        names = dict.fromkeys(type(one).__name__ for one in source)
        return f"a {type(source).__name__} of {', '.join(names) or 'nothing'}"
    return type(source).__name__
