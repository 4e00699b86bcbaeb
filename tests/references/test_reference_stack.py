"""The reference of the cuDNN RNNs: against its own differences, PyTorch and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import compare, cudnn_ops, tolerances
from helpers.reference import stack

modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)
STEPS, BATCH = 4, 4
LENGTHS = np.array([4, 0, 1, 3])


def _arguments(net, seed=0, steps=STEPS, batch=BATCH):
    rng = np.random.default_rng(seed)
    shapes = {
        "x": (steps, batch, net.inputs),
        "input_h": (net.layer_directions, batch, net.width),
        "input_c": (net.layer_directions, batch, net.units),
        "params": (net.params_size(),),
    }
    return {k: rng.uniform(-0.9, 0.9, shape) for k, shape in shapes.items()}


def _cotangents(run, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=value.shape) for value in run.outputs().values()]


@pytest.mark.types
@modes
@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["all steps", "lengths"])
@pytest.mark.parametrize("dropout", [False, True], ids=["all", "dropout"])
def test_backward_is_the_difference_of_forward(mode, lengths, dropout):
    """Along random directions of every argument, masks of dropout and lengths included.

    Along a random direction every wrong term of a gradient shows.
    """
    step = tolerances.FINITE_DIFFERENCE_STEP
    for number, net in enumerate(cudnn_ops.networks(mode)):
        arguments = _arguments(net, seed=number)
        rng = np.random.default_rng(number)
        shape = (STEPS, BATCH, net.directions * net.width)
        masks = [rng.integers(0, 2, shape) / 0.5 for _ in range(net.layers - 1)]
        options = {
            "lengths": lengths,
            "masks": masks if dropout else None,
        }
        run = stack.Run(net, **arguments, **options)
        cotangents = _cotangents(run)
        gradients = run.backward(*cotangents)
        for name, output in zip(arguments, gradients, strict=True):
            got, want = [], []
            for _ in range(3):
                direction = rng.normal(size=arguments[name].shape)
                totals = []
                for sign in (step, -step):
                    moved = {**arguments, name: arguments[name] + sign * direction}
                    outputs = stack.Run(net, **moved, **options).outputs().values()
                    totals.append(
                        sum((c * o).sum() for c, o in zip(cotangents, outputs, strict=True))
                    )
                got.append((gradients[output] * direction).sum())
                want.append((totals[0] - totals[1]) / (2 * step))
            assert name == "input_c" or np.any(want), (net, name)
            compare.assert_close(got, want, tolerances.FINITE_DIFFERENCES, f"{net} {name}")


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


@pytest.mark.parametrize("case", cudnn_ops.GOLDEN)
def test_reference_gives_the_published_sums(case):
    net, (steps, batch), total = cudnn_ops.GOLDEN[case]
    arguments = {k: np.ones_like(v) for k, v in _arguments(net, 0, steps, batch).items()}
    outputs = stack.Run(net, **arguments).outputs().values()
    got = sum(value.sum() for value in outputs)
    compare.assert_close(got, total, tolerances.GOLDEN, case)
