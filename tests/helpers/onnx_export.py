"""Exports models and functions to ONNX and runs the files."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Sequence

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
from keras.src.export.onnx import export_onnx

RECURRENT = {"LSTM", "GRU", "RNN"}


def randomise(model: keras.Model, *inputs: np.ndarray) -> list[np.ndarray]:
    """Calls the model, which an export needs, with random weights; returns the outputs, flat.

    Biases are random too: with Keras' zeros a wrong order of gates would not show.
    """
    given = inputs[0] if len(inputs) == 1 else list(inputs)
    model(given)
    random = np.random.default_rng(11)
    model.set_weights([random.normal(0, 0.6, w.shape) for w in model.get_weights()])
    return [np.asarray(output) for output in keras.tree.flatten(model(given))]


def needs_opset_of_choice() -> None:
    """Skips a test where Keras' export takes no opset and ignores the argument, as in 3.11."""
    if "opset_version" not in inspect.signature(export_onnx).parameters:
        pytest.skip(f"not run: the ONNX export of Keras {keras.__version__} takes no opset")


def export(model: keras.Model, path: pathlib.Path, **options) -> onnx.ModelProto:
    """Exports with Keras' own method; returns the file's content, checked."""
    model.export(str(path), format="onnx", verbose=False, **options)
    return checked(onnx.load(path))


def checked(proto: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(proto, full_check=True)
    return proto


def run(proto: onnx.ModelProto, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_inputs()]
    return session.run(None, dict(zip(names, map(np.asarray, inputs), strict=True)))


def nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """All nodes, those of the bodies of loops included."""
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += nodes(attribute.g)
    return found


def recurrent_nodes(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in nodes(proto.graph) if node.op_type in RECURRENT]


def assert_weights_are_folded(proto: onnx.ModelProto) -> None:
    """No node reads weights that are computed at run time from constants."""
    constants = {each.name for each in proto.graph.initializer}
    for node in recurrent_nodes(proto):
        assert {name for name in node.input[1:4] if name} <= constants, node
