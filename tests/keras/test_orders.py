"""Models that predict before they train, or train first: the weights are the same."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import tolerances
from helpers.compare import assert_close
from helpers.layer_pairs import BATCH, INPUT, TIME, UNITS, randomise, sequence

pytestmark = pytest.mark.xla

BOUND = tolerances.composed_bound("float32", 4 * TIME * BATCH * (INPUT + UNITS))
LAYERS = ("LSTM", "GRU", "GRUCell", "LayerNormLSTM", "SimpleRNN")


def _model(layers, name: str) -> keras.Model:
    """One layer of that kind after another; a cell runs in keras.layers.RNN."""
    if name == "GRUCell":
        cells = [layers.GRUCell(UNITS, reset_after=False) for _ in range(2)]
        stack = [keras.layers.RNN(cell, return_sequences=True) for cell in cells]
    else:
        stack = [getattr(layers, name)(UNITS, return_sequences=True) for _ in range(2)]
    model = keras.Sequential([keras.Input((TIME, INPUT), batch_size=BATCH), *stack])
    randomise(model)
    return model


def _loss(call, x):
    return tf.reduce_mean(call(x) ** 2)


def _by_hand(model, call, mode):
    """Two steps of training on `call`, with a tape around it."""
    x, optimizer = tf.constant(sequence()), keras.optimizers.SGD(0.5)
    optimizer.build(model.trainable_variables)

    def step():
        with tf.GradientTape() as tape:
            loss = _loss(call, x)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables,
                strict=True)
        )  # fmt: skip

    step = tf.function(step) if mode == "graph" else step
    for _ in range(2):
        step()
    return model.get_weights()


def _fit(model, order, **options):
    """Two steps of training by Keras, with predictions before and after or after alone."""
    x = sequence()
    model.compile(keras.optimizers.SGD(0.5), "mse", **options)
    for call in order:
        if call == "fit":
            model.fit(x, np.zeros([BATCH, TIME, UNITS]), BATCH, epochs=2, verbose=0)
        else:
            getattr(model, call)(x, verbose=0)
    return model.get_weights()


def _assert_same(got, want):
    for number, (value, expected) in enumerate(zip(got, want, strict=True)):
        assert_close(value, expected, BOUND, f"weight {number}")


# Not of cells: the gradient of Keras' loop over them cannot leave a compiled program.
@pytest.mark.parametrize("name", [name for name in LAYERS if name != "GRUCell"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_compiled_call_that_is_traced_before_training(tfb, name, mode):
    found = []
    for compiled in (False, True):
        model = _model(tfb.layers, name)
        call = model
        if compiled:
            call = tf.function(lambda x, model=model: model(x), jit_compile=True)
            call(tf.constant(sequence()))
        found.append(_by_hand(model, call, mode))
    _assert_same(found[1], found[0])


@pytest.mark.parametrize(
    "order", [("predict", "fit"), ("fit", "predict"), ("predict", "fit", "fit")]
)
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("layers", ["ours", "Keras'"])
def test_predict_and_fit(tfb, order, jit_compile, layers):
    epochs = ("fit",) * order.count("fit")
    want = _fit(_model(keras.layers, "LSTM"), epochs, run_eagerly=True)
    if layers == "ours":
        got = _fit(_model(tfb.layers, "LSTM"), order, jit_compile=jit_compile)
    else:
        with tfb.enable_keras():
            got = _fit(_model(keras.layers, "LSTM"), order, jit_compile=jit_compile)
    _assert_same(got, want)
