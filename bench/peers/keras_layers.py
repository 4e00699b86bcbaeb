"""LSTM and GRU layers in a tf.function: Keras' own, with and without XLA, and this project's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from bench import data
from bench.peers import base, tensorflow_base
from bench.shapes import GATES, LAYERS, Case

_LSTM = (0, 1, 2, 3)  # Keras: i, f, c, o
_GRU = (1, 0, 2)  # Keras: z (update), r (reset), h


def set_weights(layer: Any, case: Case, arrays: data.Arrays) -> None:
    """Builds a layer, Keras' own or ours, with the weights of a case."""
    order = _LSTM if case.cell == "lstm" else _GRU
    layer.build((case.batch, case.steps, case.inputs))
    w, r, bias = arrays.first.beside(order)
    if case.cell == "gru" and layer.reset_after:
        bias = np.stack([bias, np.zeros_like(bias)])  # input bias, recurrent bias
    layer.set_weights([w, r, bias])


class Peer:
    """`option`: "after" or "before" (GRU's reset_after), then ",xla" or ",ours" or nothing."""

    def __init__(self, option: str, threads: int) -> None:
        self._tf = tensorflow_base.start(threads)
        form, _, whose = option.partition(",")
        self._reset_after = form == "after"
        self._xla = whose == "xla"
        import keras

        self._layers = keras.layers
        self._ours = None
        if whose == "ours":
            import tf_blockrnn

            self._ours, self._layers = tf_blockrnn, tf_blockrnn.layers

    def _layer(self, case: Case, arrays: data.Arrays) -> Any:
        options: dict[str, Any] = {"return_sequences": True}
        if case.recurrent_dropout:
            options |= {"recurrent_dropout": case.recurrent_dropout, "seed": 7}
        if case.cell == "gru":
            options["reset_after"] = self._reset_after
        layer = getattr(self._layers, LAYERS[case.cell])(case.units, **options)
        if self._ours and not layer.fused:
            # Otherwise Keras' own operations would be measured under our name.
            raise RuntimeError(f"the layer does not run on the op: {layer.why_not_fused}")
        set_weights(layer, case, arrays)
        return layer

    def _mask(self, case: Case) -> dict[str, Any]:
        """The mask as an argument of the layer; a variable, which no graph folds away."""
        if not case.as_layer or case.lengths == "full":
            return {}
        return {"mask": self._tf.Variable(np.ascontiguousarray(case.valid().T))}

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        return tensorflow_base.prepared(self._tf, self.model(case, arrays), case.kind == "train")

    def model(self, case: Case, arrays: data.Arrays) -> tensorflow_base.Model:
        """What `prepare` traces."""
        tf = self._tf
        layer, train = self._layer(case, arrays), case.kind == "train"
        given = self._mask(case)

        def batch_major(array: np.ndarray) -> np.ndarray:
            # Keras takes [B, T, I]: the transpose is made here, outside of the measured call.
            return np.ascontiguousarray(array.swapaxes(0, 1))

        def forward(x: Any) -> Any:
            arguments = {name: tf.convert_to_tensor(value) for name, value in given.items()}
            return layer(tf.convert_to_tensor(x), training=train, **arguments)

        return tensorflow_base.Model(
            x=tf.Variable(batch_major(arrays.x)),
            weights=[weight.value for weight in layer.trainable_weights],
            cotangent=tf.constant(batch_major(arrays.cotangent)),
            forward=forward,
            batch_major=True,
            valid=case.valid() if given else None,
            xla=self._xla,
            fixed=(lambda: self._fixed_dropout(case)) if case.recurrent_dropout else None,
        )

    @contextlib.contextmanager
    def _fixed_dropout(self, case: Case) -> Iterator[None]:
        """Dropouts traced in this context drop the same for all peers, in Keras' gate order.

        XLA draws other numbers than TensorFlow, so only this makes the peers' results comparable.
        """
        draws = 0

        def dropout(x: Any, rate: float, **_: Any) -> Any:
            nonlocal draws
            keep = np.random.default_rng(draws).random(x.shape) >= rate
            draws += 1
            return x * self._tf.constant(keep / (1 - rate), x.dtype)

        with mock.patch.object(self._tf.nn.experimental, "stateless_dropout", dropout):
            yield
        if draws != GATES[case.cell]:
            raise RuntimeError(f"{draws} dropouts were drawn, not one for each gate")
