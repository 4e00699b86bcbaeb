"""Functions shared by fused cells and layers: whether an op applies, warnings, and conversions."""

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_blockrnn import _keras_private

TANH = (keras.activations.tanh, keras.ops.tanh, tf.math.tanh)
SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid, tf.math.sigmoid)
RELU = (keras.activations.relu, keras.ops.relu, tf.nn.relu)
# What the ops with gates compute, for each argument that is an activation.
GATED = {"activation": TANH, "recurrent_activation": SIGMOID}
# As Keras accepts it: an object, a name or a config.
Initializer = str | dict | Callable | None

# Of a cell by itself.
BY_STEPS = "Keras' operations compute the cell, step by step"

DTYPES = ("float16", "bfloat16", "float32", "float64")

# The arguments of cells that Keras' cells lack, and their values where they are not in use.
_OWN_ARGUMENTS = {
    "use_peephole": False,
    "cell_clip": None,
    "projection": None,
    "zoneout_h": 0.0,
    "zoneout_c": 0.0,
}

_warned: set[tuple[str, str]] = set()


class Reason(str):
    """Why an op does not compute a layer or cell, with what would change it.

    Example:
      >>> from tf_blockrnn.layers import _fusing
      >>> reason = _fusing.Reason("use_cudnn=True requires cuDNN", 'use_cudnn="auto"')
      >>> reason, reason.change
      ('use_cudnn=True requires cuDNN', 'use_cudnn="auto"')
    """

    change: str

    def __new__(cls, text: str, change: str = "") -> "Reason":
        made = super().__new__(cls, text)
        made.change = change
        return made


def own_config(owner: Any) -> dict[str, Any]:
    """The arguments in use, of a layer or cell of any class, that Keras' lacks.

    A config has them only when they are in use, so that Keras accepts that of a plain layer.
    """
    found = {name: getattr(owner, name, unused) for name, unused in _OWN_ARGUMENTS.items()}
    return {name: value for name, value in found.items() if value != _OWN_ARGUMENTS[name]}


def activation_reason(owner: Any, known: Mapping[str, Sequence[Callable]]) -> Reason | None:
    """The reason why an op does not support the owner's activations, or None.

    known: for each argument, the functions that the op computes; the first one gives the name.
    """
    for argument, functions in known.items():
        activation = getattr(owner, argument)
        if activation not in functions:
            name = getattr(activation, "__name__", "a custom object")
            names = dict.fromkeys(function.__name__ for function in functions)
            return Reason(
                f"{argument} is {name}, the op has {' and '.join(names)}",
                f"{' or '.join(f'{argument}={each!r}' for each in names)}, which is another model",
            )
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
            if _keras_private.is_tf_keras_tensor(value):
                raise _legacy_error(owner)


def warn_once(owner: Any, reason: str, stacklevel: int) -> None:
    """Warns that a layer or cell runs on Keras' own operations; once for each class and reason.

    It is one of this package, or a layer of plain Keras or tf_keras while `enable_keras` is on. If
    a function of this package made it, the warning is where that function was called.
    """
    name = type(owner).__name__
    if hasattr(type(owner), "why_not_fused"):
        name = f"tf_blockrnn.layers.{name}"
    else:
        name = f"{type(owner).__module__.split('.')[0]}'s {name}"
    if (name, reason) in _warned:
        return
    _warned.add((name, reason))
    frame = sys._getframe(stacklevel)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("tf_blockrnn."):
        frame, stacklevel = frame.f_back, stacklevel + 1
    warnings.warn(
        f"{name} {owner.name!r} falls back to Keras' own operations: {reason}. "
        "print(tf_blockrnn.report(model)) lists all layers that do, with what would change it. "
        "(This warning is given once for each class and reason.)",
        stacklevel=stacklevel + 1,
    )


def check_flag(owner: Any, argument: str, given: bool) -> None:
    """Checks an argument of a constructor.

    Raises:
      TypeError: it is not a bool.
    """
    if not isinstance(given, (bool, np.bool_)):
        raise TypeError(f"{type(owner).__name__}: {argument} must be a bool, got {given!r}")


def is_real(dtype: tf.DType) -> bool:
    """Whether values of a type can be cast to a layer's."""
    return dtype.is_floating or dtype.is_integer or dtype.is_bool


def check_real(dtype: tf.DType) -> None:
    """Refuses inputs and states of another type.

    Raises:
      ValueError: values of the type are strings or complex: tf.cast would drop the imaginary part.
    """
    if not is_real(dtype):
        raise ValueError(f"Inputs and states must be real numbers, got {dtype.name}.")


def in_dtype(tensor: Any, dtype: str) -> Any:
    """The tensor in the given type; raises as `check_real` does."""
    if tensor.dtype.name == dtype:
        return tensor
    check_real(tensor.dtype)
    return tf.cast(tensor, dtype)


def weight_in_dtype(weight: Any, dtype: str) -> Any:
    """The value of a Keras variable, or of a tensor in place of one, in the given type.

    A variable that has the type is returned as TensorFlow's variable, not as a tensor: an op reads
    it faster than Python does.
    """
    held = weight.value if isinstance(weight, keras.Variable) else tf.convert_to_tensor(weight)
    return in_dtype(held, dtype)
