"""Runs a callback once another module has been imported, without importing it.

The finder at the front of `sys.meta_path` finds nothing itself. It wraps the loader that another
finder returns for a watched module; the wrapper puts the loader back before the module runs, so
that `importlib.resources`, `inspect` and `pickle` only ever see the original.
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


class _Loader(importlib.abc.Loader):
    """A module's own loader, followed by the callbacks."""

    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        # Of a spec that was only looked at: get_code, is_package, get_resource_reader.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for callback in tuple(_callbacks.get(module.__name__, ())):
            _call(callback, module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _callbacks:
            return None
        for finder in tuple(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(fullname, path, target) if find_spec else None
            if spec is None:
                continue
            if hasattr(spec.loader, "exec_module"):
                spec.loader = _Loader(spec.loader)
            return spec
        return None


_FINDER = _Finder()
