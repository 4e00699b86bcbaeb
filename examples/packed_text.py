"""Trains a character model on paragraphs of many lengths: padded, in buckets, and packed.

    python examples/packed_text.py
    PYTHONPATH=. python examples/packed_text.py  # in a checkout, without a wheel

The text is CPython's own documentation (`pydoc_data.topics`), each paragraph a sequence of its own.
The same LSTM is trained three times, with about the same number of characters in a batch: padded
paragraphs in random order, padded paragraphs of similar lengths (`bucket_by_sequence_length`), and
rows of several paragraphs with `resets` where each begins (`tf_blockrnn.pack_dataset`). At the end
the model that was trained on packed rows reads the same held-out paragraphs packed and padded.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

STEPS = 512  # of a packed row; longer paragraphs, with their end, are cut
EMBEDDING = 32
CHARACTERS = 8192  # in a batch, on average
BOUNDARIES = (32, 64, 128, 192, 256, 384)  # of the buckets
HELD_OUT = 0.1  # share of the paragraphs


class Text(NamedTuple):
    """Paragraphs as character numbers, from 1; 0 is the end of a paragraph."""

    train: tf.RaggedTensor
    held_out: tf.RaggedTensor
    alphabet: int


def read(share: float, seed: int) -> Text:
    """That share of the paragraphs of the documentation, each once, shuffled."""
    from pydoc_data.topics import topics

    texts = (paragraph for name in sorted(topics) for paragraph in topics[name].split("\n\n"))
    paragraphs = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    order = np.random.default_rng(seed).permutation(len(paragraphs))
    paragraphs = [
        paragraphs[i][: STEPS - 1] for i in order[: int(share * len(order))] if paragraphs[i]
    ]
    alphabet = {character: n for n, character in enumerate(sorted(set("".join(paragraphs))), 1)}
    ids = [[alphabet[character] for character in paragraph] + [0] for paragraph in paragraphs]
    cut = int(len(ids) * (1 - HELD_OUT))
    train, held_out = (tf.ragged.constant(part, tf.int32) for part in (ids[:cut], ids[cut:]))
    return Text(train, held_out, 1 + len(alphabet))


def pairs(paragraphs: tf.RaggedTensor) -> tf.data.Dataset:
    """Inputs and targets: each character, and the one after it. The first input is an end."""
    inputs = tf.concat([tf.zeros([paragraphs.nrows(), 1], tf.int32), paragraphs[:, :-1]], axis=1)
    return tf.data.Dataset.from_tensor_slices((inputs, paragraphs))


def example(x: tf.Tensor, resets: tf.Tensor, y: tf.Tensor, lengths: tf.Tensor) -> tuple:
    """A batch for `fit`: inputs, targets, and weights that are 0 for padding."""
    weights = tf.sequence_mask(lengths, tf.shape(x)[1], tf.float32)
    return {"x": x, "resets": resets}, y, weights


def one_in_a_row(x: tf.Tensor, y: tf.Tensor, lengths: tf.Tensor) -> tuple:
    """A batch in which each row is a paragraph."""
    begins = tf.broadcast_to(tf.range(tf.shape(x)[1]) == 0, tf.shape(x))
    return example(x, begins, y, lengths)


def with_length(x: tf.Tensor, y: tf.Tensor) -> tuple:
    return x, y, tf.size(x)


def padded(data: tf.data.Dataset, mean_length: float) -> tf.data.Dataset:
    """Paragraphs as they come, each batch padded to its longest."""
    batches = data.map(with_length).padded_batch(round(CHARACTERS / mean_length))
    return batches.map(one_in_a_row)


def bucketed(data: tf.data.Dataset, mean_length: float) -> tf.data.Dataset:
    """Paragraphs of similar lengths in a batch; fewer in a batch where they are longer."""
    del mean_length
    middles = np.add((0, *BOUNDARIES), (*BOUNDARIES, STEPS)) / 2
    batches = data.map(with_length).bucket_by_sequence_length(
        lambda x, y, length: length,
        bucket_boundaries=BOUNDARIES,
        bucket_batch_sizes=[round(CHARACTERS / middle) for middle in middles],
    )
    return batches.map(one_in_a_row)


def packed(data: tf.data.Dataset, mean_length: float) -> tf.data.Dataset:
    """Rows of several paragraphs."""
    del mean_length
    rows = tf_blockrnn.pack_dataset(data, STEPS).shuffle(1000)
    batches = rows.batch(CHARACTERS // STEPS)
    return batches.map(lambda xy, resets, lengths: example(xy[0], resets, xy[1], lengths))


WAYS = {"padding": padded, "buckets": bucketed, "packing": packed}


def build(units: int, alphabet: int) -> keras.Model:
    """From characters and resets to scores of the next character at each step."""
    x = keras.Input([None], dtype="int32", name="x")
    resets = keras.Input([None], dtype="bool", name="resets")
    y = keras.layers.Embedding(alphabet, EMBEDDING)(x)
    y = tf_blockrnn.layers.LSTM(units, return_sequences=True)(y, resets=resets)
    model = keras.Model({"x": x, "resets": resets}, keras.layers.Dense(alphabet)(y))
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    mean = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    model.compile(keras.optimizers.Adam(3e-3, global_clipnorm=1.0), loss, weighted_metrics=[mean])
    return model


class Clock(keras.callbacks.Callback):
    """The seconds of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._begin = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.seconds.append(time.perf_counter() - self._begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="less text, fewer units and epochs")
    arguments = parser.parse_args()
    share, units, epochs = (0.15, 32, 3) if arguments.short else (1.0, 256, 6)
    text = read(share, seed=1)
    # The number of batches is unknown before the first epoch.
    warnings.filterwarnings("ignore", "Your input ran out of data")
    lengths = text.train.row_lengths().numpy()
    print(f"{len(lengths)} paragraphs to train, of {lengths.min()} to {lengths.max()} characters")

    data = pairs(text.train).shuffle(len(lengths), seed=1)
    test = {name: way(pairs(text.held_out), lengths.mean()) for name, way in WAYS.items()}
    # The times leave out the first epoch, which traces the model.
    print("\nway      padding  batches  s per epoch  nats per character: trained, held out")
    for name, way in WAYS.items():
        batches = way(data, lengths.mean()).prefetch(1)
        weights = [batch[2].numpy() for batch in batches]
        padding = 1 - sum(map(np.sum, weights)) / sum(map(np.size, weights))
        keras.utils.set_random_seed(1)
        model, clock = build(units, text.alphabet), Clock()
        history = model.fit(
            batches, epochs=epochs, shuffle=False, callbacks=[clock], verbose=0
        ).history["nats"]
        held_out = model.evaluate(test[name], return_dict=True, verbose=0)["nats"]
        print(
            f"{name:8} {padding:7.1%}  {len(weights):7}  {np.median(clock.seconds[1:]):11.2f}  "
            f"{history[0]:.4f} to {history[-1]:.4f}, {held_out:.4f}"
        )
    other = model.evaluate(test["padding"], return_dict=True, verbose=0)["nats"]
    print(
        f"\nThe last model on padded held-out text: {other:.4f}, differs by {other - held_out:.1e}"
    )


if __name__ == "__main__":
    main()
