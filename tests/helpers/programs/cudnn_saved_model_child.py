"""Makes models that hold TensorFlow's cuDNN ops, as a machine with a GPU makes them.

Usage: cudnn_saved_model_child.py FOLDER. It must not import the package: every model is run once
here, and must fail for want of a kernel. The last line of standard output is JSON, the error of
each model by its name. FOLDER/arrays.npz has the inputs, the weights and what Keras computes by
itself, without cuDNN.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

STEPS, BATCH, INPUTS, UNITS, LAYERS = 6, 4, 3, 5, 2
PARAMS = 2 * 4 * UNITS * (INPUTS + UNITS + 2) + 2 * 4 * UNITS * (2 * UNITS + UNITS + 2)
LENGTHS = (6, 1, 4, 3)
RATE = 2.0  # of the optimizer's steps that are part of a model


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    shapes = {
        "x": (BATCH, STEPS, INPUTS),
        "h": (BATCH, 2 * LAYERS, UNITS),
        "c": (BATCH, 2 * LAYERS, UNITS),
        "params": (PARAMS,),
        "target": (2 * UNITS,),
    }
    found = {k: rng.uniform(-0.5, 0.5, v).astype(np.float32) for k, v in shapes.items()}
    # Within reach of the model: the same at every step, and 0 past the lengths.
    found["target"] = alive().astype(np.float32) * found["target"]
    return found


def alive() -> np.ndarray:
    """[B, T, 1]: which steps count."""
    return (np.arange(STEPS) < np.array(LENGTHS)[:, None])[..., None]


class Stock(tf.Module):
    """Two bidirectional layers by tf.raw_ops, with the step that trains them."""

    def __init__(self, values):
        super().__init__()
        self.params = tf.Variable(values["params"])
        self.h, self.c = tf.constant(values["h"]), tf.constant(values["c"])

    def _run(self, x, lengths):
        return tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=self.h,
            input_c=self.c,
            params=self.params,
            sequence_lengths=lengths,
            direction="bidirectional",
            time_major=False,
        )

    _X = tf.TensorSpec([BATCH, None, INPUTS], tf.float32)
    _LENGTHS = tf.TensorSpec([BATCH], tf.int32)

    @tf.function(input_signature=[_X, _LENGTHS])
    def __call__(self, x, lengths):
        return self._run(x, lengths)[:3]

    @tf.function(input_signature=[_X, _LENGTHS, tf.TensorSpec(None, tf.float32)])
    def train(self, x, lengths, target):
        """One step of gradient descent; the Backprop op is in the saved graph."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self._run(x, lengths).output - target) ** 2)
        self.params.assign_sub(RATE * tape.gradient(loss, self.params))
        return loss


def version_1(folder, values) -> None:
    """A GraphDef with CudnnRNN and CudnnRNNV2 and their gradients, placed on a GPU by name."""
    graph = tf.Graph()
    with graph.as_default():
        given = {
            k: tf.compat.v1.placeholder(tf.float32, v, name=k)
            for k, v in {
                "input": (None, None, INPUTS),
                "input_h": (2 * LAYERS, None, UNITS),
                "input_c": (2 * LAYERS, None, UNITS),
                "params": (PARAMS,),
            }.items()
        }
        with graph.device("/device:GPU:0"):
            for name in ("CudnnRNN", "CudnnRNNV2"):
                outputs = getattr(tf.raw_ops, name)(**given, direction="bidirectional", name=name)
                loss = tf.reduce_sum(outputs.output**2) + tf.reduce_sum(outputs.output_c)
                for key, gradient in zip(
                    given, tf.gradients(loss, list(given.values())), strict=True
                ):
                    tf.identity(gradient, name=f"{name}_{key}_gradient")
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with tf.compat.v1.Session(graph=graph) as session:
        feeds = {f"{k}:0": np.swapaxes(values[s], 0, 1) for k, s in
                 (("input", "x"), ("input_h", "h"), ("input_c", "c"))}  # fmt: skip
        session.run("CudnnRNN:0", {**feeds, "params:0": values["params"]})


def keras_model() -> keras.Model:
    """What people train: a masked bidirectional LSTM, a GRU above it, one that runs backwards."""
    inputs = keras.Input((None, INPUTS))
    x = keras.layers.Masking(0.0)(inputs)
    x = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))(x)
    x = keras.layers.GRU(UNITS, return_sequences=True)(x)
    x = keras.layers.LSTM(UNITS, go_backwards=True)(x)
    return keras.Model(inputs, keras.layers.Dense(2)(x))


def choose_cudnn() -> None:
    """What Keras asks: before it takes the op, whether there is a GPU; then, for the order of
    GRU's gates, whether TensorFlow was built with CUDA."""
    module = importlib.import_module("keras.src.backend.tensorflow.rnn")
    assert callable(module._is_gpu_available)
    module._is_gpu_available = lambda: True
    info = {**tf.sysconfig.get_build_info(), "is_cuda_build": True}
    tf.sysconfig.get_build_info = lambda: info


def padded(values) -> np.ndarray:
    """x with zeros, which the model masks, past the lengths."""
    return np.where(alive(), values["x"], 0).astype(np.float32)


def plain_keras(model, values) -> dict[str, np.ndarray]:
    """Output and gradients as Keras computes them step by step, on a CPU."""
    with tf.GradientTape() as tape:
        output = model(tf.constant(padded(values)))
        loss = tf.reduce_sum(output**2)
    gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
    found = {f"keras_gradient_{k}": value for k, value in enumerate(gradients)}
    return {k: np.asarray(v) for k, v in {**found, "keras_output": output}.items()}


def freeze(function, path: pathlib.Path) -> None:
    frozen = convert_to_constants.convert_variables_to_constants_v2(function)
    assert not frozen.variables
    path.write_bytes(frozen.graph.as_graph_def().SerializeToString())


def error_of(call) -> str:
    try:
        call()
    except tf.errors.OpError as error:
        return f"{type(error).__name__}: {error.message}"
    except NotImplementedError as error:
        return f"NotImplementedError: {error}"
    return "none"


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    values, errors = arrays(), {}
    stock = Stock(values)
    lengths = tf.constant(LENGTHS, tf.int32)
    errors["stock"] = error_of(lambda: stock(tf.constant(values["x"]), lengths))
    tf.saved_model.save(stock, str(folder / "stock"))
    freeze(stock.__call__.get_concrete_function(), folder / "frozen.pb")
    errors["graph"] = error_of(lambda: version_1(folder, values))

    keras.utils.set_random_seed(3)
    plain = keras_model()
    for variable in plain.trainable_variables:
        if "bias" in variable.path:  # zeros would hide a wrong order
            variable.assign(np.random.default_rng(1).uniform(-0.3, 0.3, variable.shape))
    values |= plain_keras(plain, values)
    choose_cudnn()
    model = keras_model()
    model.set_weights(plain.get_weights())
    serve = tf.function(model).get_concrete_function(tf.TensorSpec([None, None, INPUTS]))
    errors["keras"] = error_of(lambda: serve(tf.constant(padded(values))))
    archive = tf.Module()
    archive.variables_of = [v.value for v in model.trainable_variables]
    archive.serve = tf.function(model, input_signature=[tf.TensorSpec([None, None, INPUTS])])
    tf.saved_model.save(archive, str(folder / "keras"))
    model.export(str(folder / "export"), verbose=False)
    freeze(serve, folder / "keras_frozen.pb")
    np.savez(folder / "arrays.npz", **values)
    assert "tf_blockrnn" not in sys.modules
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
