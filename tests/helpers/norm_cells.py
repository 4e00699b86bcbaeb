"""The cells with layer normalisation of other packages, on arrays in their layouts.

The order of gates, the names and the places of the norms are from their documentation; the cells
are the reference's. Sequences are [T, B, I]; states begin with zeros. All return the outputs of all
steps, [T, B, H].
"""

from __future__ import annotations

import numpy as np

from helpers.reference import sequence

HASTE_EPSILON = 1e-5


def _outputs(cell, gates, x, epsilon, output_only=False, **weights):
    state = np.zeros([x.shape[1], len(weights["w_h"])])
    states = {"h_prev": state, "cs_prev": state} if cell.endswith("lstm") else {"h_prev": state}
    options = sequence.Options(gates, epsilon=epsilon, norm_output_only=output_only)
    return sequence.forward(cell, {"x": x, **states, **weights}, options)["h"]


def addons_lstm(arrays, x, epsilon):
    """TensorFlow Addons' LayerNormLSTMCell with the arrays of its get_weights()."""
    kernel, recurrent_kernel, *bias = arrays[:-6]
    names = ("gamma_x", "beta_x", "gamma_h", "beta_h", "gamma_c", "beta_c")
    weights = dict(zip(names, arrays[-6:], strict=True))
    weights |= {"w_x": kernel, "w_h": recurrent_kernel}
    weights["b"] = bias[0] if bias else np.zeros(kernel.shape[1])
    return _outputs("layer_norm_lstm", ("i", "f", "ci", "o"), x, epsilon, **weights)


def _haste_weights(named, units):
    """What both cells have, with kernel and recurrent_kernel joined or apart."""
    kernel, recurrent = named["kernel"], named.get("recurrent_kernel")
    if recurrent is None:
        kernel, recurrent = kernel[:-units], kernel[-units:]
    weights = {"w_x": kernel, "w_h": recurrent}
    for of, gamma in zip("xh", named["gamma"], strict=True):
        weights |= {f"gamma_{of}": gamma, f"beta_{of}": np.zeros_like(gamma)}
    return weights


def haste_lstm(named, x, epsilon=HASTE_EPSILON):
    """haste's LayerNormLSTM, whose norm of the cell state is for the output only."""
    weights = _haste_weights(named, len(named["gamma_h"]))
    weights |= {"b": named["bias"], "gamma_c": named["gamma_h"], "beta_c": named["beta_h"]}
    return _outputs("layer_norm_lstm", ("i", "ci", "f", "o"), x, epsilon, True, **weights)


def haste_gru(named, x, epsilon=HASTE_EPSILON):
    """haste's LayerNormGRU, with the biases joined or apart."""
    b_x, b_h = (
        (named["bias"], named["recurrent_bias"])
        if "recurrent_bias" in named
        else np.split(named["bias"], 2)
    )
    weights = _haste_weights(named, named["gamma"].shape[1] // 3)
    return _outputs("layer_norm_gru", ("u", "r", "c"), x, epsilon, b_x=b_x, b_h=b_h, **weights)


def haste_arrays(cell, form="torch", seed=0, dtype="float64"):
    """The arrays of a layer as haste creates them, with random numbers."""
    gates = 4 if cell == "layer_norm_lstm" else 3
    biases = {"bias": (4 * gates,)}
    if cell == "layer_norm_gru":
        biases = {"bias": (12,), "recurrent_bias": (12,)} if form == "torch" else {"bias": (24,)}
    kernels = {"kernel": (3, 4 * gates), "recurrent_kernel": (4, 4 * gates)}
    if form == "tf":
        kernels = {"kernel": (7, 4 * gates)}
    shapes = kernels | biases | {"gamma": (2, 4 * gates)}
    if cell == "layer_norm_lstm":
        shapes |= {"gamma_h": (4,), "beta_h": (4,)}
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-0.7, 0.7, shape).astype(dtype) for name, shape in shapes.items()}
