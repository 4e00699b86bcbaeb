"""The arrays of weights, and the checks that converters, readers of files and sessions share.

An argument of a wrong type is a TypeError, a wrong value a ValueError. What a file holds is a
value: whatever a format's reader raises for a corrupt file becomes a ValueError.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._bounds import take

# The types that the ops and the frameworks have.
TYPES = ("float16", "bfloat16", "float32", "float64")


# ---- errors


class UnsupportedError(ValueError):
    """The target of a conversion, or RecurrentWeights, cannot represent the source.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=False)
      >>> try:
      ...     weights.to_torch(gru)
      ... except weights.UnsupportedError as error:
      ...     print(str(error).partition(";")[0])
      PyTorch's gru resets after the GEMM with w_h (reset_after=True)
    """

    __module__ = "tf_blockrnn.weights"  # where it is public


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """The value, which must be one of these strings."""
    if isinstance(value, str) and value in known:
        return value
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{name} must be one of {', '.join(known)}, got {value!r}")


def check_shape(
    name: str, array: np.ndarray, symbols: str, shape: Sequence[int | None], beside: str = ""
) -> None:
    """Refuses an array of another shape.

    The sizes may be None for any. The error has the name, the shape as a formula in `symbols`, such
    as "[B, 4H]", and in `beside` the origin of the sizes.
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


def wrong_source(function: str, expected: str, source: Any) -> TypeError:
    """The error of a function that reads one form, for a source of another."""
    return TypeError(
        f"{function}: expected {expected}, got {type(source).__name__}; weights.read takes files, "
        "and layers, modules and models of all frameworks"
    )


def short(text: str, most: int = 200) -> str:
    """The text, or its beginning: names in a file, and messages with them, have any length."""
    return text if len(text) <= most else f"{text[:most]}..."


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or the error's type if the message is empty."""
    # str() of a KeyError quotes its text.
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    lines = str(text).strip().splitlines()
    return short(lines[0], 400) if lines else type(error).__name__


@contextlib.contextmanager
def intact(what: str, *raised: type[Exception]) -> Iterator[None]:
    """Converts errors of a reader to ValueError; errors of other types are not changed.

    Args:
      what: the format of the file, for the message.
      raised: what the reader raises for a corrupt file in addition to ValueError, and to OSError
        without a number: those with one are of the operating system.
    """
    try:
        yield
    except (OSError, *raised) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"the file is not an intact {what}: {first_line(error)}") from error


def stack_per_direction(where: str) -> UnsupportedError:
    """The error for a layer whose directions are stacks."""
    return UnsupportedError(
        f"{where}: each direction is a stack of its own, and their outputs are merged only at the "
        "end; a stack here merges the directions of each layer"
    )


# ---- classes


def is_a(source: Any, package: str, path: str) -> bool:
    """Whether it is of a class of a package, which has been imported with the class."""
    found = sys.modules.get(package)
    for name in path.split("."):
        found = getattr(found, name, None)
    return isinstance(found, type) and isinstance(source, found)


# What a subclass may override: how an object is constructed, described, built and saved. None of it
# is used when the object computes, or the weights and attributes that it sets are read later.
_ALLOWED = {
    *("__init__", "__new__", "__init_subclass__", "__repr__", "__setattr__", "__getattr__"),
    *("__getstate__", "__setstate__", "__reduce__", "__hash__", "__eq__", "__dir__"),
    # Keras
    *("build", "build_from_config", "add_weight", "get_config", "from_config", "get_build_config"),
    *("save_own_variables", "load_own_variables", "count_params", "compute_output_shape"),
    *("compute_output_spec", "summary"),
    # PyTorch
    *("reset_parameters", "flatten_parameters", "extra_repr", "state_dict", "load_state_dict"),
}


def check_overrides(one: Any, base: type, name: str) -> None:
    """Refuses an object of a known class `base` that itself, or whose class, computes differently.

    The error has the name of the object and that of what is overridden.
    """
    mro = type(one).__mro__
    own = {name for kind in mro[: mro.index(base)] for name in vars(kind)}
    own |= {name for name in vars(one) if name in ("call", "forward", "inner_loop")}
    for method in sorted(own - _ALLOWED):
        theirs = inspect.getattr_static(base, method, None)
        is_code = callable(theirs) or isinstance(theirs, (property, staticmethod, classmethod))
        mine = vars(one).get(method) or inspect.getattr_static(type(one), method)
        if is_code and mine is not theirs and not inspect.isclass(theirs):
            raise UnsupportedError(
                f"{name}: {type(one).__name__} overrides {method}, so its weights may have "
                f"another meaning than those of {base.__name__}; its arrays alone can be read"
            )


# ---- arrays


def frozen(name: str, value: np.ndarray) -> np.ndarray:
    """A read-only copy of one of TYPES."""
    take(getattr(value, "nbytes", 0))
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
    """The type of bfloat16 arrays, as TensorFlow and ONNX have it too."""
    try:
        import ml_dtypes
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "weights of the type bfloat16 need the package ml_dtypes, which comes with TensorFlow",
            name="ml_dtypes",
        ) from error
    return np.dtype(ml_dtypes.bfloat16)


def to_array(tensor: Any, name: str = "the tensor") -> np.ndarray:
    """A tensor of PyTorch, or what NumPy takes for an array; numpy() does not support bfloat16."""
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    import torch

    if tensor.is_meta:
        raise ValueError(
            f"{name} is on the device meta, which has shapes without values: load the module's "
            "state dict, with assign=True, before its weights are read"
        )
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
