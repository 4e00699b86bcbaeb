"""Trains one model on one device, on two devices, and on two machines, with the same result.

    python examples/distributed.py
    PYTHONPATH=. python examples/distributed.py  # in a checkout, without a wheel

The devices are halves of this CPU, the machines are processes that talk over the loopback device:

- one device: `model.fit`, in this process;
- two devices: `model.fit` under MirroredStrategy;
- two machines: MultiWorkerMirroredStrategy and a loop of one's own. Keras' `fit` fails there, with
  Keras' own layers as well (seen with Keras 3.15).

The batches are the same each time, and so are the weights in the end but for rounding.
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
    """From a series with a mask to a number."""
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
    """Series of numbers, one of them marked, which is to be named at the end."""
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
    # Each batch is split among the machines, instead of each batch going to one of them.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


def fit(strategy: tf.distribute.Strategy, data: tf.data.Dataset, epochs: int) -> keras.Model:
    """Keras does everything."""
    with strategy.scope():
        model = build()
        model.compile(keras.optimizers.Adam(0.01), "mse")
    losses = model.fit(data, epochs=epochs, shuffle=False, verbose=0).history["loss"]
    print("losses " + " ".join(f"{loss:.4f}" for loss in losses))
    return model


def loop(strategy: tf.distribute.Strategy, data: tf.data.Dataset, epochs: int) -> keras.Model:
    """A loop of one's own; each replica has its part of a batch."""
    with strategy.scope():
        model = build()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            # Gradients of replicas are added up, so each is a part of the mean.
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
    # Before anything else of TensorFlow runs.
    cpu = tf.config.list_physical_devices("CPU")[0]
    halves = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, halves)
    return fit(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), batches(count), epochs)


def two_machines(count: int, epochs: int) -> keras.Model:
    # Likewise; it waits for the other machine.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return loop(strategy, batches(count), epochs)


WAYS = {way.__name__: way for way in (two_devices, two_machines)}


def cluster() -> list[dict[str, str]]:
    """What tells each of two machines of both: TF_CONFIG, here with free ports of this machine."""
    sockets = [socket.create_server((ADDRESS, 0)) for _ in range(2)]
    workers = [f"{ADDRESS}:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})} for task in tasks
    ]


def start(way: str, folder: str, short: bool) -> list[np.ndarray]:
    """Runs a way in processes of its own, shows what it says, and gives the weights."""
    environments = cluster() if way == "two_machines" else [{}]
    begin = time.perf_counter()
    processes = []
    for index, environment in enumerate(environments):
        command = [sys.executable, __file__, "--way", way, "--weights", f"{folder}/{index}.npz"]
        with open(f"{folder}/{index}.log", "w") as log:
            processes.append(
                subprocess.Popen(
                    command + ["--short"] * short,
                    env={**os.environ, **environment},
                    stdout=None if index == 0 else log,
                    stderr=log,
                )
            )
    print(f"{way.replace('_', ' ')}: ", end="", flush=True)
    try:
        for index, process in enumerate(processes):
            if process.wait(timeout=600):
                raise SystemExit(pathlib.Path(f"{folder}/{index}.log").read_text())
    finally:
        for process in processes:
            process.kill()
            process.wait()
    print(f"  {time.perf_counter() - begin:.1f} s, the start of the processes included")
    with np.load(f"{folder}/0.npz") as weights:
        return list(weights.values())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a few batches")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # for the processes
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    size = (4, 2) if arguments.short else (40, 5)  # batches, epochs
    if arguments.way:
        np.savez(arguments.weights, *WAYS[arguments.way](*size).get_weights())
        return
    print("one device: ", end="", flush=True)
    alone = one_device(*size).get_weights()
    with tempfile.TemporaryDirectory() as folder:
        for way in WAYS:
            together = start(way, folder, arguments.short)
            difference = max(
                np.abs(mine - its).max() for mine, its in zip(together, alone, strict=True)
            )
            print(f"  weights differ from those of one device by {difference:.1e}")


if __name__ == "__main__":
    main()
