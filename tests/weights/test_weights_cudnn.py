"""Weights from and to the params of the CudnnRNN ops, against the ops themselves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import cudnn_ops, weight_stacks
from helpers.compare import assert_close
from helpers.cudnn_ops import bits
from helpers.reference.stack import Network
from helpers.weight_formats import cudnn_arguments, network_of, run_cudnn
from helpers.weight_stacks import Stack

from tf_blockrnn import weights

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)


def canonical(tfb, net: Network, params: np.ndarray):
    weights, biases = (len(shapes) for shapes in net.canonical_shapes())
    sizes = cudnn_arguments(net)
    return tfb.raw_ops.CudnnRNNParamsToCanonicalV2(
        **sizes, params=params, num_params_weights=weights, num_params_biases=biases
    )


def unique(count: int, dtype: str) -> np.ndarray:
    """As many numbers with bits of their own, where the type has that many; NaNs too."""
    kind = cudnn_ops.numpy_type(dtype)
    return np.arange(1, count + 1).astype(f"<u{np.dtype(kind).itemsize}").view(kind)


@modes
@pytest.mark.parametrize("dtype", cudnn_ops.DTYPES)
def test_there_and_back_keeps_every_bit(tfb, mode, dtype):
    """Flat and canonical, every mixture of layers, directions, skipped input and projection."""
    for net in cudnn_ops.networks(mode):
        params = unique(net.params_size(), dtype)
        read = weights.from_cudnn(params, **cudnn_arguments(net))
        assert read.dtype == params.dtype
        assert (read.num_layers, read.directions) == (net.layers, net.directions)
        # The identity in place of a skipped input has width I, from which follows how it may be
        # written.
        input_mode = cudnn_arguments(net)["input_mode"]
        flat = weights.to_cudnn(read, input_mode=input_mode)
        assert bits([flat]) == bits([params]), net
        blocks = canonical(tfb, net, params)
        lists = weights.to_cudnn(read, input_mode=input_mode, form="canonical")
        for got, want in zip(lists, blocks, strict=True):
            assert bits(got) == bits(want), net
        assert weights.from_cudnn(tuple(lists), **cudnn_arguments(net)) == read, net


@modes
def test_skipped_input_becomes_the_identity(mode):
    """And computes, written with a matrix, what it computed without."""
    stack = Stack(mode, layers=2, directions=2, inputs=4)
    x = weight_stacks.inputs(stack)
    skipped, linear = network_of(stack, skip=True), network_of(stack)
    params = np.random.default_rng(5).uniform(-0.7, 0.7, skipped.params_size())
    read = weights.from_cudnn(params, **cudnn_arguments(skipped))
    want = run_cudnn(params, x, skipped)
    for got in (weight_stacks.run(read, x), run_cudnn(weights.to_cudnn(read), x, linear)):
        assert_close(got[0], want[0], weight_stacks.bound(stack), mode)
    automatic = {**cudnn_arguments(skipped), "input_mode": "auto_select"}
    assert weights.from_cudnn(params, **automatic) == read
    assert bits([weights.to_cudnn(read, input_mode="auto_select")]) == bits([params])


def test_while_a_graph_is_built():
    """Numbers come out even there."""
    described = weight_stacks.random_weights(Stack("gru"))
    found = []

    @tf.function
    def graph():
        found.append(weights.to_cudnn(described))
        return tf.constant(0)

    graph()
    assert bits(found) == bits([weights.to_cudnn(described)])


def test_a_skipped_input_needs_the_identity():
    described = weight_stacks.random_weights(Stack("gru", inputs=4))
    with pytest.raises(weights.UnsupportedError, match="w_x of layer 0, forward is not the id"):
        weights.to_cudnn(described, input_mode="skip_input")
    with pytest.raises(ValueError, match="skip_input needs I = H, here I is 3 and H 4"):
        weights.to_cudnn(weight_stacks.random_weights(Stack("gru")), input_mode="skip_input")


def test_what_does_not_fit():
    net = Network("lstm", 2, 2, 3, 4, 2)
    params = np.zeros(net.params_size())
    lists = weights.to_cudnn(weights.from_cudnn(params, **cudnn_arguments(net)), form="canonical")
    for wrong, changed, named in (
        (params[:-1], {}, f"{net.params_size()}.*{net.params_size() - 1}"),
        (params, {"num_units": 5}, "params"),
        (params, {"num_layers": 0}, "num_layers"),
        (params, {"num_proj": 7}, "num_proj"),
        (params, {"rnn_mode": "elman"}, "rnn_mode must be one of .*, got 'elman'"),
        (params, {"direction": "both"}, "direction must be one of .*, got 'both'"),
        (params, {"input_mode": "none"}, "input_mode must be one of .*, got 'none'"),
        (lists[:1], {}, "params must be an array or .weights, biases., got a sequence of 1"),
        ((lists[0][:-1], lists[1]), {}, "weights|num_params"),
        ((lists[0], [lists[1][0][:-1], *lists[1][1:]]), {}, "biases"),
    ):
        with pytest.raises(ValueError, match=named):
            weights.from_cudnn(wrong, **{**cudnn_arguments(net), **changed})
    with pytest.raises(ValueError, match="form must be one of flat, canonical, got 'list'"):
        weights.to_cudnn(weight_stacks.random_weights(Stack("gru")), form="list")


def test_lists_of_numbers_are_not_rounded():
    """TensorFlow would make float32 of them."""
    described = weight_stacks.random_weights(Stack("gru"))
    matrices, biases = weights.to_cudnn(described, form="canonical")
    lists = [a.tolist() for a in matrices], [a.tolist() for a in biases]
    sizes = {"rnn_mode": "gru", "num_units": 4, "input_size": 3}
    assert weights.from_cudnn(lists, **sizes) == described
