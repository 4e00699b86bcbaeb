"""Training steps of a layer in a tf.function, ours against Keras' own.

Two benches: with a gradient penalty, whose step needs second derivatives, and with layer
normalisation. The time of the first call, tracing included, is a measurement of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench import tidy, timing
from bench.shapes import LAYERS, Case

# The loss of the first step, relative, between contenders with the same weights.
_SAME_LOSS = 1e-3


def _layers(case: Case) -> dict[str, Any]:
    """The contenders, all with the same weights but "plain", which has fewer."""
    import keras

    from bench.peers import keras_cells
    from tf_blockrnn import layers

    kind, more = LAYERS[case.cell], {"return_sequences": True}
    if case.group == "derivatives":
        made = {"ours": getattr(layers, kind), "keras": getattr(keras.layers, kind)}
        return {name: make(case.units, **more) for name, make in made.items()}
    return {
        "ours": getattr(layers, f"LayerNorm{kind}")(case.units, **more),
        "plain": getattr(layers, kind)(case.units, **more),
        "keras": keras.layers.RNN(
            keras_cells.make_cell(f"ln_{case.cell}", case.units, ours=False), **more
        ),
    }


def _step(tf: Any, layer: Any, penalty: bool) -> Callable[[Any], list[Any]]:
    """x -> a loss and its gradients: with a gradient penalty by the weights, else by x too."""

    @tf.function
    def step(x: Any) -> list[Any]:
        with tf.GradientTape() as outer:
            if not penalty:
                outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                loss = tf.reduce_sum(layer(x) ** 2)
            if penalty:
                norms = tf.reduce_sum(inner.gradient(loss, x) ** 2, axis=[1, 2])
                loss += tf.reduce_sum((norms - 1) ** 2)
        wanted = layer.trainable_variables if penalty else [x, *layer.trainable_variables]
        return [loss, *outer.gradient(loss, wanted)]

    return step


def measure(tf: Any, case: Case, plan: timing.Plan, note: Callable[[str], None]) -> list[tidy.Row]:
    """The rows of one case."""
    shape = (case.batch, case.steps, case.inputs)
    x = tf.constant(np.random.default_rng(0).normal(size=shape), tf.float32)
    runners, first, losses, weights = {}, [], {}, None
    for name, layer in _layers(case).items():
        note(f"tracing {name}")
        layer.build(shape)
        if name != "plain":
            weights = weights or layer.get_weights()
            layer.set_weights(weights)
        step = _step(tf, layer, penalty=case.group == "derivatives")
        runners[name] = timing.in_process(lambda step=step: step(x)[-1].numpy())
        more = timing.summary([runners[name](1, 0)])
        first.append({**case.fields(), "contender": f"{name}, first call", **more})
        losses[name] = float(step(x)[0])
    if not abs(losses["ours"] - losses["keras"]) <= _SAME_LOSS * abs(losses["keras"]):
        raise RuntimeError(f"ours has the loss {losses['ours']}, Keras {losses['keras']}")
    return [*tidy.measured(case.fields(), runners, plan, note), *first]
