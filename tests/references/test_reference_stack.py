"""The reference of the cuDNN RNNs: against PyTorch and ONNX Runtime.

What they lack, as dropout and skipped inputs, the ops are checked for by finite differences.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers import compare, cudnn_ops, tolerances
from helpers.reference import stack

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
STEPS, BATCH = 4, 4


def _arguments(net, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {
        "x": (STEPS, BATCH, net.inputs),
        "input_h": (net.layer_directions, BATCH, net.width),
        "input_c": (net.layer_directions, BATCH, net.units),
        "params": (net.params_size(),),
    }
    return {k: rng.uniform(-0.9, 0.9, shape) for k, shape in shapes.items()}


def _cotangents(run, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=value.shape) for value in run.outputs().values()]


@pytest.mark.types
@modes
def test_reference_is_pytorchs(mode):
    """Outputs and gradients, each in float64, with and without packed lengths."""
    from helpers import cudnn_witnesses

    for number, net in enumerate(cudnn_ops.networks(mode)):
        if net.skip or net.num_proj == net.units:
            continue  # PyTorch has neither
        for lengths in (None, np.array([4, 2, 1, 3])):
            arguments = _arguments(net, seed=number)
            run = stack.Run(net, **arguments, lengths=lengths)
            cotangents = _cotangents(run)
            found = cudnn_witnesses.torch_run(
                net, **arguments, lengths=lengths, cotangents=cotangents
            )
            gradients = run.backward(*cotangents)
            blocks = cudnn_witnesses.torch_blocks(net, gradients.pop("params_backprop"))
            want = run.outputs() | gradients | blocks
            bound = tolerances.bound("double", 1000, backward=True)
            assert len(found) >= 4 + 4 * net.layer_directions
            for name, value in found.items():
                compare.assert_close(want[name], value, bound, f"{net} {name} {lengths}")


@modes
def test_reference_is_onnx_runtimes(mode):
    from helpers import cudnn_witnesses

    for layers, directions in ((1, 1), (1, 2), (3, 1), (2, 2)):
        net = stack.Network(mode, layers, directions, 5, 7)
        arguments = _arguments(net)
        found = cudnn_witnesses.onnx_run(net, **arguments, lengths=[4, 1, 3, 2])
        want = stack.Run(net, **arguments, lengths=[4, 1, 3, 2]).outputs()
        assert len(found) == 2 + (mode == "lstm")
        for name, value in found.items():
            bound = tolerances.bound("float", STEPS * (5 + 7))
            compare.assert_close(value, want[name], bound, f"{net} {name}")
