"""Runs a model on a CPU that was saved on a machine with cuDNN, and continues its training.

    python examples/cudnn_on_cpu.py
    PYTHONPATH=. python examples/cudnn_on_cpu.py  # in a checkout, without a wheel

It creates a SavedModel with TensorFlow's own CudnnRNNV3, in a process without tf_blockrnn; runs it
with TensorFlow alone, which fails without a GPU; imports tf_blockrnn, runs the same files, and
fine-tunes the model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

INPUTS, UNITS, DIRECTIONS = 8, 16, 2


class Tagger(tf.Module):
    """A bidirectional LSTM with a dense layer, as a GPU machine would have trained it."""

    def __init__(self) -> None:
        super().__init__()
        # For each direction four matrices [H, I], four [H, H] and eight biases [H].
        size = DIRECTIONS * 4 * UNITS * (INPUTS + UNITS + 2)
        self.params = tf.Variable(tf.random.stateless_uniform([size], [1, 2], -0.2, 0.2))
        self.w = tf.Variable(
            tf.random.stateless_uniform([DIRECTIONS * UNITS, 1], [3, 4], -0.2, 0.2)
        )

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, INPUTS], tf.float32),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def __call__(self, x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        state = tf.zeros([tf.shape(x)[0], DIRECTIONS, UNITS])
        steps = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=state,
            input_c=state,
            params=self.params,
            sequence_lengths=lengths,
            direction="bidirectional",
            time_major=False,
        )
        return tf.linalg.matmul(steps.output, self.w)


def save(folder: str) -> None:
    """Saves the model, as another machine would have done."""
    tf.saved_model.save(Tagger(), folder)


def without_the_package(folder: str, x: tf.Tensor, lengths: tf.Tensor) -> None:
    """Without the package, TensorFlow has the op, but no CPU kernel for it."""
    try:
        tf.saved_model.load(folder)(x, lengths)
    except tf.errors.OpError as error:
        print(f"TensorFlow alone:\n  {type(error).__name__}: {error.message.splitlines()[0]}")
    else:
        print("TensorFlow alone: it runs, so there is a GPU.")


def with_the_package(folder: str, x: tf.Tensor, lengths: tf.Tensor) -> None:
    """With the package: import, load, call. Training works in the same way."""
    import tf_blockrnn

    model = tf.saved_model.load(folder)
    y = model(x, lengths)

    print(f"With tf_blockrnn {tf_blockrnn.__version__}:\n  outputs {y.shape}, in row 1")
    print("  " + " ".join(f"{step:+.4f}" for step in y[1, :, 0]))
    target = tf.reduce_sum(x, axis=2, keepdims=True)
    variables = [model.params, model.w]
    for step in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, lengths) - target) ** 2)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.01 * gradient)
        print(f"  fine-tuning, step {step}: loss {loss:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--save", metavar="FOLDER", help="only create the SavedModel")
    arguments = parser.parse_args()
    if arguments.save:
        save(arguments.save)
        return
    x = tf.random.stateless_normal([3, 6, INPUTS], [5, 6])
    lengths = tf.constant([6, 4, 1])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--save", folder], check=True)
        without_the_package(folder, x, lengths)
        with_the_package(folder, x, lengths)


if __name__ == "__main__":
    main()
