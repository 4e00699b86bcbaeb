"""Weights from and to the params of the CudnnRNN ops, against the ops themselves."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import cudnn_ops, weight_stacks
from helpers.compare import assert_close
from helpers.cudnn_ops import Call, bits
from helpers.reference.stack import Network
from helpers.weight_stacks import Stack

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
STACKS = [
    stack
    for cell in weight_stacks.CELLS
    for stack in (
        Stack(cell),
        Stack(cell, layers=3, directions=2),
        Stack(cell, biases=("b_x",), inputs=4),
        *([Stack(cell, layers=2, directions=2, proj=2)] if cell == "lstm" else []),
        *([Stack(cell, proj=4)] if cell == "lstm" else []),
    )
]
stacks = pytest.mark.parametrize("stack", STACKS, ids=str)


@pytest.fixture(scope="module")
def weights(tfb):
    del tfb
    from tf_blockrnn import weights

    return weights


def network_of(stack: Stack, skip: bool = False) -> Network:
    return Network(
        stack.cell, stack.layers, stack.directions, stack.inputs, stack.units, stack.proj, skip
    )


def arguments(net: Network) -> dict[str, object]:
    """The arguments that from_cudnn needs for a network."""
    attrs = Call(net).attrs()
    return {
        **{name: attrs[name] for name in ("rnn_mode", "direction", "input_mode", "num_proj")},
        "num_layers": net.layers,
        "num_units": net.units,
        "input_size": net.inputs,
    }


def canonical(tfb, net: Network, params: np.ndarray):
    weights, biases = (len(shapes) for shapes in net.canonical_shapes())
    sizes = arguments(net)
    return tfb.raw_ops.CudnnRNNParamsToCanonicalV2(
        **sizes, params=params, num_params_weights=weights, num_params_biases=biases
    )


def unique(count: int, dtype: str) -> np.ndarray:
    """As many numbers with bits of their own, where the type has that many; NaNs too."""
    kind = cudnn_ops.numpy_type(dtype)
    return np.arange(1, count + 1).astype(f"<u{np.dtype(kind).itemsize}").view(kind)


def run_op(net: Network, params: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    zeros = [np.zeros([net.layer_directions, x.shape[1], n]) for n in (net.width, net.units)]
    call = Call(net, x.shape[0], x.shape[1])
    arrays = dict(zip(("input", "input_h", "input_c", "params"), (x, *zeros, params), strict=True))
    result = call.forward(tf.raw_ops, call.tensors(arrays), is_training=False)
    found = [result.output.numpy(), result.output_h.numpy()]
    return [*found, result.output_c.numpy()] if net.mode == "lstm" else found


@modes
@pytest.mark.parametrize("dtype", cudnn_ops.DTYPES)
def test_there_and_back_keeps_every_bit(tfb, weights, mode, dtype):
    """Flat and canonical, every mixture of layers, directions, skipped input and projection."""
    for net in cudnn_ops.networks(mode):
        params = unique(net.params_size(), dtype)
        read = weights.from_cudnn(params, **arguments(net))
        assert read.dtype == params.dtype
        assert (read.num_layers, read.directions) == (net.layers, net.directions)
        # The identity in place of a skipped input has width I, from which follows how it may be
        # written.
        input_mode = arguments(net)["input_mode"]
        flat = weights.to_cudnn(read, input_mode=input_mode)
        assert bits([flat]) == bits([params]), net
        blocks = canonical(tfb, net, params)
        lists = weights.to_cudnn(read, input_mode=input_mode, form="canonical")
        for got, want in zip(lists, blocks, strict=True):
            assert bits(got) == bits(want), net
        assert weights.from_cudnn(tuple(lists), **arguments(net)) == read, net


@stacks
def test_writes_what_the_op_computes_with(weights, stack):
    described, net = weight_stacks.random_weights(stack), network_of(stack)
    x = weight_stacks.inputs(stack)
    got = run_op(net, weights.to_cudnn(described), x)
    want = weight_stacks.run(described, x)
    for name, one, other in zip(("output", "h", "c"), got, want, strict=False):
        assert_close(one, other, weight_stacks.bound(stack), name)


@stacks
def test_reads_what_the_op_computes_with(weights, stack):
    net, x = network_of(stack), weight_stacks.inputs(stack)
    params = np.random.default_rng(4).uniform(-0.7, 0.7, net.params_size())
    got = weight_stacks.run(weights.from_cudnn(params, **arguments(net)), x)
    for name, one, other in zip(("output", "h", "c"), got, run_op(net, params, x), strict=False):
        assert_close(one, other, weight_stacks.bound(stack), name)


@modes
def test_skipped_input_becomes_the_identity(weights, mode):
    """And computes, written with a matrix, what it computed without."""
    stack = Stack(mode, layers=2, directions=2, inputs=4)
    x = weight_stacks.inputs(stack)
    skipped, linear = network_of(stack, skip=True), network_of(stack)
    params = np.random.default_rng(5).uniform(-0.7, 0.7, skipped.params_size())
    read = weights.from_cudnn(params, **arguments(skipped))
    want = run_op(skipped, params, x)
    for got in (weight_stacks.run(read, x), run_op(linear, weights.to_cudnn(read), x)):
        assert_close(got[0], want[0], weight_stacks.bound(stack), mode)
    automatic = {**arguments(skipped), "input_mode": "auto_select"}
    assert weights.from_cudnn(params, **automatic) == read
    assert bits([weights.to_cudnn(read, input_mode="auto_select")]) == bits([params])


def test_a_missing_bias_becomes_zeros(weights):
    stack = Stack("gru", biases=())
    described = weight_stacks.random_weights(stack)
    read = weights.from_cudnn(weights.to_cudnn(described), **arguments(network_of(stack)))
    assert not read.layers[0].forward.b_x.any() and not read.layers[0].forward.b_h.any()
    assert np.array_equal(read.layers[0].forward.w_x, described.layers[0].forward.w_x)


def test_while_a_graph_is_built(weights):
    """Numbers come out even there."""
    described = weight_stacks.random_weights(Stack("gru"))
    found = []

    @tf.function
    def graph():
        found.append(weights.to_cudnn(described))
        return tf.constant(0)

    graph()
    assert bits(found) == bits([weights.to_cudnn(described)])


def test_what_cudnn_cannot_hold(weights):
    random = weight_stacks.random_weights
    below, above = random(Stack("gru")), random(Stack("gru", inputs=4, units=5))
    other_size = weights.RecurrentWeights("gru", [*below.layers, *above.layers], True)
    both = random(Stack("gru", directions=2, inputs=4))
    mixed = weights.RecurrentWeights("gru", [*below.layers, *both.layers], True)
    identity = random(Stack("lstm", proj=4)), random(Stack("lstm", inputs=4))
    half = weights.RecurrentWeights("lstm", [*identity[0].layers, *identity[1].layers])
    for described, named in (
        (random(Stack("gru", reset_after=False)), "cuDNN's gru resets after.*reset before it"),
        (random(Stack("lstm", peepholes=True)), "cuDNN has no peepholes, layer 0, forward"),
        (random(Stack("lstm", cell_clip=2.0)), "cuDNN has no cell_clip, here it is 2"),
        (random(Stack("lstm", zoneout_c=0.5)), "cuDNN has no zoneout_c, here it is 0.5"),
        (random(Stack("lstm", proj=5)), "projections with P in 1..4 for H = 4, here P, H = 5, 4"),
        (other_size, "one size for all layers: .*H, P = 4, 4, layer 1, forward has 5, 5"),
        (mixed, "all layers in one direction or all in both"),
        (half, "has a projection in all layers or in none, layer 0 and layer 1"),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.to_cudnn(described)
    with pytest.raises(weights.UnsupportedError, match="w_x of layer 0, forward is not the id"):
        weights.to_cudnn(random(Stack("gru", inputs=4)), input_mode="skip_input")
    with pytest.raises(ValueError, match="skip_input needs I = H, here I is 3 and H 4"):
        weights.to_cudnn(random(Stack("gru")), input_mode="skip_input")


def test_what_does_not_fit(weights):
    net = Network("lstm", 2, 2, 3, 4, 2)
    params = np.zeros(net.params_size())
    lists = weights.to_cudnn(weights.from_cudnn(params, **arguments(net)), form="canonical")
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
            weights.from_cudnn(wrong, **{**arguments(net), **changed})
    with pytest.raises(ValueError, match="form must be one of flat, canonical, got 'list'"):
        weights.to_cudnn(weight_stacks.random_weights(Stack("gru")), form="list")


def test_lists_of_numbers_are_not_rounded(weights):
    """TensorFlow would make float32 of them."""
    described = weight_stacks.random_weights(Stack("gru"))
    matrices, biases = weights.to_cudnn(described, form="canonical")
    lists = [a.tolist() for a in matrices], [a.tolist() for a in biases]
    sizes = {"rnn_mode": "gru", "num_units": 4, "input_size": 3}
    assert weights.from_cudnn(lists, **sizes) == described
