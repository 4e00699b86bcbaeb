"""LSTM and GRU layers in a tf.function: Keras' own, with and without XLA, and this project's."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from bench import data, timing
from bench.peers import base, tensorflow_base
from bench.shapes import GATES, Case

_LSTM = (0, 1, 2, 3)  # Keras: i, f, c, o
_GRU = (1, 0, 2)  # Keras: z (update), r (reset), h


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
            try:
                import tf_blockrnn
            except ImportError as error:
                raise base.Absent(f"tf_blockrnn does not import: {error}") from error
            self._ours, self._layers = tf_blockrnn, tf_blockrnn.layers

    def _layer(self, case: Case, arrays: data.Arrays) -> Any:
        options: dict[str, Any] = {"return_sequences": True}
        if case.recurrent_dropout:
            options |= {"recurrent_dropout": case.recurrent_dropout, "seed": 7}
        if case.cell == "lstm":
            layer, order = self._layers.LSTM(case.units, **options), _LSTM
        else:
            layer = self._layers.GRU(case.units, reset_after=self._reset_after, **options)
            order = _GRU
        if self._ours and not layer.fused:
            # Otherwise Keras' own operations would be measured under our name.
            raise RuntimeError(f"the layer does not run on the op: {layer.why_not_fused}")
        layer.build((case.batch, case.steps, case.inputs))
        bias = data.bias(arrays.b, order)
        if case.cell == "gru" and self._reset_after:
            bias = np.stack([bias, np.zeros_like(bias)])  # input bias, recurrent bias
        layer.set_weights(
            [data.gates_beside(arrays.w, order), data.gates_beside(arrays.r, order), bias]
        )
        return layer

    def _mask(self, case: Case) -> dict[str, Any]:
        """The mask as an argument of the layer; a variable, which no graph folds away."""
        if not case.as_layer or case.lengths == "full":
            return {}
        return {"mask": self._tf.Variable(np.ascontiguousarray(case.valid().T))}

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        tf = self._tf
        layer, train = self._layer(case, arrays), case.kind == "train"
        given = self._mask(case)

        def batch_major(array: np.ndarray) -> np.ndarray:
            # Keras takes [B, T, I]: the transpose is made here, outside of the measured call.
            return np.ascontiguousarray(array.swapaxes(0, 1))

        def forward(x: Any) -> Any:
            arguments = {name: tf.convert_to_tensor(value) for name, value in given.items()}
            return layer(tf.convert_to_tensor(x), training=train, **arguments)

        model = tensorflow_base.Model(
            x=tf.Variable(batch_major(arrays.x)),
            weights=[weight.value for weight in layer.trainable_weights],
            cotangent=tf.constant(batch_major(arrays.cotangent)),
            forward=forward,
            batch_major=True,
            valid=case.valid() if given else None,
            xla=self._xla,
            fixed=(lambda: self._fixed_dropout(case)) if case.recurrent_dropout else None,
        )
        return tensorflow_base.prepared(tf, model, train)

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

    def empty(self) -> Callable[[], object]:
        return tensorflow_base.empty(self._tf)

    def call_cost(self, case: Case, arrays: data.Arrays, plan: timing.Plan) -> dict[str, float]:
        """Microseconds of a call of our layer, of the op on the same weights, and the difference.

        Each is measured in a tf.function and eagerly, alternately. Both return all outputs.
        """
        if not self._ours:
            raise base.Absent("has no op to compare its layers with")
        tf, layer, ours = self._tf, self._layer(case, arrays), self._ours
        w_x, w_h, bias = (weight.value for weight in layer.weights)
        x = tf.constant(arrays.x.swapaxes(0, 1))
        if case.cell == "gru":  # code that calls the op has two separate biases
            b_x, b_h = (tf.Variable(part) for part in tf.unstack(bias))

        def op(x: Any) -> Any:
            if case.cell == "lstm":
                return ours.lstm(x, w_x, w_h, bias)[0]
            return ours.gru(x, w_x, w_h, b_x, b_h, gate_order="urc")[0]

        out = {}
        for mode, wrap in (("function", tf.function), ("eager", lambda function: function)):
            calls = {"layer": wrap(lambda x: layer(x)), "op": wrap(op)}
            np.testing.assert_allclose(calls["layer"](x), calls["op"](x), rtol=1e-5, atol=1e-6)
            runners = {
                name: timing.in_process(lambda call=call: call(x)) for name, call in calls.items()
            }
            rounds = {
                name: [1e6 * statistics.median(turn) for turn in some]
                for name, some in timing.alternate(runners, plan).items()
            }
            out |= {f"{mode}_{name}_us": statistics.median(some) for name, some in rounds.items()}
            # The difference of consecutive rounds, which a drift of the clock hardly affects.
            pairs = zip(rounds["layer"], rounds["op"], strict=True)
            out[f"{mode}_above_us"] = statistics.median(a - b for a, b in pairs)
        return out
