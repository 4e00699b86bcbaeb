"""The ops on a GPU that TensorFlow sees: their tests run there again, and agree with the CPU.

Without a GPU, or in a build without CUDA, all of it is reported as not run.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers import compare, cudnn_ops, tolerances
from helpers.children import ROOT, run_python
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

# Tests of ours against an oracle, which ask nothing of a device. Those that compare bits with
# TensorFlow's own names are not among them: on a GPU those are cuDNN's.
AGAIN = (
    "tests/ops/test_block_ops.py::test_numbers",
    "tests/ops/test_block_ops.py::test_numbers_of_empty_dims",
    "tests/ops/test_block_ops.py::test_every_length",
    "tests/ops/test_block_ops.py::test_special_values",
    "tests/ops/test_block_ops.py::test_numbers_of_the_clip",
    "tests/ops/test_block_ops.py::test_numbers_of_saturated_gates",
    "tests/ops/test_block_ops.py::test_peepholes_that_are_not_used",
    "tests/gradients/test_gradients.py::test_gradient_in_every_type",
    "tests/gradients/test_gradients.py::test_gradient_is_the_oracles_for_every_cotangent",
    "tests/sequences/test_sequences.py::test_masks_and_lengths_of_every_pattern",
    "tests/sequences/test_sequences.py::test_every_type_and_odd_sizes",
    "tests/sequences/test_sequences.py::test_gradient_of_many_elements",
    "tests/sequences/test_sequences.py::test_empty_dims",
    "tests/sequences/test_sequences.py::test_each_cotangent_alone",
    "tests/sequences/test_sequences.py::test_masked_steps_are_not_read",
    "tests/sequences/test_sequences.py::test_lengths_out_of_range_are_refused",
    "tests/cudnn/test_cudnn_numbers.py::test_every_type",
    "tests/cudnn/test_cudnn_numbers.py::test_empty_dims",
    "tests/cudnn/test_cudnn_numbers.py::test_padding_reaches_nothing",
    "tests/cudnn/test_cudnn_numbers.py::test_special_values_flow",
    "tests/gradients/test_cudnn_gradients.py::test_registered_gradient",
    "tests/cudnn/test_cudnn_dropout.py::test_rate_and_scale_over_a_million_draws",
    "tests/cudnn/test_cudnn_dropout.py::test_mask_of_backward_is_the_mask_of_forward",
    "tests/cudnn/test_cudnn_dropout.py::test_backprop_is_the_difference_with_the_same_mask",
    # Compiled by XLA, with the GPU's lowering.
    "tests/xla/test_every_op.py::test_sequence_ops",
    "tests/xla/test_every_op.py::test_functions_and_their_gradients",
    "tests/xla/test_every_op.py::test_one_program_for_masks_and_lengths_of_every_pattern",
    "tests/xla/test_errors.py::test_lengths_out_of_range",
)
CPU, GPU = "/CPU:0", "/GPU:0"
modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)


def _pytest(option: str, fresh: bool):
    again = [str(ROOT / test) for test in AGAIN]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", option, *again]
    return run_python(command, timeout=1800, fresh=fresh)


def test_the_list_names_tests(tf):
    del tf
    done = _pytest("--collect-only", fresh=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def gpu(tf, tfb, monkeypatch):
    """Skips without a GPU and kernels for it; else no op is silently placed elsewhere."""
    if not tf.config.list_physical_devices("GPU"):
        pytest.skip("not run: no GPU")
    if tfb.build_info()["cuda"]["missing"]:
        pytest.skip("not run: this build has no CUDA")
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)


def test_their_own_tests_pass_on_the_gpu(gpu):
    done = _pytest(f"--device={GPU}", fresh=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _on_both(tf, function):
    """What the function gives on the GPU, all of it there, and on the CPU."""
    found = []
    for device in (GPU, CPU):
        with tf.device(device):
            outputs = function()
        # Sizes are in host memory, of an op on a GPU too.
        devices = {v.device.split("/")[-1] for v in outputs if v.dtype.is_floating}
        assert devices == {f"device:{device[1:]}"}, devices
        found.append(outputs)
    return found


def _assert_close(got, want, bound, what):
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, what
        # np.asarray fails for a scalar tensor of bfloat16.
        mine, theirs = (v.numpy() if hasattr(v, "numpy") else v for v in (mine, theirs))
        compare.assert_close(mine, theirs, bound, what)


@modes
def test_masks_are_the_cpus(gpu, tf, tfb, mode):
    """The same seeds drop the same elements, wherever: the reserve spaces' masks have one bits."""
    call = Call(Network(mode, 3, 2, 5, 7), 6, 4, (6, 0, 2, 5), dropout=0.5, seeds=(3, 4))
    arrays = call.random("float")
    elements = call.steps * call.batch * 2 * call.net.width
    size = 2 * (-(-elements // 8 // 64) * 64)
    tails = [
        outputs[0].numpy().view(np.uint8)[-size:]
        for outputs in _on_both(
            tf, lambda: [call.forward(tfb.raw_ops, call.tensors(arrays)).reserve_space]
        )
    ]
    np.testing.assert_array_equal(*tails)


@modes
def test_reserve_spaces_of_other_calls(gpu, tf, tfb, mode):
    """Another size is refused; another header gives gradients of NaN; the CPU takes no GPU's."""
    call = Call(Network(mode, 2, 2, 5, 7), 6, 4, (6, 0, 2, 5))
    other = Call(call.net, 6, 4, (2, 6, 0, 5))  # as many steps in all
    with tf.device(GPU):
        tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")
        outputs = call.forward(tfb.raw_ops, tensors)
        foreign = other.forward(tfb.raw_ops, other.tensors(other.random("float")))
        wrong = outputs._replace(reserve_space=foreign.reserve_space)
        for name, value in call.backward(tfb.raw_ops, tensors, wrong, cotangents)._asdict().items():
            if name != "input_c_backprop" or mode == "lstm":
                assert np.isnan(value.numpy()).all(), name
        longer = tf.concat([outputs.reserve_space, outputs.reserve_space], 0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="reserve_space must be that of"):
            call.backward(tfb.raw_ops, tensors, outputs._replace(reserve_space=longer), cotangents)
    with (
        tf.device(CPU),
        pytest.raises(tf.errors.InvalidArgumentError, match="device .1 CPU, 2 CUDA. is 2"),
    ):
        call.backward(tfb.raw_ops, tensors, outputs, cotangents)


def test_params_and_their_canonical_form(gpu, tf, tfb):
    net = Network("lstm", 2, 2, 5, 7, 3)
    sizes = {"num_layers": 2, "num_units": 7, "input_size": 5}
    attrs = {"rnn_mode": "lstm", "direction": "bidirectional", "num_proj": 3}
    params = np.random.default_rng(1).normal(size=net.params_size()).astype(np.float32)
    weights, biases = (len(shapes) for shapes in net.canonical_shapes())

    def run():
        parts = tfb.raw_ops.CudnnRNNParamsToCanonicalV2(
            **sizes, params=tf.constant(params), num_params_weights=weights,
            num_params_biases=biases, **attrs,
        )  # fmt: skip
        back = tfb.raw_ops.CudnnRNNCanonicalToParamsV2(
            **sizes, weights=parts.weights, biases=parts.biases, **attrs
        )
        size = tfb.raw_ops.CudnnRNNParamsSize(**sizes, T=tf.float32, S=tf.int64, **attrs)
        return [*parts.weights, *parts.biases, back, size]

    got, want = _on_both(tf, run)
    assert cudnn_ops.bits(got) == cudnn_ops.bits(want)
    np.testing.assert_array_equal(got[-2].numpy(), params)


@modes
def test_same_bits_every_time(gpu, tf, tfb, mode):
    call = Call(Network(mode, 2, 2, 33, 65), 17, 9, tuple(2 * k for k in range(9)))
    with tf.device(GPU):
        tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")
        seen = set()
        for _ in range(3):
            outputs = call.forward(tfb.raw_ops, tensors)
            gradients = call.backward(tfb.raw_ops, tensors, outputs, cotangents)
            seen.add(tuple(cudnn_ops.bits([*outputs[:4], *gradients])))
    assert len(seen) == 1


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "SimpleRNN"])
def test_layers_train_alike(gpu, tf, tfb, kind):
    """A layer is fused on the GPU, and a step of training gives what it gives on the CPU."""
    import keras

    from tf_blockrnn import layers

    del tfb
    x = np.random.default_rng(0).normal(size=(8, 6, 5)).astype(np.float32)
    found = []
    for device in (GPU, CPU):
        keras.utils.set_random_seed(1)
        with tf.device(device):
            model = keras.Sequential([keras.Input((6, 5)), getattr(layers, kind)(7)])
            assert model.layers[0].fused
            model.compile("sgd", "mse")
            model.fit(x, np.ones((8, 7), np.float32), verbose=0)
        found.append(model.get_weights())
    _assert_close(*found, 2 * tolerances.bound("float", 6 * 28, True), kind)
