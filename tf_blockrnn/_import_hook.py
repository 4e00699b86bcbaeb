"""Runs a callback once another module has been imported, without importing it.

A finder at the front of `sys.meta_path`, which finds nothing itself, lets the loader that another
finder returns for a watched module call back after the module has run.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

_callbacks: dict[str, list[Callback]] = {}
# What an import raises, by the name of a module.
refused: dict[str, ImportError] = {}
_lock = threading.Lock()


def when_imported(name: str, callback: Callback) -> None:
    """Calls `callback(module)` after each execution of the module, reloads included.

    If the module is imported already, the callback is called at once. A failed import calls
    nothing. An exception of the callback becomes a warning: it must not break somebody else's
    import.

    Args:
      name: full name of the module.
      callback: called with the module, in the thread that imports it.

    Example:
      >>> import json
      >>> from tf_blockrnn import _import_hook
      >>> _import_hook.when_imported("json", lambda module: print(module.__name__))
      json
    """
    with _lock:
        _callbacks.setdefault(name, []).append(callback)
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
    module = sys.modules.get(name)
    if module is None:
        return
    if getattr(module.__spec__, "_initializing", False):
        # Another thread is importing it, which may have passed the finder already: wait for it.
        # By the builtin, which returns where that thread waits for a module of this one's;
        # importlib.import_module would raise an error.
        __import__(name)
        module = sys.modules[name]
    _call(callback, module)


def _call(callback: Callback, module: ModuleType) -> None:
    try:
        callback(module)
    except Exception as error:
        warnings.warn(
            f"tf_blockrnn could not extend {module.__name__}: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def _watch(loader: Any) -> None:
    """Lets a loader call back after it has run a watched module. Most are of one module alone."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        for callback in tuple(_callbacks.get(module.__name__, ())):
            _call(callback, module)

    loader.exec_module = exec_module


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in refused:
            raise refused[fullname]
        if fullname not in _callbacks:
            return None
        for finder in tuple(sys.meta_path):
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:  # as that of a folder without __init__.py may be
                    _watch(spec.loader)
                return spec
        return None


_FINDER = _Finder()
