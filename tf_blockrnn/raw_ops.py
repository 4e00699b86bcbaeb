"""Every op of this package under its TensorFlow name, with keyword arguments only, as `tf.raw_ops`.

`tf_blockrnn.raw_ops.GRUBlockCell(x=..., h_prev=..., ...)` takes the arguments of
`tf.raw_ops.GRUBlockCell` and returns a namedtuple of the same name and fields, for more types
(half, bfloat16, float32, float64). In a graph the op is called `BlockRNN>GRUBlockCell`.

A call whose shapes do not match raises `tf.errors.InvalidArgumentError` (`ValueError` while a
`tf.function` is traced) that names the op, the argument, the expected and the given shape.

Example:
  >>> import tensorflow as tf, tf_blockrnn
  >>> result = tf_blockrnn.raw_ops.GRUBlockCell(
  ...     x=tf.ones([1, 2]), h_prev=tf.fill([1, 2], 0.1),
  ...     w_ru=tf.fill([4, 4], 0.5), w_c=tf.fill([4, 2], 0.5),
  ...     b_ru=tf.ones([4]), b_c=tf.zeros([2]))
  >>> result._fields
  ('r', 'u', 'c', 'h')
  >>> print(f"{result.h[0, 0]:.6f}")
  0.175991
"""

from __future__ import annotations

import collections
import functools
import inspect
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tf_blockrnn import _loader, _registration

_registration.load_all()  # whose error explains what is wrong

# ruff: noqa: E402
from tf_blockrnn import _tf_private
from tf_blockrnn._ops import number_attrs

# What the generated code calls the namespace `BlockRNN>`.
_PREFIX = "BlockRNN_"
# In the help of one, an attr that is a number in text.
_TEXT_ATTR = re.compile(r'(An optional) `string`\. Defaults to `"([0-9.]+)"`')


def _name_result(library: ModuleType, name: str) -> None:
    """Names the type of an op's result as TensorFlow does, without its namespace."""
    key = _tf_private.result_type(library, _PREFIX + name)
    if key is not None:
        fields = getattr(library, key)._fields
        setattr(library, key, collections.namedtuple(name, fields, module=__name__))


def _taking_numbers(function: Callable, op: str) -> Callable:
    """A generated function that takes numbers for the attrs which the op has as text."""
    names = number_attrs.of(op)
    if not names:
        return function

    @functools.wraps(function)
    def call(**arguments: Any) -> Any:
        return function(**arguments | number_attrs.texts(op, arguments))

    del call.__wrapped__  # whose signature and help say `string`
    signature = inspect.signature(function)
    call.__signature__ = signature.replace(
        parameters=[
            parameter.replace(default=float(parameter.default)) if name in names else parameter
            for name, parameter in signature.parameters.items()
        ]
    )
    call.__doc__ = _TEXT_ATTR.sub(r"\1 `float`. Defaults to `\2`", function.__doc__)
    _tf_private.hide_from_autograph(call)
    return call


def _show_keywords(function: Callable) -> None:
    """Makes help() and inspect show that the function takes keyword arguments only."""
    signature = inspect.signature(function)
    function.__signature__ = signature.replace(
        parameters=[
            parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=parameter.empty)
            for parameter in signature.parameters.values()
        ],
        return_annotation=signature.empty,
    )


def _raw_ops(library: ModuleType) -> dict[str, Callable]:
    found = {}
    for key, function in sorted(vars(library).items()):
        if key.startswith(_PREFIX) and callable(function):
            name = key.removeprefix(_PREFIX)
            _name_result(library, name)
            function = _taking_numbers(function, f"BlockRNN>{name}")
            _show_keywords(function)
            found[name] = function
    return found


_found = _raw_ops(_loader.load())
globals().update(_found)
__all__ = list(_found)


def __dir__() -> list[str]:
    return __all__
