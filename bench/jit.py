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

from bench import data, machine, timing
from bench.peers import ours, tensorflow_base
from bench.progress import Progress
from bench.shapes import Case
from bench.tables import dims, number

CELLS = ("lstm", "gru")
EAGER = "eager"
FUNCTION, FUNCTION_XLA = "tf.function", "tf.function, XLA"
CONCRETE, CONCRETE_XLA = "concrete function", "concrete function, XLA"
EMPTY, EMPTY_XLA = "empty function", "empty function, XLA"
CALLS = (EAGER, FUNCTION, CONCRETE, FUNCTION_XLA, CONCRETE_XLA, EMPTY, EMPTY_XLA)
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


def _call_ways(tf: Any, library: Any, case: Case) -> dict[str, Callable[[], Any]]:
    """The contenders of a row of calls; each returns a list of tensors."""
    arrays = data.make(case)
    x, cotangent = tf.constant(arrays.x), tf.constant(arrays.cotangent)
    weights = [tf.Variable(value) for value in ours.function_weights(case.cell, arrays)]
    function = getattr(library, case.cell)

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
        EAGER: lambda: call(x),
        FUNCTION: lambda: plain(x),
        CONCRETE: lambda: concrete(x),
        FUNCTION_XLA: lambda: xla(x),
        CONCRETE_XLA: lambda: concrete_xla(x),
    }


def _compare_results(ways: dict[str, Callable[[], Any]]) -> None:
    """Raises where a way of calling computes something else."""
    reference = [tensor.numpy() for tensor in ways[EAGER]()]
    for name, call in ways.items():
        for wanted, found in zip(reference, call(), strict=True):
            np.testing.assert_allclose(found, wanted, err_msg=name, **_SAME_RESULT)


def _call_row(tf: Any, library: Any, case: Case, plan: timing.Plan, bar: Progress) -> dict:
    ways = _call_ways(tf, library, case)
    _compare_results(ways)
    ways[EMPTY] = tensorflow_base.empty(tf)
    ways[EMPTY_XLA] = tensorflow_base.empty(tf, jit_compile=True)
    runners = {name: timing.in_process(call) for name, call in ways.items()}
    samples = timing.alternate(runners, plan, bar.note)
    return {
        "part": "calls", "cell": case.cell, "kind": case.kind, "shape": list(case.shape),
        "ways": {name: timing.summary(rounds) for name, rounds in samples.items()},
    }  # fmt: skip


class _Model:
    """A model of characters: embedding, two recurrent layers, softmax; trained by `fit`."""

    def __init__(self, layers: Any, case: Case, jit_compile: bool) -> None:
        import keras
        import tensorflow as tf

        keras.utils.set_random_seed(7)
        layer = getattr(layers, {"lstm": "LSTM", "gru": "GRU"}[case.cell])
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


def _models(case: Case, bar: Progress) -> dict[str, _Model]:
    import keras

    from tf_blockrnn import layers

    models, losses = {}, {}
    for name in MODELS:
        bar.note(f"tracing {name}")
        whose = layers if name in (OURS, OURS_XLA) else keras.layers
        models[name] = _Model(whose, case, jit_compile=name in (OURS_XLA, KERAS_XLA))
        losses[name] = models[name].first_loss()
    for name, loss in losses.items():
        if not abs(loss - losses[KERAS]) <= _SAME_LOSS * losses[KERAS]:
            raise RuntimeError(f"{name} has the loss {loss}, Keras {losses[KERAS]}")
    return models


def _model_row(case: Case, plan: timing.Plan, bar: Progress) -> dict[str, Any]:
    runners = {name: model.fit for name, model in _models(case, bar).items()}
    samples = timing.alternate(runners, plan, bar.note)
    return {
        "part": "fit", "cell": case.cell, "kind": "train", "shape": list(case.shape),
        "ways": {name: timing.summary(rounds) for name, rounds in samples.items()},
    }  # fmt: skip


def ratio(row: dict[str, Any], over: str, under: str) -> float:
    """The median of one contender of a row over another's."""
    return row["ways"][over]["median_ms"] / row["ways"][under]["median_ms"]


def _line(row: dict[str, Any]) -> str:
    """A finished row for the progress display."""
    return ", ".join(f"{n} {number(1e3 * way['median_ms'])}" for n, way in row["ways"].items())


def run(
    calls: Sequence[Case], models: Sequence[Case], plan: timing.Plan, threads: int
) -> dict[str, Any]:
    """Measures all calls and models; returns the result as it is stored in the JSON."""
    machine.warn_if_busy()
    stamp = machine.stamp(threads)
    tf = tensorflow_base.start(threads)
    import tf_blockrnn

    missing = tf_blockrnn.build_info()["xla"]
    if missing:
        raise SystemExit(f"XLA cannot compile the ops here: {missing}")
    bar, rows, interrupted = Progress(len(calls) + len(models)), [], False
    try:
        for part, cases in (("calls", calls), ("fit", models)):
            for case in cases:
                bar.start(f"{part} {case.cell} {case.kind} {dims(case.shape)}")
                if part == "calls":
                    rows.append(_call_row(tf, tf_blockrnn, case, plan, bar))
                else:
                    rows.append(_model_row(case, plan, bar))
                bar.done(_line(rows[-1]) + " us")
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True  # keep minutes of measurements
    stamp["load_at_end"] = machine.load()
    return {
        "schema": 1,
        "bench": "jit",
        "machine": stamp,
        "plan": {"rounds": plan.rounds, "seconds": plan.seconds},
        "interrupted": interrupted,
        "rows": rows,
    }
