"""Reports what a build of the package is and what it uses on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

from tf_blockrnn import _loader, _registration
from tf_blockrnn._version import VERSION


def _built_isas() -> list[str]:
    prefix = "libblockrnn_cpu_"
    return sorted(path.stem.removeprefix(prefix) for path in _loader.FOLDER.glob(f"{prefix}*.so"))


def _isa_note(used: str) -> str:
    """Why `used` is not the best instruction set of this processor, or "" when it is."""
    best = _loader.text("blockrnn_cpu_isa_best")
    if used in ("", best):
        return ""
    if os.environ.get("TF_BLOCKRNN_CPU_ISA"):
        return "named by TF_BLOCKRNN_CPU_ISA"
    return (
        f"this build is for {', '.join(_built_isas())}, and the best for this processor would be "
        f"{best}: build on this machine, or with TF_BLOCKRNN_ISA=all"
    )


def _driver() -> str:
    """The newest CUDA that the driver supports, such as "12.8"; "" without a driver."""
    version = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""


def _found_gpus(cuda: dict[str, Any]) -> dict[str, Any]:
    """What this machine has for GPUs; `cuda` is that of the build."""
    import tensorflow as tf

    devices = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    path, problem = _loader.find_cublas() if devices and not cuda["missing"] else ("", "")
    return {"devices": devices, "driver": _driver(), "cublas": path, "cublas_problem": problem}


def build_info() -> dict[str, Any]:
    """Reports what this build contains and what is in use on this machine; imports TensorFlow.

    Returns:
      A dict with
      version: of the package;
      tensorflow: the version that the libraries in use were built for;
      tensorflow_versions: all that the installed package has libraries for;
      compiler: what built it;
      cpu_isa: the instruction set in use, "" when no CPU engine can be opened;
      cpu_isas_built: those that were built: by default the best one of the machine of the build
        and the baseline, which every processor of its architecture runs;
      cpu_isas_available: those that were built and that this processor runs, the baseline first;
      cpu_isas_supported: those that this processor runs, built or not;
      cpu_isa_note: why the one in use is not the best one of this processor, "" when it is;
      cuda: a dict of version and architectures, both empty for a build without CUDA, and missing,
        the reason why the ops have no GPU kernels here (a build without CUDA, or a driver that is
        too old for it), "" when they have;
      xla: the reason why XLA cannot compile the ops here, "" when it can;
      gpu: a dict of devices, a list of TensorFlow's details of each GPU that it sees (device_name
        and compute_capability); driver, the newest CUDA that the driver supports, as text, ""
        without a driver; cublas, the path of the cuBLAS that the ops use, and cublas_problem, why
        there is none, both "" without a GPU or without CUDA in this build.

    Raises:
      ImportError: TensorFlow cannot be imported, nothing is built, or it was built for another
        TensorFlow.

    Example:
      >>> import tf_blockrnn
      >>> tf_blockrnn.build_info()["version"]
      '0.1.0'
    """
    info = _loader.read_build_info()
    _registration.load_all()
    cuda = {**info["cuda"], "missing": _loader.missing_cuda()}
    used, built = _loader.text("blockrnn_cpu_isa"), _built_isas()
    supported = _loader.text("blockrnn_cpu_isas_supported").split(",")
    return {
        "version": VERSION,
        "tensorflow": _loader.built_for(_loader.tensorflow().__version__),
        "tensorflow_versions": info["tensorflow"],
        "compiler": info["compiler"],
        "cpu_isa": used,
        "cpu_isas_built": built,
        "cpu_isas_available": [name for name in supported if name in built],
        "cpu_isas_supported": supported,
        "cpu_isa_note": _isa_note(used),
        "cuda": cuda,
        "xla": _loader.missing_xla(),
        "gpu": _found_gpus(cuda),
    }
