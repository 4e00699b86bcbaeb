"""Runs a recurrent model on a stream in chunks, with the same results as on the whole sequence.

    python examples/streaming.py
    PYTHONPATH=. python examples/streaming.py  # in a checkout, without a wheel

A stateless model represents the trained one. A second model has stateful layers, a batch of one and
the same weights: each call continues from the final state of the previous one, whatever the size of
a chunk, and `reset_state` begins a new stream.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

CHANNELS, UNITS, CLASSES = 40, 128, 8
CHUNK = 5  # frames


def build(stateful: bool) -> keras.Model:
    """Two LSTM layers and scores for each frame; a stateful model takes one stream."""
    return keras.Sequential(
        [
            keras.Input(batch_shape=(1 if stateful else None, None, CHANNELS)),
            tf_blockrnn.layers.LSTM(UNITS, return_sequences=True, stateful=stateful),
            tf_blockrnn.layers.LSTM(UNITS, return_sequences=True, stateful=stateful),
            keras.layers.Dense(CLASSES),
        ]
    )


def reset(model: keras.Model) -> None:
    """Resets the states, so that the next frame is the first of a new stream."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.RNN):
            layer.reset_state()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="a shorter stream")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    frames = 200 if arguments.short else 5000
    stream = np.random.default_rng(2).normal(size=(1, frames, CHANNELS)).astype(np.float32)

    trained, streaming = build(stateful=False), build(stateful=True)
    streaming.set_weights(trained.get_weights())
    whole = trained.predict(stream, verbose=0)

    # One trace serves chunks of every size.
    signature = tf.TensorSpec([1, None, CHANNELS], tf.float32)
    step = tf.function(streaming, input_signature=[signature])

    for what, sizes in (
        (f"chunks of {CHUNK}", [CHUNK] * (frames // CHUNK)),
        ("single frames", [1] * frames),
        ("uneven chunks", [1, 7, 2, 30] * (frames // 40)),
    ):
        reset(streaming)
        scores, milliseconds, at = [], [], 0
        for size in sizes:
            chunk = tf.constant(stream[:, at : at + size])
            begin = time.perf_counter()
            scores.append(step(chunk).numpy())
            milliseconds.append(1e3 * (time.perf_counter() - begin))
            at += size
        difference = np.abs(np.concatenate(scores, axis=1) - whole[:, :at]).max()
        milliseconds = np.sort(milliseconds[1:])  # The first call traces.
        print(
            f"{what:13}: {len(sizes)} calls for {at} frames, median "
            f"{np.median(milliseconds):.2f} ms, 99 of 100 within "
            f"{np.percentile(milliseconds, 99):.2f} ms; largest difference {difference:.1e}"
        )


if __name__ == "__main__":
    main()
