"""What PyTorch and ONNX Runtime compute for a network of stack, on the CPU.

Both use the same cells as cuDNN. Their own order of gates and weights is part of what is checked.
PyTorch's part is in torch_witness.py, which needs no ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
import onnxruntime

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


def _field(number: int, value) -> bytes:
    """One field of a protocol buffer: an integer, or bytes, text or a message as bytes."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    digits = []
    while value >= 128:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


_FLOAT, _INT32, _INT64 = 1, 6, 7  # TensorProto.DataType
_TYPES = {np.dtype(np.float32): _FLOAT, np.dtype(np.int64): _INT64}


def _onnx_attribute(name: str, value) -> bytes:
    """AttributeProto of a number, a text, texts in a list or numbers in a tuple."""
    # The field that holds it, and its type.
    field, kind = {int: (3, 2), str: (4, 3), list: (9, 8), tuple: (8, 7)}[type(value)]
    values = value if isinstance(value, (list, tuple)) else [value]
    return _field(1, name) + b"".join(_field(field, v) for v in values) + _field(20, kind)


def _onnx_value(name: str) -> bytes:
    """ValueInfoProto of a tensor whose shape is left open."""
    kind = _INT32 if name == "lengths" else _FLOAT
    return _field(1, name) + _field(2, _field(1, _field(1, kind)))


def _onnx_constant(name: str, array: np.ndarray) -> bytes:
    """TensorProto of float32 or int64."""
    dims = b"".join(_field(1, d) for d in array.shape)
    return dims + _field(2, _TYPES[array.dtype]) + _field(8, name) + _field(9, array.tobytes())


def _onnx_node(kind: str, inputs: list[str], outputs: list[str], **attributes) -> bytes:
    """NodeProto."""
    return b"".join(
        [
            *(_field(1, name) for name in inputs),
            *(_field(2, name) for name in outputs),
            _field(4, kind),
            *(_field(5, _onnx_attribute(k, v)) for k, v in attributes.items()),
        ]
    )


def _onnx_weights(net, weights, biases, layer: int) -> list[bytes]:
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
        _onnx_constant(f"{name}{layer}", np.stack(blocks))
        for name, blocks in (("w", w), ("r", r), ("b", b))
    ]


def _onnx_states(net) -> list[str]:
    return ["h", "c"] if net.mode == "lstm" else ["h"]


def _onnx_model(net, params) -> bytes:
    """Without num_proj, which ONNX does not have; written out as a protocol buffer, so that no
    package has to agree with TensorFlow's on a version of it. A layer's states have its number."""
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
    nodes, constants, below = [], [_onnx_constant("merged", np.array([0, 0, -1]))], "x"
    for k in layers:
        own = [f"{name}{k}" for name in ("w", "r", "b")]
        given, last = [f"{s}{k}" for s in states], [f"y_{s}{k}" for s in states]
        nodes += [
            _onnx_node(kind, [below, *own, "lengths", *given], [f"y{k}", *last], **attributes),
            # [T, directions, B, H] to [T, B, directions · H].
            _onnx_node("Transpose", [f"y{k}"], [f"beside{k}"], perm=(0, 2, 1, 3)),
            _onnx_node("Reshape", [f"beside{k}", "merged"], [f"output{k}"]),
        ]
        below = f"output{k}"
        constants += _onnx_weights(
            net, weights[k * per_layer :], biases[2 * net.gates * net.directions * k :], k
        )
    inputs = ["x", "lengths", *(f"{s}{k}" for s in states for k in layers)]
    outputs = [below, *(f"y_{s}{k}" for s in states for k in layers)]
    graph = b"".join(
        [
            *(_field(1, node) for node in nodes),
            _field(2, "witness"),
            *(_field(5, constant) for constant in constants),
            *(_field(11, _onnx_value(name)) for name in inputs),
            *(_field(12, _onnx_value(name)) for name in outputs),
        ]
    )
    # The oldest format that has these operators; every runtime reads it.
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 14))


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
