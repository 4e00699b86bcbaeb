"""A gradient-penalty step of a layer in a tf.function: ours against Keras' own.

`python -m bench.derivatives [LSTM|GRU|SimpleRNN] [B T I H]` prints for each of the two the time of
the first call, tracing included, and the minimum and median of the later ones, which alternate.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bench import timing
from tf_blockrnn import layers

_PLAN = timing.Plan(rounds=12, seconds=2.0)


def _penalty_step(layer: keras.Layer) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Gradients of a loss and of the norm of its gradient by the input."""

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x) ** 2)
            norms = tf.reduce_sum(inner.gradient(loss, x) ** 2, axis=[1, 2])
            total = tf.reduce_sum((norms - 1) ** 2) + loss
        return outer.gradient(total, layer.trainable_variables)

    return step


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer", nargs="?", default="LSTM", choices=["LSTM", "GRU", "SimpleRNN"])
    parser.add_argument("dims", nargs="*", type=int, default=[16, 50, 32, 64], help="B T I H")
    arguments = parser.parse_args()
    if len(arguments.dims) != 4:
        parser.error(f"dims must be four numbers, B T I H; got {arguments.dims}")
    *shape, units = arguments.dims
    x = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
    calls, first = {}, {}
    for name, module in (("ours", layers), ("keras", keras.layers)):
        keras.utils.set_random_seed(0)
        layer = getattr(module, arguments.layer)(units, return_sequences=True)
        layer.build(shape)
        step = _penalty_step(layer)
        calls[name] = timing.in_process(lambda step=step: step(x)[-1].numpy())
        (first[name],) = calls[name](1, 0)
    for name, rounds in timing.alternate(calls, _PLAN).items():
        ms = timing.summary(rounds)
        print(
            f"{name}: first call {first[name]:.2f} s, minimum {ms['min_ms']:.2f} ms, "
            f"median {ms['median_ms']:.2f} ms"
        )


if __name__ == "__main__":
    main()
