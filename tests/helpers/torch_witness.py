"""What PyTorch computes for a network of stack: on a GPU that is what cuDNN computes.

Its own order of gates and weights is part of what is checked.
"""

from __future__ import annotations

import numpy as np
import torch

from helpers.reference import stack

_TORCH = {
    "lstm": (torch.nn.LSTM, {}),
    "gru": (torch.nn.GRU, {}),
    "rnn_tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
}


def torch_suffix(net: stack.Network, number: int) -> str:
    """How PyTorch names the parameters of a layer direction."""
    layer, direction = divmod(number, net.directions)
    return f"l{layer}" + ("_reverse" if direction else "")


def torch_blocks(net: stack.Network, params: np.ndarray) -> dict[str, np.ndarray]:
    """PyTorch's parameters: the canonical blocks of each kind, below one another, unchanged."""
    weights, biases = stack.canonical(net, params)
    per_layer, g = len(net.matrices(0)), net.gates
    blocks = {}
    for k in range(net.layer_directions):
        suffix = torch_suffix(net, k)
        own, own_biases = weights[k * per_layer :], biases[2 * g * k :]
        blocks[f"weight_ih_{suffix}"] = np.concatenate(own[:g])
        blocks[f"weight_hh_{suffix}"] = np.concatenate(own[g : 2 * g])
        blocks[f"bias_ih_{suffix}"] = np.concatenate(own_biases[:g])
        blocks[f"bias_hh_{suffix}"] = np.concatenate(own_biases[g : 2 * g])
        if net.num_proj:
            blocks[f"weight_hr_{suffix}"] = own[2 * g]
    return blocks


def torch_module(
    net: stack.Network, params: np.ndarray, device="cpu", dtype=torch.float64
) -> torch.nn.Module:
    """The module with these params."""
    kind, options = _TORCH[net.mode]
    if net.num_proj:
        options = {**options, "proj_size": net.num_proj}
    module = kind(
        net.inputs, net.units, net.layers, bidirectional=net.directions == 2, **options
    ).to(device, dtype)
    blocks = torch_blocks(net, params)
    own = dict(module.named_parameters())
    assert set(own) == set(blocks)
    with torch.no_grad():
        for name, value in blocks.items():
            assert own[name].shape == value.shape, name
            own[name].copy_(torch.from_numpy(np.array(value)))
    return module


def _numbers(value: torch.Tensor) -> np.ndarray:
    return value.detach().to("cpu", torch.float64).numpy()


def torch_run(
    net, x, input_h, input_c, params, lengths=None, cotangents=None, *,
    device="cpu", dtype=torch.float64,
):  # fmt: skip
    """Outputs and gradients by the names that the ops have; lengths must be above 0."""
    module = torch_module(net, params, device, dtype)
    x, input_h, input_c = (
        torch.tensor(v, dtype=dtype, device=device, requires_grad=True)
        for v in (x, input_h, input_c)
    )
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
        name: _numbers(value)
        for name, value in zip(("output", "output_h", "output_c"), outputs, strict=False)
    }
    if cotangents is None:
        return found
    used = [torch.tensor(c, dtype=dtype, device=device) for c in cotangents[: len(outputs)]]
    torch.autograd.backward(outputs, used)
    found["input_backprop"] = _numbers(x.grad)
    found["input_h_backprop"] = _numbers(input_h.grad)
    if net.mode == "lstm":
        found["input_c_backprop"] = _numbers(input_c.grad)
    for name, value in module.named_parameters():
        found[name] = _numbers(value.grad)
    return found
