"""Programs that XLA compiled (`jit_compile=True`) against the same functions without XLA.

Two parts: a sequence called in every way that TensorFlow offers, in inference and in training, with
an empty function as the floor; and steps of `fit` of a small Keras model, with our layers and with
Keras' own. All contenders of a row run alternately in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import data, tidy, timing
from bench.peers import ours, tensorflow_base
from bench.shapes import LAYERS, Case

_EAGER = "eager"
OURS, OURS_XLA, KERAS, KERAS_XLA = "ours", "ours, XLA", "Keras", "Keras, XLA"
MODELS = (OURS, OURS_XLA, KERAS, KERAS_XLA)
_CHARACTERS = 100  # that the model reads and predicts
# With few batches a model learns them by heart. Its gradients then become denormal numbers, which
# are slow in XLA's programs.
_BATCHES = 64
# The loss of a model's first step, relative; the results of a call, which have the same bits in
# all ways of calling, except for gradients that a program may add up in another order.
_SAME_LOSS = 1e-3
_SAME_RESULT = {"rtol": 1e-4, "atol": 1e-5}


def _call_ways(tf: Any, case: Case) -> dict[str, Callable[[], Any]]:
    """The ways of calling; each returns a list of tensors."""
    import tf_blockrnn

    arrays = data.make(case)
    x, cotangent = tf.constant(arrays.x), tf.constant(arrays.cotangent)
    weights = [tf.Variable(value) for value in ours.function_weights(case.cell, arrays)]
    function = getattr(tf_blockrnn, case.cell)

    def infer(x: Any) -> list[Any]:
        return [function(x, *weights, time_major=True)[0]]

    def train(x: Any) -> list[Any]:
        wanted = [x, *weights]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            (h,) = infer(x)
        return [h, *tape.gradient(h, wanted, output_gradients=cotangent)]

    call = infer if case.kind == "infer" else train
    plain, xla = (tf.function(call, jit_compile=jit) for jit in (False, True))
    concrete, concrete_xla = (f.get_concrete_function(x) for f in (plain, xla))
    return {
        _EAGER: lambda: call(x),
        "tf.function": lambda: plain(x),
        "concrete function": lambda: concrete(x),
        "tf.function, XLA": lambda: xla(x),
        "concrete function, XLA": lambda: concrete_xla(x),
    }


def _compare_results(ways: dict[str, Callable[[], Any]]) -> None:
    """Raises where a way of calling computes something else."""
    reference = [tensor.numpy() for tensor in ways[_EAGER]()]
    for name, call in ways.items():
        for wanted, found in zip(reference, call(), strict=True):
            np.testing.assert_allclose(found, wanted, err_msg=name, **_SAME_RESULT)


class _Model:
    """A model of characters: embedding, two recurrent layers, softmax; trained by `fit`."""

    def __init__(self, layers: Any, case: Case, jit_compile: bool) -> None:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(7)
        layer = getattr(layers, LAYERS[case.cell])
        self._model = keras.Sequential([
            keras.Input([case.steps], dtype="int32"),
            keras.layers.Embedding(_CHARACTERS, case.inputs),
            layer(case.units, return_sequences=True),
            layer(case.units, return_sequences=True),
            keras.layers.Dense(_CHARACTERS, activation="softmax"),
        ])  # fmt: skip
        self._model.compile("adam", "sparse_categorical_crossentropy", jit_compile=jit_compile)
        if self._model.jit_compile != jit_compile:
            raise RuntimeError(f"the model does not compile with jit_compile={jit_compile}")
        shape = (_BATCHES, case.batch, case.steps + 1)
        text = np.random.default_rng(5).integers(_CHARACTERS, size=shape, dtype=np.int32)
        batches = tf.data.Dataset.from_tensor_slices((text[..., :-1], text[..., 1:]))
        self._data = batches.repeat()
        self._keras = keras

    def fit(self, calls: int, warm: int) -> list[float]:
        """Seconds of each of `calls` steps of one `fit`, after `warm` untimed ones."""
        ends: list[float] = []
        callback = self._keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: ends.append(time.perf_counter())
        )
        # One step more, before the first time: it includes the start of `fit`.
        steps = 1 + warm + calls
        self._fit(steps, [callback])
        return np.diff(ends)[warm:].tolist()

    def first_loss(self) -> float:
        """The loss of the first step."""
        return self._fit(1, []).history["loss"][0]

    def _fit(self, steps: int, callbacks: Sequence[Any]) -> Any:
        return self._model.fit(
            self._data, steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=callbacks
        )


def _models(case: Case, note: Callable[[str], None]) -> dict[str, _Model]:
    import keras

    from tf_blockrnn import layers

    models, losses = {}, {}
    for name in MODELS:
        note(f"tracing {name}")
        whose = layers if name in (OURS, OURS_XLA) else keras.layers
        models[name] = _Model(whose, case, jit_compile=name in (OURS_XLA, KERAS_XLA))
        losses[name] = models[name].first_loss()
    for name, loss in losses.items():
        if not abs(loss - losses[KERAS]) <= _SAME_LOSS * losses[KERAS]:
            raise RuntimeError(f"{name} has the loss {loss}, Keras {losses[KERAS]}")
    return models


def measure(tf: Any, case: Case, plan: timing.Plan, note: Callable[[str], None]) -> list[tidy.Row]:
    """The rows of one case: of calls, or of steps of `fit`."""
    runners: dict[str, timing.Runner]
    if case.group == "fit":
        runners = {name: model.fit for name, model in _models(case, note).items()}
    else:
        ways = _call_ways(tf, case)
        _compare_results(ways)
        ways["empty function"] = tensorflow_base.empty(tf)
        ways["empty function, XLA"] = tensorflow_base.empty(tf, jit_compile=True)
        runners = {name: timing.in_process(call) for name, call in ways.items()}
    return tidy.measured(case.fields(), runners, plan, note)
