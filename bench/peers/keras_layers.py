"""keras.layers.LSTM and GRU in a tf.function, with and without XLA, default implementation."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import data
from bench.peers import base, tensorflow_base
from bench.shapes import Case

_LSTM = (0, 1, 2, 3)  # Keras: i, f, c, o
_GRU = (1, 0, 2)  # Keras: z (update), r (reset), h


class Peer:
    """`option` is "after" or "before" (GRU's reset_after), and may end in ",xla"."""

    def __init__(self, option: str, threads: int) -> None:
        self._tf = tensorflow_base.start(threads)
        form, _, jit = option.partition(",")
        self._reset_after = form == "after"
        self._xla = jit == "xla"

    def _layer(self, case: Case, arrays: data.Arrays) -> Any:
        import keras

        if case.cell == "lstm":
            layer, order = keras.layers.LSTM(case.units, return_sequences=True), _LSTM
        else:
            layer = keras.layers.GRU(
                case.units, return_sequences=True, reset_after=self._reset_after
            )
            order = _GRU
        layer.build((case.batch, case.steps, case.inputs))
        bias = data.bias(arrays.b, order)
        if case.cell == "gru" and self._reset_after:
            bias = np.stack([bias, np.zeros_like(bias)])  # input bias, recurrent bias
        layer.set_weights(
            [data.gates_beside(arrays.w, order), data.gates_beside(arrays.r, order), bias]
        )
        return layer

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        tf = self._tf
        layer, train = self._layer(case, arrays), case.kind == "train"

        def batch_major(array: np.ndarray) -> np.ndarray:
            # Keras takes [B, T, I]; it gets what it takes, and pays for no transpose made by us.
            return np.ascontiguousarray(array.swapaxes(0, 1))

        model = tensorflow_base.Model(
            x=tf.Variable(batch_major(arrays.x)),
            weights=[weight.value for weight in layer.trainable_weights],
            cotangent=tf.constant(batch_major(arrays.cotangent)),
            forward=lambda x: layer(tf.convert_to_tensor(x), training=train),
            batch_major=True,
            xla=self._xla,
        )
        return tensorflow_base.prepared(tf, model, train)
