"""What PyTorch and ONNX Runtime compute for a network of stack, on the CPU.

Both use the same cells as cuDNN. Their own order of gates and weights is part of what is checked.
PyTorch's part is in torch_witness.py, which needs no ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from helpers.reference import stack
from helpers.torch_witness import torch_blocks, torch_module, torch_run, torch_suffix

__all__ = ["onnx_run", "torch_blocks", "torch_module", "torch_run", "torch_suffix"]

# Gate orders of ONNX, as positions in ours: LSTM i, o, f, c; GRU z (u), r, h.
_ONNX = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", (0,), {}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
}


def _onnx_weights(net, weights, biases, layer: int) -> list[TensorProto]:
    """w, r and b of a layer; of `weights` and `biases` the blocks that the layer begins with."""
    order = _ONNX[net.mode][1]
    g, per_direction = net.gates, len(net.matrices(0))
    w, r, b = [], [], []
    for k in range(net.directions):
        own, own_biases = weights[k * per_direction :], biases[2 * g * k :]
        w.append(np.concatenate([own[j] for j in order]))
        r.append(np.concatenate([own[g + j] for j in order]))
        b.append(np.concatenate([own_biases[part + j] for part in (0, g) for j in order]))
    return [
        numpy_helper.from_array(np.stack(blocks), f"{name}{layer}")
        for name, blocks in (("w", w), ("r", r), ("b", b))
    ]


def _onnx_states(net) -> list[str]:
    return ["h", "c"] if net.mode == "lstm" else ["h"]


def _onnx_value(name: str):
    """A tensor whose shape is left open."""
    kind = TensorProto.INT32 if name == "lengths" else TensorProto.FLOAT
    return helper.make_tensor_value_info(name, kind, None)


def _onnx_model(net, params) -> bytes:
    """Without num_proj, which ONNX does not have. A layer's states have its number."""
    assert not net.num_proj and not net.skip
    kind, _, attributes = _ONNX[net.mode]
    attributes = {
        k: v * net.directions if isinstance(v, list) else v for k, v in attributes.items()
    }
    attributes["hidden_size"] = net.units
    attributes["direction"] = "bidirectional" if net.directions == 2 else "forward"
    weights, biases = stack.canonical(net, params.astype(np.float32))
    per_layer = len(weights) // net.layers
    layers, states = range(net.layers), _onnx_states(net)
    nodes, below = [], "x"
    constants = [numpy_helper.from_array(np.array([0, 0, -1]), "merged")]
    for k in layers:
        own = [f"{name}{k}" for name in ("w", "r", "b")]
        given, last = [f"{s}{k}" for s in states], [f"y_{s}{k}" for s in states]
        inputs, outputs = [below, *own, "lengths", *given], [f"y{k}", *last]
        nodes += [
            helper.make_node(kind, inputs, outputs, **attributes),
            # [T, directions, B, H] to [T, B, directions · H].
            helper.make_node("Transpose", [f"y{k}"], [f"beside{k}"], perm=(0, 2, 1, 3)),
            helper.make_node("Reshape", [f"beside{k}", "merged"], [f"output{k}"]),
        ]
        below = f"output{k}"
        constants += _onnx_weights(
            net, weights[k * per_layer :], biases[2 * net.gates * net.directions * k :], k
        )
    inputs = ["x", "lengths", *(f"{s}{k}" for s in states for k in layers)]
    outputs = [below, *(f"y_{s}{k}" for s in states for k in layers)]
    values = (list(map(_onnx_value, names)) for names in (inputs, outputs))
    graph = helper.make_graph(nodes, "witness", *values, constants)
    # The oldest format that has these operators; every runtime reads it.
    opset = helper.make_opsetid("", 14)
    return helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString()


def onnx_run(net, x, input_h, input_c, params, lengths) -> dict[str, np.ndarray]:
    """Outputs in float32, by the names that the ops have."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        _onnx_model(net, params), options, providers=["CPUExecutionProvider"]
    )
    states = _onnx_states(net)
    feeds = {"x": np.asarray(x, np.float32), "lengths": np.asarray(lengths, np.int32)}
    for name, state in zip(states, (input_h, input_c), strict=False):
        parts = np.split(np.asarray(state, np.float32), net.layers)
        feeds |= {f"{name}{k}": part for k, part in enumerate(parts)}
    output, *last = session.run(None, feeds)
    found = {"output": output}
    for number, name in enumerate(states):
        own = last[number * net.layers : (number + 1) * net.layers]
        found[f"output_{name}"] = np.concatenate(own)
    return found
