"""Says what is installed and in use, and checks one op against NumPy."""

from __future__ import annotations

import platform
import sys

import keras
import numpy as np
import tensorflow as tf

from tf_blockrnn import _loader, raw_ops


def _sigmoid(value: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-value))


def _difference_from_numpy() -> float:
    """The largest difference of a GRUBlockCell from its equations in float64."""
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


def _cuda(cuda: dict) -> str:
    if cuda["missing"]:
        return f"not in this build: {cuda['missing']}"
    gpus = len(tf.config.list_physical_devices("GPU"))
    return (
        f"built with {cuda['version']} for {', '.join(cuda['architectures'])}; "
        f"TensorFlow sees {gpus} GPU{'' if gpus == 1 else 's'}"
    )


# Sums of 24 float32 products of numbers around 1, through gates of slope below 1; a wrong gate
# order or a broken engine is wrong in the first digit.
_TOLERANCE = 1e-5


def main(arguments: list[str]) -> int:
    """Prints the report; the status is 0 when all is well."""
    if arguments:
        print("doctor takes no arguments", file=sys.stderr)
        return 2
    info = _loader.build_info()
    isa = info["cpu_isa"]
    for name, value in (
        ("tf_blockrnn", info["version"]),
        ("Python", f"{platform.python_version()} at {sys.executable}"),
        ("TensorFlow", f"{tf.__version__}, built for {info['tensorflow']}"),
        ("Keras, NumPy", f"{keras.__version__}, {np.__version__}"),
        ("compiler", info["compiler"]),
        ("instruction set", isa or "none: no CPU engine can be opened"),
        ("available", ", ".join(info["cpu_isas_available"])),
        ("CUDA", _cuda(info["cuda"])),
    ):
        print(f"{name:<16} {value}")
    try:
        difference = _difference_from_numpy()
    except tf.errors.OpError as error:
        # TensorFlow puts {{node names}} before the message.
        print(f"{'GRUBlockCell':<16} FAILED: {error.message.split('}} ')[-1]}")
        return 1
    well = difference < _TOLERANCE
    print(f"{'GRUBlockCell':<16} {'ok' if well else 'WRONG'}: {difference:.1e} from NumPy")
    return 0 if well and isa else 1
