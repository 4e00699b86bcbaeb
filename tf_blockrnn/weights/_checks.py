"""The arrays of weights, and the checks that converters, readers of files and sessions share.

An argument of a wrong type is a TypeError, a wrong value a ValueError. What a file holds is a
value: whatever a format's reader raises for a corrupt file becomes a ValueError.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

# The types that the ops and the frameworks have.
TYPES = ("float16", "bfloat16", "float32", "float64")


# ---- errors


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """The value, which must be one of these strings.

    Raises:
      ValueError: it is another string.
      TypeError: it is no string.
    """
    if isinstance(value, str) and value in known:
        return value
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{name} must be one of {', '.join(known)}, got {value!r}")


def check_shape(
    name: str,
    array: np.ndarray,
    symbols: str,
    shape: Sequence[int | None],
    beside: str = "",
) -> None:
    """Refuses an array of another shape.

    Args:
      name: of the array, for the error.
      array: to be checked.
      symbols: the shape as a formula, such as "[B, 4H]".
      shape: the sizes; None is any.
      beside: what they follow from, for the error.

    Raises:
      ValueError: a size differs.
    """
    given = array.shape
    if len(given) == len(shape) and all(
        want is None or want == have for want, have in zip(shape, given, strict=True)
    ):
        return
    names = symbols.strip("[]").split(", ")
    sizes = ", ".join(
        dim if want is None else str(want) for dim, want in zip(names, shape, strict=True)
    )
    expected = symbols if symbols == f"[{sizes}]" else f"{symbols} = [{sizes}]"
    raise ValueError(f"{name} must have the shape {expected}{beside}, got {list(given)}")


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the error's type if the message is empty."""
    # str() of a KeyError quotes its text.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    lines = str(text).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def intact(what: str, *raised: type[Exception]) -> Iterator[None]:
    """Converts errors of a reader to ValueError; errors of other types are not changed.

    Args:
      what: the format of the file, for the message.
      raised: what the reader raises for a corrupt file in addition to OSError and ValueError.
    """
    try:
        yield
    except raised as error:
        raise ValueError(f"the file is not an intact {what}: {first_line(error)}") from error


# ---- arrays


def frozen(name: str, value: np.ndarray) -> np.ndarray:
    """A read-only copy of one of TYPES."""
    array = np.array(value, order="C", copy=True)
    if array.dtype.name not in TYPES:
        raise TypeError(f"{name} must be of the type {', '.join(TYPES)}, got {array.dtype.name}")
    # Files of NumPy and HDF5 may have the other byte order.
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array.flags.writeable = False
    return array


def converted(name: str, array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The array in another type; refuses finite values that become infinite there."""
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    lost = np.isfinite(array) & ~np.isfinite(result)
    if lost.any():
        raise ValueError(
            f"{name} has values out of {np.dtype(dtype).name}'s range, such as {array[lost][0]:g}"
        )
    return result


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    same_kind = one.dtype == other.dtype and one.shape == other.shape
    return same_kind and one.tobytes() == other.tobytes()


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


def to_array(tensor: Any) -> np.ndarray:
    """A tensor of PyTorch, or what NumPy takes for an array; numpy() does not support bfloat16."""
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16())
    return tensor.numpy()


def to_tensor(array: np.ndarray) -> Any:
    """An array as a PyTorch tensor; torch.from_numpy does not support bfloat16."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
