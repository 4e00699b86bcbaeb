"""Lets models trace their layers again after the switch of `enable_keras` has been turned.

`fit`, `evaluate` and `predict` ask their model for the function that they call, which it makes once
and which has traced the layers as they were.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

KINDS = ("train", "test", "predict")

_lock = threading.Lock()
# For each class of models whether its switch is on.
_watched: dict[type, Callable[[], bool]] = {}
# For each function whether the switch was on when it was made. Those that Keras made before the
# switch was first turned are missing, and those that others made.
_made_on: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def watch(model_class: type, is_on: Callable[[], bool]) -> None:
    """Makes a function anew where it is asked for and `is_on` says otherwise than when it was made.

    For good: what is traced while the switch is on has to be renewed when it is off again. A
    function that is not Keras' own, set as the model's attribute, is kept.

    model_class: `keras.Model`, or that of tf_keras.
    """
    with _lock:
        if model_class in _watched:
            return
        _watched[model_class] = is_on
        for kind in KINDS:
            name = f"make_{kind}_function"
            setattr(model_class, name, _renewing(kind, getattr(model_class, name), is_on))


def to_be_renewed(model: Any) -> list[str]:
    """The kinds of the functions that the model has and makes anew when they are next asked for."""
    is_on = next((on for cls, on in _watched.items() if isinstance(model, cls)), None)
    if is_on is None:
        return []
    on = is_on()
    return [kind for kind in KINDS if _is_made_on(_function_of(model, kind), not on)]


def is_of_keras(function: Any) -> bool:
    """Whether Keras made the function of a model, and not the user."""
    return _is_made_on(function, True) or _is_made_on(function, False)


def _function_of(model: Any, kind: str) -> Any:
    return getattr(model, f"{kind}_function", None)


def _is_made_on(function: Any, on: bool) -> bool:
    """Whether Keras made it, while the switch was on or off."""
    try:
        with _lock:
            made_on = _made_on.get(function)
    except TypeError:  # it has no weak references or no hash, as some callable objects
        return False
    if made_on is None:  # then it may be from before the first switch
        return not on and _defined_by_keras(function)
    return made_on == on


def _defined_by_keras(function: Any) -> bool:
    """Whether its code is, within what TensorFlow has wrapped it in."""
    while function is not None:
        root = getattr(function, "__globals__", {}).get("__name__", "tensorflow").partition(".")[0]
        if root != "tensorflow":
            return root in ("keras", "tf_keras")
        inner = getattr(function, "python_function", None)
        function = inner or getattr(function, "__wrapped__", None)
    return False


def _renewing(kind: str, plain: Callable, is_on: Callable[[], bool]) -> Callable:
    @functools.wraps(plain)
    def make(self, force=False):
        on = is_on()
        had = _function_of(self, kind)
        if had is not None and not force and not _is_made_on(had, not on):
            return plain(self)
        made = plain(self, force=True)
        with _lock, contextlib.suppress(TypeError):  # a subclass may have set none, or an object
            _made_on[_function_of(self, kind)] = on
        return made

    return make
