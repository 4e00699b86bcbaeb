"""Keras models of one layer of this project, compiled by XLA, frozen and not."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import data
from bench.peers import base, keras_layers
from bench.shapes import Case


class Peer(keras_layers.Peer):
    """`option` as for keras_layers, then ",frozen" or nothing. Whole calls, NumPy in and out."""

    def __init__(self, option: str, threads: int) -> None:
        self._frozen = option.endswith(",frozen")
        super().__init__(option.removesuffix(",frozen"), threads)

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        import keras

        tf = self._tf
        layer = self._layer(case, arrays)
        x = np.ascontiguousarray(arrays.x.swapaxes(0, 1))
        model = keras.Sequential([keras.Input(x.shape[1:], batch_size=case.batch), layer])
        if self._frozen:
            model = self._ours.freeze(model)
        function = tf.function(lambda x: model(x, training=False), jit_compile=True)
        concrete = function.get_concrete_function(tf.TensorSpec(x.shape, tf.float32))

        def call() -> Any:
            return concrete(tf.constant(x)).numpy()

        return base.Prepared(call, lambda: base.Outcome(call().swapaxes(0, 1)))
