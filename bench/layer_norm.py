"""A training step of a layer with layer normalisation, of the plain layer, and of Keras' cell.

`python -m bench.layer_norm [LSTM|GRU] [B T I H]` prints the minimum and the median of forward and
backward in a tf.function, whose calls alternate: of the layer, of the layer without normalisation,
and of `keras.layers.RNN` over the cell.
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


def _training_step(layer: keras.Layer) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """Gradients of a loss by the weights and the input."""

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    return step


def _layers(kind: str, units: int) -> dict[str, keras.Layer]:
    return {
        "layer norm": getattr(layers, f"LayerNorm{kind}")(units, return_sequences=True),
        "plain": getattr(layers, kind)(units, return_sequences=True),
        "keras": keras.layers.RNN(
            getattr(layers, f"LayerNorm{kind}Cell")(units), return_sequences=True
        ),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layer", nargs="?", default="LSTM", choices=["LSTM", "GRU"])
    parser.add_argument("dims", nargs="*", type=int, default=[32, 50, 64, 128], help="B T I H")
    arguments = parser.parse_args()
    if len(arguments.dims) != 4:
        parser.error(f"dims must be four numbers, B T I H; got {arguments.dims}")
    *shape, units = arguments.dims
    x = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
    calls = {}
    for name, layer in _layers(arguments.layer, units).items():
        layer.build(shape)
        step = _training_step(layer)
        calls[name] = timing.in_process(lambda step=step: step(x)[-1].numpy())
    found = {name: timing.summary(r) for name, r in timing.alternate(calls, _PLAN).items()}
    for name, ms in found.items():
        ratio = ms["median_ms"] / found["layer norm"]["median_ms"]
        print(
            f"{name}: minimum {ms['min_ms']:.2f} ms, median {ms['median_ms']:.2f} ms, "
            f"{ratio:.2f} of the layer's"
        )


if __name__ == "__main__":
    main()
