"""Finds the libraries that the build left beside this file, checks them and loads them, once."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
import threading
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tf_blockrnn._version import VERSION

_FOLDER = Path(__file__).resolve().parent
_BUILD_INFO = _FOLDER / "_build_info.json"

_lock = threading.Lock()
_thread = threading.local()
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
    return _FOLDER / f"libblockrnn_{kind}_tf{minor}.so"


def how_to_build() -> str:
    return (
        f"In a checkout of tf_blockrnn run `make build PYTHON={sys.executable}` and use it from "
        f"there, or `make wheel PYTHON={sys.executable}` and install the wheel from dist/."
    )


@functools.cache
def missing_cuda() -> str:
    """Why the ops have no kernels for GPUs here, or "" when they have; loads the library."""
    return _read_build_info()["cuda"]["missing"] or _text("blockrnn_cuda_problem")


def missing_xla() -> str:
    """Why XLA cannot compile the ops here, or "" when it can."""
    load()
    return _missing_xla


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _read_build_info() -> dict[str, Any]:
    if not _BUILD_INFO.exists() or not any(_FOLDER.glob("libblockrnn_ops_tf*.so")):
        raise import_error(f"tf_blockrnn has no built libraries in {_FOLDER}. {how_to_build()}")
    return json.loads(_BUILD_INFO.read_text(encoding="utf-8"))


def _built_for(version: str) -> str:
    """The TensorFlow that the libraries for this one were built with.

    Raises:
      ImportError: there are none for its minor version. Nothing is loaded then: C++ of another one
        crashes rather than fails.
    """
    versions = _read_build_info()["tensorflow"]
    for built in versions:
        if _minor(built) == _minor(version):
            return built
    raise import_error(
        f"tf_blockrnn was built for TensorFlow {', '.join(versions)}, but this is TensorFlow "
        f"{version}. {how_to_build()}"
    )


def _hide_from_autograph(ops: ModuleType) -> None:
    """Keeps AutoGraph from warning that it cannot read the generated functions' source.

    This is the mark that tf.autograph.experimental.do_not_convert leaves, without its wrapper,
    which would cost every call a microsecond.
    """
    for function in vars(ops).values():
        if isinstance(function, FunctionType):
            function.autograph_info__ = {}


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


def _tensorflow() -> ModuleType:
    outer = getattr(_thread, "reports_errors", False)
    _thread.reports_errors = True
    try:
        import tensorflow
    except Exception as error:  # an incompatible one raises other errors than ImportError, too
        raise import_error(
            f"tf_blockrnn cannot import TensorFlow: {type(error).__name__}: {error}"
        ) from error
    finally:
        _thread.reports_errors = outer
    return tensorflow


def load_all() -> None:
    """Imports TensorFlow, loads the library and registers all gradients, on the first call.

    Raises:
      ImportError: as `load`.
    """
    _tensorflow()
    import tf_blockrnn._ops  # noqa: F401


def when_tensorflow_is_imported(_: ModuleType) -> None:
    """Does what `load_all` does, at the end of the first import of TensorFlow by anybody.

    An error here becomes a warning. If this package has started the import, its caller raises the
    error instead.
    """
    try:
        # A statement: where two threads wait for each other's modules it gives a module that is
        # not complete, while importlib.import_module would raise.
        import tf_blockrnn._ops  # noqa: F401
    except Exception:
        if not getattr(_thread, "reports_errors", False):
            raise


def load() -> ModuleType:
    """Gives the module of generated op functions; loads the library on the first call.

    Raises:
      ImportError: TensorFlow cannot be imported, nothing is built, or it was built for another
        TensorFlow.
    """
    tf = _tensorflow()
    global _ops, _missing_xla
    with _lock:
        if _ops is None:
            _built_for(tf.__version__)
            library = _library("ops", _minor(tf.__version__))
            try:
                _ops = tf.load_op_library(str(library))
            except tf.errors.OpError as error:
                raise import_error(
                    f"TensorFlow {tf.__version__} cannot load {library}: {error.message} "
                    f"{how_to_build()}"
                ) from error
            _hide_from_autograph(_ops)
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
    return ctypes.CDLL(str(_library("ops", _minor(_tensorflow().__version__))))


def _text(function: str) -> str:
    call = getattr(ops_library(), function)
    call.restype = ctypes.c_char_p
    return (call() or b"").decode()


def _built_isas() -> list[str]:
    prefix = "libblockrnn_cpu_"
    return sorted(path.stem.removeprefix(prefix) for path in _FOLDER.glob(f"{prefix}*.so"))


def _isa_note(used: str) -> str:
    """Why `used` is not the best instruction set of this processor, or "" when it is."""
    best = _text("blockrnn_cpu_isa_best")
    if used in ("", best):
        return ""
    if os.environ.get("TF_BLOCKRNN_CPU_ISA"):
        return "named by TF_BLOCKRNN_CPU_ISA"
    return (
        f"this build is for {', '.join(_built_isas())}, and the best for this processor would be "
        f"{best}: build on this machine, or with TF_BLOCKRNN_ISA=all"
    )


def find_cublas() -> tuple[str, str]:
    """The cuBLAS that GPU kernels use, and else why there is none: (path, "") or ("", reason).

    Opens it. Only for a build with CUDA, and once TensorFlow has looked for GPUs: it opens the
    CUDA libraries that it wants then, and those are taken.
    """
    return _text("blockrnn_cublas"), _text("blockrnn_cublas_problem")


def _driver() -> str:
    """The newest CUDA that the driver runs, "12.8" say, and "" where there is none."""
    version = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""


def _found_gpus(cuda: dict[str, Any]) -> dict[str, Any]:
    """What of a GPU's is on this machine; `cuda` is that of the build."""
    import tensorflow as tf

    devices = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    path, problem = find_cublas() if devices and not cuda["missing"] else ("", "")
    return {"devices": devices, "driver": _driver(), "cublas": path, "cublas_problem": problem}


def build_info() -> dict[str, Any]:
    """Says what this build is and what it uses here; imports TensorFlow.

    Returns:
      A dict with
      version: of the package;
      tensorflow: the version that the libraries in use were built for;
      tensorflow_versions: all that the installed package has libraries for;
      compiler: what built it;
      cpu_isa: the instruction set in use, "" when no CPU engine can be opened;
      cpu_isas_built: those that the build was for: by default the best one of the machine of the
        build and the plain one, which every processor of its kind runs;
      cpu_isas_available: those that are built and that this processor runs, plainest first;
      cpu_isas_supported: those that this processor runs, built or not;
      cpu_isa_note: why the one in use is not the best one of this processor, "" when it is;
      cuda: a dict of version and architectures, both empty for a build without CUDA, and missing,
        which says why the ops have no kernels for GPUs here (a build without CUDA, or a driver that
        is too old for it) and is "" when they have;
      xla: why XLA cannot compile the ops here, "" when it can;
      gpu: a dict of devices, a list of what TensorFlow knows of each GPU that it sees (device_name
        and compute_capability); driver, the newest CUDA that the driver runs, as text, "" without
        a driver; cublas, the path of the cuBLAS that the ops use, and cublas_problem, why there is
        none, both "" without a GPU or without CUDA in this build.

    Raises:
      ImportError: TensorFlow cannot be imported, nothing is built, or it was built for another
        TensorFlow.

    Example:
      >>> import tf_blockrnn
      >>> tf_blockrnn.build_info()["version"]
      '0.1.0'
    """
    info = _read_build_info()
    load_all()
    cuda = {**info["cuda"], "missing": missing_cuda()}
    used, built = _text("blockrnn_cpu_isa"), _built_isas()
    supported = _text("blockrnn_cpu_isas_supported").split(",")
    return {
        "version": VERSION,
        "tensorflow": _built_for(_tensorflow().__version__),
        "tensorflow_versions": info["tensorflow"],
        "compiler": info["compiler"],
        "cpu_isa": used,
        "cpu_isas_built": built,
        "cpu_isas_available": [name for name in supported if name in built],
        "cpu_isas_supported": supported,
        "cpu_isa_note": _isa_note(used),
        "cuda": cuda,
        "xla": missing_xla(),
        "gpu": _found_gpus(cuda),
    }
