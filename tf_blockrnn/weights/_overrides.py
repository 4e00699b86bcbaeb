"""Detects subclasses that may use the weights of a known class in another computation."""

from __future__ import annotations

import inspect
from typing import Any

from tf_blockrnn.weights.layer import UnsupportedError

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
    """Refuses an object whose class, or which itself, overrides what its base class computes with.

    Args:
      one: an object of `base` or of a subclass.
      base: a class whose computation is known.
      name: of the object, for the error.

    Raises:
      UnsupportedError: with the name that is overridden.

    Example:
      >>> from tf_blockrnn.weights._overrides import check_overrides
      >>> class Base:
      ...     def call(self, x): ...
      >>> check_overrides(type("Renamed", (Base,), {})(), Base, "one")
      >>> check_overrides(type("Other", (Base,), {"call": print})(), Base, "one")
      Traceback (most recent call last):
      ...
      tf_blockrnn.weights.layer.UnsupportedError: one: Other overrides call, so its weights may \
have another meaning than those of Base; ...
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
