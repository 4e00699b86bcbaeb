"""The attrs of our own ops that are numbers: the ops have them as decimal text.

TensorFlow has attrs of float32, but none of float64. The shortest text that Python reads as the
same float keeps all of its bits; a kernel reads it with correct rounding, and rounds it to float32
unless its tensors are float64 (`ParseNumber` in cc/ops/contract_rules.h, docs/adr/
0034-exact-scalars.md). TensorFlow's own ops keep its attrs of float32.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_blockrnn import _tf_private

NAMES = ("zoneout_rate_h", "zoneout_rate_c", "epsilon", "forget_bias", "cell_clip")


@functools.cache
def of(op: str) -> tuple[str, ...]:
    """The names of those attrs of an op, which is given by its full name."""
    attrs = {attr.name: attr.type for attr in _tf_private.op_def(op).attr}
    return tuple(name for name in NAMES if attrs.get(name) == "string")


def is_number(value: Any) -> bool:
    """Whether a value is a real number: Python's, or a scalar of NumPy."""
    if isinstance(value, numbers.Real):
        return True
    is_scalar = isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0
    return is_scalar and value.dtype.kind != "b" and np.can_cast(value.dtype, np.float64)


def texts(op: str, given: Mapping[str, Any]) -> dict[str, str]:
    """The text of the numbers that are given for such attrs, by name.

    Args:
      op: the op's full name.
      given: arguments of its generated function, by name. None is the op's default.

    Raises:
      TypeError: an attr is no number.
      ValueError: an attr is an integer beyond float64.
    """
    found = {}
    for name in of(op):
        value = given.get(name)
        if type(value) is float:  # nearly always
            found[name] = repr(value)
        elif value is not None:
            found[name] = _text(op, name, value)
    return found


def _text(op: str, name: str, value: Any) -> str:
    what = f"{op.removeprefix('BlockRNN>')}: {name} must be a number"
    if not is_number(value):
        raise TypeError(f"{what}, got {value!r}")
    try:
        return repr(float(value))
    except OverflowError:
        raise ValueError(f"{what} of float64, got {value!r}") from None


def read(op: Any, name: str) -> Any:
    """An attr of an operation, by its name; numbers as float."""
    value = op.get_attr(name)
    return float(value) if name in of(op.type) else value
