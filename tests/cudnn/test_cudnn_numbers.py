"""The cuDNN RNN ops against the reference and published sums."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, cudnn_ops, run_modes, tolerances
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
dtypes = pytest.mark.parametrize("dtype", cudnn_ops.DTYPES)
layouts = pytest.mark.parametrize("time_major", [True, False], ids=["TB", "BT"])


def _same_network_otherwise(tfb, call, found):
    """TensorFlow's own names, the older versions, no training: the same bits."""
    tensors, outputs, gradients, cotangents = found
    values, backprops = cudnn_ops.bits(outputs[:3]), cudnn_ops.bits(gradients)
    stock = call.forward(tf.raw_ops, tensors)
    assert cudnn_ops.bits(stock) == cudnn_ops.bits(outputs), call
    stock = call.backward(tf.raw_ops, tensors, stock, cotangents)
    assert cudnn_ops.bits(stock) == backprops, call
    quick = call.forward(tfb.raw_ops, tensors, is_training=False)
    assert cudnn_ops.bits(quick[:3]) == values, call
    assert quick.reserve_space.shape == [0] and quick.reserve_space.dtype == tensors["input"].dtype
    if call.lengths is None and call.time_major and not call.net.num_proj:
        for version, raw_ops in ((1, tfb.raw_ops), (2, tfb.raw_ops), (1, tf.raw_ops)):
            old = Call(**{**vars(call), "version": version})
            given = {k: v for k, v in tensors.items() if k != "sequence_lengths"}
            got = old.forward(raw_ops, given)
            assert cudnn_ops.bits(got[:3]) == values, old
            got = old.backward(raw_ops, given, got, cotangents)
            assert cudnn_ops.bits(got) == backprops, old


@modes
@layouts
@pytest.mark.parametrize("lengths", cudnn_ops.LENGTHS)
def test_every_network(tfb, mode, time_major, lengths):
    """Directions, layers, projections, skipped inputs; forward and backward in float64."""
    for number, net in enumerate(cudnn_ops.networks(mode)):
        steps, batch = ((4, 3), (1, 5), (6, 1), (3, 4))[number % 4]
        call = Call(net, steps, batch, cudnn_ops.lengths_of(lengths, steps, batch), time_major)
        found = cudnn_ops.check(tfb.raw_ops, call, seed=number)
        _same_network_otherwise(tfb, call, found)


@modes
@dtypes
def test_every_type(tfb, mode, dtype):
    for number, call in enumerate(cudnn_ops.odd_calls(mode)):
        found = cudnn_ops.check(tfb.raw_ops, call, dtype, seed=number)
        _same_network_otherwise(tfb, call, found)


@pytest.mark.xla
@modes
@dtypes
def test_every_type_under_xla(tfb, mode, dtype):
    for number, call in enumerate(cudnn_ops.odd_calls(mode)):
        found = cudnn_ops.check(tfb.raw_ops, call, dtype, seed=number, run_mode="jit")
        tensors, outputs, gradients, cotangents = found
        plain = call.forward(tfb.raw_ops, tensors)
        assert cudnn_ops.bits(outputs[:3]) == cudnn_ops.bits(plain[:3]), call
        plain = call.backward(tfb.raw_ops, tensors, plain, cotangents)
        assert cudnn_ops.bits(gradients) == cudnn_ops.bits(plain), call


@modes
def test_auto_select_skips_where_it_can(tfb, mode):
    for net in (Network(mode, 2, 1, 4, 4, skip=True), Network(mode, 2, 2, 3, 4)):
        cudnn_ops.check(tfb.raw_ops, Call(net, auto_select=True))
        cudnn_ops.check(tfb.raw_ops, Call(net, auto_select=True, version=1))


@modes
@dtypes
@pytest.mark.parametrize("run_mode", ["eager", "jit"])
def test_empty_dims(tfb, mode, dtype, run_mode):
    """What is empty is empty; the rest is computed: states pass through, gradients are zero."""
    for steps, batch, inputs, units in (
        (0, 3, 2, 3), (3, 0, 2, 3), (3, 2, 0, 3), (3, 2, 2, 0), (0, 0, 2, 3), (3, 2, 0, 0),
        (0, 0, 0, 0),
    ):  # fmt: skip
        stacks = ((1, 1, True), (2, 2, False), (3, 2, True))
        for layers, directions, time_major in run_modes.fewer(run_mode, stacks, slice(1, 2)):
            net = Network(mode, layers, directions, inputs, units)
            call = Call(net, steps, batch, time_major=time_major)
            found = cudnn_ops.check(tfb.raw_ops, call, dtype, run_mode=run_mode)
            _, _, gradients, cotangents = found
            if steps == 0:
                got = call.laid_out(gradients.input_h_backprop.numpy())
                np.testing.assert_array_equal(got, cotangents[1])
                assert not np.any(gradients.params_backprop.numpy())


@modes
@layouts
def test_padding_reaches_nothing(tfb, mode, time_major):
    """NaN past the lengths, in the input, the output and its gradient, changes no bit."""
    lengths = (6, 0, 2, 5)
    for net in (Network(mode, 2, 2, 5, 7), Network(mode, 3, 1, 4, 4, skip=True)):
        call = Call(net, 6, 4, lengths, time_major)
        arrays, cotangents = call.random("float"), call.cotangents("float")
        past = np.arange(6)[:, None] >= np.array(lengths)
        spoiled = {k: np.copy(v) for k, v in arrays.items()}
        spoiled["input"][past] = np.nan
        found = []
        for given in (arrays, spoiled):
            tensors = call.tensors(given)
            outputs = call.forward(tfb.raw_ops, tensors)
            found.append(cudnn_ops.bits(outputs))
            if given is spoiled:
                cotangents = [np.copy(c) for c in cotangents]
                cotangents[0][past] = np.nan
                output = call.laid_out(np.copy(outputs.output))
                output[past] = np.nan
                outputs = outputs._replace(output=tf.constant(call.laid_out(output)))
            found.append(cudnn_ops.bits(call.backward(tfb.raw_ops, tensors, outputs, cotangents)))
        assert found[:2] == found[2:]


@modes
def test_special_values_flow(tfb, mode):
    """A NaN or infinity goes where the equations take it, and stays in its row."""
    call = Call(Network(mode, 2, 2, 4, 5), 3, 3)
    for name in ("input", "input_h", "input_c", "params"):
        if name == "input_c" and mode != "lstm":
            continue
        for special in (np.nan, np.inf, -np.inf):
            arrays = call.random("float")
            arrays[name].flat[1] = special
            with np.errstate(all="ignore"):
                want = call.run(arrays)
            outputs = call.forward(tfb.raw_ops, call.tensors(arrays))
            bound = tolerances.stack_bound("float", call.longest_sum(), 2)
            for key, value in want.outputs().items():
                compare.assert_close(getattr(outputs, key), value, bound, f"{key} {name}={special}")
            if name != "params":
                rows = np.isfinite(outputs.output.numpy()).all(axis=(0, 2))
                assert rows[1:].all(), f"{name}={special} reaches another row"


@modes
def test_input_c_is_ignored_but_for_lstm(tfb, mode):
    """Its shape is free then, its gradient zeros of that shape, output_c a scalar zero."""
    if mode == "lstm":
        pytest.skip("not run: lstm reads input_c")
    call = Call(Network(mode, 2, 1, 3, 4))
    arrays = call.random("float")
    want = None
    for shape in ((2, 3, 4), (), (0,), (1,), (2, 3, 4, 5), (0, 7)):
        for raw_ops in (tfb.raw_ops, tf.raw_ops):
            for version in (1, 2, 3):
                call = Call(call.net, version=version)
                tensors = call.tensors(arrays) | {"input_c": tf.fill(shape, np.float32(np.nan))}
                outputs = call.forward(raw_ops, tensors)
                assert outputs.output_c.shape == [] and outputs.output_c.numpy() == 0
                cotangents = call.cotangents("float")
                cotangents[2] = np.float32(np.nan)
                got = call.backward(raw_ops, tensors, outputs, cotangents)
                assert got.input_c_backprop.shape == list(shape)
                assert not np.any(got.input_c_backprop.numpy())
                found = cudnn_ops.bits([*outputs[:3], *got[:2], got[3]])
                want = want or found
                assert found == want, (shape, version)


@modes
def test_published_sums(tfb, mode):
    net, (steps, batch), total = cudnn_ops.GOLDEN[mode]
    call = Call(net, steps, batch)
    tensors = call.tensors({k: np.ones(v, np.float32) for k, v in call.shapes().items()})
    for raw_ops in (tfb.raw_ops, tf.raw_ops):
        for is_training in (True, False):
            outputs = call.forward(raw_ops, tensors, is_training=is_training)
            got = sum(np.sum(v, dtype=np.float64) for v in outputs[:3])
            compare.assert_close(got, total, tolerances.GOLDEN, mode)


@dtypes
@pytest.mark.parametrize("lengths", [None, (3, 0, 2, 1)])
def test_whole_numbers_are_exact(tfb, dtype, lengths):
    """With relu, GEMMs, layouts and places compare exactly: each element is in its own."""
    call = Call(Network("rnn_relu", 2, 2, 3, 4), 3, 4, lengths, time_major=False)
    kind, rng = cudnn_ops.numpy_type(dtype), np.random.default_rng(5)
    arrays = {k: rng.integers(-1, 2, shape).astype(kind) for k, shape in call.shapes().items()}
    arrays["params"] *= rng.integers(0, 3, call.net.params_size()) == 0
    cotangents = [rng.integers(-2, 3, np.shape(c)).astype(kind) for c in call.cotangents(dtype)]
    tensors, run = call.tensors(arrays), call.run(arrays)
    outputs = call.forward(tfb.raw_ops, tensors)
    gradients = call.backward(tfb.raw_ops, tensors, outputs, cotangents)
    found = outputs._asdict() | gradients._asdict()
    wants = run.outputs() | run.backward(*cotangents)
    # Exact in every type while half and bfloat16 can represent every integer in it.
    assert max(np.abs(want).max() for want in wants.values()) <= 256
    assert np.abs(run.output).max() > 4
    for name, want in wants.items():
        got = call.laid_out(found[name].numpy()).astype(np.float64)
        np.testing.assert_array_equal(got, want, name)
