"""A whole model and its LSTM alone: the voice activity detector that the package silero-vad has.

    pip install --no-deps --target /tmp/vad silero-vad==6.2.3
    python -m bench.vad /tmp/vad/silero_vad/data/silero_vad_16k_sequence.onnx

The file in ONNX Runtime; the same model and weights in Keras, on the fused ops, and in LiteRT; and
its LSTM in a session. All use one thread. One frame of 32 ms per call, then 512 frames per call.
The results of the whole models are compared before they are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import machine, timing

_SAMPLES, _BINS, _UNITS = 576, 129, 128
# In the file: the input of the LSTM node, and its output without the axis of directions.
_LSTM_IN, _LSTM_OUT = "/Transpose_output_0", "/recurrent/Squeeze_output_0"


def _keras_model(onnx_model: Any, lstm: Any, frames: int) -> Any:
    """The model in Keras: spectrum, four convolutions, LSTM, one output for each frame."""
    import keras
    import onnx
    from keras import layers

    from tf_blockrnn import weights

    x = keras.Input(batch_shape=(frames, _SAMPLES), name="x")
    state = [keras.Input(batch_shape=(1, _UNITS), name=name) for name in "hc"]
    y = keras.ops.expand_dims(keras.ops.pad(x, [[0, 0], [0, 64]], mode="reflect"), -1)
    y = layers.Conv1D(2 * _BINS, 256, strides=128, use_bias=False, name="stft")(y)
    y = keras.ops.sqrt(y[:, :, :_BINS] ** 2 + y[:, :, _BINS:] ** 2)
    for number, (filters, stride) in enumerate([(128, 1), (64, 2), (64, 2), (128, 1)]):
        options = {"strides": stride, "activation": "relu", "name": f"encoder.{number}"}
        y = layers.Conv1D(filters, 3, **options)(layers.ZeroPadding1D(1)(y))
    y = keras.ops.reshape(y, [1, frames, _UNITS])
    recurrent = layers.LSTM(_UNITS, return_sequences=True, return_state=True)
    y, h, c = recurrent(y, initial_state=state)
    y = layers.Dense(1, activation="sigmoid", name="output")(keras.ops.relu(y))
    model = keras.Model([x, *state], [keras.ops.reshape(y, [frames]), h, c])

    arrays = {one.name: onnx.numpy_helper.to_array(one) for one in onnx_model.graph.initializer}
    recurrent.set_weights(weights.to_keras(lstm)[0])
    model.get_layer("stft").set_weights([arrays["stft.forward_basis_buffer"].T])
    for name in ("encoder.0", "encoder.1", "encoder.2", "encoder.3", "output"):
        layer = model.get_layer(name)
        kernel = arrays[f"{name}.weight"].T.reshape(layer.kernel.shape)
        layer.set_weights([kernel, arrays[f"{name}.bias"]])
    return model


def _onnx_session(onnx_model: Any, **options: Any) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    for name, value in options.items():
        setattr(settings, name, value)
    content = onnx_model.SerializeToString()
    return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


def _seconds_of_lstm(onnx_model: Any, feed: dict[str, np.ndarray]) -> list[float]:
    """The times of the LSTM node in ONNX Runtime's profile."""
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "profile")
        session = _onnx_session(onnx_model, enable_profiling=True, profile_file_prefix=prefix)
        for _ in range(500):
            session.run(None, feed)
        events = json.loads(pathlib.Path(session.end_profiling()).read_text("utf-8"))
    return [1e-6 * e["dur"] for e in events if e.get("args", {}).get("op_name") == "LSTM"]


def _calls(file: pathlib.Path, frames: int) -> tuple[dict[str, Callable[[], Any]], list[float]]:
    """The contenders, and the times of the LSTM node in ONNX Runtime."""
    import onnx
    import tensorflow as tf
    from ai_edge_litert.interpreter import Interpreter

    import tf_blockrnn
    from tf_blockrnn import inference, weights

    onnx_model = onnx.shape_inference.infer_shapes(onnx.load(file))
    x = np.random.default_rng(0).normal(size=(frames, _SAMPLES)).astype(np.float32) / 10
    h = c = np.zeros([1, _UNITS], np.float32)
    feed = {"input": x, "h": h[None], "c": c[None]}
    whole = _onnx_session(onnx_model)

    [lstm] = weights.from_onnx(onnx_model).values()
    session = inference.Session(lstm)
    extract = onnx.utils.Extractor(onnx_model).extract_model
    below = _onnx_session(extract(["input"], [_LSTM_IN]))
    above = _onnx_session(extract([_LSTM_OUT], ["speech_probs"]))

    def with_session() -> np.ndarray:
        (y,) = below.run(None, {"input": x})
        y, _ = session.run(y.reshape(1, frames, _UNITS), state=(h, c))
        return above.run(None, {_LSTM_OUT: y.reshape(frames, 1, _UNITS)})[0]

    model = _keras_model(onnx_model, lstm, frames)
    given = [tf.constant(value) for value in (x, h, c)]

    def traced(**options: Any) -> Callable[[], np.ndarray]:
        function = tf.function(lambda *inputs: model(list(inputs)), **options)
        concrete = function.get_concrete_function(*given)
        return lambda: concrete(*given)[0].numpy()

    plain = traced()
    with tf_blockrnn.enable_keras():
        fused, compiled = traced(), traced(jit_compile=True)
    interpreter = Interpreter(model_content=tf_blockrnn.to_litert(model), num_threads=1)
    litert = interpreter.get_signature_runner("serving_default")

    calls = {
        "ONNX Runtime": lambda: whole.run(None, feed)[0],
        "ONNX Runtime, its LSTM in a session": with_session,
        "Keras": plain,
        "Keras, fused": fused,
        "Keras, fused, XLA": compiled,
        "LiteRT": lambda: litert(x=x, h=h, c=c)["output_0"],
    }
    want = calls["ONNX Runtime"]()
    for name, call in calls.items():
        np.testing.assert_allclose(call(), want, rtol=1e-3, atol=1e-5, err_msg=name)
    (y,) = below.run(None, {"input": x})
    y = y.reshape(1, frames, _UNITS)
    calls["LSTM alone, session"] = lambda: session.run(y, state=(h, c))
    return calls, _seconds_of_lstm(onnx_model, feed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path, help="silero_vad_16k_sequence.onnx")
    parser.add_argument("--seconds", type=float, default=5, help="for each contender")
    arguments = parser.parse_args()

    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    stamp = machine.stamp(threads=1) | {"load_at_start": machine.load()}
    for name in ("cpu", "cpu_family_model_stepping", "cores", "load_at_start", "versions"):
        print(f"{name}: {stamp[name]}")
    for frames in (1, 512):
        calls, of_lstm = _calls(arguments.file, frames)
        runners = {name: timing.in_process(call) for name, call in calls.items()}
        rounds = timing.alternate(runners, timing.Plan(seconds=arguments.seconds))
        print(f"\nframes per call: {frames}; median (quartiles), µs per call")
        for name, times in rounds.items():
            found = timing.summary(times)
            low, middle, high = (1e3 * found[key] for key in ("p25", "median", "p75"))
            print(f"{name:38}{middle:9.1f}  ({low:.1f} to {high:.1f})")
        middle = 1e6 * statistics.median(of_lstm)
        print(f"{'LSTM alone, in the profile of the first':38}{middle:9.1f}", flush=True)


if __name__ == "__main__":
    main()
