"""NumPy's type of bfloat16, which is defined by a package of its own."""

from __future__ import annotations

import numpy as np


def bfloat16() -> np.dtype:
    """The type of bfloat16 arrays, as TensorFlow and ONNX have it too.

    Raises:
      ModuleNotFoundError: ml_dtypes is not installed.
    """
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "weights of the type bfloat16 need the package ml_dtypes, which comes with TensorFlow",
            name="ml_dtypes",
        ) from error
    return np.dtype(ml_dtypes.bfloat16)
