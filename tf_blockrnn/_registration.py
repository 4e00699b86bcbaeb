"""Loads the op library and registers all gradients: at once, or when TensorFlow is imported."""

from __future__ import annotations

import threading

from tf_blockrnn import _loader

# `loads` is whether this thread is in `load_all`, which raises what goes wrong.
_thread = threading.local()


def load_all() -> None:
    """Imports TensorFlow, loads the library and registers all gradients, on the first call.

    Raises:
      ImportError: as `_loader.load`.
    """
    _thread.loads = True
    try:
        # First: a thread that is importing TensorFlow waits for `_ops`, and must not find it
        # waiting for TensorFlow.
        _loader.tensorflow()
    finally:
        _thread.loads = False
    import tf_blockrnn._ops  # noqa: F401


def when_tensorflow_is_imported(_: object) -> None:
    """Does the same as `load_all`, at the end of the first import of TensorFlow.

    An error here becomes a warning, unless `load_all` has started the import and raises it.
    """
    try:
        # A statement: where two threads wait for each other's modules it gives a module that is
        # not complete, while importlib.import_module would raise.
        import tf_blockrnn._ops  # noqa: F401
    except Exception:
        if not getattr(_thread, "loads", False):
            raise
