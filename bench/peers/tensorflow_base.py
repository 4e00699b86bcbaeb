"""Functions shared by the adapters on TensorFlow: start-up, tracing, the GEMM peak."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.peers import base


def start(threads: int) -> Any:
    """Imports TensorFlow with `threads` threads for the kernels and one for the executor."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


@dataclasses.dataclass
class Model:
    """One layer. `x` and `weights` are variables, as in a model, so no constant can be folded."""

    x: Any
    weights: list[Any]
    cotangent: Any  # of h; the loss is sum(h * cotangent)
    forward: Callable[[Any], Any]  # x -> h
    # () -> (h, gradients of x and of all weights); without it the tape is used.
    step: Callable[[], tuple[Any, ...]] | None = None
    batch_major: bool = False
    valid: np.ndarray | None = None  # [T, B], where h counts; everywhere when None
    xla: bool = False
    # The check of the outcome traces its own function within this context, which fixes the dropout.
    fixed: Callable[[], contextlib.AbstractContextManager[None]] | None = None


def prepared(tf: Any, model: Model, train: bool) -> base.Prepared:
    """One tf.function of the forward, or of forward and backward when `train`."""

    def infer():
        return (model.forward(model.x),)

    def step():
        if model.step:
            return model.step()
        wanted = [model.x, *model.weights]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            h = model.forward(model.x)
        # The gradients of sum(h * cotangent), without computing the sum itself.
        return (h, *tape.gradient(h, wanted, output_gradients=model.cotangent))

    def trace() -> Any:
        return tf.function(step if train else infer, jit_compile=model.xla).get_concrete_function()

    function = trace()

    def outcome() -> base.Outcome:
        if model.fixed:
            with model.fixed():
                checked = trace()
        else:
            checked = function
        arrays = [tf.cast(out, tf.float32).numpy() for out in checked()[:2]]
        if model.batch_major:
            arrays = [array.swapaxes(0, 1) for array in arrays]
        if model.valid is not None:
            arrays[0] = arrays[0] * model.valid[..., None]
        return base.Outcome(*arrays)

    # A concrete function returns when the graph has run: eager CPU execution is synchronous.
    return base.Prepared(call=function, outcome=outcome)


def empty(tf: Any, jit_compile: bool = False) -> Callable[[], object]:
    """An empty tf.function: no call of one can take less."""
    x = tf.Variable(0.0)

    @tf.function(jit_compile=jit_compile)
    def nothing():
        return (x.read_value(),)

    return nothing.get_concrete_function()


def gemm(tf: Any, size: int) -> Callable[[], object]:
    """A float32 GEMM of two [size, size] matrices."""
    a, b = (tf.Variable(m) for m in base.square(size))

    @tf.function
    def multiply():
        return tf.matmul(a, b)

    return multiply.get_concrete_function()
