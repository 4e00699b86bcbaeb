"""Writes the files of ONNX: with PyTorch 2.13.0 and its two exporters (onnxscript 0.7.2), onnx
1.22.0, tf2onnx 1.17.0, Keras 3.15.1, tf_keras 2.21.0 and ONNX Runtime 1.31.1, which computes y.

PYTHONPATH=. python tests/weights/files/make_onnx.py
"""

import logging
import os
import pathlib
import tempfile
import warnings

import keras
import numpy as np
import onnx
import onnxruntime
import tensorflow as tf
import tf2onnx
import tf_keras
import torch
from onnxruntime import quantization
from onnxscript import FLOAT, script, values
from onnxscript import opset17 as op

from tf_blockrnn import weights

FOLDER = pathlib.Path(__file__).parent
warnings.simplefilter("ignore")
logging.disable()
torch.manual_seed(48)
RANDOM = np.random.default_rng(48)
X = RANDOM.normal(size=(2, 5, 3)).astype(np.float32)


def without_source_paths(graph):
    """Removes where the sources of this program and of the exporter lay."""
    for node in graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                without_source_paths(attribute.g)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.ClearField("metadata_props")


def write(name, model, steps_first=False, refused=False, **inputs):
    """Writes a model, and what ONNX Runtime computes from X with it."""
    without_source_paths(model.graph)
    del model.metadata_props[:]
    for function in model.functions:
        without_source_paths(onnx.GraphProto(node=function.node))
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / f"{name}.onnx")
    if refused:
        return
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    first = session.get_inputs()[0].name
    x = X.swapaxes(0, 1) if steps_first else X
    y = session.run(None, {first: x, **inputs})[0]
    if y.ndim == 4:  # Y of a node, [T, D, B, H]
        y = y.transpose(0, 2, 1, 3).reshape(*y.shape[:1], y.shape[2], -1)
    np.savez(FOLDER / f"{name}.onnx.npz", x=X, y=y.swapaxes(0, 1) if steps_first else y)


# ---- PyTorch

AXES = {"x": {0: "batch", 1: "time"}, "y": {0: "batch", 1: "time"}}


class Learned(torch.nn.Module):
    """With an initial state that is a parameter."""

    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True, **options)
        states = 1 + (kind is torch.nn.LSTM)
        first = self.rnn.num_layers * (1 + self.rnn.bidirectional)
        self.state = torch.nn.ParameterList(torch.randn(first, 1, 4) for _ in range(states))

    def forward(self, x):
        state = [one.expand(-1, x.shape[0], -1).contiguous() for one in self.state]
        return self.rnn(x, tuple(state) if len(state) > 1 else state[0])[0]


class Plain(torch.nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x):
        return self.rnn(x)[0]


class OneStep(torch.nn.Module):
    """By a cell, which exporters write as MatMul, Sigmoid and so on."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(3, 4)

    def forward(self, x):
        return self.cell(x[:, 0])


class Branches(torch.nn.Module):
    """One network for each sampling rate."""

    def __init__(self):
        super().__init__()
        self.fast = torch.nn.GRU(3, 4, batch_first=True)
        self.slow = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, x, rate: torch.Tensor):
        if bool(rate == 16000):
            y = self.fast(x)[0]
        else:
            y = self.slow(x)[0]
        return y


class Conditioned(torch.nn.Module):
    """With weights that are computed from an input."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(3, 4, batch_first=True)

    def forward(self, x, scale):
        flat = [self.rnn.weight_ih_l0 * scale, *list(self.rnn.parameters())[1:]]
        zeros = torch.zeros(1, 2, 4)
        return torch.gru(x, zeros, flat, True, 1, 0.0, False, False, True)[0]


class StoredAsHalf(torch.nn.Module):
    """In float16 on disk, computed in float32."""

    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(3, 4).half()

    def forward(self, x):
        flat = [each.float() for each in self.rnn.parameters()]
        zeros = torch.zeros(1, x.shape[0], 4)
        return torch.lstm(x, (zeros, zeros), flat, True, 1, 0.0, False, False, True)[0]


def by_torchscript(module, opset, *more, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        args = (torch.from_numpy(X), *more)
        names = {"input_names": ["x", "rate"][: len(args)], "output_names": ["y"]}
        options = {"dynamic_axes": AXES, **names, **options}
        torch.onnx.export(module, args, path, dynamo=False, opset_version=opset, **options)
        return onnx.load(path)


def by_dynamo(module, opset):
    dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("time")}
    return torch.onnx.export(
        module.eval(),
        (torch.from_numpy(X),),
        dynamo=True,
        opset_version=opset,
        verbose=False,
        dynamic_shapes=(dims,),
    ).model_proto


LSTM, GRU = torch.nn.LSTM, torch.nn.GRU
write("onnx_torch_9_h0", by_torchscript(Learned(LSTM), 9))
two = Plain(LSTM(3, 4, 2, batch_first=True, bidirectional=True))
write("onnx_torch_14_two_layers", by_torchscript(two, 14))
write("onnx_torch_dynamo_18_h0", by_dynamo(Learned(GRU, bidirectional=True), 18))
write("onnx_torch_dynamo_20", by_dynamo(Plain(LSTM(3, 4, batch_first=True)), 20))
branches = by_torchscript(torch.jit.script(Branches()), 16, torch.tensor(16000))
write("onnx_torch_if", branches, rate=np.array(16000))
given = by_torchscript(
    Conditioned(), 17, torch.tensor(2.0), input_names=["x", "scale"], do_constant_folding=False
)
write("onnx_torch_computed", given, refused=True)
write("onnx_torch_cell", by_torchscript(OneStep(), 17), refused=True)

half = by_torchscript(StoredAsHalf(), 15, do_constant_folding=False)
write("onnx_float16", half)

# ---- Keras

keras.utils.set_random_seed(48)


def with_random_weights(model):
    model.set_weights([RANDOM.normal(0, 0.6, each.shape) for each in model.get_weights()])
    return model


def by_keras(*layers):
    model = with_random_weights(keras.Sequential([keras.Input([None, 3]), *layers]))
    model(X)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        model.export(path, format="onnx", verbose=False)
        return onnx.load(path)


write("onnx_keras_gru", by_keras(keras.layers.GRU(4, return_sequences=True)))
lstm = keras.layers.LSTM(4, return_sequences=True)
write("onnx_keras_bidirectional", by_keras(keras.layers.Bidirectional(lstm)))
old = with_random_weights(
    tf_keras.Sequential(
        [
            tf_keras.layers.Input([None, 3]),
            tf_keras.layers.LSTM(4, return_sequences=True, recurrent_activation="hard_sigmoid"),
        ]
    )
)
signature = [tf.TensorSpec([None, None, 3], tf.float32, name="x")]
model, _ = tf2onnx.convert.from_function(
    tf.function(lambda x: old(x)), input_signature=signature, opset=13
)
write("onnx_keras_2_hard_sigmoid", model)

# ---- ONNX Runtime's quantization


def quantized(model, quantize, **options):
    with tempfile.TemporaryDirectory() as folder:
        source, target = (os.path.join(folder, f"{n}.onnx") for n in range(2))
        onnx.save(model, source)
        quantize(source, target, **options)
        return onnx.load(target)


class Reader(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": X}]

    def get_next(self):
        return self.left.pop() if self.left else None


for name, directions, options in (
    ("onnx_dynamic_quantize", False, {"weight_type": quantization.QuantType.QUInt8}),
    ("onnx_dynamic_quantize_channels", True, {"per_channel": True}),
):
    source = by_torchscript(Plain(LSTM(3, 4, batch_first=True, bidirectional=directions)), 14)
    write(name, quantized(source, quantization.quantize_dynamic, **options))
source = by_torchscript(Plain(GRU(3, 4, batch_first=True)), 14)
model = quantized(
    source,
    quantization.quantize_static,
    calibration_data_reader=Reader(),
    quant_format=quantization.QuantFormat.QDQ,
    op_types_to_quantize=["GRU"],
)
write("onnx_qdq", model)

# ---- a function of the model

own = values.Opset("own", 1)


@script(own, default_opset=op)
def layer(x, w, r, b):
    recurrent = op.Transpose(r, perm=[0, 2, 1])
    y, last = op.GRU(x, op.Transpose(w, perm=[0, 2, 1]), recurrent, b, hidden_size=4)
    return op.Squeeze(y, op.Constant(value_ints=[1]))


arrays = {"w": (1, 3, 12), "r": (1, 4, 12), "b": (1, 24)}
tensors = {
    name: onnx.numpy_helper.from_array(RANDOM.normal(size=shape).astype(np.float32), name)
    for name, shape in arrays.items()
}


@script(default_opset=op)
def main(x: FLOAT["T", "B", 3]) -> FLOAT["T", "B", 4]:  # noqa: F821
    w, r = op.Constant(value=tensors["w"]), op.Constant(value=tensors["r"])
    return layer(x, w, r, op.Constant(value=tensors["b"]))


write("onnx_function", main.to_model_proto(), steps_first=True)

# ---- ours


def direction(inputs):
    shapes = {"w_x": (4, inputs, 4), "w_h": (4, 4, 4), "b_x": (4, 4), "peepholes": (3, 4)}
    shapes |= {"h0": (4,), "c0": (4,)}
    drawn = {n: RANDOM.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
    return weights.DirectionWeights(**drawn)


layers = [weights.LayerWeights(direction(3)), weights.LayerWeights(direction(4))]
write("onnx_ours_h0", weights.to_onnx_model(weights.RecurrentWeights("lstm", layers)), True)
