"""Lets models trace their layers again after the switch of `enable_keras` has been turned.

`fit`, `evaluate` and `predict` ask their model for the function that they call, which it makes once
and which has traced the layers as they were.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

KINDS = ("train", "test", "predict")

_lock = threading.Lock()
# For each class of models whether its switch is on.
_watched: dict[type, Callable[[], bool]] = {}
# For each model and kind, whether the switch was on when the function was made. Those that were
# made before the switch was first turned are missing: it was off.
_made_on: weakref.WeakKeyDictionary[Any, dict[str, bool]] = weakref.WeakKeyDictionary()


def watch(model_class: type, is_on: Callable[[], bool]) -> None:
    """Makes a function anew where it is asked for and `is_on` says otherwise than when it was made.

    For good: what is traced while the switch is on has to be renewed when it is off again.

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
    with _lock:
        made_on = _made_on.get(model, {})
    made = [kind for kind in KINDS if getattr(model, f"{kind}_function", None) is not None]
    return [kind for kind in made if made_on.get(kind, False) != is_on()]


def _renewing(kind: str, plain: Callable, is_on: Callable[[], bool]) -> Callable:
    @functools.wraps(plain)
    def make(self, force=False):
        on = is_on()
        with _lock:
            made_on = _made_on.setdefault(self, {})
        kept = getattr(self, f"{kind}_function", None) is not None and not force
        if kept and made_on.get(kind, False) == on:
            return plain(self)
        function = plain(self, force=True)
        made_on[kind] = on
        return function

    return make
