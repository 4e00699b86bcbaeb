"""What PyTorch and ONNX Runtime compute for a network of cudnn_reference, on the CPU.

Both use the same cells as cuDNN. Their own order of gates and weights is part of what is checked.
"""

from __future__ import annotations

import cudnn_reference
import numpy as np
import onnxruntime
import torch

_TORCH = {
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
    "rnn_tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


def torch_suffix(net: cudnn_reference.Network, pseudo: int) -> str:
    """How PyTorch names the parameters of a pseudo-layer."""
    layer, direction = divmod(pseudo, net.directions)
    return f"l{layer}" + ("_reverse" if direction else "")


def torch_blocks(net: cudnn_reference.Network, params: np.ndarray) -> dict[str, np.ndarray]:
    """PyTorch's parameters: the canonical blocks of each kind, below one another, unchanged."""
    weights, biases = cudnn_reference.canonical(net, params)
    per_layer, g = len(net.matrices(0)), net.gates
    blocks = {}
    for k in range(net.pseudo_layers):
        suffix = torch_suffix(net, k)
        own, own_biases = weights[k * per_layer :], biases[2 * g * k :]
        blocks[f"weight_ih_{suffix}"] = np.concatenate(own[:g])
        blocks[f"weight_hh_{suffix}"] = np.concatenate(own[g : 2 * g])
        blocks[f"bias_ih_{suffix}"] = np.concatenate(own_biases[:g])
        blocks[f"bias_hh_{suffix}"] = np.concatenate(own_biases[g : 2 * g])
        if net.num_proj:
            blocks[f"weight_hr_{suffix}"] = own[2 * g]
    return blocks


def torch_module(net: cudnn_reference.Network, params: np.ndarray) -> torch.nn.Module:
    """The module with these params, in float64."""
    kind, options = _TORCH[net.mode]
    if net.num_proj:
        options = {**options, "proj_size": net.num_proj}
    module = kind(
        net.inputs, net.units, net.layers, bidirectional=net.directions == 2, **options
    ).double()
    blocks = torch_blocks(net, params)
    own = dict(module.named_parameters())
    assert set(own) == set(blocks)
    with torch.no_grad():
        for name, value in blocks.items():
            assert own[name].shape == value.shape, name
            own[name].copy_(torch.from_numpy(np.array(value)))
    return module


def torch_run(net, x, input_h, input_c, params, lengths=None, cotangents=None):
    """Outputs and gradients by the names that the ops have; lengths must be above 0."""
    module = torch_module(net, params)
    x, input_h, input_c = (torch.tensor(v, requires_grad=True) for v in (x, input_h, input_c))
    given, state = x, (input_h, input_c) if net.mode == "lstm" else input_h
    if lengths is not None:
        given = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(lengths), enforce_sorted=False
        )
    output, last = module(given, state)
    if lengths is not None:
        output, _ = torch.nn.utils.rnn.pad_packed_sequence(output, total_length=x.shape[0])
    outputs = [output, *last] if net.mode == "lstm" else [output, last]
    found = {
        name: value.detach().numpy()
        for name, value in zip(("output", "output_h", "output_c"), outputs, strict=False)
    }
    if cotangents is None:
        return found
    used = [torch.tensor(c) for c in cotangents[: len(outputs)]]
    torch.autograd.backward(outputs, used)
    found["input_backprop"] = x.grad.numpy()
    found["input_h_backprop"] = input_h.grad.numpy()
    if net.mode == "lstm":
        found["input_c_backprop"] = input_c.grad.numpy()
    for name, value in module.named_parameters():
        found[name] = value.grad.numpy()
    return found


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
