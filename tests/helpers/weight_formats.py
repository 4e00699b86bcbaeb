"""The formats of weights: how the form of each framework is made, read, and computed with."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf
import torch

from helpers import norm_cells, onnx_export, tolerances, weight_stacks
from helpers.compare import assert_close
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from helpers.weight_stacks import NORM_CELLS, Stack
from tf_blockrnn import weights
from tf_blockrnn.weights import npz

KEEP_ALL = {"package": "tf_blockrnn", "return_sequences": True}


def assert_computes(got: list[np.ndarray], want: weight_stacks.Result, stack: Stack) -> None:
    """That these outputs, and h and c where there are any, are those of weight_stacks.run."""
    bound = tolerances.stack_bound(stack.dtype, stack.reduction_length, stack.layers)
    for what, mine, its in zip(want._fields, got, want, strict=False):
        if what != "c" or stack.cell == "lstm":
            assert_close(mine, its, bound, what)


def network_of(stack: Stack, skip: bool = False) -> Network:
    return Network(
        stack.cell, stack.layers, stack.directions, stack.inputs, stack.units, stack.proj, skip
    )


def cudnn_arguments(net: Network) -> dict[str, Any]:
    """The arguments that from_cudnn needs for a network."""
    attrs = Call(net).attrs()
    return {
        **{name: attrs[name] for name in ("rnn_mode", "direction", "input_mode", "num_proj")},
        "num_layers": net.layers,
        "num_units": net.units,
        "input_size": net.inputs,
    }


def run_cudnn(params: np.ndarray, x: np.ndarray, net: Network) -> list[np.ndarray]:
    zeros = [np.zeros([net.layer_directions, x.shape[1], n]) for n in (net.width, net.units)]
    call = Call(net, x.shape[0], x.shape[1])
    arrays = dict(zip(("input", "input_h", "input_c", "params"), (x, *zeros, params), strict=True))
    result = call.forward(tf.raw_ops, call.tensors(arrays), is_training=False)
    return [result.output.numpy(), result.output_h.numpy(), result.output_c.numpy()]


def torch_options(cell: str) -> dict[str, str]:
    """What tells the kinds of PyTorch's RNN and RNNCell apart."""
    return {"nonlinearity": cell.removeprefix("rnn_")} if cell.startswith("rnn") else {}


def torch_module(stack: Stack, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    """With PyTorch's own random weights."""
    options: dict[str, Any] = {"bidirectional": stack.directions == 2, "bias": bool(stack.biases)}
    if stack.proj:
        options["proj_size"] = stack.proj
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(stack.cell, torch.nn.RNN)
    options |= torch_options(stack.cell)
    torch.manual_seed(3)
    return kind(stack.inputs, stack.units, stack.layers, dtype=dtype, **options)


def run_torch(state: dict[str, np.ndarray], x: np.ndarray, stack: Stack) -> list[np.ndarray]:
    module = torch_module(stack)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in state.items()})
    with torch.no_grad():
        output, last = module(torch.from_numpy(x))
    last = last if isinstance(last, tuple) else (last,)
    return [value.numpy() for value in (output, *last)]


def from_torch(state, stack: Stack):
    return weights.from_torch(state, cell=stack.cell if stack.cell.startswith("rnn") else None)


def stacked(parts):
    """One stack of those of its layers."""
    return dataclasses.replace(parts[0], layers=[layer for part in parts for layer in part.layers])


def from_onnx(model, stack: Stack):
    found = weights.from_onnx(onnx.load_from_string(model.SerializeToString()))
    assert list(found) == [f"{stack.cell}_{n}" for n in range(stack.layers)]
    return stacked(list(found.values()))


def run_onnx(
    model: onnx.ModelProto, x: np.ndarray, stack: Stack, batch_first: bool = False
) -> list[np.ndarray]:
    """By ONNX Runtime; `batch_first` if that is how the model takes x and gives its outputs."""
    names = [output.name for output in model.graph.output]
    outputs = onnx_export.run(model, [x.swapaxes(0, 1) if batch_first else x])
    if batch_first:
        outputs = [output.swapaxes(0, 1) for output in outputs]
    found = dict(zip(names, outputs, strict=True))
    states = ["Y_h", "Y_c"] if stack.cell == "lstm" else ["Y_h"]
    layers = range(stack.layers)
    return [found["Y"], *(np.concatenate([found[f"{n}_{k}"] for k in layers]) for n in states)]


def run_keras(layers, x: np.ndarray) -> np.ndarray:
    """The outputs of all steps, [T, B, D · P]."""
    value = np.swapaxes(x, 0, 1)
    for layer in layers:
        value = layer(value)
    return np.swapaxes(keras.ops.convert_to_numpy(value), 0, 1)


def run_arrays(arrays, x: np.ndarray, stack: Stack) -> list[np.ndarray]:
    """By our layers, which have the weights of Keras', once they are given these arrays."""
    layers = weights.to_keras_layers(from_arrays(arrays, stack), **KEEP_ALL)
    for layer, own in zip(layers, arrays, strict=True):
        layer.set_weights(own)
    return [run_keras(layers, x)]


def from_arrays(arrays, stack: Stack):
    options: dict[str, Any] = {"cell": stack.cell, "bidirectional": stack.directions == 2}
    if stack.cell == "gru":
        options["reset_after"] = stack.reset_after
    if stack.cell in NORM_CELLS:
        options["epsilon"] = stack.epsilon
    if stack.cell == "layer_norm_lstm":
        options["norm_output_only"] = stack.norm_output_only
    return weights.from_keras(arrays, **options)


def run_addons(arrays, x: np.ndarray, stack: Stack) -> list[np.ndarray]:
    """One layer by the equations of Addons; of a stack by ours, which have the same arrays."""
    if stack.layers == stack.directions == 1:
        return [norm_cells.addons_lstm(arrays[0], x, stack.epsilon)]
    return run_arrays(arrays, x, stack)


def to_npz(described):
    file = io.BytesIO()
    npz.to_npz(described, file)
    return file.getvalue()


@dataclasses.dataclass(frozen=True)
class Format:
    """How a framework's form of weights is made, read, and computed with.

    run: takes that form, x, [T, B, I], and the stack; returns the outputs of all steps, and h and c
      where the framework returns them.
    dtype: which the framework computes in.
    """

    write: Callable[[weights.RecurrentWeights], Any]
    read: Callable[[Any, Stack], weights.RecurrentWeights]
    run: Callable[[Any, np.ndarray, Stack], list[np.ndarray]] | None = None
    dtype: str = "float64"


FORMATS = {
    "cudnn": Format(
        weights.to_cudnn,
        lambda params, stack: weights.from_cudnn(params, **cudnn_arguments(network_of(stack))),
        lambda params, x, stack: run_cudnn(params, x, network_of(stack)),
    ),
    "torch": Format(weights.to_torch, from_torch, run_torch),
    "onnx": Format(weights.to_onnx_model, from_onnx, run_onnx, "float32"),
    "onnx nodes": Format(
        weights.to_onnx, lambda nodes, _: stacked([weights.from_onnx(node) for node in nodes])
    ),
    "keras": Format(
        lambda described: weights.to_keras_layers(described, return_sequences=True),
        lambda layers, _: weights.from_keras(layers),
        lambda layers, x, _: [run_keras(layers, x)],
    ),
    "keras arrays": Format(weights.to_keras, from_arrays, run_arrays),
    "our layers": Format(
        lambda described: weights.to_keras_layers(described, **KEEP_ALL),
        lambda layers, _: weights.from_keras(layers),
        lambda layers, x, _: [run_keras(layers, x)],
    ),
    "our arrays": Format(
        lambda described: weights.to_keras(described, package="tf_blockrnn"),
        from_arrays,
        run_arrays,
    ),
    "addons": Format(
        weights.to_addons,
        lambda arrays, stack: weights.from_addons(
            arrays, bidirectional=stack.directions == 2, epsilon=stack.epsilon
        ),
        run_addons,
    ),
    "npz": Format(to_npz, lambda content, _: npz.from_npz(io.BytesIO(content))),
}
