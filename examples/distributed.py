"""Trains one model on one device, on two devices, and on two machines, with the same result.

    python examples/distributed.py
    PYTHONPATH=. python examples/distributed.py  # in a checkout, without a wheel

The devices are halves of this CPU, the machines are processes connected by the loopback interface:

- one device: `model.fit`, in this process;
- two devices: `model.fit` under MirroredStrategy;
- two machines: MultiWorkerMirroredStrategy and a custom training loop. Keras' `fit` fails there,
  even with Keras' own layers (observed with Keras 3.15).

The batches are the same each time, and the final weights agree up to rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

STEPS, UNITS, BATCH = 15, 32, 64
ADDRESS = "127.0.0.1"


def build() -> keras.Model:
    """A model from a masked series to a number."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((STEPS, 2)),
            keras.layers.Masking(),
            tf_blockrnn.layers.LSTM(UNITS),
            keras.layers.Dense(1),
        ]
    )


def batches(count: int) -> tf.data.Dataset:
    """Series of numbers, one of which is marked; the model has to output the marked one."""
    random = np.random.default_rng(2)
    x = np.zeros((count * BATCH, STEPS, 2), np.float32)
    y = np.zeros((count * BATCH, 1), np.float32)
    for series, wanted in zip(x, y, strict=True):
        length = random.integers(STEPS // 2, STEPS + 1)
        marked = random.integers(length)
        series[:length, 0] = random.uniform(0.1, 1.0, length)
        series[marked, 1] = 1.0
        wanted[:] = series[marked, 0]
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    options = tf.data.Options()
    # Splits each batch among the machines, instead of sending each batch to one of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def fit(strategy: tf.distribute.Strategy, data: tf.data.Dataset, epochs: int) -> keras.Model:
    """Trains with Keras' `fit`."""
    with strategy.scope():
        model = build()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    losses = model.fit(data, epochs=epochs, shuffle=False, verbose=0).history["loss"]
    print("losses " + " ".join(f"{loss:.4f}" for loss in losses))
    return model


def loop(strategy: tf.distribute.Strategy, data: tf.data.Dataset, epochs: int) -> keras.Model:
    """Trains with a custom loop, in which each replica has its part of a batch."""
    with strategy.scope():
        model = build()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            # The gradients of the replicas are added, so each loss is divided by the full batch.
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / BATCH
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def distributed_step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=(x, y)), axis=None)

    means = []
    for _ in range(epochs):
        losses = [distributed_step(*b) for b in strategy.experimental_distribute_dataset(data)]
        means.append(np.mean(losses))
    print("losses " + " ".join(f"{loss:.4f}" for loss in means))
    return model


def one_device(count: int, epochs: int) -> keras.Model:
    return fit(tf.distribute.get_strategy(), batches(count), epochs)


def two_devices(count: int, epochs: int) -> keras.Model:
    # This must be called before TensorFlow creates its devices.
    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, halves)
    return fit(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), batches(count), epochs)


def two_machines(count: int, epochs: int) -> keras.Model:
    # Likewise; the strategy waits for the other machine.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return loop(strategy, batches(count), epochs)


SETUPS = {setup.__name__: setup for setup in (two_devices, two_machines)}


def cluster() -> list[dict[str, str]]:
    """TF_CONFIG of both machines, which lists them both, here with free ports of this machine."""
    sockets = [socket.create_server((ADDRESS, 0)) for _ in range(2)]
    workers = [f"{ADDRESS}:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})} for task in tasks
    ]


def start(setup: str, folder: str, short: bool) -> list[np.ndarray]:
    """Runs a setup in separate processes, shows their output, and returns the weights."""
    environments = cluster() if setup == "two_machines" else [{}]
    begin = time.perf_counter()
    processes = []
    for index, environment in enumerate(environments):
        command = [sys.executable, __file__, "--setup", setup, "--weights", f"{folder}/{index}.npz"]
        with open(f"{folder}/{index}.log", "w") as log:
            processes.append(
                subprocess.Popen(
                    command + ["--short"] * short,
                    env={**os.environ, **environment},
                    stdout=None if index == 0 else log,
                    stderr=log,
                )
            )
    print(f"{setup.replace('_', ' ')}: ", end="", flush=True)
    try:
        for index, process in enumerate(processes):
            if process.wait(timeout=600):
                raise SystemExit(pathlib.Path(f"{folder}/{index}.log").read_text())
    finally:
        for process in processes:
            process.kill()
            process.wait()
    print(f"  {time.perf_counter() - begin:.1f} s, including the start of the processes")
    with np.load(f"{folder}/0.npz") as weights:
        return list(weights.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="only a few batches")
    parser.add_argument("--setup", choices=SETUPS, help=argparse.SUPPRESS)  # for the processes
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = (4, 2) if arguments.short else (40, 5)  # batches, epochs
    if arguments.setup:
        np.savez(arguments.weights, *SETUPS[arguments.setup](*size).get_weights())
        return
    print("one device: ", end="", flush=True)
    expected = one_device(*size).get_weights()
    with tempfile.TemporaryDirectory() as folder:
        for setup in SETUPS:
            distributed = start(setup, folder, arguments.short)
            difference = max(
                np.abs(one - other).max() for one, other in zip(distributed, expected, strict=True)
            )
            print(f"  weights differ from those of one device by {difference:.1e}")


if __name__ == "__main__":
    main()
