"""Trains a small model in a distributed way, in a process of its own.

    distribution_child.py mirrored FILE          two logical devices of one process, and one of them
    distribution_child.py worker FILE            one of the workers that TF_CONFIG lists
    distribution_child.py parameter_server FILE  a cluster of four servers in one process

Each trains by every way that Keras allows there and writes the weights to FILE (.npz), by the names
`<way>/<number>`. `single_device` is what they are to be compared with.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

STEPS, INPUTS, UNITS = 6, 3, 5
BATCH, BATCHES = 8, 4
RATE = 0.1


def model() -> keras.Model:
    """The three layers with a mask between them, the same weights each time."""
    keras.utils.set_random_seed(5)
    layers = tf_blockrnn.layers
    return keras.Sequential(
        [
            keras.Input((STEPS, INPUTS)),
            keras.layers.Masking(),
            keras.layers.Bidirectional(layers.GRU(UNITS, return_sequences=True)),
            layers.LSTM(UNITS, return_sequences=True),
            layers.SimpleRNN(UNITS),
            keras.layers.Dense(1),
        ]
    )


def data() -> tf.data.Dataset:
    """Batches in a fixed order, of series with lengths."""
    random = np.random.default_rng(6)
    x = random.normal(size=(BATCH * BATCHES, STEPS, INPUTS)).astype(np.float32)
    lengths = random.integers(1, STEPS + 1, len(x))
    x[np.arange(STEPS) >= lengths[:, None]] = 0.0
    y = (x.sum((1, 2)) / lengths).astype(np.float32)[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    options = tf.data.Options()
    # A batch is split among the workers; whole batches would go to one or the other.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(RATE, momentum=0.9)


class AmongWorkers(keras.Model):
    """What Keras' own `fit` needs among workers, whatever the layers (seen with Keras 3.15).

    To build a model it hands PerReplica values to an op, which refuses them. And it averages what a
    step returns over axis 0, which a scalar has not.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass

    def train_step(self, data):
        return {name: tf.reshape(log, [1]) for name, log in super().train_step(data).items()}


def fit(
    strategy: tf.distribute.Strategy, model_class: type = keras.Model, jit_compile: bool = False
) -> list[np.ndarray]:
    """By model.fit."""
    with strategy.scope():
        trained = model()
        trained = model_class(trained.inputs, trained.outputs)
        trained.compile(optimizer(), "mse", jit_compile=jit_compile)
    assert trained.jit_compile is jit_compile
    trained.fit(data(), shuffle=False, verbose=0)
    return trained.get_weights()


def prepared(
    strategy: tf.distribute.Strategy, jit_compile: bool | None = None
) -> tuple[keras.Model, Callable]:
    """A model, and the function that trains it on a batch; `jit_compile`: of the gradients."""
    with strategy.scope():
        trained = model()
        steps = optimizer()
        steps.build(trained.trainable_variables)

    @tf.function(jit_compile=jit_compile)
    def gradients(x, y):
        with tf.GradientTape() as tape:
            error = (trained(x, training=True) - y) ** 2
            # The replicas' gradients are added up.
            loss = tf.reduce_sum(error) / BATCH
        return tape.gradient(loss, trained.trainable_variables)

    def step(x, y):
        steps.apply_gradients(zip(gradients(x, y), trained.trainable_variables, strict=True))

    return trained, tf.function(lambda x, y: strategy.run(step, args=(x, y)))


def loop(strategy: tf.distribute.Strategy, jit_compile: bool | None = None) -> list[np.ndarray]:
    """By a loop of our own."""
    trained, train = prepared(strategy, jit_compile)
    for x, y in strategy.experimental_distribute_dataset(data()):
        train(x, y)
    return trained.get_weights()


def single_device() -> list[np.ndarray]:
    """The weights that all ways are to give."""
    return loop(tf.distribute.get_strategy())


def mirrored() -> dict[str, list[np.ndarray]]:
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(2)]
    tf.config.set_logical_device_configuration(cpu, devices)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert strategy.num_replicas_in_sync == 2
    return {
        "fit": fit(strategy),
        "loop": loop(strategy),
        # XLA refuses Keras' step on two devices with any layers: it reads variables of both.
        "loop, XLA": loop(strategy, jit_compile=True),
        "fit on one, XLA": fit(tf.distribute.OneDeviceStrategy("CPU:0"), jit_compile=True),
    }


def worker() -> dict[str, list[np.ndarray]]:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 2
    return {"fit": fit(strategy, AmongWorkers), "loop": loop(strategy)}


def free_ports(count: int) -> list[int]:
    """Ports of the loopback device that nobody listens to."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def parameter_server() -> dict[str, list[np.ndarray]]:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    cluster = tf.train.ClusterSpec({"worker": addresses[:2], "ps": addresses[2:]})
    servers = [
        tf.distribute.Server(cluster, job_name=job, task_index=task, protocol="grpc")
        for job, task in (("worker", 0), ("worker", 1), ("ps", 0))
    ]
    strategy = tf.distribute.ParameterServerStrategy(
        tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    )
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    trained, train = prepared(strategy)
    for x, y in data():
        coordinator.schedule(train, args=(x, y))
        coordinator.join()  # The batches in order, whichever worker takes one.
    del servers
    return {"loop": trained.get_weights()}


def main() -> None:
    way, file = sys.argv[1:]
    weights = {"mirrored": mirrored, "worker": worker, "parameter_server": parameter_server}[way]()
    np.savez(
        file,
        **{f"{how}/{i}": w for how, found in weights.items() for i, w in enumerate(found)},
    )


if __name__ == "__main__":
    main()
