"""Classifies nine speakers by two vowels that they say: masked sequences of different lengths.

    python -m pip install --no-deps --requirement=requirements/examples.txt
    python examples/vowels.py
    PYTHONPATH=. python examples/vowels.py  # in a checkout, without a wheel

The data are the JapaneseVowels series of Kudo, Toyama and Shimbo (1999,
https://archive.ics.uci.edu/dataset/128/japanese+vowels): 640 recordings, each 7 to 29 frames of 12
linear prediction coefficients. They are read from the files of the aeon wheel, which is not
imported, so its dependencies are not required. --data selects another folder with
JapaneseVowels_TRAIN.ts and JapaneseVowels_TEST.ts.

tf.data provides batches of ragged series; each batch is padded to its longest series, with a mask.
Both directions of a GRU with dropout and recurrent dropout run on the fused ops. At the end the
model is frozen for inference, with its recurrent weights in float32, bfloat16 and int8.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tf_blockrnn

CHANNELS, SPEAKERS = 12, 9
UNITS, BATCH = 64, 16
PRECISIONS = ("float32", "bfloat16", "int8")


def data_folder() -> pathlib.Path:
    """The folder of the series in the installed aeon package."""
    try:
        aeon = importlib.metadata.distribution("aeon")
    except importlib.metadata.PackageNotFoundError:
        raise SystemExit(
            "The data are part of aeon, which is not installed. Run\n  python -m pip install "
            "--no-deps --requirement=requirements/examples.txt\nor specify a folder with --data."
        ) from None
    return pathlib.Path(aeon.locate_file("aeon/datasets/data/JapaneseVowels"))


def read(file: pathlib.Path) -> tuple[list[np.ndarray], np.ndarray]:
    """The series, each [T, 12], and the speakers, from 0, of a file in the .ts format.

    Each line is a series: channels separated by colons, and at the end the speaker, from 1.
    """
    series, speakers = [], []
    for line in file.read_text().splitlines():
        if not line or line[0] in "#@":
            continue
        *channels, speaker = line.split(":")
        series.append(np.array([c.split(",") for c in channels], np.float32).T)
        speakers.append(int(speaker) - 1)
    return series, np.array(speakers)


def pad(series: tf.RaggedTensor, speakers: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """A batch of ragged series as a dense one, [B, T, 12], with its mask, [B, T]."""
    mask = tf.sequence_mask(series.row_lengths())
    return {"series": series.to_tensor(shape=[None, None, CHANNELS]), "mask": mask}, speakers


def batches(
    series: list[np.ndarray], speakers: np.ndarray, seed: int | None = None
) -> tf.data.Dataset:
    """Padded batches of the series; with a seed, shuffled anew in each epoch."""
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(series), [len(s) for s in series])
    data = tf.data.Dataset.from_tensor_slices((ragged, speakers))
    if seed is not None:
        data = data.shuffle(len(series), seed=seed)
    return data.ragged_batch(BATCH).map(pad).prefetch(1)


def build(frames: np.ndarray) -> keras.Model:
    """A model from series and mask to one score per speaker; `frames` determine its scaling."""
    series = keras.Input((None, CHANNELS), name="series")
    mask = keras.Input((None,), dtype="bool", name="mask")
    x = keras.layers.Normalization(mean=frames.mean(0), variance=frames.var(0))(series)
    x = keras.layers.GaussianNoise(0.3)(x)
    gru = tf_blockrnn.layers.GRU(UNITS, dropout=0.2, recurrent_dropout=0.2, name="gru")
    x = keras.layers.Bidirectional(gru)(x, mask=mask)
    x = keras.layers.Dropout(0.3)(x)
    return keras.Model({"series": series, "mask": mask}, keras.layers.Dense(SPEAKERS)(x))


def train(folder: pathlib.Path, epochs: int, seed: int) -> float:
    """Trains a model, prints its progress, and returns its accuracy on the test series."""
    keras.utils.set_random_seed(seed)
    train_series, train_speakers = read(folder / "JapaneseVowels_TRAIN.ts")
    test_series, test_speakers = read(folder / "JapaneseVowels_TEST.ts")
    lengths = [len(s) for s in train_series + test_series]
    print(
        f"{len(train_series)} series to train, {len(test_series)} to test, "
        f"{min(lengths)} to {max(lengths)} frames"
    )
    model = build(np.concatenate(train_series))
    layer = model.get_layer("bidirectional").forward_layer
    print(f"On the fused ops: {layer.fused}")

    data = batches(train_series, train_speakers, seed)
    steps = epochs * len(data)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(5e-3, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    begin = time.perf_counter()
    for upto in range(10, epochs + 10, 10):
        upto = min(upto, epochs)
        history = model.fit(
            data, epochs=upto, initial_epoch=max(0, upto - 10), shuffle=False, verbose=0
        ).history
        print(
            f"epoch {upto:3}: loss {history['loss'][-1]:.4f}, "
            f"accuracy {history['accuracy'][-1]:.1%}, {time.perf_counter() - begin:.1f} s"
        )
    _, accuracy = model.evaluate(batches(test_series, test_speakers), verbose=0)
    print(f"Test accuracy: {accuracy:.1%}")
    print("\nprecision   test accuracy, frozen")
    for precision in PRECISIONS:
        frozen = tf_blockrnn.freeze(model, precision)
        _, frozen_accuracy = frozen.evaluate(batches(test_series, test_speakers), verbose=0)
        print(f"{precision:9}   {frozen_accuracy:20.2%}")
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--data", type=pathlib.Path, metavar="FOLDER", help="with the two .ts files"
    )
    parser.add_argument("--seed", type=int, default=1, help="of all that is random (default: 1)")
    parser.add_argument("--short", action="store_true", help="fewer epochs, a few seconds")
    arguments = parser.parse_args()
    train(arguments.data or data_folder(), 15 if arguments.short else 60, arguments.seed)


if __name__ == "__main__":
    main()
