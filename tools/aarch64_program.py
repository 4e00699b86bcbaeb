"""What the wheel for AArch64 is tried with: prints numbers that are the same on every processor.

python tools/aarch64_program.py

One line for each computation: its name and a JSON list. Runs in an emulator and on this machine
(tools/aarch64_python.py), with the tf_blockrnn that Python finds.
"""

from __future__ import annotations

import json

import numpy as np
import tensorflow as tf

import tf_blockrnn
from tf_blockrnn import inference, raw_ops, weights

BATCH, STEPS, INPUTS, UNITS = 3, 5, 4, 19


def numbers(*shape: int) -> np.ndarray:
    """Multiples of 1/64 in [-1, 1], which integers alone make: the same ones everywhere."""
    rng = np.random.default_rng(sum(shape))
    return (rng.integers(-64, 65, size=shape) / 64).astype(np.float32)


def show(name: str, *arrays) -> None:
    values = np.concatenate([np.asarray(array, np.float64).ravel() for array in arrays])
    print(name, json.dumps(values.tolist()), flush=True)


def sequence(function, gates: int) -> tuple:
    """Outputs over a batch of sequences and all gradients."""
    arguments = [
        tf.constant(numbers(BATCH, STEPS, INPUTS)),
        tf.constant(numbers(INPUTS, gates * UNITS)),
        tf.constant(numbers(UNITS, gates * UNITS)),
        tf.constant(numbers(gates * UNITS)),
    ]
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        outputs, _ = function(*arguments)
        loss = tf.reduce_sum(outputs * outputs)
    return outputs, *tape.gradient(loss, arguments)


def cell():
    x, h_prev = numbers(BATCH, INPUTS), numbers(BATCH, UNITS)
    both = INPUTS + UNITS
    return raw_ops.GRUBlockCell(
        x=x,
        h_prev=h_prev,
        w_ru=numbers(both, 2 * UNITS),
        w_c=numbers(both, UNITS),
        b_ru=numbers(2 * UNITS),
        b_c=numbers(UNITS),
    ).h


def session() -> tuple[np.ndarray, np.ndarray]:
    """A step and a sequence without TensorFlow's executor."""
    one = weights.DirectionWeights(numbers(4, INPUTS, UNITS), numbers(4, UNITS, UNITS))
    lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)])
    opened = inference.Session(lstm, threads=1)
    x = numbers(BATCH, STEPS, INPUTS)
    y, state = opened.step(x[:, 0])
    second, _ = opened.step(x[:, 1], state=state)
    return y, second, opened.run(x)[0]


def main() -> None:
    show("GRUBlockCell", cell())
    show("GRUBlockCell-XLA", tf.function(cell, jit_compile=True)())
    show("lstm-and-gradients", *sequence(tf_blockrnn.lstm, 4))
    show("gru-and-gradients", *sequence(tf_blockrnn.gru, 3))
    layer = tf_blockrnn.layers.GRU(UNITS)
    layer.build((BATCH, STEPS, INPUTS))
    layer.set_weights([numbers(*weight.shape) for weight in layer.get_weights()])
    outputs = layer(numbers(BATCH, STEPS, INPUTS))
    assert layer.fused, layer.why_not_fused
    show("layers.GRU", outputs)
    show("session", *session())


if __name__ == "__main__":
    main()
