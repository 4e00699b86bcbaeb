"""The cells with layer normalisation of other packages, in NumPy, on arrays in their layouts.

Written from the equations in their documentation, and from nothing here. Sequences are [T, B, I];
states begin with zeros. All return the outputs of all steps, [T, B, H].
"""

from __future__ import annotations

import numpy as np

HASTE_EPSILON = 1e-5


def _sigma(x):
    return 1.0 / (1.0 + np.exp(-x))


def _norm(s, gamma, beta, epsilon):
    centred = s - s.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon) + beta


def addons_lstm(arrays, x, epsilon):
    """TensorFlow Addons' LayerNormLSTMCell with the arrays of its get_weights()."""
    kernel, recurrent_kernel, *bias = arrays[:-6]
    gamma_x, beta_x, gamma_h, beta_h, gamma_c, beta_c = arrays[-6:]
    units = len(recurrent_kernel)
    h = c = np.zeros([x.shape[1], units])
    outputs = []
    for now in x:
        z = _norm(now @ kernel, gamma_x, beta_x, epsilon)
        z = z + _norm(h @ recurrent_kernel, gamma_h, beta_h, epsilon)
        if bias:
            z = z + bias[0]
        z_i, z_f, z_c, z_o = np.split(z, 4, axis=-1)
        c = _norm(_sigma(z_f) * c + _sigma(z_i) * np.tanh(z_c), gamma_c, beta_c, epsilon)
        h = _sigma(z_o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs)


def haste_lstm(named, x, epsilon=HASTE_EPSILON):
    """haste's LayerNormLSTM, with kernel and recurrent_kernel joined or apart."""
    units = len(named["gamma_h"])
    kernel, recurrent_kernel = _kernels(named, units)
    h = c = np.zeros([x.shape[1], units])
    outputs = []
    for now in x:
        v = _norm(now @ kernel, named["gamma"][0], 0, epsilon)
        v = v + _norm(h @ recurrent_kernel, named["gamma"][1], 0, epsilon) + named["bias"]
        v_i, v_g, v_f, v_o = np.split(v, 4, axis=-1)
        c = _sigma(v_f) * c + _sigma(v_i) * np.tanh(v_g)
        h = _sigma(v_o) * np.tanh(_norm(c, named["gamma_h"], named["beta_h"], epsilon))
        outputs.append(h)
    return np.array(outputs)


def haste_gru(named, x, epsilon=HASTE_EPSILON):
    """haste's LayerNormGRU, with the matrices and the biases joined or apart."""
    units = named["gamma"].shape[1] // 3
    kernel, recurrent_kernel = _kernels(named, units)
    b_x, b_h = (
        np.split(named["bias"], 2)
        if "recurrent_bias" not in named
        else (named["bias"], named["recurrent_bias"])
    )
    h = np.zeros([x.shape[1], units])
    outputs = []
    for now in x:
        of_x = _norm(now @ kernel, named["gamma"][0], 0, epsilon) + b_x
        of_h = _norm(h @ recurrent_kernel, named["gamma"][1], 0, epsilon) + b_h
        (x_z, x_r, x_g), (h_z, h_r, h_g) = (np.split(one, 3, axis=-1) for one in (of_x, of_h))
        z = _sigma(x_z + h_z)
        h = z * h + (1 - z) * np.tanh(x_g + _sigma(x_r + h_r) * h_g)
        outputs.append(h)
    return np.array(outputs)


def _kernels(named, units):
    if "recurrent_kernel" in named:
        return named["kernel"], named["recurrent_kernel"]
    return named["kernel"][:-units], named["kernel"][-units:]


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
