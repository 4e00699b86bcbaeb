"""Reports versions, engines and CUDA support, and checks one op against NumPy.

TensorFlow is imported only after the arguments have been read.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import sys
from collections.abc import Iterable, Sequence

import numpy as np

from tf_blockrnn import _build_info, _registration
from tf_blockrnn._version import VERSION


def _show(lines: Iterable[tuple[str, str]]) -> None:
    for name, value in lines:
        print(f"{name:<16} {value}")


def _version(module: str) -> str:
    try:
        return importlib.import_module(module).__version__
    except Exception as error:  # a broken package raises anything
        return f"FAILED: {type(error).__name__}: {error}"


def _versions(built_for: str) -> list[tuple[str, str]]:
    """The installed versions, and the TensorFlow that the libraries were built for."""
    return [
        ("tf_blockrnn", VERSION),
        ("Python", f"{platform.python_version()} at {sys.executable}"),
        ("TensorFlow", f"{_version('tensorflow')}, built for {built_for}"),
        ("Keras, NumPy", f"{_version('keras')}, {np.__version__}"),
    ]


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def _difference_from_numpy() -> float:
    """The largest difference of a GRUBlockCell from its equations in float64."""
    import tensorflow as tf

    from tf_blockrnn import raw_ops

    rng = np.random.default_rng(0)
    batch, inputs, units = 5, 7, 17
    x = rng.normal(size=(batch, inputs))
    h_prev = rng.normal(size=(batch, units))
    w_ru = rng.normal(size=(inputs + units, 2 * units))
    w_c = rng.normal(size=(inputs + units, units))
    b_ru = rng.normal(size=2 * units)
    b_c = rng.normal(size=units)
    arguments = {"x": x, "h_prev": h_prev, "w_ru": w_ru, "w_c": w_c, "b_ru": b_ru, "b_c": b_c}
    with tf.device("/CPU:0"):
        computed = raw_ops.GRUBlockCell(
            **{name: tf.constant(value, tf.float32) for name, value in arguments.items()}
        ).h.numpy()
    r, u = np.split(_sigmoid(np.concatenate([x, h_prev], 1) @ w_ru + b_ru), 2, axis=1)
    c = np.tanh(np.concatenate([x, r * h_prev], 1) @ w_c + b_c)
    return float(np.max(np.abs(computed - (u * h_prev + (1 - u) * c))))


def _isa(info: dict) -> str:
    """The instruction set in use, and why it is not the best one where it is not."""
    if not info["cpu_isa"]:
        return "none: no CPU engine can be opened"
    return f"{info['cpu_isa']}{'; ' * bool(info['cpu_isa_note'])}{info['cpu_isa_note']}"


def _gpu(details: dict, architectures: list[str]) -> str:
    """A GPU's name and architecture, and which of the built kernels run on it."""
    name = details.get("device_name", "unknown")
    if "compute_capability" not in details:
        return name
    major, minor = details["compute_capability"]
    built = sorted(int(architecture.removeprefix("sm_")) for architecture in architectures)
    # Machine code runs on its own architecture and later ones of the same major version; on newer
    # GPUs the driver compiles the kernels from PTX.
    if any(number // 10 == major and number % 10 <= minor for number in built):
        kernels = "built for it"
    elif 10 * major + minor > built[-1]:
        kernels = "compiled from PTX at the first use, which takes a while"
    else:
        kernels = "NOT built for it: the ops fail there"
    return f"{name}, sm_{major}{minor}: {kernels}"


def _cuda(cuda: dict, found: dict) -> list[tuple[str, str]]:
    """Names and values of the lines about CUDA: the build, and the GPUs found."""
    if not cuda["version"]:
        return [("CUDA", f"not in this build: {cuda['missing']}")]
    built = f"built with {cuda['version']} for {', '.join(cuda['architectures'])}"
    if cuda["missing"]:
        return [("CUDA", f"{built}; NOT used: {cuda['missing']}")]
    gpus = found["devices"]
    seen = f"{len(gpus) or 'no'} GPU{'' if len(gpus) == 1 else 's'}"
    lines = [("CUDA", f"{built}; TensorFlow sees {seen}")]
    for number, details in enumerate(gpus):
        lines.append((f"GPU {number}", _gpu(details, cuda["architectures"])))
    if not gpus:
        return lines
    without = f"none, so that ops fail on a GPU ({found['cublas_problem']})"
    driver = ("driver", f"of CUDA {found['driver']}" if found["driver"] else "not found")
    return [*lines, driver, ("cuBLAS", found["cublas"] or without)]


# Sums of 24 float32 products of numbers around 1, through gates of slope below 1; a wrong gate
# order or a broken engine is wrong in the first digit.
_TOLERANCE = 1e-5


def _parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="python -m tf_blockrnn doctor",
        description="Reports the installed versions and the engines of tf_blockrnn, and checks an "
        "op against NumPy. The exit status is 1 if something is wrong.",
        allow_abbrev=False,
    )


def main(arguments: Sequence[str]) -> int:
    """Prints the report; the exit status is 0 if there is no problem."""
    _parser().parse_args(arguments)
    _registration.load_all()  # whose error explains what is wrong
    return _report()


def _report() -> int:
    import tensorflow as tf

    info = _build_info.build_info()
    _show(
        [
            *_versions(info["tensorflow"]),
            ("compiler", info["compiler"]),
            ("instruction set", _isa(info)),
            ("built for", ", ".join(info["cpu_isas_built"])),
            ("processor runs", ", ".join(info["cpu_isas_supported"])),
            ("XLA", f"cannot compile the ops: {info['xla']}" if info["xla"] else "ok"),
            *_cuda(info["cuda"], info["gpu"]),
        ]
    )
    try:
        difference = _difference_from_numpy()
    except tf.errors.OpError as error:
        # TensorFlow puts {{node names}} before the message.
        _show([("GRUBlockCell", f"FAILED: {error.message.split('}} ')[-1]}")])
        return 1
    is_right = difference < _TOLERANCE
    verdict = "ok" if is_right else "WRONG"
    _show([("GRUBlockCell", f"{verdict}: {difference:.1e} from NumPy")])
    return 0 if is_right and info["cpu_isa"] else 1
