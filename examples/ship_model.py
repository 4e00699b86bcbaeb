"""Converts a Keras model to the fused layers, and back for people who do not have this package.

    python examples/ship_model.py
    PYTHONPATH=. python examples/ship_model.py  # in a checkout, without a wheel

A model of plain Keras layers is converted, compared in speed with the original, and trained; then
it is restored to plain Keras, saved, and loaded by a process that cannot import this package.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

INPUTS, CLASSES = 16, 4

# The program of the people who receive the model.
RECEIVER = """
import sys
sys.modules["tf_blockrnn"] = None  # As if it were not installed: importing it fails.
import keras, numpy as np
model = keras.saving.load_model(sys.argv[1])
np.save(sys.argv[3], model.predict(np.load(sys.argv[2]), verbose=0))
"""


def build(units: int) -> keras.Model:
    """A classifier of sequences, of Keras' own layers."""
    return keras.Sequential(
        [
            keras.Input((None, INPUTS)),
            keras.layers.Masking(),
            keras.layers.Bidirectional(keras.layers.LSTM(units, return_sequences=True)),
            keras.layers.GRU(units, recurrent_dropout=0.1),
            keras.layers.Dense(CLASSES),
        ]
    )


def examples(batch: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise of different lengths with a trend in one of the inputs, which is the class."""
    random = np.random.default_rng(3)
    x = random.normal(size=(batch, steps, INPUTS)).astype(np.float32)
    y = random.integers(0, CLASSES, batch)
    x[np.arange(batch), :, y] += np.linspace(-1, 1, steps, dtype=np.float32)
    x[np.arange(steps) >= random.integers(steps // 2, steps + 1, (batch, 1))] = 0.0
    return x, y


def milliseconds(models: list[keras.Model], x: np.ndarray, rounds: int) -> list[float]:
    """The median time of a call in a tf.function, with the models called alternately."""
    functions, x = [tf.function(model) for model in models], tf.constant(x)
    for function in functions:
        function(x)
    times = []
    for _ in range(rounds):
        times.append([])
        for function in functions:
            begin = time.perf_counter()
            function(x).numpy()
            times[-1].append(1e3 * (time.perf_counter() - begin))
    return list(np.median(times, axis=0))


def receive(model: pathlib.Path, x: np.ndarray) -> np.ndarray:
    """The predictions of a process without this package that loads the file."""
    given, result = model.with_name("x.npy"), model.with_name("y.npy")
    np.save(given, x)
    subprocess.run([sys.executable, "-c", RECEIVER, model, given, result], check=True)
    return np.load(result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a smaller model, fewer rounds")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    units, batch, steps, rounds = (16, 16, 20, 3) if arguments.short else (128, 64, 100, 15)
    x, y = examples(batch, steps)

    plain = build(units)
    plain.compile(
        keras.optimizers.Adam(5e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    fused = tf_blockrnn.fuse_model(plain, copy=True)
    for layer in fused.layers:
        inner = getattr(layer, "forward_layer", layer)
        print(f"  {layer.name:15} {type(inner).__module__}.{type(inner).__name__}")
    difference = np.abs(fused.predict(x, verbose=0) - plain.predict(x, verbose=0)).max()
    before, after = milliseconds([plain, fused], x, rounds)
    print(
        f"Fused: predictions differ by {difference:.1e}; a batch of {batch} takes "
        f"{before:.1f} ms before and {after:.1f} ms after"
    )

    losses = fused.fit(x, y, epochs=5, batch_size=16, verbose=0).history["loss"]
    print(f"Trained: loss {losses[0]:.4f}, then {losses[-1]:.4f}")

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "model.keras"
        tf_blockrnn.unfuse_model(fused, copy=True).save(file)
        difference = np.abs(receive(file, x) - fused.predict(x, verbose=0)).max()
    print(f"Unfused and shipped: predictions without this package differ by {difference:.1e}")


if __name__ == "__main__":
    main()
