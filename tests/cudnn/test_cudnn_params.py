"""The flat parameters: their number, their order, to canonical blocks and back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import cudnn_ops
from helpers.cudnn_ops import Call
from helpers.reference import stack
from helpers.reference.stack import Network

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
names = pytest.mark.parametrize("name", ["ours", "stock"])
dtypes = pytest.mark.parametrize("dtype", cudnn_ops.DTYPES)


def _raw_ops(tfb, name):
    return tfb.raw_ops if name == "ours" else tf.raw_ops


def _sizes(net):
    return {
        "num_layers": tf.constant(net.layers, tf.int32),
        "num_units": tf.constant(net.units, tf.int32),
        "input_size": tf.constant(net.inputs, tf.int32),
    }


def _attrs(net, version=2):
    attrs = Call(net, version=3).attrs()
    del attrs["time_major"]
    if version == 1:
        del attrs["num_proj"]
    return attrs


def _count(raw_ops, net, dtype=tf.float32, kind=tf.int64):
    return raw_ops.CudnnRNNParamsSize(**_sizes(net), **_attrs(net), T=dtype, S=kind)


def _to_canonical(raw_ops, net, params, version=2):
    weights, biases = (len(shapes) for shapes in net.canonical_shapes())
    if version == 1:
        counts = {"num_params": weights}
        function = raw_ops.CudnnRNNParamsToCanonical
    else:
        counts = {"num_params_weights": weights, "num_params_biases": biases}
        function = raw_ops.CudnnRNNParamsToCanonicalV2
    return function(**_sizes(net), params=params, **_attrs(net, version), **counts)


def _to_params(raw_ops, net, weights, biases, version=2):
    function = raw_ops.CudnnRNNCanonicalToParams
    if version == 2:
        function = raw_ops.CudnnRNNCanonicalToParamsV2
    return function(**_sizes(net), weights=weights, biases=biases, **_attrs(net, version))


@modes
@names
def test_size_is_the_reference_s(tfb, mode, name):
    raw_ops = _raw_ops(tfb, name)
    for net in cudnn_ops.networks(mode):
        for dtype in (tf.half, tf.bfloat16, tf.float32, tf.float64):
            for kind in (tf.int32, tf.int64):
                got = _count(raw_ops, net, dtype, kind)
                assert got.dtype == kind and got.shape == [1]
                assert got.numpy() == [net.params_size()], net


def test_known_sizes(tfb):
    """Counted by hand: 4 gates of 200 × 200, 200 × 200 and two biases, four layers."""
    net = Network("lstm", 4, 1, 200, 200)
    assert _count(tfb.raw_ops, net).numpy() == [4 * 4 * (200 * 200 + 200 * 200 + 400)]
    net = Network("gru", 2, 2, 5, 3)
    below, above = 3 * (3 * 5 + 3 * 3 + 6), 3 * (3 * 6 + 3 * 3 + 6)
    assert _count(tfb.raw_ops, net).numpy() == [2 * below + 2 * above]
    net = Network("lstm", 1, 1, 5, 4, 2)
    assert _count(tfb.raw_ops, net).numpy() == [4 * (4 * 5 + 4 * 2 + 8) + 2 * 4]
    net = Network("rnn_relu", 1, 1, 4, 4, skip=True)
    assert _count(tfb.raw_ops, net).numpy() == [4 * 4 + 8]


@names
def test_sizes_past_the_type_are_refused(tfb, name):
    raw_ops = _raw_ops(tfb, name)
    largest = 2**31 - 1
    big = Network("rnn_tanh", 1, 1, 0, 46340)  # 46340² + 2 · 46340 is above 2^31 - 1
    assert big.params_size() > largest
    assert _count(raw_ops, big).numpy() == [big.params_size()]
    with pytest.raises(tf.errors.InvalidArgumentError, match="CudnnRNNParamsSize"):
        _count(raw_ops, big, kind=tf.int32)
    fits = Network("rnn_tanh", 1, 1, 0, 46339)
    assert _count(raw_ops, fits, kind=tf.int32).numpy() == [fits.params_size()]


def _unique(count, dtype):
    """As many numbers with bits of their own, where the type has that many."""
    kind = cudnn_ops.numpy_type(dtype)
    width = np.dtype(kind).itemsize
    # Any pattern counts, NaN included: nothing may look at them.
    return np.arange(1, count + 1).astype(f"<u{width}").view(kind)


@modes
@dtypes
@names
def test_canonical_and_back_is_the_identity(tfb, mode, dtype, name):
    """Bit for bit, every number at its place, in both versions."""
    raw_ops = _raw_ops(tfb, name)
    for net in cudnn_ops.networks(mode):
        params = _unique(net.params_size(), dtype)
        weights, biases = stack.canonical(net, params)
        shapes = [v.shape for v in weights], [v.shape for v in biases]
        assert shapes == net.canonical_shapes()
        for version in (1, 2) if not net.num_proj else (2,):
            got = _to_canonical(raw_ops, net, tf.constant(params), version)
            assert cudnn_ops.bits(got.weights) == cudnn_ops.bits(weights), net
            assert cudnn_ops.bits(got.biases) == cudnn_ops.bits(biases), net
            back = _to_params(raw_ops, net, got.weights, got.biases, version)
            back = back if tf.is_tensor(back) else back.params
            assert cudnn_ops.bits([back]) == cudnn_ops.bits([params]), net


@modes
def test_canonical_order_is_pytorchs(tfb, mode):
    """PyTorch's blocks are ours below one another: weight_ih of the first gates, weight_hh of
    the others."""
    from helpers import cudnn_witnesses

    for net in cudnn_ops.networks(mode):
        if net.skip or net.num_proj == net.units:
            continue  # PyTorch has neither
        params = np.arange(net.params_size(), dtype=np.float64)
        module = cudnn_witnesses.torch_module(net, params)
        got = _to_canonical(tfb.raw_ops, net, tf.constant(params))
        g, per_layer = net.gates, len(net.matrices(0))
        for k in range(net.layer_directions):
            suffix = cudnn_witnesses.torch_suffix(net, k)
            own = got.weights[k * per_layer : (k + 1) * per_layer]
            own_biases = got.biases[2 * g * k : 2 * g * (k + 1)]
            for name, blocks in (
                ("weight_ih", own[:g]),
                ("weight_hh", own[g : 2 * g]),
                ("bias_ih", own_biases[:g]),
                ("bias_hh", own_biases[g:]),
                *((("weight_hr", own[2 * g :]),) if net.num_proj else ()),
            ):
                want = getattr(module, f"{name}_{suffix}").detach().numpy()
                np.testing.assert_array_equal(np.concatenate(blocks), want, f"{net} {name}")
