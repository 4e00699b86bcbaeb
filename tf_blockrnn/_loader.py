"""Finds the libraries that the build put next to this file, checks them and loads them, once."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
import threading
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

FOLDER = Path(__file__).resolve().parent
_BUILD_INFO = FOLDER / "_build_info.json"

_lock = threading.Lock()
_ops: ModuleType | None = None
_missing_xla = ""


def import_error(message: str) -> ImportError:
    """The error that an import of the package or the first use of a name raises.

    It carries the package's name: `python -m tf_blockrnn` then prints the message in one line and
    no traceback, as runpy does for a package that cannot be found.
    """
    return ImportError(message, name="tf_blockrnn")


def _library(kind: str, minor: str) -> Path:
    """Of the libraries of one kind, each for a minor version of TensorFlow, that of `minor`."""
    return FOLDER / f"libblockrnn_{kind}_tf{minor}.so"


def how_to_build() -> str:
    return (
        f"In a checkout of tf_blockrnn run `make build PYTHON={sys.executable}` and use it from "
        f"there, or `make wheel PYTHON={sys.executable}` and install the wheel from dist/."
    )


@functools.cache
def missing_cuda() -> str:
    """Why the ops have no kernels for GPUs here, or "" when they have; loads the library."""
    return read_build_info()["cuda"]["missing"] or text("blockrnn_cuda_problem")


def missing_xla() -> str:
    """Why XLA cannot compile the ops here, or "" when it can."""
    load()
    return _missing_xla


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def read_build_info() -> dict[str, Any]:
    if not _BUILD_INFO.exists() or not any(FOLDER.glob("libblockrnn_ops_tf*.so")):
        raise import_error(f"tf_blockrnn has no built libraries in {FOLDER}. {how_to_build()}")
    return json.loads(_BUILD_INFO.read_text(encoding="utf-8"))


def built_for(version: str) -> str:
    """The TensorFlow that the libraries for this one were built with.

    Raises:
      ImportError: there are none for its minor version. Nothing is loaded then: C++ of another one
        crashes rather than fails.
    """
    versions = read_build_info()["tensorflow"]
    for built in versions:
        if _minor(built) == _minor(version):
            return built
    raise import_error(
        f"tf_blockrnn was built for TensorFlow {', '.join(versions)}, but this is TensorFlow "
        f"{version}. {how_to_build()}"
    )


def extends_tensorflow() -> bool:
    """Whether to add gradients and CPU kernels to TensorFlow's own ops.

    Raises:
      ImportError: TF_BLOCKRNN_EXTEND_TF has an unknown value. The library, which reads it when it
        is loaded, would take it for 1.
    """
    switch = os.environ.get("TF_BLOCKRNN_EXTEND_TF", "")
    if switch not in ("", "0", "1"):
        raise import_error(f"TF_BLOCKRNN_EXTEND_TF must be 0 or 1, or not set; it is {switch!r}")
    return switch != "0"


def tensorflow() -> ModuleType:
    """Imports TensorFlow; every error of that is an ImportError."""
    try:
        import tensorflow
    except Exception as error:  # an incompatible one raises other errors than ImportError, too
        raise import_error(
            f"tf_blockrnn cannot import TensorFlow: {type(error).__name__}: {error}"
        ) from error
    return tensorflow


def load() -> ModuleType:
    """Gives the module of generated op functions; loads the library on the first call.

    Raises:
      ImportError: TensorFlow cannot be imported, nothing is built, or it was built for another
        TensorFlow.
    """
    tf = tensorflow()
    global _ops, _missing_xla
    with _lock:
        if _ops is None:
            built_for(tf.__version__)
            library = _library("ops", _minor(tf.__version__))
            try:
                _ops = tf.load_op_library(str(library))
            except tf.errors.OpError as error:
                raise import_error(
                    f"TensorFlow {tf.__version__} cannot load {library}: {error.message} "
                    f"{how_to_build()}"
                ) from error
            from tf_blockrnn import _tf_private  # of this TensorFlow, which is one that fits

            for function in vars(_ops).values():
                if isinstance(function, FunctionType):
                    _tf_private.hide_from_autograph(function)
            _tf_private.fill_dispatch_caches()
            _missing_xla = _load_xla(tf)
        return _ops


def _load_xla(tf: ModuleType) -> str:
    """Loads the library that lowers the ops to XLA; returns the reason if it cannot be loaded.

    It needs a library of TensorFlow's that not every package of it has, and is not needed unless
    XLA compiles a function.
    """
    library = _library("xla", _minor(tf.__version__))
    if not library.exists():
        return "this build of tf_blockrnn has no library for XLA"
    try:
        tf.load_library(str(library))
    except (tf.errors.OpError, OSError) as error:
        return f"TensorFlow {tf.__version__} cannot load {library.name}: {error}"
    return ""


@functools.cache
def ops_library() -> ctypes.CDLL:
    """The library of the ops, for its C functions."""
    load()
    # The same path gives the same library that TensorFlow has loaded.
    return ctypes.CDLL(str(_library("ops", _minor(tensorflow().__version__))))


def text(function: str) -> str:
    call = getattr(ops_library(), function)
    call.restype = ctypes.c_char_p
    return (call() or b"").decode()


def find_cublas() -> tuple[str, str]:
    """The cuBLAS that GPU kernels use, and else why there is none: (path, "") or ("", reason).

    Opens it. Only for a build with CUDA, and once TensorFlow has looked for GPUs: it opens the
    CUDA libraries that it wants then, and those are taken.
    """
    return text("blockrnn_cublas"), text("blockrnn_cublas_problem")
