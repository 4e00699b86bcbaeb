"""Functions shared by fused cells and layers: whether an op applies, warnings, and conversions."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

TANH = (keras.activations.tanh, keras.ops.tanh, tf.math.tanh)
SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid, tf.math.sigmoid)
RELU = (keras.activations.relu, keras.ops.relu, tf.nn.relu)
DTYPES = ("float16", "bfloat16", "float32", "float64")

_warned: set[tuple[str, str]] = set()


def general_reason(compute_dtype: str) -> str | None:
    """The reason why no op supports this backend or type, or None."""
    if keras.backend.backend() != "tensorflow":
        return f"the Keras backend is {keras.backend.backend()}, the op is TensorFlow's"
    if compute_dtype not in DTYPES:
        return f"compute dtype {compute_dtype} is none of {', '.join(DTYPES)}"
    return None


def activation_reason(owner: Any, known: Mapping[str, Sequence[Callable]]) -> str | None:
    """The reason why an op does not support the owner's activations, or None.

    known: for each argument, the functions that the op computes; the first one gives the name.
    """
    for argument, functions in known.items():
        activation = getattr(owner, argument)
        if activation not in functions:
            name = getattr(activation, "__name__", "a custom object")
            names = dict.fromkeys(function.__name__ for function in functions)
            return f"{argument} is {name}, the op has {' and '.join(names)}"
    return None


def warn_once(owner: Any, kind: str, reason: str, stacklevel: int) -> None:
    """Warns that the owner, a "cell" or "layer", does not use the op; once for each reason."""
    name = type(owner).__name__
    if (name, reason) in _warned:
        return
    _warned.add((name, reason))
    warnings.warn(
        f"tf_blockrnn.layers.{name} falls back to Keras' own operations: {reason}. (This warning "
        f"is given once; `{kind}.why_not_fused` has the reason.)",
        stacklevel=stacklevel + 1,
    )


def in_dtype(tensor: Any, dtype: str) -> Any:
    """The tensor in the given type.

    Raises:
      ValueError: it is complex; tf.cast would drop the imaginary part.

    Example:
      >>> import tensorflow as tf
      >>> from tf_blockrnn.layers import _fusing
      >>> _fusing.in_dtype(tf.ones([2], tf.float64), "float32").dtype.name
      'float32'
    """
    if tensor.dtype.name == dtype:
        return tensor
    if tensor.dtype.is_complex:
        raise ValueError(f"Inputs and states must be real numbers, got {tensor.dtype.name}.")
    return tf.cast(tensor, dtype)


def weight_in_dtype(weight: Any, dtype: str) -> Any:
    """The value of a Keras variable, or of a tensor in place of one, in the given type.

    A variable that has the type is returned as TensorFlow's variable, not as a tensor: an op reads
    it faster than Python does.
    """
    held = weight.value if isinstance(weight, keras.Variable) else tf.convert_to_tensor(weight)
    return in_dtype(held, dtype)


def with_signature_of(function: Callable) -> Callable[[Callable], Callable]:
    """Decorates a function that passes its arguments on to the given one.

    The decorated function gets the signature of the given one, with its own keyword-only arguments
    before **kwargs.

    functools.wraps does not work here: Keras reads a constructor's arguments by two methods, of
    which only one follows `__wrapped__`.
    """

    def decorate(decorated: Callable) -> Callable:
        own = [
            parameter
            for parameter in inspect.signature(decorated).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        signature = inspect.signature(function)
        *parameters, kwargs = signature.parameters.values()
        decorated.__signature__ = signature.replace(parameters=[*parameters, *own, kwargs])
        return decorated

    return decorate
