"""What PyTorch and ONNX Runtime compute for a network of cudnn_reference, on the CPU.

Both use the same cells as cuDNN. Their own order of gates and weights is part of what is checked.
PyTorch's part is in torch_witness.py, which needs no ONNX Runtime.
"""

from __future__ import annotations

import cudnn_reference
import numpy as np
import onnxruntime
from torch_witness import torch_blocks, torch_module, torch_run, torch_suffix

__all__ = ["onnx_run", "torch_blocks", "torch_module", "torch_run", "torch_suffix"]

# Gate orders of ONNX, as positions in ours: LSTM i, o, f, c; GRU z (u), r, h.
_ONNX = {
    "lstm": ("LSTM", (0, 3, 1, 2), {}),
    "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": ("RNN", (0,), {}),
    "rnn_relu": ("RNN", (0,), {"activations": ["Relu"]}),
}


def _field(number: int, value) -> bytes:
    """One field of a protocol buffer: a whole number, or bytes, text or a message as bytes."""
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


_FLOAT, _INT32 = 1, 6  # TensorProto.DataType


def _onnx_attribute(name: str, value) -> bytes:
    """AttributeProto: field, type and value of a number, a text or a list of texts."""
    field, kind = {int: (3, 2), str: (4, 3), list: (9, 8)}[type(value)]
    values = value if isinstance(value, list) else [value]
    return _field(1, name) + b"".join(_field(field, v) for v in values) + _field(20, kind)


def _onnx_value(name: str) -> bytes:
    """ValueInfoProto of a tensor whose shape is left open."""
    kind = _INT32 if name == "lengths" else _FLOAT
    return _field(1, name) + _field(2, _field(1, _field(1, kind)))


def _onnx_constant(name: str, blocks: list[np.ndarray]) -> bytes:
    """TensorProto of float32."""
    array = np.stack(blocks)
    dims = b"".join(_field(1, d) for d in array.shape)
    return dims + _field(2, _FLOAT) + _field(8, name) + _field(9, array.tobytes())


def _onnx_weights(net, params) -> list[bytes]:
    order = _ONNX[net.mode][1]
    weights, biases = cudnn_reference.canonical(net, params.astype(np.float32))
    g, per_layer = net.gates, len(net.matrices(0))
    w, r, b = [], [], []
    for k in range(net.directions):
        own, own_biases = weights[k * per_layer :], biases[2 * g * k :]
        w.append(np.concatenate([own[j] for j in order]))
        r.append(np.concatenate([own[g + j] for j in order]))
        b.append(np.concatenate([own_biases[part + j] for part in (0, g) for j in order]))
    return [_onnx_constant(name, blocks) for name, blocks in (("w", w), ("r", r), ("b", b))]


def _onnx_model(net, params) -> bytes:
    """One layer, without num_proj, which ONNX does not have; written out as a protocol buffer, so
    that no package has to agree with TensorFlow's on a version of it."""
    assert net.layers == 1 and not net.num_proj and not net.skip
    kind, _, attributes = _ONNX[net.mode]
    attributes = {
        k: v * net.directions if isinstance(v, list) else v for k, v in attributes.items()
    }
    attributes["hidden_size"] = net.units
    attributes["direction"] = "bidirectional" if net.directions == 2 else "forward"
    states = ["c"] * (net.mode == "lstm")
    inputs = ["x", "w", "r", "b", "lengths", "h", *states]
    outputs = ["y", "y_h", *(f"y_{s}" for s in states)]
    node = b"".join(
        [
            *(_field(1, name) for name in inputs),
            *(_field(2, name) for name in outputs),
            _field(4, kind),
            *(_field(5, _onnx_attribute(k, v)) for k, v in attributes.items()),
        ]
    )
    graph = b"".join(
        [
            _field(1, node),
            _field(2, "witness"),
            *(_field(5, constant) for constant in _onnx_weights(net, params)),
            *(_field(11, _onnx_value(name)) for name in inputs if name not in ("w", "r", "b")),
            *(_field(12, _onnx_value(name)) for name in outputs),
        ]
    )
    # The oldest format that has these operators; every runtime reads it.
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 14))


def onnx_run(net, x, input_h, input_c, params, lengths) -> dict[str, np.ndarray]:
    """Outputs of one layer in float32, by the names that the ops have."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        _onnx_model(net, params), options, providers=["CPUExecutionProvider"]
    )
    feeds = {"x": x, "h": input_h} | ({"c": input_c} if net.mode == "lstm" else {})
    feeds = {k: np.asarray(v, np.float32) for k, v in feeds.items()}
    y, *states = session.run(None, {**feeds, "lengths": np.asarray(lengths, np.int32)})
    steps, directions, batch, units = y.shape
    found = {"output": np.moveaxis(y, 1, 2).reshape(steps, batch, directions * units)}
    return found | dict(zip(("output_h", "output_c"), states, strict=False))
