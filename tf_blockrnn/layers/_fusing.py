"""What fused cells and layers share: when an op may stand in for Keras' maths, and saying so."""

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

_said: set[tuple[str, str]] = set()


def general_reason(compute_dtype: str) -> str | None:
    """Why no op can compute in this program and type, or None."""
    if keras.backend.backend() != "tensorflow":
        return f"the Keras backend is {keras.backend.backend()}, the op is TensorFlow's"
    if compute_dtype not in DTYPES:
        return f"compute dtype {compute_dtype} is none of {', '.join(DTYPES)}"
    return None


def activation_reason(owner: Any, known: Mapping[str, Sequence[Callable]]) -> str | None:
    """Why an op cannot stand in for the owner's activations, or None.

    known: for each argument, the functions that the op computes, the one to name first.
    """
    for argument, functions in known.items():
        activation = getattr(owner, argument)
        if activation not in functions:
            name = getattr(activation, "__name__", "of another kind")
            names = dict.fromkeys(function.__name__ for function in functions)
            return f"{argument} is {name}, the op has {' and '.join(names)}"
    return None


def say_once(owner: Any, kind: str, reason: str, stacklevel: int) -> None:
    """Warns that the owner, a "cell" or "layer", does without the op, unless it was said before."""
    name = type(owner).__name__
    if (name, reason) in _said:
        return
    _said.add((name, reason))
    warnings.warn(
        f"tf_blockrnn.layers.{name} computes with Keras' own operations, not with the fused op: "
        f"{reason}. (Said once; `{kind}.why_not_fused` tells it any time.)",
        stacklevel=stacklevel + 1,
    )


def in_dtype(tensor: Any, dtype: str) -> Any:
    """The tensor in the given type.

    Raises:
      ValueError: it is complex; tf.cast would leave the imaginary part out.
    """
    if tensor.dtype.name == dtype:
        return tensor
    if tensor.dtype.is_complex:
        raise ValueError(f"Inputs and states must be real numbers, got {tensor.dtype.name}.")
    return tf.cast(tensor, dtype)


def weight_in_dtype(weight: Any, dtype: str) -> Any:
    """What a Keras variable holds, or a tensor in the place of one, in the given type.

    If a variable has the type it is TensorFlow's: ops read that faster than Python does.
    """
    held = weight.value if isinstance(weight, keras.Variable) else tf.convert_to_tensor(weight)
    return in_dtype(held, dtype)


def with_signature_of(function: Callable) -> Callable[[Callable], Callable]:
    """Decorates a function that hands on to the given one what it takes.

    All but keyword-only arguments of its own; these are shown before the given one's **kwargs.

    functools.wraps would not do: Keras reads a constructor's arguments in two ways, of which one
    follows what it sets and the other does not.
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
