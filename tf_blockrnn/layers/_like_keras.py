"""Subclasses of Keras' layers and cells with the constructors of the installed Keras."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import keras

from tf_blockrnn import _keras_private
from tf_blockrnn.layers import _docstrings, _fusing, _layer_norm

_Class = TypeVar("_Class", bound=type)


def like_keras(keras_class: type, without: tuple[str, ...] = ()) -> Callable[[_Class], _Class]:
    """Makes a subclass of a Keras class ready for users.

    Its constructor takes `*args` and `**kwargs` for Keras' constructor, and keyword-only arguments
    of its own. help(), inspect, editors and Keras itself see the arguments of both. The docstring
    gets the parts that it names (`_docstrings`). Keras finds the class when it loads a model.

    Args:
      keras_class: the class of Keras.
      without: arguments of Keras' constructor that this class does not have.

    Example:
      >>> import inspect
      >>> from tf_blockrnn import layers
      >>> list(inspect.signature(layers.SimpleRNN).parameters)[-3:]
      ['seed', 'recompute', 'kwargs']
    """

    def made(cls: _Class) -> _Class:
        init = cls.__init__
        bases = cls.__mro__[: cls.__mro__.index(keras_class)]
        ours = [vars(base)["__init__"] for base in bases if "__init__" in vars(base)]
        own = {
            name: p
            for each in ours
            for name, p in _parameters(each).items()
            if p.kind is p.KEYWORD_ONLY
        }
        theirs = [p for name, p in _parameters(keras_class.__init__).items() if name not in without]

        @functools.wraps(init)
        def constructor(self: Any, *args: Any, **kwargs: Any) -> None:
            _keras_private.warn_if_untested(stacklevel=2)
            _fusing.refuse_legacy_keras(self)
            for name in without:
                if name in kwargs:
                    raise TypeError(f"{cls.__name__} has no argument {name!r}.")
            init(self, *args, **kwargs)
            # Of a cell with norms the loop warns, which may be fused though the cell is not.
            is_normalized = isinstance(self, _layer_norm.NormalizedCell)
            reason = None if is_normalized else getattr(self, "why_not_fused", None)
            if reason:
                _fusing.warn_once(self, reason, stacklevel=2)

        del constructor.__wrapped__
        constructor.__module__ = cls.__module__
        constructor.__qualname__ = f"{cls.__qualname__}.__init__"
        constructor.__signature__ = inspect.Signature(
            sorted([*theirs, *own.values()], key=lambda parameter: parameter.kind)
        )
        cls.__init__ = constructor
        if cls.__doc__:  # not under python -OO
            arguments = _parameters(constructor)
            has_zoneout = "zoneout_h" in arguments
            cls.__doc__ = _docstrings.filled(
                cls.__doc__,
                keras=keras_class.__name__,
                inputs=list(_parameters(cls.call))[1],
                output="projection or units" if "projection" in arguments else "units",
                training="dropout and to draw zoneout, if the cell has them"
                if has_zoneout
                else "dropout, if the cell has it",
            )
        return keras.saving.register_keras_serializable(package="tf_blockrnn")(cls)

    return made


def by_name(keras_class: type, args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a Keras constructor is given, by their names.

    Raises:
      TypeError: the constructor does not take them.

    Example:
      >>> import keras
      >>> from tf_blockrnn.layers import _like_keras
      >>> _like_keras.by_name(keras.layers.GRU, (4, "relu"), {"name": "gru"})
      {'units': 4, 'activation': 'relu', 'name': 'gru'}
    """
    signature = inspect.signature(functools.partial(keras_class.__init__, None))  # without self
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if is_rest else {name: value}
    return named


def _parameters(constructor: Callable) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(constructor).parameters)
