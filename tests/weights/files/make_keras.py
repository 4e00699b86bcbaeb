"""Writes the files of Keras, one version a run: those of VERSIONS, in this order.

    python -m pip install --no-deps --target FOLDER keras==2.2.4 ...  (each version in its own)
    PYTHONPATH=FOLDER python tests/weights/files/make_keras.py

Keras 3.15.1 and 3.0.5 (which needs dm-tree) and tf_keras 2.21.0 ran on TensorFlow 2.21 and h5py
3.14. So did Keras 2.2.4 (with Keras_Applications 1.0.8 and Keras_Preprocessing 1.1.2), 2.1.6 and
2.0.9, with scipy: `on_a_new_tensorflow` gives them the names that they know. Their layers, models
and writers are their own.
"""

import collections.abc
import importlib.util
import inspect
import os
import pathlib
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).parent
X = np.random.default_rng(48).normal(size=(2, 5, 3)).astype("f4")
STEPS = {"return_sequences": True}


def on_a_new_tensorflow():
    """What Keras before 2.3 imports from Python, NumPy and TensorFlow, and is elsewhere now."""
    import tensorflow as tf
    from tensorflow.python.framework import ops
    from tensorflow.python.ops import control_flow_ops

    os.environ["KERAS_BACKEND"] = "tensorflow"
    for name in ("Callable", "Generator", "Iterable", "Mapping", "Sequence", "Sized"):
        setattr(collections, name, getattr(collections.abc, name))
    spec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")
    inspect.getargspec = lambda function: spec(*inspect.getfullargspec(function)[:4])
    np.float, np.int, np.bool, np.object = float, int, bool, object
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    vars(tf).update({name: getattr(v1, name) for name in dir(v1) if not name.startswith("_")})
    ops._TensorLike = type("_TensorLike", (), {})
    ops.is_dense_tensor_like = lambda one: isinstance(one, (v1.Tensor, v1.Variable))
    control_flow_ops.while_loop, control_flow_ops.cond = v1.while_loop, v1.cond


class Writer:
    """Saves models with weights that are nowhere the same, and what a layer computes."""

    def __init__(self, keras):
        self.keras, self.rng = keras, np.random.default_rng(7)

    def model(self, *layers):
        x = self.keras.layers.Input((5, 3), name="x")
        y = x
        for layer in layers:
            y = layer(y)
        return self.keras.models.Model(x, y)

    def save(self, name, model, *recurrent, weights_only=False, refused=False):
        """`recurrent`: the name of the layer whose outputs are y; else it is the model's."""
        model.set_weights([self.rng.uniform(-0.8, 0.8, w.shape) for w in model.get_weights()])
        path = str(FOLDER / name)
        (model.save_weights if weights_only else model.save)(path)
        if not refused:
            self.outputs(name, model, *recurrent)

    def outputs(self, name, model, *recurrent):
        outputs = [model.get_layer(one).output for one in recurrent] or model.outputs
        y = self.keras.models.Model(model.inputs, outputs[-1]).predict(X)
        np.savez(FOLDER / f"{name}.npz", x=X, y=y)

    def converted(self, model, layer):
        """A model of a layer that runs without a GPU, as Keras converts the weights of another."""
        result = self.model(layer)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "weights.h5")
            model.save_weights(path, save_format="h5")
            result.load_weights(path)
        return result


def keras_3(keras, write):
    layers = keras.layers

    @keras.saving.register_keras_serializable("program")
    class Scale(layers.Layer):
        """A class of the program that wrote the file."""

        def call(self, x):
            return 2 * x

    inner = keras.Sequential(
        [layers.Input((5, 4)), layers.LSTM(2, name="deep", **STEPS)], name="inner"
    )
    low = layers.LSTM(4, name="low", **STEPS)
    model = write.model(low, layers.Dropout(0.5), inner, Scale())
    write.save("keras_3.15.1_nested.keras", model, "inner")
    both = layers.Bidirectional(layers.GRU(4, use_bias=False, **STEPS), name="both")
    write.save("keras_3.15.1_gru.h5", write.model(both, layers.Dense(2, name="dense")), "both")
    hard = layers.LSTM(4, recurrent_activation="hard_sigmoid", **STEPS)
    write.save("keras_3.15.1_hard_sigmoid.keras", write.model(hard))
    both = layers.Bidirectional(layers.LSTM(4, **STEPS))
    write.save("keras_3.15.1_lstm.weights.h5", write.model(both), weights_only=True)
    cells = [layers.GRUCell(4, reset_after=False), layers.GRUCell(2, reset_after=False)]
    write.save("keras_3.15.1_cells.keras", write.model(layers.RNN(cells, **STEPS)))


def keras_3_0(keras, write):
    layers = keras.layers
    both = layers.Bidirectional(layers.SimpleRNN(4, activation="relu", **STEPS), name="both")
    write.save("keras_3.0.5_simple.keras", write.model(both))


def tf_keras(keras, write):
    import tensorflow as tf

    layers = keras.layers
    both = layers.Bidirectional(layers.LSTM(4, **STEPS), name="both")
    write.save("tf_keras_2.21.0_lstm.h5", write.model(both, layers.Dense(2, name="dense")), "both")
    cells = [layers.LSTMCell(4), layers.LSTMCell(2)]
    write.save("tf_keras_2.21.0_cells.keras", write.model(layers.RNN(cells, **STEPS)))
    inner = keras.Sequential([layers.GRU(2, input_shape=(5, 4), **STEPS)], name="inner")
    write.save("tf_keras_2.21.0_nested.h5", write.model(layers.GRU(4, **STEPS), inner))
    before = layers.GRU(4, reset_after=False, use_bias=False, **STEPS)
    write.save("tf_keras_2.21.0_gru.keras", write.model(before))
    write.save("tf_keras_2.21.0_simple.h5", write.model(layers.SimpleRNN(4, **STEPS)))
    cudnn = tf.compat.v1.keras.layers.CuDNNGRU(4, **STEPS)
    model = write.model(cudnn)
    write.save("tf_keras_2.21.0_cudnn.keras", model, refused=True)
    write.outputs("tf_keras_2.21.0_cudnn.keras", write.converted(model, layers.GRU(4, **STEPS)))
    hard = layers.GRU(4, recurrent_activation="hard_sigmoid", **STEPS)
    write.save("tf_keras_2.21.0_hard_sigmoid.keras", write.model(hard))
    summed = layers.Bidirectional(layers.LSTM(4, **STEPS), "sum", name="both")
    write.save("tf_keras_2.21.0_sum.keras", write.model(summed), refused=True)
    first = layers.LSTM(4, time_major=True, name="lstm", **STEPS)
    write.save("tf_keras_2.21.0_time_major.h5", write.model(first), refused=True)
    lstm = layers.LSTM(4, **STEPS)
    write.save("tf_keras_2.21.0_lstm.weights.h5", write.model(lstm), weights_only=True)
    both = layers.Bidirectional(layers.GRU(4, **STEPS))
    write.save("tf_keras_2.21.0_weights.h5", write.model(both), weights_only=True)


def keras_2_2(keras, write):
    layers = keras.layers
    both = layers.Bidirectional(layers.LSTM(4, name="lstm", **STEPS), name="both")
    write.save("keras_2.2.4_lstm.h5", write.model(both))


def keras_2_1(keras, write):
    layers, options = keras.layers, {"recurrent_activation": "sigmoid", **STEPS}
    model = keras.models.Sequential()
    model.add(layers.GRU(4, input_shape=(5, 3), name="one", **options))
    model.add(layers.Dropout(0.5))
    model.add(layers.GRU(2, name="two", **options))
    write.save("keras_2.1.6_gru.h5", model)
    cells = [layers.LSTMCell(n, recurrent_activation="sigmoid") for n in (4, 2)]
    write.save("keras_2.1.6_cells.h5", write.model(layers.RNN(cells, **STEPS)))


def keras_2_0(keras, write):
    layers = keras.layers
    lstm = layers.LSTM(4, name="lstm", **STEPS)
    write.save("keras_2.0.9_weights.h5", write.model(lstm), weights_only=True)


VERSIONS = {
    "3.15.1": keras_3,
    "3.0.5": keras_3_0,
    "2.21.0": tf_keras,
    "2.2.4": keras_2_2,
    "2.1.6": keras_2_1,
    "2.0.9": keras_2_0,
}


def main():
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        import tf_keras as keras
    else:
        found = importlib.util.find_spec("keras").submodule_search_locations[0]
        if not (pathlib.Path(found) / "src").exists():
            on_a_new_tensorflow()
        import keras
    VERSIONS[keras.__version__](keras, Writer(keras))


if __name__ == "__main__":
    main()
