"""Functions shared by fused cells and layers: whether an op applies, warnings, and conversions."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

TANH = (keras.activations.tanh, keras.ops.tanh, tf.math.tanh)
SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid, tf.math.sigmoid)
RELU = (keras.activations.relu, keras.ops.relu, tf.nn.relu)
# The types of a constructor's arguments, as Keras accepts them: an object, a name or a config.
Activation = str | dict | Callable | None
Initializer = str | dict | Callable | None
Regularizer = str | dict | Callable | None
Constraint = str | dict | Callable | None

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


def _legacy_error(owner: Any) -> TypeError:
    name = type(owner).__name__
    return TypeError(
        f"tf_blockrnn.layers.{name} is a layer of Keras 3 and cannot be part of a tf_keras (legacy "
        f"Keras) model. Use tf_keras.layers.{name.removesuffix('Cell')} and call "
        "tf_blockrnn.enable_keras(): tf_keras' own layers then run on the fused ops."
    )


def refuse_legacy_keras(owner: Any) -> None:
    """To be called at the start of a constructor: refuses a program whose tf.keras is tf_keras.

    Raises:
      TypeError: TF_USE_LEGACY_KERAS is set and tf_keras is in use. tf_keras would refuse the layer
        later, with an error that does not give the reason.
    """
    # TensorFlow's own reading of the variable.
    legacy = os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1")
    if legacy and "tf_keras" in sys.modules:
        raise _legacy_error(owner)


def refuse_legacy_tensors(owner: Any, arguments: Sequence[Any]) -> None:
    """Refuses symbolic tensors of tf_keras.

    Raises:
      TypeError: one of the arguments is such a tensor, or a list with one.
    """
    for argument in arguments:
        for value in argument if isinstance(argument, (list, tuple)) else (argument,):
            kind = type(value)
            if kind.__name__ == "KerasTensor" and kind.__module__.startswith("tf_keras."):
                raise _legacy_error(owner)


def warn_once(owner: Any, kind: str, reason: str, stacklevel: int) -> None:
    """Warns that the owner, a "cell" or "layer", does not use the op; once for each reason."""
    name = type(owner).__name__
    _warn_once(
        f"tf_blockrnn.layers.{name}",
        reason,
        f"(This warning is given once; `{kind}.why_not_fused` has the reason.)",
        stacklevel + 1,
    )


def warn_once_of_keras(layer: Any, reason: str, stacklevel: int) -> None:
    """Warns that a layer of plain Keras does not use the op although `enable_keras` is on; once."""
    name = f"{type(layer).__module__.split('.')[0]}'s {type(layer).__name__}"
    text = "(tf_blockrnn.enable_keras() is on. This warning is given once.)"
    _warn_once(name, reason, text, stacklevel + 1)


def _warn_once(name: str, reason: str, remark: str, stacklevel: int) -> None:
    if (name, reason) in _warned:
        return
    _warned.add((name, reason))
    warnings.warn(
        f"{name} falls back to Keras' own operations: {reason}. {remark}",
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
